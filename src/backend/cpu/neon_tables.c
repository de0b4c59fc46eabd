/* The tables of 64-bit ARM. Where the table names a scalar kernel, the compiler already makes NEON
 * of it, or a single head is too little work. */
#include "backend/cpu/neon.h"
#include "backend/cpu/sample_weigh.h"
#include "backend/cpu/scalar.h"

const struct cpu_kernels cpu_kernels_neon = {
    .isa = "neon",
    .panel_rows = 6,
    .linear_bf16 = neon_linear_bf16,
    .linear_f32 = neon_linear_f32,
    .linear_narrow = neon_linear_narrow,
    .narrow_int8 = scalar_narrow_int8,
    .attention_bf16 = ATTENTION_BY_SPANS(6, neon_attention_bf16),
    .attention_f32 = ATTENTION_BY_SPANS(6, neon_attention_f32),
    .attention_int8 = ATTENTION_BY_SPANS(6, neon_attention_int8),
    .rms_norm = neon_rms_norm,
    .rope_head = neon_rope_head,
    .silu_mul = neon_silu_mul,
    .store_key = scalar_store_key,
    .store_value = scalar_store_value,
    .pack_bf16 = neon_pack_bf16,
    .sample_weigh = sample_weigh_neon,
    .sample_max = sample_max_neon,
};

const struct cpu_kernels cpu_kernels_neon_dotprod = {
    .isa = "neon-dotprod",
    .panel_rows = 6,
    .linear_bf16 = neon_linear_bf16,
    .linear_f32 = neon_linear_f32,
    .linear_narrow = neon_dotprod_linear_narrow,
    .narrow_int8 = scalar_narrow_int8,
    .attention_bf16 = ATTENTION_BY_SPANS(6, neon_attention_bf16),
    .attention_f32 = ATTENTION_BY_SPANS(6, neon_attention_f32),
    .attention_int8 = ATTENTION_BY_SPANS(6, neon_attention_int8),
    .rms_norm = neon_rms_norm,
    .rope_head = neon_rope_head,
    .silu_mul = neon_silu_mul,
    .store_key = scalar_store_key,
    .store_value = scalar_store_value,
    .pack_bf16 = neon_pack_bf16,
    .sample_weigh = sample_weigh_neon,
    .sample_max = sample_max_neon,
};
