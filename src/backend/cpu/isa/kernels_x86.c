/* The kernels of x86-64 by features. A layer replaces the kernels that it has faster ones for, so
 * each op ends with its fastest kernel, whichever features a processor or a virtual machine hides.
 * This file has no compiler flags, because it runs on every processor. */
#include "backend/cpu/isa/kernels_x86.h"

#include "backend/cpu/sample/sample_weigh.h"
#include "base/compiler.h"
#include "base/os/cpu.h"

enum {
    VNNI_FEW_ROWS = 4, // the log has the times of 1 to 8 rows
    AMX_FEW_ROWS = 2, // tiles take as long for 1 row as for 16
};

static void add_avx2(struct cpu_kernels *k) {
    k->panel_rows = 6;
    k->linear_bf16 = avx2_linear_bf16;
    k->linear_f32 = avx2_linear_f32;
    k->widen_bf16 = avx2_widen_bf16;
    k->unpack = avx2_unpack;
    k->pack_codes = avx2_pack_codes;
    k->pack_numbers = avx2_pack_numbers;
    k->linear_bytes = avx2_linear_bytes;
    k->narrow_int8 = avx2_narrow_int8;
    k->linear_fixed = avx2_linear_fixed;
    k->narrow_fixed = avx2_narrow_fixed;
    k->attention_bf16 = (struct attention_kernels)ATTENTION_BY_SPANS(6, avx2_attention_bf16);
    k->attention_f32 = (struct attention_kernels)ATTENTION_BY_SPANS(6, avx2_attention_f32);
    k->attention_int8 = (struct attention_kernels)ATTENTION_BY_SPANS(6, avx2_attention_int8);
    k->attention_e4m3 = (struct attention_kernels)ATTENTION_BY_SPANS(6, avx2_attention_e4m3);
    k->rms_norm = avx2_rms_norm;
    k->rope_head = avx2_rope_head;
    k->silu_mul = avx2_silu_mul;
    k->delta_rule = avx2_delta_rule;
    k->conv_silu = avx2_conv_silu;
    k->pack_bf16 = avx2_pack_bf16;
    k->sample_weigh = sample_weigh_avx2;
    k->sample_max = sample_max_avx2;
}

static void add_avx_vnni(struct cpu_kernels *k) {
    k->linear_bytes = avx_vnni_linear_bytes;
    k->linear_fixed = avx_vnni_linear_fixed;
}

// Products of floats take fewer instructions (AVX-512 without VNNI), or integers beside bf16 are
// not measured.
static void drop_fixed(struct cpu_kernels *k) {
    k->linear_fixed = NULL;
    k->narrow_fixed = NULL;
}

static void add_avx512(struct cpu_kernels *k) {
    drop_fixed(k);
    k->panel_rows = 12;
    k->linear_bf16 = avx512_linear_bf16;
    k->linear_f32 = avx512_linear_f32;
    k->widen_bf16 = NULL;
    k->unpack = avx512_unpack;
    k->narrow_int8 = avx512_narrow_int8;
    k->attention_bf16 = (struct attention_kernels)ATTENTION_BY_SPANS(12, avx512_attention_bf16);
    k->attention_f32 = (struct attention_kernels)ATTENTION_BY_SPANS(12, avx512_attention_f32);
    k->attention_int8 = (struct attention_kernels)ATTENTION_BY_SPANS(12, avx512_attention_int8);
    k->attention_e4m3 = (struct attention_kernels)ATTENTION_BY_SPANS(12, avx512_attention_e4m3);
    k->rms_norm = avx512_rms_norm;
    k->rope_head = avx512_rope_head;
    k->silu_mul = avx512_silu_mul;
    k->delta_rule = avx512_delta_rule;
    k->conv_silu = avx512_conv_silu;
    k->store_key = avx512_store_key;
    k->store_value = avx512_store_value;
    k->pack_bf16 = avx512_pack_bf16;
    k->sample_weigh = sample_weigh_avx512;
    k->sample_max = sample_max_avx512;
}

static void add_avx512_vnni(struct cpu_kernels *k) {
    k->linear_bytes = avx512_vnni_linear_bytes;
    k->linear_int4_few = avx512_vnni_linear_int4_few;
    k->int4_few_rows = VNNI_FEW_ROWS;
    k->linear_fixed = avx512_vnni_linear_fixed;
    k->narrow_fixed = avx512_narrow_fixed;
}

static void add_avx512_bf16(struct cpu_kernels *k) {
    drop_fixed(k);
    k->linear_pairs = avx512_bf16_linear_pairs;
    k->narrow_bf16 = avx512_bf16_narrow;
}

static void add_amx_int8(struct cpu_kernels *k) {
    if (!k->linear_int4_few) k->linear_int4_few = k->linear_bytes; // AVX2's or AVX-VNNI's
    k->int4_few_rows = AMX_FEW_ROWS;
    k->linear_bytes = amx_linear_bytes;
}

static struct attention_kernels amx_attention_by_parts(
    void (*kernel)(const struct attention_tile *tile)) {
    return (struct attention_kernels){
        .span_positions = ATTENTION_PART,
        .panel_rows = 384,
        .item_rows = 32,
        .item_rows_max = 384,
        .queries = QUERIES_BF16,
        .span = kernel,
        .begin = amx_attention_begin,
        .end = amx_attention_end,
    };
}

static void add_amx_bf16(struct cpu_kernels *k) {
    drop_fixed(k);
    k->linear_pairs = amx_linear_pairs;
    k->narrow_bf16 = avx512_bf16_narrow;
    k->attention_bf16 = amx_attention_by_parts(amx_attention_bf16);
    k->attention_int8 = amx_attention_by_parts(amx_attention_int8);
    k->attention_e4m3 = amx_attention_by_parts(amx_attention_e4m3);
}

// Few rows of spans are multiplied by VNNI.
static void add_amx_vnni(struct cpu_kernels *k) {
    k->linear_spans = amx_linear_spans;
    k->narrow_spans = avx512_narrow_spans;
}

static const struct layer {
    uint32_t needs;
    const char *isa;
    void (*add)(struct cpu_kernels *kernels);
} layers[] = {
    {CPU_AVX2, "avx2", add_avx2},
    {CPU_AVX2 | CPU_AVX_VNNI, "avx-vnni", add_avx_vnni},
    {CPU_AVX2 | CPU_AVX512, "avx512", add_avx512},
    {CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI, "avx512-vnni", add_avx512_vnni},
    {CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 | CPU_FAST_BF16, "avx512-bf16", add_avx512_bf16},
    {CPU_AVX2 | CPU_AVX512 | CPU_AMX_INT8, "amx", add_amx_int8},
    {CPU_AVX2 | CPU_AVX512 | CPU_AVX512_BF16 | CPU_AMX_BF16, "amx", add_amx_bf16},
    {CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI | CPU_AMX_INT8, "amx", add_amx_vnni},
};

void cpu_kernels_add_x86(uint32_t features, struct cpu_kernels *out) {
    for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
        if ((features & layers[i].needs) != layers[i].needs) continue;
        layers[i].add(out);
        out->isa = layers[i].isa;
        out->has_cheap_rows = true;
    }
}
