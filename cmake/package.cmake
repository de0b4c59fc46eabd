# What scripts/release packs, besides what cmake/install.cmake installs: the libraries that libnanovllm.so needs,
# in a folder of its own, so that a package runs on distributions with other versions of them.
# Only with NANOVLLM_STATIC, by which the program needs none.
if(NANOVLLM_STATIC)
  set(PRIVATE_LIBRARIES)
  find_program(READELF readelf REQUIRED)
  foreach(library ${JANSSON_LINK_LIBRARIES} ${UTF8PROC_LINK_LIBRARIES} ${XXHASH_LINK_LIBRARIES})
    # The name that the dynamic linker looks for.
    execute_process(COMMAND ${READELF} -d ${library} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
    if(NOT dynamic MATCHES "soname: \\[([^]]+)\\]")
      message(FATAL_ERROR "${library} has no soname")
    endif()
    set(soname ${CMAKE_MATCH_1})
    file(REAL_PATH ${library} library)
    install(FILES ${library} RENAME ${soname} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nanovllm)
    install(FILES ${library} RENAME ${soname} DESTINATION _native COMPONENT python EXCLUDE_FROM_ALL)
  endforeach()
  # Their licences, and those of what the program is linked with, ask to go along.
  set(http_parser_package libhttp-parser-dev)
  if(LLHTTP_FOUND)
    set(http_parser_package libllhttp-dev)
  endif()
  foreach(package libjansson-dev libutf8proc-dev libxxhash-dev libedit-dev libncurses-dev libbsd-dev libmd-dev
      libevent-dev libssl-dev ${http_parser_package})
    set(copyright /usr/share/doc/${package}/copyright)
    if(EXISTS ${copyright})
      install(FILES ${copyright} RENAME ${package} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses)
      install(FILES ${copyright} RENAME ${package} DESTINATION _native/licenses COMPONENT python EXCLUDE_FROM_ALL)
    else()
      message(WARNING "packages will lack the licence of ${package}: no ${copyright}")
    endif()
  endforeach()
  # Beside the library in a wheel, in nanovllm/ elsewhere.
  set_target_properties(nanovllm PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN/nanovllm:\$ORIGIN")
endif()

set(CPACK_PACKAGE_NAME nanovllm)
set(CPACK_PACKAGE_VENDOR nanovllm)
set(CPACK_PACKAGE_CONTACT "the nanovllm project <nanovllm@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
string(TOLOWER ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR} CPACK_SYSTEM_NAME)
foreach(device IN LISTS NANOVLLM_DEVICES_BUILT)
  string(APPEND CPACK_SYSTEM_NAME -${device})
endforeach()
set(CPACK_PACKAGE_FILE_NAME nanovllm-${PROJECT_VERSION}-${CPACK_SYSTEM_NAME})
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE ${PROJECT_HOMEPAGE_URL})
# Nothing but the C library of the system that built it, or a newer one: all else is in the package.
# mpirun is for ranks on several hosts alone.
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE GLIBC_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "glibc " "" GLIBC_VERSION "${GLIBC_VERSION}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${GLIBC_VERSION})")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)
# Opened to download models by name (src/hub/hub_library.c); all else runs without them.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64, ca-certificates")
include(CPack)
