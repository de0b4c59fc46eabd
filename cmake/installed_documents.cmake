# Runs when documents are installed (install.cmake). They name files as these lie in the source; here they
# get the places after the installation. DOCUMENTS and DATA are folders below the prefix.
cmake_policy(VERSION 3.25) # for IN_LIST
set(prefix "${CMAKE_INSTALL_PREFIX}")
# cpack installs into a folder of its own. Of an archive nobody knows where it will be unpacked: its documents
# name files from there.
string(REGEX REPLACE "^.*/_CPack_Packages/[^/]+/[^/]+/[^/]+" "" prefix "${prefix}")
set(data ${DATA})
if(prefix)
  set(data ${prefix}/${DATA})
endif()
set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${DOCUMENTS}")
# What users follow. The other pages are about the source, and keep its paths.
set(names README.md)
foreach(page chat cli embedding parallel python serving structured tour)
  list(APPEND names doc/${page}.md)
endforeach()
list(TRANSFORM names PREPEND ${folder}/)
file(GLOB_RECURSE examples ${folder}/examples/*)
file(GLOB_RECURSE pages ${folder}/*.md)
foreach(file IN LISTS pages examples)
  file(READ ${file} text)
  if(file IN_LIST names OR file IN_LIST examples)
    # The model's card is a document, which lies beside the others.
    string(REPLACE "models/tiny-qwen3/README.md" "<card>" text "${text}")
    string(REPLACE "models/tiny-qwen3" "${data}/models/tiny-qwen3" text "${text}")
    string(REPLACE "<card>" "models/tiny-qwen3/README.md" text "${text}")
    string(REPLACE "bench/configs/" "${data}/bench/configs/" text "${text}")
  endif()
  # Links to the source, which is not installed, become their texts.
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)*(src|tests|tools|bench|python|include)/[^)]*\\)" "\\1"
    text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\(jinja\\.h\\)" "\\1" text "${text}")
  file(WRITE ${file} "${text}")
endforeach()
