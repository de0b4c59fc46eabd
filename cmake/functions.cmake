# The functions that the folders' lists are written with. The targets set_locale, test_support and
# alloc_hook, which tests link, are made in tests/.
if(NANOVLLM_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()

# To optimise code with sanitizers takes three quarters of the time to compile it. So it is not done where little of the
# tests' time goes: in the tests' own code, and in modules that start, load, and pass on.
set(COLD_OPTIMIZE)
if(NANOVLLM_SANITIZE)
  set(COLD_OPTIMIZE -O0)
endif()

# module(NAME SOURCES ... LINK ...)
function(module name)
  cmake_parse_arguments(M "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${M_SOURCES})
  target_link_libraries(${name} PUBLIC flags ${M_LINK})
  if(name MATCHES "^(api|cmd_.*|engine|hub|model|runner|server)$")
    target_compile_options(${name} PRIVATE ${COLD_OPTIMIZE})
  endif()
  # Counts for the fuzzer which code an input reaches. Not where no fuzz target gets, in kernels above all: tests with
  # sanitizers would take twice the time.
  if(NANOVLLM_FUZZ AND NOT name MATCHES "^(backend|comm|model|scheduler|runner)$")
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# Seconds after which a test counts as stuck.
set(TEST_TIMEOUT 300)
if(CMAKE_CROSSCOMPILING_EMULATOR)
  set(TEST_TIMEOUT 3600)
endif()

# The tests' own code hardly runs. -O3 would take two thirds more of the time to compile it; without -O it would be slow
# under valgrind.
set(TEST_OPTIMIZE ${COLD_OPTIMIZE})
if(NOT NANOVLLM_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  set(TEST_OPTIMIZE -O1)
endif()

# unit_test(NAME LABEL SOURCES ... LINK ...): a cmocka program run from the source folder.
function(unit_test name label)
  cmake_parse_arguments(T "" "" "SOURCES;LINK;ARGS" ${ARGN})
  if(NOT NANOVLLM_TESTS)
    return()
  endif()
  add_executable(${name} ${T_SOURCES})
  target_compile_options(${name} PRIVATE ${TEST_OPTIMIZE})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE set_locale test_support ${T_LINK} PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${TEST_TIMEOUT})
endfunction()

# alloc_test(NAME LABEL ...): a unit_test that counts or fails allocations (tests/support/alloc_hook.h).
# Not built with sanitizers, which own the allocator; the second label keeps it away from valgrind.
function(alloc_test name label)
  if(NOT NANOVLLM_TESTS OR NANOVLLM_SANITIZE)
    return()
  endif()
  unit_test(${name} ${label} ${ARGN})
  target_link_libraries(${name} PRIVATE alloc_hook)
  set_property(TEST ${name} PROPERTY LABELS ${label} alloc-hook)
endfunction()

# fuzz_target(NAME SOURCE LINK ...): a libFuzzer program, with tests/fuzz/corpus/NAME as its seeds.
function(fuzz_target name source)
  if(NOT NANOVLLM_FUZZ)
    return()
  endif()
  add_executable(${name} ${source})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_libraries(${name} PRIVATE ${ARGN} -fsanitize=fuzzer)
endfunction()

# embed(SOURCE NAME FILE...): SOURCE, a C file made by the build, has the bytes of the files, one after
# the other, as `NAME`.
function(embed source name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DNAME=${name} -DOUT=${source}
      -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
endfunction()
