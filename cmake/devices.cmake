# The devices, from their list in src/backend/device_list.h. A device's toolchain.cmake finds what it
# needs before the first target. It appends to NANOVLLM_DEVICES_BUILT, which names a package, and to
# NANOVLLM_DEVICES_TEXT, which `nanovllm version` prints.
set(DEVICE_LIST ${CMAKE_CURRENT_SOURCE_DIR}/src/backend/device_list.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${DEVICE_LIST})
file(STRINGS ${DEVICE_LIST} lines REGEX "^    DEVICE\\([a-z0-9_]+\\)")
string(REGEX REPLACE " *DEVICE\\(([a-z0-9_]+)\\)[^;]*" "\\1" NANOVLLM_DEVICES "${lines}")
set(NANOVLLM_DEVICES_BUILT)
set(NANOVLLM_DEVICES_TEXT)
foreach(device IN LISTS NANOVLLM_DEVICES)
  include(src/backend/${device}/toolchain.cmake OPTIONAL)
endforeach()
