# Whether the CUDA backend is built, and how: sets NANOVLLM_HAS_CUDA and makes the target cuda_flags,
# the compile options of the .cu files. To be included before the first target.
#
# Programs are linked by the C compiler: what nvcc makes has neither exceptions nor anything else of
# the C++ library, cudart is static, and libcublasLt is opened at run time (only its header is needed
# here), so that a program starts on machines that have nothing of CUDA.
set(NANOVLLM_CUDA AUTO CACHE STRING
  "Build the CUDA backend: ON, OFF, or AUTO: where nvcc is found and a GPU's driver is there")
set_property(CACHE NANOVLLM_CUDA PROPERTY STRINGS AUTO ON OFF)
set(NANOVLLM_CUDA_ARCHITECTURES_DEFAULT "80;89;90a;100")
set(NANOVLLM_CUDA_ARCHITECTURES "${NANOVLLM_CUDA_ARCHITECTURES_DEFAULT}" CACHE STRING
  "Compute capabilities to build kernels for; the last one also as PTX, which GPUs to come run")

option(NANOVLLM_CUDA_CHECKS
  "Kernels check how they wait and hand over, and say who waited for whom: for tests, slower" OFF)

# A machine with a toolkit but without a GPU should not spend minutes on kernels that it cannot run;
# sanitizers know nothing of device code.
function(decide_on_cuda out)
  if(NOT NANOVLLM_CUDA STREQUAL AUTO)
    set(${out} ${NANOVLLM_CUDA} PARENT_SCOPE)
    return()
  endif()
  find_program(NANOVLLM_NVCC nvcc PATHS /usr/local/cuda/bin)
  find_program(NANOVLLM_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(NANOVLLM_NVCC NANOVLLM_NVIDIA_SMI)
  set(${out} OFF PARENT_SCOPE)
  if(NANOVLLM_SANITIZE OR NANOVLLM_FUZZ)
    message(STATUS "CUDA: off, with sanitizers and fuzzers (-DNANOVLLM_CUDA=ON builds it all the same)")
  elseif(NOT NANOVLLM_NVCC)
    message(STATUS "CUDA: off, no nvcc")
  elseif(NOT EXISTS /dev/nvidia0 AND NOT NANOVLLM_NVIDIA_SMI)
    message(STATUS "CUDA: off, nvcc but no GPU's driver (-DNANOVLLM_CUDA=ON builds it all the same)")
  else()
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()

if(NOT NANOVLLM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "NANOVLLM_CUDA is ${NANOVLLM_CUDA}, want ON, OFF or AUTO")
endif()
decide_on_cuda(NANOVLLM_HAS_CUDA)
if(NOT NANOVLLM_HAS_CUDA)
  string(APPEND NANOVLLM_DEVICES_TEXT ", no CUDA")
  return()
endif()
list(APPEND NANOVLLM_DEVICES_BUILT cuda)

# Off: CMake 3.25 knows neither all of the architectures nor PTX for the last one only.
set(CMAKE_CUDA_ARCHITECTURES OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY None) # linked by name below
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(NANOVLLM_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(NOT NANOVLLM_NVCC)
    message(FATAL_ERROR "NANOVLLM_CUDA is ON and there is no nvcc: install the CUDA toolkit (12.4 to "
      "13.x), or name its nvcc with -DCMAKE_CUDA_COMPILER")
  endif()
  set(CMAKE_CUDA_COMPILER ${NANOVLLM_NVCC})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)
find_path(NANOVLLM_CUBLAS_INCLUDE cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
mark_as_advanced(NANOVLLM_CUBLAS_INCLUDE)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
# Without these, programs with kernels in them would be linked as C++ and need its library.
set(CMAKE_CUDA_LINKER_PREFERENCE_PROPAGATES OFF)
set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
set(CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES "")

add_library(cuda_flags INTERFACE)
# No -Wpedantic: the C++ that nvcc hands to the host compiler has line markers of its own form.
target_compile_options(cuda_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics>")
if(NANOVLLM_WERROR)
  target_compile_options(cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings -Xcompiler=-Werror>")
endif()
if(CUDAToolkit_VERSION VERSION_LESS 12.8 AND
   "${NANOVLLM_CUDA_ARCHITECTURES}" STREQUAL "${NANOVLLM_CUDA_ARCHITECTURES_DEFAULT}")
  set(NANOVLLM_CUDA_ARCHITECTURES 80 90a 89) # 100 is unknown to it, but runs the PTX of 89
endif()
set(NANOVLLM_GENCODE)
foreach(architecture ${NANOVLLM_CUDA_ARCHITECTURES})
  string(APPEND NANOVLLM_GENCODE
    " -gencode arch=compute_${architecture},code=sm_${architecture}")
endforeach()
# No GPU to come runs the PTX of 90a and its like, which are for one architecture alone.
list(GET NANOVLLM_CUDA_ARCHITECTURES -1 NANOVLLM_PTX)
if(NANOVLLM_PTX MATCHES "^[0-9]+$")
  string(APPEND NANOVLLM_GENCODE
    " -gencode arch=compute_${NANOVLLM_PTX},code=compute_${NANOVLLM_PTX}")
endif()
target_compile_options(cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:${NANOVLLM_GENCODE}>")
list(LENGTH NANOVLLM_CUDA_ARCHITECTURES NANOVLLM_NUM_ARCHITECTURES)
if(NANOVLLM_NUM_ARCHITECTURES GREATER 1)
  # One process per architecture, as many at once as the machine has cores.
  target_compile_options(cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--threads=0>")
endif()
message(STATUS "CUDA: on, ${CUDAToolkit_VERSION}, for ${NANOVLLM_CUDA_ARCHITECTURES}")
list(JOIN NANOVLLM_CUDA_ARCHITECTURES " " NANOVLLM_CUDA_NAMES)
string(APPEND NANOVLLM_DEVICES_TEXT ", CUDA for ${NANOVLLM_CUDA_NAMES}")
