/* The tables of AVX-512 and of its extensions. A table repeats the kernels of the one above it,
 * except those that the new instructions make faster. */
#include "backend/cpu/avx2.h"
#include "backend/cpu/avx512.h"
#include "backend/cpu/avx512_dots.h"
#include "backend/cpu/sample_weigh.h"

const struct cpu_kernels cpu_kernels_avx512 = {
    .isa = "avx512",
    .panel_rows = 12,
    .linear_bf16 = avx512_linear_bf16,
    .linear_f32 = avx512_linear_f32,
    .linear_narrow = avx2_linear_narrow,
    .narrow_int8 = avx2_narrow_int8,
    .attention_bf16 = ATTENTION_BY_SPANS(12, avx512_attention_bf16),
    .attention_f32 = ATTENTION_BY_SPANS(12, avx512_attention_f32),
    .attention_int8 = ATTENTION_BY_SPANS(12, avx512_attention_int8),
    .rms_norm = avx512_rms_norm,
    .rope_head = avx512_rope_head,
    .silu_mul = avx512_silu_mul,
    .store_key = avx512_store_key,
    .store_value = avx512_store_value,
    .pack_bf16 = avx512_pack_bf16,
    .sample_weigh = sample_weigh_avx512,
    .sample_max = sample_max_avx512,
};

const struct cpu_kernels cpu_kernels_avx512_bf16 = {
    .isa = "avx512-bf16",
    .panel_rows = 12,
    .linear_f32 = avx512_linear_f32,
    .linear_narrow = avx512_dots_linear_narrow,
    .has_bf16_dots = true,
    .narrow_bf16 = avx512_narrow_bf16,
    .narrow_int8 = avx512_narrow_int8,
    .attention_bf16 = ATTENTION_BY_SPANS(12, avx512_attention_bf16),
    .attention_f32 = ATTENTION_BY_SPANS(12, avx512_attention_f32),
    .attention_int8 = ATTENTION_BY_SPANS(12, avx512_attention_int8),
    .rms_norm = avx512_rms_norm,
    .rope_head = avx512_rope_head,
    .silu_mul = avx512_silu_mul,
    .store_key = avx512_store_key,
    .store_value = avx512_store_value,
    .pack_bf16 = avx512_pack_bf16,
    .sample_weigh = sample_weigh_avx512,
    .sample_max = sample_max_avx512,
};

const struct cpu_kernels cpu_kernels_amx = {
    .isa = "amx",
    .panel_rows = 12,
    .linear_f32 = avx512_linear_f32,
    .linear_narrow = amx_linear_narrow,
    .has_bf16_dots = true,
    .narrow_bf16 = avx512_narrow_bf16,
    .narrow_int8 = avx512_narrow_int8,
    .attention_bf16 =
        {
            .span_positions = ATTENTION_PART,
            .panel_rows = 384,
            .item_rows = 32,
            .item_rows_max = 384,
            .queries = QUERIES_BF16,
            .span = amx_attention,
            .begin = amx_attention_begin,
            .end = amx_attention_end,
        },
    .attention_f32 = ATTENTION_BY_SPANS(12, avx512_attention_f32),
    .attention_int8 = ATTENTION_BY_SPANS(12, avx512_attention_int8),
    .rms_norm = avx512_rms_norm,
    .rope_head = avx512_rope_head,
    .silu_mul = avx512_silu_mul,
    .store_key = avx512_store_key,
    .store_value = avx512_store_value,
    .pack_bf16 = avx512_pack_bf16,
    .sample_weigh = sample_weigh_avx512,
    .sample_max = sample_max_avx512,
};
