// Compares the CUDA backend's attention_prepare, attention and fused attend with the scalar ops,
// called as an engine does: attention_begin, then layer after layer. Earlier steps have filled the
// cache, blocks are scattered over a cache that holds NaN, and block tables end with other
// sequences' blocks.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_attention_checks.h"
#include "base/compiler.h"

// q after norm and rotation: one rounding, and half of one for the reciprocal root.
#define PREPARE_NMSE (1.5 * BF16_NMSE)
// Several tiles of queries and of positions. Sequences end at, before and after the middle of a
// tile.
static const struct work long_prefill = {
    .num_seqs = 7,
    .seqs = {{1000, 1000}, {1300, 700}, {512, 512}, {448, 448}, {833, 400}, {129, 2}, {65, 64}}};

static void check(const struct device_pair *pair, const struct shape *shape,
                  const struct work *work) {
    check_variant(pair, shape, work, &(struct variant){0});
}

static void check_shapes(const struct device_pair *pair, const struct work *work) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) check(pair, &shapes[i], work);
}

static void test_decode(void **state) {
    check_shapes(*state, &decode);
}

// So many positions that every block has several splits and that cuts fall anywhere in sequences.
static void test_decode_of_many(void **state) {
    static const struct shape many_shapes[] = {
        {4, 2, 64, 16, false},  {16, 8, 128, 256, true},
        {32, 1, 128, 48, true}, {8, 4, 256, 64, true},
        {6, 6, 96, 32, true},   {12, 1, 64, 16, false}, // units of 8 and 4 queries
        {40, 40, 32, 16, false}};
    struct work work = {.num_seqs = 150};
    for (uint32_t s = 0; s < work.num_seqs; s++) {
        work.seqs[s] = (struct seq){s % 11 == 10 ? 1500 + s : 1 + s * 37 % 260, 1};
    }
    const struct device_pair *pair = *state;
    const struct variant variants[] = {{0}, {.is_fused = true}};
    size_t num_variants = has_attend(pair->device) ? ARRAY_LEN(variants) : 1;
    for (size_t i = 0; i < ARRAY_LEN(many_shapes); i++) {
        check_all_with(pair, &many_shapes[i], &(struct special){0}, &work, variants, num_variants);
    }
}

// The fused attend does attention_prepare's work.
static void test_fused_decode(void **state) {
    const struct device_pair *pair = *state;
    if (!has_attend(pair->device)) skip();
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        check_variant(pair, &shapes[i], &decode, &(struct variant){.is_fused = true});
    }
}

// Tokens without a slot attend like others but write nothing.
static void test_skipped_slots_fused(void **state) {
    const struct device_pair *pair = *state;
    if (!has_attend(pair->device)) skip();
    const struct variant slots = {.is_fused = true};
    const struct variant none = {.is_fused = true, .unslotted = true};
    for (size_t i = 0; i < ARRAY_LEN(few_and_many); i++) {
        check_agree(pair, few_and_many[i], &decode, &slots, &none, "tokens without a slot");
    }
}

// Padding sequences have no positions, and their results need not be numbers. Whatever is in their
// rows, the other sequences' bits are the same. The padded count chooses the kernels. shapes[4] and
// few_and_many[1] have one kv head and use the same kernels with and without two more sequences, so
// there the bits equal those without padding.
static void check_padded_decodes(const struct device_pair *pair, bool is_fused) {
    const struct variant plain = {.is_fused = is_fused};
    const struct variant padded = {.is_fused = is_fused, .num_padding = 2};
    const struct variant zeros = {.is_fused = is_fused, .num_padding = 2, .zero_padding = true};
    const struct shape *const padded_shapes[] = {&shapes[1], &shapes[4], &shapes[5],
                                                 few_and_many[1]};
    for (size_t i = 0; i < ARRAY_LEN(padded_shapes); i++) {
        const struct shape *shape = padded_shapes[i];
        check_variant(pair, shape, &decode, &padded);
        check_agree(pair, shape, &decode, &zeros, &padded, "padding of zeros and of NaN");
        if (shape->num_kv_heads > 1 || shape == &shapes[5]) continue;
        check_agree(pair, shape, &decode, &plain, &padded, "sequences of padding");
    }
}

static void test_padding_fused(void **state) {
    const struct device_pair *pair = *state;
    if (!has_attend(pair->device)) skip();
    check_padded_decodes(pair, true);
}

// Tokens of one sequence as sequences of their own. The fused attend takes those that clusters
// take: the first work with all shapes, others with some.
static void test_drafts(void **state) {
    const struct device_pair *pair = *state;
    static const struct work works[] = {
        {.num_seqs = 3, .seqs = {{300, 3}, {1, 1}, {17, 2}}},
        {.num_seqs = 2, .seqs = {{16, 16}, {20, 4}}},
        {.num_seqs = 5, .seqs = {{5000, 16}, {2, 2}, {40, 1}, {33, 9}, {700, 5}}}};
    const struct variant variants[] = {
        {.as_drafts = true},
        {.as_drafts = true, .is_fused = true},
        {.as_drafts = true, .is_fused = true, .num_padding = 3},
        {.as_drafts = true, .is_fused = true, .kv_dtype = DTYPE_I8},
        {.as_drafts = true, .is_fused = true, .kv_dtype = DTYPE_F8_E4M3},
    };
    size_t num_variants = has_attend(pair->device) ? ARRAY_LEN(variants) : 1;
    for (size_t i = 0; i < ARRAY_LEN(works); i++) {
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            check_all_with(pair, &shapes[s], &(struct special){0}, &works[i], variants,
                           num_variants);
        }
        check_special(pair, &works[i], variants, num_variants < 3 ? num_variants : 3);
    }
}

// attend refuses a step with prompts and leaves it untouched for the separate ops.
static void test_fused_attend_refuses_prompts(void **state) {
    const struct device_pair *pair = *state;
    if (!has_attend(pair->device)) skip();
    const struct variant plain = {0}, asked = {.is_fused = true};
    const struct work *works[] = {&prefill, &mixed};
    for (size_t i = 0; i < ARRAY_LEN(works); i++) {
        check_agree(pair, &shapes[1], works[i], &plain, &asked, "a step that attend refused");
    }
}

static void test_prefill(void **state) {
    check_shapes(*state, &prefill);
}

static void test_chunked_prefill(void **state) {
    check_shapes(*state, &chunked);
}

// Head sizes 64 and 128, with pairs of heads and with single heads.
static void test_long_prefill(void **state) {
    static const struct shape long_shapes[] = {{4, 4, 64, 16, false},
                                               {2, 1, 64, 256, false},
                                               {2, 1, 128, 16, true},
                                               {3, 1, 128, 48, false}};
    for (size_t i = 0; i < ARRAY_LEN(long_shapes); i++) {
        check(*state, &long_shapes[i], &long_prefill);
    }
}

static void test_mixed_steps(void **state) {
    check_shapes(*state, &mixed);
    check_shapes(*state, &mostly_prefill);
}

static void test_every_visible_position_counts_once(void **state) {
    check_every_position(*state, &(struct variant){0});
}

// Many short sequences: the plan's block needs a second round, and there are more tiles than
// blocks.
static void test_more_sequences_than_a_plan_round(void **state) {
    static const struct shape many_shapes[] = {
        {4, 2, 64, 16, false}, {4, 2, 128, 16, false}, {3, 1, 128, 32, false}};
    struct work work = {.num_seqs = SEQS_MAX};
    for (uint32_t s = 0; s < SEQS_MAX; s++) {
        work.seqs[s] = (struct seq){1 + s * 7 % 40, 1};
        if (s % 5 == 3) work.seqs[s].queries = work.seqs[s].context;
    }
    for (size_t i = 0; i < ARRAY_LEN(many_shapes); i++) check(*state, &many_shapes[i], &work);
}

// Decodes and prompts. The fused attend leaves them to attention_prepare.
static void test_norms_behind_the_rotation(void **state) {
    const struct device_pair *pair = *state;
    static const struct shape normed_shapes[] = {
        {4, 2, 64, 16, true}, {16, 8, 128, 256, true}, {6, 6, 96, 32, true}};
    const struct work works[] = {{.num_seqs = 3, .seqs = {{40, 1}, {1, 1}, {300, 1}}},
                                 {.num_seqs = 3, .seqs = {{40, 40}, {1, 1}, {90, 30}}}};
    const struct variant variants[] = {{0}, {.is_fused = true}};
    const struct special special = {.has_norm_after_rope = true};
    size_t num_variants = has_attend(pair->device) ? ARRAY_LEN(variants) : 1;
    for (size_t i = 0; i < ARRAY_LEN(normed_shapes) * ARRAY_LEN(works); i++) {
        check_all_with(pair, &normed_shapes[i / 2], &special, &works[i % 2], variants,
                       num_variants);
    }
}

// Checks q of every token. Checks v of a token with one visible position, where its weight is 1.
static void test_prepare(void **state) {
    const struct device_pair *pair = *state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct work work = {.num_seqs = 3, .seqs = {{40, 40}, {1, 1}, {3, 3}}};
        struct inputs in = inputs_make(&shapes[i], &work);
        float *want = queries_on(pair->scalar, &in), *got = queries_on(pair->device, &in);
        size_t row = (size_t)shapes[i].num_heads * shapes[i].head_dim;
        double error = ops_nmse_f32(got, want, 44 * row);
        if (!(error <= PREPARE_NMSE)) fail_msg("shape %zu: nmse %g", i, error);
        free(want);
        free(got);
        float *out = attention_on(pair->device, &in, &(struct variant){0});
        const float *token = in.qkv[1];
        uint32_t group = shapes[i].num_heads / shapes[i].num_kv_heads, dim = shapes[i].head_dim;
        for (uint32_t h = 0; h < shapes[i].num_heads; h++) {
            size_t kv = (size_t)shapes[i].num_heads + shapes[i].num_kv_heads + h / group;
            ops_assert_same_bits(out + 40 * row + (size_t)h * dim, token + kv * dim, 1, dim,
                                 "the only value");
        }
        free(out);
        inputs_free(&in);
    }
}

// A prompt's rows have the same bits alone and with others. A decode's parts are joined in another
// order if more sequences decode, so its results are only nearly equal.
static void check_alone(const struct device_pair *pair, const struct shape *shape,
                        const struct work *work) {
    struct inputs in = inputs_make(shape, work);
    float *all = attention_on(pair->device, &in, &(struct variant){0});
    size_t row = (size_t)shape->num_heads * shape->head_dim;
    for (uint32_t s = 0, first = 0; s < work->num_seqs; first += work->seqs[s].queries, s++) {
        float *alone = attention_on(pair->device, &in, &(struct variant){.only = s + 1});
        char what[96];
        snprintf(what, sizeof what, "the last %u of %u tokens alone", work->seqs[s].queries,
                 work->seqs[s].context);
        if (work->seqs[s].queries > 1) {
            ops_assert_same_bits(alone, all + first * row, work->seqs[s].queries, row, what);
        } else {
            double error = ops_nmse_f32(alone, all + first * row, row);
            if (!(error <= bound_of(DTYPE_NONE, true))) fail_msg("%s: nmse %g", what, error);
        }
        free(alone);
    }
    free(all);
    inputs_free(&in);
}

static void test_alone_and_batched_decode(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i += 3) check_alone(*state, &shapes[i], &decode);
}

static void test_alone_and_batched_prefill(void **state) {
    for (size_t i = 1; i < ARRAY_LEN(shapes); i += 3) {
        check_alone(*state, &shapes[i], &prefill);
        check_alone(*state, &shapes[i], &chunked);
    }
}

static void test_alone_and_mixed(void **state) {
    for (size_t i = 2; i < ARRAY_LEN(shapes); i += 4) check_alone(*state, &shapes[i], &mixed);
}

// Wider block tables than needed, and padding, do not change the bits.
static void test_padding(void **state) {
    const struct device_pair *pair = *state;
    const struct work *works[] = {&decode, &mixed};
    const struct variant plain = {0}, wider = {.more_stride = 9}, padded = {.num_padding = 2};
    for (size_t i = 0; i < ARRAY_LEN(works); i++) {
        check_agree(pair, &shapes[1], works[i], &plain, &wider, "wider block tables");
    }
    if (!pair->device->queue) return; // only recorded steps have padding
    check_padded_decodes(pair, false);
    check_agree(pair, &shapes[1], &mixed, &plain, &padded, "sequences of padding");
}

// Slot -1 writes nothing, not even to the last block.
static void test_skipped_slots(void **state) {
    const struct variant plain = {0}, skipped = {.skipped = true};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i += 2) {
        check_agree(*state, &shapes[i], &chunked, &plain, &skipped, "after tokens without a slot");
    }
}

// Scores of plus and minus several hundred. The running maximum keeps exp in range.
static void test_large_scores(void **state) {
    const struct device_pair *pair = *state;
    static const struct work works[] = {{.num_seqs = 2, .seqs = {{300, 1}, {2000, 1}}},
                                        {.num_seqs = 2, .seqs = {{300, 300}, {200, 40}}}};
    const struct shape shape = {4, 2, 64, 16, false};
    for (size_t i = 0; i < ARRAY_LEN(works); i++) {
        struct inputs in = inputs_make(&shape, &works[i]);
        for (uint32_t s = 0; s < 2; s++) {
            size_t count = works[i].seqs[s].context * in.row_floats;
            for (size_t j = 0; j < count; j++) in.qkv[s][j] *= j % in.row_floats < 384 ? 16 : 1;
        }
        float *got = attention_on(pair->device, &in, &(struct variant){0});
        // Rounding moves a score of 300 by up to one, which can swap nearly equal scores. But each
        // result is an average of values, so it stays within their range.
        size_t count = in.num_queries * (size_t)4 * 64;
        for (size_t j = 0; j < count; j++) assert_true(fabsf(got[j]) <= 2.0f);
        free(got);
        inputs_free(&in);
    }
}

// Few sequences, for which attention/decode_cluster.cu has the windows; then so many that
// attention/decode.cu has them, with positions that are cut anywhere.
static void test_windows_caps_and_sinks_of_decodes(void **state) {
    struct work many = {.num_seqs = 280};
    for (uint32_t s = 0; s < many.num_seqs; s++) {
        many.seqs[s] = (struct seq){s % 70 == 69 ? 300 + s : 1 + s * 37 % 40, 1};
    }
    const struct device_pair *pair = *state;
    const struct variant variants[] = {
        {0}, {.is_fused = true}, {.is_fused = true, .num_padding = 2}};
    size_t num_variants = has_attend(pair->device) ? ARRAY_LEN(variants) : 1;
    check_special(pair, &windowed_decode, variants, num_variants);
    check_special(pair, &many, &variants[num_variants - 1], 1);
}

static void test_windows_caps_and_sinks_of_prompts(void **state) {
    const struct variant plain = {0};
    check_special(*state, &windowed_prompts, &plain, 1);
    check_special(*state, &windowed_mixed, &plain, 1);
}

// Slots and tables of the layer's KV group, in every kernel.
static void test_second_kv_group(void **state) {
    const struct device_pair *pair = *state;
    const struct variant plain = {.kv_group = 1}, is_fused = {.kv_group = 1, .is_fused = true};
    for (size_t i = 0; i < 3; i++) {
        check_variant(pair, &shapes[i], &windowed_decode, &plain);
        check_variant(pair, &shapes[i], &windowed_mixed, &plain);
        if (has_attend(pair->device)) check_variant(pair, &shapes[i], &windowed_decode, &is_fused);
    }
    check_special(pair, &windowed_decode, &plain, 1);
    check_special(pair, &windowed_mixed, &plain, 1);
}

// Layers of several shapes in one cache: blocks are further from each other than a layer's parts of
// them are long.
static void check_among_shapes(const struct device_pair *pair, const struct shape *shape,
                               enum dtype kv_dtype) {
    const struct variant plain = {.is_among_shapes = true, .kv_dtype = kv_dtype};
    const struct variant grouped = {.is_among_shapes = true, .kv_group = 1, .kv_dtype = kv_dtype};
    const struct variant fused = {.is_among_shapes = true, .is_fused = true, .kv_dtype = kv_dtype};
    check_variant(pair, shape, &windowed_decode, &plain);
    check_variant(pair, shape, &windowed_prompts, &plain);
    check_variant(pair, shape, &windowed_mixed, &grouped);
    if (has_attend(pair->device)) check_variant(pair, shape, &windowed_decode, &fused);
}

static void test_layers_of_several_shapes(void **state) {
    const struct device_pair *pair = *state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        check_among_shapes(pair, &shapes[i], DTYPE_NONE);
        if (!backend_has_kv_cache_dtype(pair->device, DTYPE_I8)) continue;
        check_among_shapes(pair, &shapes[i], DTYPE_I8);
    }
}

static bool takes_heads_of_512(struct backend *device) {
    const struct kv_cache_spec spec = {.num_layers = 1,
                                       .num_blocks = 1,
                                       .block_size = 16,
                                       .num_kv_heads = 1,
                                       .head_dim = 512,
                                       .num_heads = 1,
                                       .limits = {.max_num_tokens = 1, .max_num_seqs = 1},
                                       .dtype = device->kv_cache_dtype};
    struct kv_cache *cache = NULL;
    enum status status = device->ops->kv_cache_create(device, &spec, &cache, NULL);
    device->ops->kv_cache_destroy(device, cache);
    assert_true(status == OK || status == ERR_UNSUPPORTED);
    return status == OK;
}

// As Phi-2 and StableLM 2 12B, and groups of other sizes.
static void test_heads_of_80_and_160(void **state) {
    static const struct shape odd_shapes[] = {{4, 4, 80, 16, false},
                                              {7, 1, 80, 64, true},
                                              {16, 1, 80, 48, true},
                                              {8, 2, 160, 16, true},
                                              {3, 1, 160, 48, false}};
    static const struct work *const works[] = {&windowed_decode, &windowed_mixed, &prefill, &decode,
                                               &chunked};
    static const struct special special = {.window = 70, .softcap = 3, .has_sinks = true};
    const struct device_pair *pair = *state;
    const struct variant variants[] = {{0}, {.is_fused = true}};
    size_t num_variants = has_attend(pair->device) ? ARRAY_LEN(variants) : 1;
    for (size_t i = 0; i < ARRAY_LEN(odd_shapes); i++) {
        const struct shape *shape = &odd_shapes[i];
        size_t num_works = i % 3 ? 3 : ARRAY_LEN(works); // the others would take seconds
        for (size_t w = 0; w < num_works; w++) {
            check_all_with(pair, shape, &(struct special){0}, works[w], variants, num_variants);
        }
        check_all_with(pair, shape, &special, &windowed_decode, variants, num_variants);
        check_all_with(pair, shape, &special, &windowed_mixed, variants, 1);
        check_alone(pair, shape, &windowed_prompts);
        check_among_shapes(pair, shape, DTYPE_NONE);
        if (shape->head_dim == 80 || !backend_has_kv_cache_dtype(pair->device, DTYPE_I8)) continue;
        check_among_shapes(pair, shape, i % 2 ? DTYPE_I8 : DTYPE_F8_E4M3);
    }
}

// As full layers of Gemma 4, and groups of other sizes.
static const struct shape wide_shapes[] = {
    {8, 1, 512, 16, true}, {16, 2, 512, 64, true}, {3, 1, 512, 16, false}, {12, 1, 512, 48, false}};

static void test_heads_of_512(void **state) {
    const struct device_pair *pair = *state;
    if (!takes_heads_of_512(pair->device)) skip();
    static const struct work *const works[] = {&decode, &prefill, &mixed};
    for (size_t w = 0; w < ARRAY_LEN(works); w++) check(pair, &wide_shapes[0], works[w]);
    for (size_t i = 0; i < ARRAY_LEN(wide_shapes); i++) {
        check_among_shapes(pair, &wide_shapes[i], DTYPE_NONE);
        if (!backend_has_kv_cache_dtype(pair->device, DTYPE_I8)) continue;
        check_among_shapes(pair, &wide_shapes[i], i % 2 ? DTYPE_I8 : DTYPE_F8_E4M3);
    }
    check_alone(pair, &wide_shapes[0], &windowed_prompts);
}

static void test_windows_caps_and_sinks_with_heads_of_512(void **state) {
    static const struct special specials[] = {{.window = 100},
                                              {.softcap = 2},
                                              {.window = 31, .softcap = 3, .has_sinks = true},
                                              {.window = 100, .is_chunked = true}};
    const struct device_pair *pair = *state;
    if (!takes_heads_of_512(pair->device)) skip();
    const struct variant plain = {0};
    for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
        check_all_with(pair, &wide_shapes[i], &specials[i], &windowed_decode, &plain, 1);
        check_all_with(pair, &wide_shapes[i], &specials[i], &windowed_mixed, &plain, 1);
    }
}

// Next to linear/few_rows_sm90.cu, attention may use less shared memory. The results are the same.
static void test_decode_beside_a_small_linear(void **state) {
    enum { SIZE = 64 };
    const struct device_pair *pair = *state;
    struct backend *device = pair->device;
    if (!has_attend(device)) skip();
    float values[SIZE * SIZE] = {0};
    const struct matrix_slice part = {.source = {.data = values},
                                      .dtype = DTYPE_F32,
                                      .rows = SIZE,
                                      .cols = SIZE,
                                      .row_stride = SIZE};
    struct linear *linear =
        linear_of(device, &(struct linear_spec){&part, NULL, 1, WEIGHTS_NATIVE});
    struct tensor norm = tensor_raw(device, values, SIZE * sizeof *values);
    struct tensor x = tensor_nan(device, SIZE), out = tensor_nan(device, SIZE);
    const struct project_in_args qkv = {.linear = linear,
                                        .residual = x.dev,
                                        .norm = norm.dev,
                                        .out = out.dev,
                                        .rows = 1,
                                        .eps = 1e-6f};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct variant one_by_one = {.qkv = &qkv};
        const struct variant is_fused = {.qkv = &qkv, .is_fused = true};
        check_variant(pair, &shapes[i], &decode, &one_by_one);
        check_variant(pair, &shapes[i], &decode, &is_fused);
        if (!backend_has_kv_cache_dtype(device, DTYPE_F8_E4M3)) continue;
        const struct variant codes = {.qkv = &qkv, .is_fused = true, .kv_dtype = DTYPE_F8_E4M3};
        check_variant(pair, &shapes[i], &decode, &codes);
    }
    tensor_free(&out);
    tensor_free(&x);
    tensor_free(&norm);
    device->ops->linear_destroy(device, linear);
}

static bool shares_prefixes(const struct backend *device, const struct shape *shape) {
    const struct kv_cache_spec spec = {.num_heads = shape->num_heads,
                                       .num_kv_heads = shape->num_kv_heads,
                                       .head_dim = shape->head_dim,
                                       .block_size = shape->block_size,
                                       .dtype = device->kv_cache_dtype};
    return device->ops->shares_prefixes && device->ops->shares_prefixes(device, &spec);
}

// Decodes of two prefixes and of none, with prompts or without. Prefixes end within a tile, with
// one, and after less than one; sequences end one position later and many.
static struct work sharing_work(uint32_t block_size, bool has_prompts) {
    struct work work = {.num_seqs = 46, .num_sharing = 2};
    uint32_t many = 700 / block_size * block_size, few = 112 / block_size * block_size;
    if (!few) few = block_size;
    work.sharing[0] = (struct sharing){.first = 1, .stride = 2, .num_seqs = 18, .positions = many};
    work.sharing[1] = (struct sharing){.first = 38, .stride = 1, .num_seqs = 5, .positions = few};
    for (uint32_t s = 0; s < work.num_seqs; s++) {
        uint32_t shared = s >= 38 && s < 43 ? few : s % 2 && s < 36 ? many : 0;
        work.seqs[s] = (struct seq){shared + 1 + s * s % 90, 1};
    }
    if (!has_prompts) return work;
    work.seqs[0] = (struct seq){130, 130};
    work.seqs[44] = (struct seq){300, 17};
    return work;
}

// No other sequence than a prefix's first one finds the prefix's blocks by its table, so these can
// have been read once only.
static void test_shared_prefixes(void **state) {
    static const struct shape shared_shapes[] = {
        {4, 2, 128, 16, true},   {4, 4, 64, 16, false},   {16, 1, 64, 64, true},
        {7, 1, 128, 256, false}, {6, 2, 128, 48, false},  {8, 1, 128, 32, true},
        {10, 2, 128, 16, false}, {20, 1, 64, 128, false},
    };
    const struct device_pair *pair = *state;
    const struct variant alone[] = {{.shares = SHARES_ALONE},
                                    {.shares = SHARES_ALONE, .is_fused = true},
                                    {.shares = SHARES_ALONE, .num_padding = 3}};
    for (size_t i = 0; i < ARRAY_LEN(shared_shapes); i++) {
        const struct shape *shape = &shared_shapes[i];
        if (!shares_prefixes(pair->device, shape)) skip();
        for (uint32_t has_prompts = 0; has_prompts < 2; has_prompts++) {
            struct work work = sharing_work(shape->block_size, has_prompts);
            check_all_with(pair, shape, &(struct special){0}, &work, alone, ARRAY_LEN(alone));
        }
    }
}

// More sequences than the plan's block has threads, and few rows of a long prefix, which is in many
// splits.
static void test_large_shared_prefixes(void **state) {
    const struct device_pair *pair = *state;
    const struct variant alone = {.shares = SHARES_ALONE};
    const struct shape shape = {8, 2, 128, 16, false}, small = {4, 1, 64, 16, false};
    if (!shares_prefixes(pair->device, &shape)) skip();
    struct work many = {.num_seqs = 1050, .num_sharing = 1, .sharing = {{3, 1, 1040, 128}}};
    for (uint32_t s = 0; s < many.num_seqs; s++) {
        bool shares = s >= 3 && s < 1043;
        many.seqs[s] = (struct seq){(shares ? 128u : 0u) + 1 + s % 7, 1};
    }
    check_variant(pair, &small, &many, &alone);
    const struct work few = {.num_seqs = 3,
                             .seqs = {{8020, 1}, {8100, 1}, {9000, 1}},
                             .num_sharing = 1,
                             .sharing = {{0, 1, 3, 8000}}};
    check_variant(pair, &shape, &few, &alone);
}

// Layers that the kernel does not take: with windows, caps and sinks, other heads, other caches.
static void test_shared_prefixes_that_are_not_taken(void **state) {
    const struct device_pair *pair = *state;
    const struct variant shares = {.shares = SHARES_TOO};
    const struct work work = {.num_seqs = 4,
                              .seqs = {{260, 1}, {300, 1}, {1, 1}, {257, 1}},
                              .num_sharing = 1,
                              .sharing = {{0, 1, 2, 256}}};
    check_special(pair, &work, &shares, 1);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) check_variant(pair, &shapes[i], &work, &shares);
    const struct variant codes = {.shares = SHARES_TOO, .kv_dtype = DTYPE_I8};
    if (!backend_has_kv_cache_dtype(pair->device, DTYPE_I8)) return;
    check_variant(pair, &shapes[1], &work, &codes);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_norms_behind_the_rotation),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_of_many),
        cmocka_unit_test(test_fused_decode),
        cmocka_unit_test(test_skipped_slots_fused),
        cmocka_unit_test(test_padding_fused),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_fused_attend_refuses_prompts),
        cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_chunked_prefill),
        cmocka_unit_test(test_long_prefill),
        cmocka_unit_test(test_mixed_steps),
        cmocka_unit_test(test_every_visible_position_counts_once),
        cmocka_unit_test(test_more_sequences_than_a_plan_round),
        cmocka_unit_test(test_alone_and_batched_decode),
        cmocka_unit_test(test_alone_and_batched_prefill),
        cmocka_unit_test(test_alone_and_mixed),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_skipped_slots),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_windows_caps_and_sinks_of_decodes),
        cmocka_unit_test(test_windows_caps_and_sinks_of_prompts),
        cmocka_unit_test(test_second_kv_group),
        cmocka_unit_test(test_layers_of_several_shapes),
        cmocka_unit_test(test_heads_of_80_and_160),
        cmocka_unit_test(test_heads_of_512),
        cmocka_unit_test(test_windows_caps_and_sinks_with_heads_of_512),
        cmocka_unit_test(test_decode_beside_a_small_linear),
        cmocka_unit_test(test_shared_prefixes),
        cmocka_unit_test(test_large_shared_prefixes),
        cmocka_unit_test(test_shared_prefixes_that_are_not_taken),
    };
    return device_pair_run(argc, argv, "cuda attention", tests, ARRAY_LEN(tests));
}
