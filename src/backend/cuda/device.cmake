# Builds device cuda, where toolchain.cmake has found what it needs. src/CMakeLists.txt includes this.
if(NANOVLLM_HAS_CUDA)
  # A spilled register costs each layer 0.45 us (doc/log-cuda.md): an error with NANOVLLM_WERROR.
  set_source_files_properties(backend/cuda/attention/decode_cluster.cu
    PROPERTIES COMPILE_OPTIONS "-Xptxas=-warn-spills")
  module(backend_cuda
    SOURCES
      backend/cuda/attention/decode.cu
      backend/cuda/attention/decode_cluster.cu
      backend/cuda/attention/copy_codes.cu
      backend/cuda/attention/plan.cu
      backend/cuda/attention/prefill.cu
      backend/cuda/attention/prefill_sm90.cu
      backend/cuda/attention/prepare.cu
      backend/cuda/attention/shared_sm90.cu
      backend/cuda/attention/update_tables.cu
      backend/cuda/copy.cu
      backend/cuda/attention/attention.c
      backend/cuda/cuda_backend.c
      backend/cuda/graph.c
      backend/cuda/kernel_table.c
      backend/cuda/layers/fusion.c
      backend/cuda/sample/sampler.c
      backend/cuda/experts/experts.c
      backend/cuda/linear/linear.c
      backend/cuda/latent/attention.cu
      backend/cuda/latent/heads.cu
      backend/cuda/latent/latent.c
      backend/cuda/latent/prepare.cu
      backend/cuda/layers/all_layers.cu
      backend/cuda/layers/layers_bytes_min.c
      backend/cuda/layers/layers_end.cu
      backend/cuda/attention/decode_shape.c
      backend/cuda/device_code.cu
      backend/cuda/rows/embed.cu
      backend/cuda/experts/combine.cu
      backend/cuda/experts/gemm.cu
      backend/cuda/experts/gemm_sm90.cu
      backend/cuda/experts/few_tokens.cu
      backend/cuda/experts/packed_few_tokens.cu
      backend/cuda/experts/packed_gemm_sm90.cu
      backend/cuda/experts/spread.cu
      backend/cuda/experts/sort.cu
      backend/cuda/rows/gather_rows.cu
      backend/cuda/gemm/gemm.c
      backend/cuda/gemm/gemm_cache.c
      backend/cuda/gemm/gemm_candidates.c
      backend/cuda/gemm/gemm_contest.c
      backend/cuda/gemm/gemm_e4m3.c
      backend/cuda/gemm/gemm_library.c
      backend/cuda/gemm/gemm_preload.c
      backend/cuda/gemm/gemm_product.c
      backend/cuda/gemm/gemm_trial.c
      backend/cuda/linear/batch_sm90.cu
      backend/cuda/linear/gated_sm90.cu
      backend/cuda/linear/add_bias.cu
      backend/cuda/linear/e4m3_batch_sm90.cu
      backend/cuda/linear/e4m3_run.c
      backend/cuda/linear/round_rows.cu
      backend/cuda/linear/few_rows.cu
      backend/cuda/linear/few_rows_ring.cu
      backend/cuda/linear/few_rows_sm90.cu
      backend/cuda/linear/packed.cu
      backend/cuda/linear/packed_batch_sm90.cu
      backend/cuda/linear/packed_few_rows.cu
      backend/cuda/linear/packed_load.c
      backend/cuda/ranks/collective.c
      backend/cuda/ranks/nccl.c
      backend/cuda/ranks/nccl_library.c
      backend/cuda/ranks/reduce.cu
      backend/cuda/rows/cut_norm.cu
      backend/cuda/rows/rms_norm.cu
      backend/cuda/experts/norm_route.cu
      backend/cuda/experts/route.cu
      backend/cuda/recurrent/delta_parts.cu
      backend/cuda/recurrent/delta_scan.cu
      backend/cuda/recurrent/gated_delta.cu
      backend/cuda/recurrent/mamba.cu
      backend/cuda/recurrent/short_conv.cu
      backend/cuda/sample/download_results.cu
      backend/cuda/sample/sample.cu
      backend/cuda/device_cuda.c
      backend/cuda/rows/activate.cu
      backend/cuda/rows/layer_norm.cu
      backend/cuda/rows/row_ops.c
      backend/cuda/rows/scale.cu
      backend/cuda/rows/softcap.cu
      backend/cuda/rows/sigmoid_mul.cu
      backend/cuda/rows/silu_mul.cu
      backend/cuda/sample/token_counts.cu
      backend/cuda/staging.c
    LINK gpu_choice Threads::Threads m)
  # A check without a GPU may leave out kernels that did not change. For each such file the folder has one that defines
  # its symbols, so that the link is checked (.ci/run writes it). A call of one ends the program with its name. The code of
  # the others does not run either, so nvcc optimises it little: packed_batch_sm90.cu takes 5 seconds in place of 39. Files
  # with options of their own are compiled as always: those count spills.
  set(NANOVLLM_CUDA_KERNELS all CACHE STRING "The .cu files to compile: all, or a list")
  set(NANOVLLM_CUDA_LEFT_OUT "" CACHE PATH "The folder of the symbols of .cu files that are left out")
  mark_as_advanced(NANOVLLM_CUDA_KERNELS NANOVLLM_CUDA_LEFT_OUT)
  if(NOT NANOVLLM_CUDA_KERNELS STREQUAL all)
    get_target_property(sources backend_cuda SOURCES)
    foreach(source IN LISTS sources)
      get_source_file_property(options ${source} COMPILE_OPTIONS)
      if(NOT source MATCHES "\\.cu$")
        continue()
      elseif("src/${source}" IN_LIST NANOVLLM_CUDA_KERNELS)
        if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13 AND NOT options)
          set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-Ofc=max")
        endif()
      else()
        list(REMOVE_ITEM sources ${source})
        list(APPEND sources "${NANOVLLM_CUDA_LEFT_OUT}/src/${source}.c")
        set_source_files_properties("${NANOVLLM_CUDA_LEFT_OUT}/src/${source}.c" PROPERTIES COMPILE_OPTIONS -w)
      endif()
    endforeach()
    set_target_properties(backend_cuda PROPERTIES SOURCES "${sources}")
  endif()
  # Private, so that CUDA's headers are in the commands of its own files alone: all others are compiled as without CUDA,
  # and ccache has them.
  target_link_libraries(backend_cuda PRIVATE cuda_flags CUDA::cudart_static)
  # Host code cannot ask the compiler whether there are kernels for 90a.
  target_compile_definitions(backend_cuda PRIVATE
    "CUDA_HAS_SM90A=$<IN_LIST:90a,${NANOVLLM_CUDA_ARCHITECTURES}>"
    "CUDA_CHECKS=$<BOOL:${NANOVLLM_CUDA_CHECKS}>")
  # As a system's: its headers do not keep our warnings.
  target_include_directories(backend_cuda SYSTEM PRIVATE
    ${CUDAToolkit_INCLUDE_DIRS} ${NANOVLLM_CUBLAS_INCLUDE})
  list(APPEND DEVICE_MODULES backend_cuda)
  list(APPEND DEVICE_LIBRARIES CUDA::cudart_static)
else()
  list(APPEND BACKEND_SOURCES backend/cuda/not_built.c)
endif()
