# Builds device cpu: plain C for every processor, and kernels with compiler flags of their own, of
# which the program chooses at run time. src/CMakeLists.txt includes this.
list(APPEND BACKEND_SOURCES
  backend/cpu/attention/attention.c
  backend/cpu/attention/attention_plan.c
  backend/cpu/cpu_backend.c
  backend/cpu/device_cpu.c
  backend/cpu/cpu_memory.c
  backend/cpu/experts.c
  backend/cpu/isa/isa.c
  backend/cpu/attention/kv_cache.c
  backend/cpu/layers.c
  backend/cpu/gated_delta.c
  backend/cpu/latent.c
  backend/cpu/linear/linear.c
  backend/cpu/linear/linear_narrow.c
  backend/cpu/linear/linear_pack.c
  backend/cpu/linear/linear_packed.c
  backend/cpu/linear/linear_packing.c
  backend/cpu/linear/linear_quantize.c
  backend/cpu/mamba.c
  backend/cpu/sample/log_softmax.c
  backend/cpu/sample/philox.c
  backend/cpu/row_ops.c
  backend/cpu/short_conv.c
  backend/cpu/sample/sample.c
  backend/cpu/sample/sample_select.c
  backend/cpu/sample/sample_weigh.c
  backend/cpu/scalar/scalar.c
  backend/cpu/scalar/scalar_attention.c
  backend/cpu/scalar/scalar_delta.c
  backend/cpu/scalar/scalar_narrow.c
  backend/cpu/scalar/scalar_unpack.c)

# ---- how much kernels are optimised ----
# -O3 with a sanitizer takes minutes for what is unrolled by hand.
if(NANOVLLM_SANITIZE)
  set(KERNEL_OPTIMIZE -O1)
elseif(CMAKE_BUILD_TYPE STREQUAL Debug)
  set(KERNEL_OPTIMIZE -O0)
else()
  set(KERNEL_OPTIMIZE -O3)
endif()
# attention_span.h is unrolled by hand: -O3 only makes it larger. gcc's code hoisting loads factors so early
# that sums leave the registers.
string(REPLACE -O3 -O2 ATTENTION_OPTIMIZE "${KERNEL_OPTIMIZE}")
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  list(APPEND ATTENTION_OPTIMIZE -fno-code-hoisting)
endif()
set_source_files_properties(
  backend/cpu/attention/attention.c backend/cpu/attention/kv_cache.c backend/cpu/layers.c
  backend/cpu/scalar/scalar_attention.c
  backend/cpu/scalar/scalar.c backend/cpu/scalar/scalar_delta.c backend/cpu/scalar/scalar_narrow.c
  backend/cpu/linear/linear_pack.c
  backend/cpu/linear/linear_packed.c backend/cpu/linear/linear_quantize.c backend/cpu/experts.c
  PROPERTIES COMPILE_OPTIONS ${KERNEL_OPTIMIZE})

# ---- kernels for features that a processor may lack ----
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)
  list(APPEND BACKEND_SOURCES
    backend/cpu/amx/amx_linear.c
    backend/cpu/amx/amx_linear_few.c
    backend/cpu/amx/amx_spans.c
    backend/cpu/avx2/avx2_narrow.c
    backend/cpu/avx512/avx512_bf16.c
    backend/cpu/avx512/avx512_fixed.c
    backend/cpu/avx512/avx512_spans.c
    backend/cpu/avx512/avx512_vnni.c
    backend/cpu/avx2/avx2_fixed.c
    backend/cpu/avx2/avx_vnni_fixed.c
    backend/cpu/avx2/avx_vnni_narrow.c
    backend/cpu/isa/isa_x86.c
    backend/cpu/isa/kernels_x86.c)
  set_source_files_properties(backend/cpu/avx2/avx2_narrow.c backend/cpu/avx2/avx2_fixed.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};-mavx2;-mfma;-mtune=haswell")
  set_source_files_properties(backend/cpu/avx2/avx_vnni_narrow.c backend/cpu/avx2/avx_vnni_fixed.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};-mavx2;-mfma;-mavxvnni;-mtune=haswell")
  set_source_files_properties(backend/cpu/avx512/avx512_vnni.c backend/cpu/avx512/avx512_fixed.c backend/cpu/avx512/avx512_spans.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};${AVX512_FLAGS};-mavx512vnni")
  set_source_files_properties(backend/cpu/avx512/avx512_bf16.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};${AVX512_FLAGS};-mavx512bf16")
  set_source_files_properties(backend/cpu/amx/amx_linear_few.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};${AVX512_FLAGS};-mavx512bf16")
  set_source_files_properties(backend/cpu/amx/amx_linear.c backend/cpu/amx/amx_spans.c
    PROPERTIES COMPILE_OPTIONS
    "${KERNEL_OPTIMIZE};${AVX512_FLAGS};-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8")
  foreach(part delta linear rows sample unpack)
    list(APPEND BACKEND_SOURCES backend/cpu/avx2/avx2_${part}.c backend/cpu/avx512/avx512_${part}.c)
    set_source_files_properties(backend/cpu/avx2/avx2_${part}.c
      PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};-mavx2;-mfma;-mtune=haswell")
    set_source_files_properties(backend/cpu/avx512/avx512_${part}.c
      PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};${AVX512_FLAGS}")
  endforeach()
  set_source_files_properties(backend/cpu/avx2/avx2_unpack.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};-mavx2;-mfma;-mf16c;-mtune=haswell")
  set(AVX2_ATTENTION backend/cpu/avx2/avx2_attention.c backend/cpu/avx2/avx2_attention_bf16.c)
  set(AVX512_ATTENTION backend/cpu/avx512/avx512_attention.c backend/cpu/avx512/avx512_attention_bf16.c)
  list(APPEND BACKEND_SOURCES ${AVX2_ATTENTION} ${AVX512_ATTENTION})
  set_source_files_properties(${AVX2_ATTENTION}
    PROPERTIES COMPILE_OPTIONS "${ATTENTION_OPTIMIZE};-mavx2;-mfma;-mf16c;-mtune=haswell")
  set_source_files_properties(${AVX512_ATTENTION}
    PROPERTIES COMPILE_OPTIONS "${ATTENTION_OPTIMIZE};${AVX512_FLAGS}")
  if(NANOVLLM_SANITIZE MATCHES "address|thread")
    # UndefinedBehaviorSanitizer's checks of every pointer make attention twice as slow, and keep the sums of
    # linears in memory. The scalar kernels, which have the same formulas, keep them.
    set(LINEAR_FILES backend/cpu/avx2/avx2_linear.c backend/cpu/avx512/avx512_linear.c)
    set_property(SOURCE ${LINEAR_FILES} ${AVX2_ATTENTION} ${AVX512_ATTENTION}
      APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
    # Most of the time of the engine's tests is spent here. Unrolled, they take a quarter of it: the sums stay
    # in registers, and AddressSanitizer checks what is left, inputs and outputs. Attention over other numbers
    # than bf16 would take half a minute more to compile, and few tests have it.
    set_property(SOURCE ${LINEAR_FILES}
      backend/cpu/avx2/avx2_attention_bf16.c backend/cpu/avx512/avx512_attention_bf16.c
      APPEND PROPERTY COMPILE_DEFINITIONS KERNEL_UNROLLED)
    # The linears of processors that have AVX512_BF16. Unrolled it would take half a minute to compile.
    set_property(SOURCE backend/cpu/avx512/avx512_bf16.c APPEND PROPERTY COMPILE_OPTIONS -O2 -fno-sanitize=undefined)
    # clang warns of loops in it that it does not unroll.
    set_property(SOURCE backend/cpu/avx2/avx2_attention_bf16.c APPEND PROPERTY COMPILE_OPTIONS -Wno-pass-failed)
  endif()
  list(APPEND BACKEND_SOURCES
    backend/cpu/amx/amx_attention.c backend/cpu/amx/amx_attention_few.c backend/cpu/amx/amx_softmax.c)
  set_source_files_properties(backend/cpu/amx/amx_attention_few.c
    PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIMIZE};${AVX512_FLAGS}")
  set_source_files_properties(backend/cpu/amx/amx_attention.c backend/cpu/amx/amx_softmax.c
    PROPERTIES COMPILE_OPTIONS
    "${KERNEL_OPTIMIZE};${AVX512_FLAGS};-mavx512bf16;-mamx-tile;-mamx-bf16")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(NEON_FLAGS ${KERNEL_OPTIMIZE})
  if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    list(APPEND NEON_FLAGS -fno-schedule-insns) # else gcc loads so early that sums leave the registers
  endif()
  list(APPEND BACKEND_SOURCES
    backend/cpu/isa/isa_arm.c
    backend/cpu/isa/kernels_arm.c
    backend/cpu/neon/neon_dotprod.c)
  set_source_files_properties(backend/cpu/neon/neon_dotprod.c
    PROPERTIES COMPILE_OPTIONS "${NEON_FLAGS};-march=armv8.2-a+dotprod")
  foreach(part delta linear narrow attention rows sample unpack)
    list(APPEND BACKEND_SOURCES backend/cpu/neon/neon_${part}.c)
    set_source_files_properties(backend/cpu/neon/neon_${part}.c PROPERTIES COMPILE_OPTIONS "${NEON_FLAGS}")
  endforeach()
  set_source_files_properties(backend/cpu/neon/neon_attention.c
    PROPERTIES COMPILE_OPTIONS "${NEON_FLAGS};${ATTENTION_OPTIMIZE}")
else()
  list(APPEND BACKEND_SOURCES backend/cpu/isa/isa_generic.c)
endif()
