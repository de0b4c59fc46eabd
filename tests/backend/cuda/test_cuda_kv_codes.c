// Caches of keys and values in 8-bit codes, int8 and e4m3, on every attention kernel of the CUDA
// backend: near the scalar ops with a cache in float32, exact where codes are, and NaN kept apart.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_attention_checks.h"
#include "base/compiler.h"

// Runs the check for each kind of codes that the device's cache can have.
static void each_kind_of_codes(const struct device_pair *pair,
                               void (*run)(const struct device_pair *pair, enum dtype kv_dtype)) {
    static const enum dtype kinds[] = {DTYPE_I8, DTYPE_F8_E4M3};
    int num_run = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!backend_has_kv_cache_dtype(pair->device, kinds[i])) continue;
        run(pair, kinds[i]);
        num_run++;
    }
    if (!num_run) skip();
}

static void check_code_decodes(const struct device_pair *pair, enum dtype kv_dtype) {
    struct work many = {.num_seqs = 150};
    for (uint32_t s = 0; s < many.num_seqs; s++) {
        many.seqs[s] = (struct seq){s % 11 == 10 ? 1500 + s : 1 + s * 37 % 260, 1};
    }
    const struct variant variants[] = {{.kv_dtype = kv_dtype},
                                       {.kv_dtype = kv_dtype, .is_fused = true}};
    size_t num_variants = has_attend(pair->device) ? ARRAY_LEN(variants) : 1;
    const struct special plain = {0};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        check_all_with(pair, &shapes[i], &plain, &decode, variants, num_variants);
    }
    check_all_with(pair, &shapes[1], &plain, &many, variants, num_variants);
    check_all_with(pair, &shapes[5], &plain, &many, variants, num_variants);
    check_special(pair, &windowed_decode, variants, num_variants);
}

// Decodes by all kernels, with the new token prepared before attention or in it.
static void test_codes_in_decodes(void **state) {
    each_kind_of_codes(*state, check_code_decodes);
}

static void check_code_prompts(const struct device_pair *pair, enum dtype kv_dtype) {
    const struct variant variant = {.kv_dtype = kv_dtype};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        check_variant(pair, &shapes[i], &tiled_prefill, &variant);
        check_variant(pair, &shapes[i], &mixed, &variant);
    }
    check_variant(pair, &shapes[1], &chunked, &variant);
    check_special(pair, &windowed_prompts, &variant, 1);
    check_special(pair, &windowed_mixed, &variant, 1);
}

static void test_codes_in_prompts(void **state) {
    each_kind_of_codes(*state, check_code_prompts);
}

static void check_code_counts(const struct device_pair *pair, enum dtype kv_dtype) {
    check_every_position(pair, &(struct variant){.kv_dtype = kv_dtype});
    if (!has_attend(pair->device)) return;
    check_every_position(pair, &(struct variant){.kv_dtype = kv_dtype, .is_fused = true});
}

static void test_every_visible_position_of_codes_counts_once(void **state) {
    each_kind_of_codes(*state, check_code_counts);
}

static void check_code_slots(const struct device_pair *pair, enum dtype kv_dtype) {
    const struct variant plain = {.kv_dtype = kv_dtype};
    const struct variant skipped = {.kv_dtype = kv_dtype, .skipped = true};
    const struct variant group = {.kv_dtype = kv_dtype, .kv_group = 1};
    check_agree(pair, &shapes[1], &chunked, &plain, &skipped, "after tokens without a slot");
    check_agree(pair, &shapes[5], &decode, &plain, &skipped, "after tokens without a slot");
    check_variant(pair, &shapes[1], &windowed_mixed, &group);
    check_variant(pair, &shapes[2], &windowed_decode, &group);
    if (!has_attend(pair->device)) return;
    const struct variant slots = {.kv_dtype = kv_dtype, .is_fused = true};
    const struct variant none = {.kv_dtype = kv_dtype, .is_fused = true, .unslotted = true};
    const struct variant padded = {.kv_dtype = kv_dtype, .is_fused = true, .num_padding = 2};
    for (size_t i = 0; i < ARRAY_LEN(few_and_many); i++) {
        check_agree(pair, few_and_many[i], &decode, &slots, &none, "tokens without a slot");
    }
    check_agree(pair, &shapes[4], &decode, &slots, &padded, "sequences of padding");
    check_agree(pair, few_and_many[1], &decode, &slots, &padded, "sequences of padding");
}

static void test_codes_of_skipped_slots_and_groups(void **state) {
    each_kind_of_codes(*state, check_code_slots);
}

// One position in 32,768 whose key is like the query: its value must come out. The other positions'
// scores are within some 4 of 0, and its own is 24 above, so that they weigh 1e-6 together.
static void set_needle(struct inputs *in, uint32_t at) {
    const struct shape *shape = &in->shape;
    uint32_t dim = shape->head_dim, group = shape->num_heads / shape->num_kv_heads;
    uint32_t last = in->max_context - 1;
    float *rope = in->rope; // none: a position's rotation would take the key elsewhere
    for (size_t i = 0; i < (size_t)in->max_context * dim; i++) rope[i] = i % dim < dim / 2;
    float *query = in->qkv[0] + last * in->row_floats;
    float *key = in->qkv[0] + at * in->row_floats + shape->num_heads * dim;
    for (uint32_t h = 0; h < shape->num_heads; h++) {
        float *q = query + h * dim, length = 0;
        if (h % group) memcpy(q, query + h / group * group * dim, dim * sizeof *q);
        for (uint32_t d = 0; d < dim; d++) length += q[d] * q[d];
        float factor = 24 * sqrtf((float)dim) / length;
        for (uint32_t d = 0; d < dim; d++) key[h / group * dim + d] = factor * q[d];
    }
    round_to_bf16(key, shape->num_kv_heads * dim);
}

static void check_code_needle(const struct device_pair *pair, enum dtype kv_dtype) {
    static const struct shape needle_shape = {2, 1, 128, 64, false}, *shape = &needle_shape;
    static const uint32_t places[] = {11111, 32000};
    static const struct work works[] = {{.num_seqs = 1, .seqs = {{32768, 1}}},
                                        {.num_seqs = 1, .seqs = {{32768, 2}}}};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct inputs in = inputs_make(shape, &works[i]);
        uint32_t at = places[i], dim = shape->head_dim;
        set_needle(&in, at);
        float *got = attention_on(pair->device, &in, &(struct variant){.kv_dtype = kv_dtype});
        const float *value =
            in.qkv[0] + at * in.row_floats + (size_t)(shape->num_heads + shape->num_kv_heads) * dim;
        const float *out = got + (size_t)(in.num_queries - 1) * shape->num_heads * dim;
        for (uint32_t h = 0; h < shape->num_heads; h++) {
            uint32_t kv_head = h / (shape->num_heads / shape->num_kv_heads);
            double error = ops_nmse_f32(out + h * dim, value + kv_head * dim, dim);
            if (!(error <= bound_of(kv_dtype, false))) {
                fail_msg("position %u, head %u of %u: nmse %g", at, h, dim, error);
            }
        }
        free(got);
        inputs_free(&in);
    }
}

static void test_a_needle_among_32768_positions_of_codes(void **state) {
    each_kind_of_codes(*state, check_code_needle);
}

// A key or value that is not finite makes its sequence NaN, and no other.
static void check_code_nans(const struct device_pair *pair, enum dtype kv_dtype) {
    static const struct work work = {.num_seqs = 3, .seqs = {{40, 1}, {100, 1}, {33, 1}}};
    const struct shape *shape = &shapes[1];
    for (int is_value = 0; is_value < 2; is_value++) {
        struct inputs in = inputs_make(shape, &work);
        size_t row = (size_t)shape->num_heads * shape->head_dim;
        size_t first = row + (is_value ? (size_t)shape->num_kv_heads * shape->head_dim : 0);
        in.qkv[1][7 * in.row_floats + first + 3] = INFINITY;
        float *got = attention_on(pair->device, &in, &(struct variant){.kv_dtype = kv_dtype});
        for (size_t i = 0; i < 3 * row; i++) {
            uint32_t kv_head =
                (uint32_t)(i % row / shape->head_dim) * shape->num_kv_heads / shape->num_heads;
            assert_int_equal(!!isnan(got[i]), i / row == 1 && kv_head == 0);
        }
        free(got);
        inputs_free(&in);
    }
}

static void test_codes_keep_nan(void **state) {
    each_kind_of_codes(*state, check_code_nans);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_in_decodes),
        cmocka_unit_test(test_codes_in_prompts),
        cmocka_unit_test(test_every_visible_position_of_codes_counts_once),
        cmocka_unit_test(test_codes_of_skipped_slots_and_groups),
        cmocka_unit_test(test_a_needle_among_32768_positions_of_codes),
        cmocka_unit_test(test_codes_keep_nan),
    };
    return device_pair_run(argc, argv, "cuda kv codes", tests, ARRAY_LEN(tests));
}
