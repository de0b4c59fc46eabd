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
# Models by name are downloaded where there were the headers of libcurl and OpenSSL. The libraries are
# opened when they are needed (src/hub/hub_library.c), so nothing is linked with them.
pkg_check_modules(CURL QUIET IMPORTED_TARGET "libcurl>=7.85")
set(DOWNLOAD_FOUND OFF)
set(DOWNLOAD_SOURCES hub/hub_download_none.c)
if(CURL_FOUND AND TLS_FOUND)
  set(DOWNLOAD_FOUND ON)
  set(DOWNLOAD_SOURCES
    hub/hub_blob.c
    hub/hub_download.c
    hub/hub_http.c
    hub/hub_library.c
    hub/hub_reply.c)
else()
  message(STATUS "libcurl or openssl: not found, models by name are not downloaded")
endif()
# llhttp, where it is packaged (Debian 13), else http-parser, which has no maintainer any more and comes
# without a pkg-config file.
pkg_check_modules(LLHTTP QUIET libllhttp)
if(LLHTTP_FOUND)
  dependency(LLHTTP libllhttp llhttp)
  set(HTTP_SYNTAX_SOURCE http_syntax_llhttp.c)
  set(HTTP_SYNTAX_LINK PkgConfig::LLHTTP)
else()
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
  set(HTTP_SYNTAX_SOURCE http_syntax_http_parser.c)
  set(HTTP_SYNTAX_LINK http_parser)
endif()
message(STATUS "HTTP is read by ${HTTP_SYNTAX_LINK}")
