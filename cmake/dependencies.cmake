# Libraries that pkg-config finds: dependency(PREFIX MODULE ARCHIVES...) makes PkgConfig::PREFIX and
# sets PREFIX_LINK_LIBRARIES, the shared libraries.
# With NANOVLLM_STATIC what links PkgConfig::PREFIX takes it from ARCHIVES, the lib*.a of the library
# and of what it needs in turn, where the system has them all. libnanovllm.so never does: archives of
# distributions are for programs, not compiled to go into a shared library.
option(NANOVLLM_STATIC "Link the command with archives of other libraries, where there are any" OFF)

function(dependency prefix module)
  pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  set(${prefix}_LINK_LIBRARIES "${${prefix}_LINK_LIBRARIES}" PARENT_SCOPE)
  if(NOT NANOVLLM_STATIC)
    return()
  endif()
  set(archives)
  foreach(name ${ARGN})
    find_library(${prefix}_${name}_ARCHIVE lib${name}.a HINTS ${${prefix}_STATIC_LIBRARY_DIRS})
    mark_as_advanced(${prefix}_${name}_ARCHIVE)
    if(NOT ${prefix}_${name}_ARCHIVE)
      message(STATUS "${module}: linked as a shared library, there is no lib${name}.a")
      return()
    endif()
    list(APPEND archives ${${prefix}_${name}_ARCHIVE})
  endforeach()
  set_target_properties(PkgConfig::${prefix} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
endfunction()

find_package(PkgConfig REQUIRED)
dependency(JANSSON "jansson>=2.14" jansson)
dependency(UTF8PROC "libutf8proc>=2.6" utf8proc)
dependency(XXHASH "libxxhash>=0.8" xxhash)
dependency(LIBEDIT libedit edit tinfo bsd md) # of the command alone
dependency(LIBEVENT "libevent_core>=2.1" event_core) # the server's
# TLS of the server, where there is OpenSSL.
set(TLS_SOURCE tls_none.c)
set(TLS_LINK)
pkg_check_modules(TLS QUIET "libevent_openssl>=2.1" openssl)
if(TLS_FOUND)
  dependency(LIBEVENT_OPENSSL "libevent_openssl>=2.1" event_openssl)
  dependency(OPENSSL openssl ssl crypto)
  set(TLS_SOURCE tls_openssl.c)
  set(TLS_LINK PkgConfig::LIBEVENT_OPENSSL PkgConfig::OPENSSL)
else()
  message(STATUS "openssl and libevent_openssl: not found, the server has no TLS")
endif()
# http-parser comes without a pkg-config file.
find_path(HTTP_PARSER_INCLUDE http_parser.h REQUIRED)
find_library(HTTP_PARSER_LIBRARY http_parser REQUIRED)
find_library(HTTP_PARSER_ARCHIVE libhttp_parser.a)
mark_as_advanced(HTTP_PARSER_INCLUDE HTTP_PARSER_LIBRARY HTTP_PARSER_ARCHIVE)
if(NANOVLLM_STATIC AND HTTP_PARSER_ARCHIVE)
  set(HTTP_PARSER_LIBRARY ${HTTP_PARSER_ARCHIVE})
endif()
add_library(http_parser INTERFACE)
target_include_directories(http_parser SYSTEM INTERFACE ${HTTP_PARSER_INCLUDE})
target_link_libraries(http_parser INTERFACE ${HTTP_PARSER_LIBRARY})
