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
# http-parser comes without a pkg-config file.
find_path(HTTP_PARSER_INCLUDE http_parser.h REQUIRED)
set(HTTP_PARSER_NAMES http_parser)
if(NANOVLLM_STATIC)
  list(PREPEND HTTP_PARSER_NAMES libhttp_parser.a)
endif()
find_library(HTTP_PARSER_LIBRARY NAMES ${HTTP_PARSER_NAMES} REQUIRED)
mark_as_advanced(HTTP_PARSER_INCLUDE HTTP_PARSER_LIBRARY)
add_library(http_parser INTERFACE)
target_include_directories(http_parser SYSTEM INTERFACE ${HTTP_PARSER_INCLUDE})
target_link_libraries(http_parser INTERFACE ${HTTP_PARSER_LIBRARY})
