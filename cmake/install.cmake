# What `cmake --install` brings beside the library, its header and the program: the CMake package, man
# pages and completions, the bundled model, licence, documents and examples. The target `product` builds all of it and no
# test, so that an install needs no more.

# ---- man pages and completions, by the program itself from the tables of its options ----
set(MADE_BY_PROGRAM)
# made_by_program(FILE ARGUMENTS...): what the program prints, as build/FILE.
function(made_by_program file)
  get_filename_component(folder ${CMAKE_BINARY_DIR}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${file}
    COMMAND nanovllm_cli ${ARGN} > ${file}
    WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    DEPENDS nanovllm_cli
    COMMENT "Making ${file}"
    VERBATIM)
  set(MADE_BY_PROGRAM ${MADE_BY_PROGRAM} ${CMAKE_BINARY_DIR}/${file} PARENT_SCOPE)
endfunction()

# tests/repo/test_install looks for a page of each command that `nanovllm help` lists.
set(COMMANDS generate chat embed bench serve inspect pull list rm render tokenize detokenize schema completion manual version)
made_by_program(share/man/man1/nanovllm.1 manual)
foreach(command ${COMMANDS})
  made_by_program(share/man/man1/nanovllm-${command}.1 manual ${command})
endforeach()
made_by_program(share/bash-completion/completions/nanovllm completion bash)
made_by_program(share/zsh/site-functions/_nanovllm completion zsh)
made_by_program(share/fish/vendor_completions.d/nanovllm.fish completion fish)
add_custom_target(pages ALL DEPENDS ${MADE_BY_PROGRAM})
add_custom_target(product DEPENDS nanovllm nanovllm_cli pages)
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/bash-completion ${CMAKE_BINARY_DIR}/share/zsh
  ${CMAKE_BINARY_DIR}/share/fish DESTINATION ${CMAKE_INSTALL_DATADIR})

# ---- find_package(nanovllm), which gives the target nanovllm::nanovllm ----
include(CMakePackageConfigHelpers)
set(PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/nanovllm)
install(EXPORT nanovllm-targets NAMESPACE nanovllm:: DESTINATION ${PACKAGE_DIR})
file(WRITE ${CMAKE_BINARY_DIR}/nanovllm-config.cmake
  "include(\${CMAKE_CURRENT_LIST_DIR}/nanovllm-targets.cmake)\n")
# As the library's soname: before 1.0 a minor version may change what programs rely on.
write_basic_package_version_file(nanovllm-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/nanovllm-config.cmake ${CMAKE_BINARY_DIR}/nanovllm-config-version.cmake
  DESTINATION ${PACKAGE_DIR})

# ---- the bundled model and the published shapes, which examples name ----
set(DATA_DIR ${CMAKE_INSTALL_DATADIR}/nanovllm) # src/cmd/model/model_place.c looks there
install(DIRECTORY models DESTINATION ${DATA_DIR})
install(DIRECTORY bench/configs DESTINATION ${DATA_DIR}/bench)

# ---- documents, beside each other as in the repository, so that their links hold ----
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY deploy doc examples DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN __pycache__ EXCLUDE)
foreach(folder models/tiny-qwen3 lib/jinja)
  install(FILES ${folder}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(CODE "set(DOCUMENTS ${CMAKE_INSTALL_DOCDIR})
set(DATA ${DATA_DIR})")
install(SCRIPT cmake/installed_documents.cmake)

# ---- removing all of it: cmake -P build/release/uninstall.cmake, or the target ----
configure_file(cmake/uninstall.cmake.in uninstall.cmake @ONLY)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_BINARY_DIR}/uninstall.cmake VERBATIM)

# ---- header and pkg-config file, which finds the prefix from its own place: `cmake --install --prefix` works ----
install(FILES include/nanovllm.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
file(RELATIVE_PATH PC_PREFIX_FROM_HERE /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/nanovllm.pc.in nanovllm.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nanovllm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- what `pip install .` takes (pyproject.toml): a wheel has no links, so the library is one file ----
install(FILES $<TARGET_FILE:nanovllm> DESTINATION _native RENAME libnanovllm.so
  COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:nanovllm_cli> DESTINATION _native
  COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY models DESTINATION _native COMPONENT python EXCLUDE_FROM_ALL)
