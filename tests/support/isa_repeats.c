#include "support/isa_repeats.h"

static bool same_attention(const struct cpu_kernels *a, const struct cpu_kernels *b) {
    return a->attention_bf16.span == b->attention_bf16.span &&
           a->attention_f32.span == b->attention_f32.span &&
           a->attention_int8.span == b->attention_int8.span &&
           a->attention_e4m3.span == b->attention_e4m3.span && a->store_key == b->store_key &&
           a->store_value == b->store_value && a->rope_head == b->rope_head;
}

static bool same_float_weights(const struct cpu_kernels *a, const struct cpu_kernels *b) {
    return a->linear_bf16 == b->linear_bf16 && a->linear_f32 == b->linear_f32 &&
           a->widen_bf16 == b->widen_bf16 && a->linear_pairs == b->linear_pairs &&
           a->narrow_bf16 == b->narrow_bf16 && a->panel_rows == b->panel_rows &&
           a->pack_bf16 == b->pack_bf16 && a->unpack == b->unpack &&
           a->linear_fixed == b->linear_fixed && a->linear_spans == b->linear_spans;
}

static bool same_byte_weights(const struct cpu_kernels *a, const struct cpu_kernels *b) {
    return a->linear_bytes == b->linear_bytes && a->linear_int4_few == b->linear_int4_few &&
           a->int4_few_rows == b->int4_few_rows && a->narrow_int8 == b->narrow_int8;
}

static bool same_rows(const struct cpu_kernels *a, const struct cpu_kernels *b) {
    return a->rms_norm == b->rms_norm && a->silu_mul == b->silu_mul &&
           a->delta_rule == b->delta_rule && a->conv_silu == b->conv_silu &&
           a->sample_weigh == b->sample_weigh && a->sample_max == b->sample_max;
}

const char *isa_repeats(const struct cpu_isa table[CPU_ISA_COUNT], int index, unsigned ops) {
    const struct cpu_kernels *kernels = &table[index].kernels;
    for (int i = 0; i < index; i++) {
        const struct cpu_kernels *earlier = &table[i].kernels;
        bool same = table[i].is_here;
        if (ops & ISA_ATTENTION) same = same && same_attention(kernels, earlier);
        if (ops & ISA_FLOAT_WEIGHTS) same = same && same_float_weights(kernels, earlier);
        if (ops & ISA_BYTE_WEIGHTS) same = same && same_byte_weights(kernels, earlier);
        if (ops & ISA_ROWS) same = same && same_rows(kernels, earlier);
        if (same) return table[i].name;
    }
    return NULL;
}
