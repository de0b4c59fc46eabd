#include "backend/cuda/cuda_attention_checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

// Roundings of q, k, v, the weights and the result. A score's absolute error is its weight's
// relative error. Simulated with these inputs: 1.2e-5, and up to 5.2e-5 for few numbers.
#define ATTENTION_NMSE 3e-5
#define ATTENTION_NMSE_FEW 1e-4

// Of a cache in codes: the codes of k and v besides. A score's absolute error is its weight's
// relative error.
#define INT8_NMSE 2e-4
#define INT8_NMSE_FEW 6e-4
#define E4M3_NMSE 4e-3
#define E4M3_NMSE_FEW 1e-2

enum { FEW_HEADS = 16 }; // queries x heads below this: few numbers, see ATTENTION_NMSE_FEW

const struct shape shapes[NUM_SHAPES] = {
    {4, 4, 64, 16, false},  {4, 2, 128, 64, true},  {8, 2, 96, 16, true},    {7, 1, 32, 256, true},
    {8, 1, 128, 16, false}, {16, 1, 256, 64, true}, {16, 2, 128, 256, true}, {14, 2, 64, 16, false},
    {32, 2, 32, 64, false}, {2, 1, 256, 16, false}, {1, 1, 96, 256, false},  {6, 2, 128, 48, false},
};

// So many groups of heads that six sequences are not few.
static const struct shape many_groups = {256, 1, 32, 16, false};
const struct shape *const few_and_many[2] = {&shapes[1], &many_groups};

const struct work decode = {.num_seqs = 6,
                            .seqs = {{1, 1}, {15, 1}, {16, 1}, {17, 1}, {300, 1}, {5000, 1}}};
const struct work prefill = {.num_seqs = 6,
                             .seqs = {{2, 2}, {15, 15}, {16, 16}, {17, 17}, {65, 65}, {300, 300}}};
const struct work chunked = {
    .num_seqs = 6, .seqs = {{300, 100}, {17, 2}, {16, 15}, {5000, 17}, {129, 64}, {300, 299}}};
// One more decode than prefills, and the other way round. Both kernels have work in one step.
const struct work mixed = {.num_seqs = 6,
                           .seqs = {{1, 1}, {300, 300}, {5000, 1}, {17, 5}, {16, 1}, {700, 130}}};
const struct work mostly_prefill = {.num_seqs = 3, .seqs = {{200, 200}, {33, 1}, {15, 15}}};

const struct work tiled_prefill = {.num_seqs = 4,
                                   .seqs = {{300, 300}, {420, 150}, {256, 256}, {129, 2}}};

// Every kernel has windows and chunks, two have a cap of the scores, three have sinks. Windows and
// chunks end anywhere in blocks and tiles, and those of 1 and 2 see only the newest positions.
static const struct {
    struct shape shape;
    struct special special;
} specials[] = {
    {{4, 4, 64, 16, false}, {.window = 33}},
    {{4, 2, 128, 64, true}, {.window = 100}},
    {{16, 2, 128, 256, true}, {.window = 1}},
    {{3, 1, 128, 48, false}, {.window = 130}},
    {{2, 1, 64, 256, false}, {.window = 200}},
    {{7, 1, 32, 256, true}, {.window = 2}},
    {{8, 2, 96, 16, true}, {.window = 16}},
    {{2, 1, 256, 16, false}, {.window = 300}},
    {{8, 2, 64, 16, true}, {.softcap = 1.5f}},
    {{3, 1, 128, 16, false}, {.has_sinks = true}},
    {{4, 2, 128, 64, true}, {.window = 70, .softcap = 3, .has_sinks = true}},
    {{6, 2, 96, 48, false}, {.window = 129, .has_sinks = true}},
    {{16, 1, 256, 64, true}, {.softcap = 2, .has_sinks = true}},
    {{7, 1, 32, 16, false}, {.window = 31, .softcap = 1}},
    {{4, 4, 64, 16, false}, {.window = 33, .is_chunked = true}},
    {{4, 2, 128, 64, true}, {.window = 100, .is_chunked = true}},
    {{10, 2, 128, 16, false}, {.window = 16, .is_chunked = true}},
    {{3, 1, 128, 48, false}, {.window = 130, .is_chunked = true}},
    {{7, 1, 32, 256, true}, {.window = 1, .is_chunked = true}},
    {{8, 2, 96, 16, true}, {.window = 48, .is_chunked = true, .has_sinks = true}},
    {{2, 1, 256, 16, false}, {.window = 300, .is_chunked = true, .softcap = 2}},
};

// Longer ones would take the scalar kernels seconds.
const struct work windowed_decode = {
    .num_seqs = 6, .seqs = {{1, 1}, {16, 1}, {33, 1}, {101, 1}, {300, 1}, {700, 1}}};
const struct work windowed_prompts = {.num_seqs = 5,
                                      .seqs = {{2, 2}, {17, 2}, {129, 64}, {300, 200}, {500, 17}}};
const struct work windowed_mixed = {.num_seqs = 4, .seqs = {{1, 1}, {230, 130}, {500, 1}, {17, 5}}};

bool has_attend(const struct backend *device) {
    return device->fusion && device->fusion->attend;
}

double bound_of(enum dtype kv_dtype, bool few) {
    if (kv_dtype == DTYPE_I8) return few ? INT8_NMSE_FEW : INT8_NMSE;
    if (kv_dtype == DTYPE_F8_E4M3) return few ? E4M3_NMSE_FEW : E4M3_NMSE;
    return few ? ATTENTION_NMSE_FEW : ATTENTION_NMSE;
}

void check_all_with(const struct device_pair *pair, const struct shape *shape,
                    const struct special *special, const struct work *work,
                    const struct variant *variants, size_t num_variants) {
    struct inputs in = inputs_make(shape, work);
    in.special = *special;
    // A factor, as yarn's. A norm behind the rotation takes it away.
    size_t rope_count = (size_t)in.max_context * shape->head_dim;
    for (size_t i = 0; i < rope_count && special->has_norm_after_rope; i++) in.rope[i] *= 1.25f;
    float *want = attention_on(pair->scalar, &in, &(struct variant){0});
    size_t row = (size_t)shape->num_heads * shape->head_dim;
    for (size_t v = 0; v < num_variants; v++) {
        float *got = attention_on(pair->device, &in, &variants[v]);
        for (uint32_t s = 0, first = 0; s < work->num_seqs; first += work->seqs[s].queries, s++) {
            size_t count = work->seqs[s].queries * row;
            double error = ops_nmse_f32(got + first * row, want + first * row, count);
            bool few = work->seqs[s].queries * shape->num_heads < FEW_HEADS;
            if (!(error <= bound_of(variants[v].kv_dtype, few))) {
                fail_msg("%u heads over %u of %u, blocks of %u, variant %zu: the last %u of %u "
                         "tokens have nmse %g",
                         shape->num_heads, shape->num_kv_heads, shape->head_dim, shape->block_size,
                         v, work->seqs[s].queries, work->seqs[s].context, error);
            }
        }
        free(got);
    }
    free(want);
    inputs_free(&in);
}

void check_variant(const struct device_pair *pair, const struct shape *shape,
                   const struct work *work, const struct variant *variant) {
    check_all_with(pair, shape, &(struct special){0}, work, variant, 1);
}

void check_special(const struct device_pair *pair, const struct work *work,
                   const struct variant *variants, size_t num_variants) {
    for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
        check_all_with(pair, &specials[i].shape, &specials[i].special, work, variants,
                       num_variants);
    }
}

void check_agree(const struct device_pair *pair, const struct shape *shape, const struct work *work,
                 const struct variant *a, const struct variant *b, const char *what) {
    struct inputs in = inputs_make(shape, work);
    size_t row = (size_t)shape->num_heads * shape->head_dim;
    float *want = attention_on(pair->device, &in, a), *got = attention_on(pair->device, &in, b);
    ops_assert_same_bits(got, want, in.num_queries, row, what);
    free(got);
    free(want);
    inputs_free(&in);
}

// Dimension d of a value is `one` at every head_dim-th position, else 0. Queries are zeros and
// weigh all positions alike. So a result is `one` times the share of visible positions that have
// it. One position too few or too many of 5,000 shows, and so does a swapped one.
static bool counts_in(uint32_t position, uint32_t kv_head, uint32_t d, uint32_t head_dim) {
    return (position + 7 * kv_head) % head_dim == d;
}

static void set_counting(struct inputs *in, float one) {
    const struct shape *shape = &in->shape;
    uint32_t dim = shape->head_dim, first_value = shape->num_heads + shape->num_kv_heads;
    for (uint32_t s = 0; s < in->work->num_seqs; s++) {
        for (uint32_t position = 0; position < in->work->seqs[s].context; position++) {
            float *row = in->qkv[s] + position * in->row_floats;
            memset(row, 0, (size_t)shape->num_heads * dim * sizeof *row);
            for (uint32_t i = 0; i < shape->num_kv_heads * dim; i++) {
                row[first_value * dim + i] = counts_in(position, i / dim, i % dim, dim) ? one : 0;
            }
        }
    }
}

// The expected results of one token that sees `visible` positions.
static void check_counted(const struct shape *shape, const float *got, float one,
                          uint32_t visible) {
    uint32_t group = shape->num_heads / shape->num_kv_heads, dim = shape->head_dim;
    for (uint32_t i = 0; i < shape->num_heads * dim; i++) {
        uint32_t kv_head = i / dim / group, first = (i % dim + dim - 7 * kv_head % dim) % dim;
        uint32_t count = visible > first ? (visible - first - 1) / dim + 1 : 0;
        float want = (float)count / (float)visible;
        if (!(fabsf(got[i] / one - want) <= want / 256)) {
            fail_msg("%u of %u heads of %u, blocks of %u: a token sees %g of %u positions, want %u",
                     i / dim, shape->num_heads, dim, shape->block_size,
                     (double)(got[i] / one * (float)visible), visible, count);
        }
    }
}

void check_every_position(const struct device_pair *pair, const struct variant *variant) {
    const struct work *works[] = {&decode, &prefill,        &chunked,
                                  &mixed,  &mostly_prefill, &tiled_prefill};
    // The largest code times a power of 2, so that the scale is one and nothing is rounded.
    enum dtype kv_dtype = variant->kv_dtype;
    float one = kv_dtype == DTYPE_I8 ? 127.0f / 128 : kv_dtype == DTYPE_F8_E4M3 ? 448.0f / 512 : 1;
    for (size_t i = 0; i < ARRAY_LEN(shapes) * ARRAY_LEN(works); i++) {
        const struct work *work = works[i % ARRAY_LEN(works)];
        struct inputs in = inputs_make(&shapes[i / ARRAY_LEN(works)], work);
        set_counting(&in, one);
        float *got = attention_on(pair->device, &in, variant), *row = got;
        for (uint32_t s = 0; s < work->num_seqs; s++) {
            const struct seq *seq = &work->seqs[s];
            for (uint32_t q = 0; q < seq->queries; q++) {
                check_counted(&in.shape, row, one, seq->context - seq->queries + q + 1);
                row += (size_t)in.shape.num_heads * in.shape.head_dim;
            }
        }
        free(got);
        inputs_free(&in);
    }
}
