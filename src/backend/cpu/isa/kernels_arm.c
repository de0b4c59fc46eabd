/* The kernels of 64-bit ARM by features. Where the scalar kernel stays, the compiler already makes
 * NEON of it, or a single head is too little work. */
#include "backend/cpu/isa/kernels_arm.h"

#include "backend/cpu/sample/sample_weigh.h"
#include "base/os/cpu.h"

void cpu_kernels_add_arm(uint32_t features, struct cpu_kernels *k) {
    if (!(features & CPU_NEON)) return;
    k->isa = "neon";
    k->panel_rows = 6;
    k->linear_bf16 = neon_linear_bf16;
    k->linear_f32 = neon_linear_f32;
    k->unpack = neon_unpack;
    k->linear_bytes = neon_linear_bytes;
    k->attention_bf16 = (struct attention_kernels)ATTENTION_BY_SPANS(6, neon_attention_bf16);
    k->attention_f32 = (struct attention_kernels)ATTENTION_BY_SPANS(6, neon_attention_f32);
    k->attention_int8 = (struct attention_kernels)ATTENTION_BY_SPANS(6, neon_attention_int8);
    k->attention_e4m3 = (struct attention_kernels)ATTENTION_BY_SPANS(6, neon_attention_e4m3);
    k->rms_norm = neon_rms_norm;
    k->rope_head = neon_rope_head;
    k->silu_mul = neon_silu_mul;
    k->delta_rule = neon_delta_rule;
    k->conv_silu = neon_conv_silu;
    k->pack_bf16 = neon_pack_bf16;
    k->sample_weigh = sample_weigh_neon;
    k->sample_max = sample_max_neon;
    if (!(features & CPU_NEON_DOTPROD)) return;
    k->isa = "neon-dotprod";
    k->linear_bytes = neon_dotprod_linear_bytes;
}
