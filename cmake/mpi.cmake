# Whether the plug-in by which mpirun starts ranks is built: sets NANOVLLM_HAS_MPI. A plain run does not
# load it (src/comm/mpi_wire.h).
set(NANOVLLM_MPI AUTO CACHE STRING
  "Build the MPI plug-in: ON, OFF, or AUTO: where an MPI library for C is found (Debian: libopenmpi-dev)")
set_property(CACHE NANOVLLM_MPI PROPERTY STRINGS AUTO ON OFF)
if(NOT NANOVLLM_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "NANOVLLM_MPI is ${NANOVLLM_MPI}, want ON, OFF or AUTO")
endif()
set(NANOVLLM_HAS_MPI OFF)
if(NOT NANOVLLM_MPI STREQUAL OFF)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(NANOVLLM_HAS_MPI ON)
    message(STATUS "MPI: on, ${MPI_C_VERSION}")
  elseif(NANOVLLM_MPI STREQUAL ON)
    message(FATAL_ERROR "NANOVLLM_MPI is ON and there is no MPI library for C: install one (Debian: "
      "libopenmpi-dev), or name its compiler with -DMPI_C_COMPILER")
  else()
    message(STATUS "MPI: off, no MPI library for C")
  endif()
endif()
