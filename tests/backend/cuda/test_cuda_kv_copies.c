// Prompts over a cache of 8-bit codes that are read from a copy in bf16 (attention/copy_codes.cu):
// the bits of those that are read from the codes, and when there is a copy.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_attention_checks.h"
#include "backend/cuda/cuda_ops.h"
#include "base/compiler.h"

// Prompts that are long enough: whole, behind cached positions, beside decodes and short ones, and
// with blocks of the copy that are full and that are not.
static const struct work copied_works[] = {
    {.num_seqs = 5, .seqs = {{700, 700}, {1000, 600}, {5, 1}, {512, 512}, {3000, 700}}},
    {.num_seqs = 6, .seqs = {{300, 1}, {1290, 1290}, {129, 128}, {640, 639}, {3000, 1}, {2, 2}}},
    {.num_seqs = 1, .seqs = {{2048, 2048}}},
};
static const struct {
    struct shape shape;
    struct special special;
} copied[] = {
    {{4, 2, 128, 64, true}, {0}},
    {{6, 2, 128, 48, false}, {0}}, // odd groups: tiles of 128 queries
    {{4, 4, 64, 16, false}, {0}},
    {{14, 2, 64, 256, true}, {.window = 700}},
    {{8, 1, 128, 16, false}, {.window = 300}},
    {{16, 2, 128, 256, false}, {.window = 1000}},
    {{10, 2, 128, 16, false}, {.window = 512, .is_chunked = true}},
    {{14, 2, 64, 256, true}, {.window = 300, .is_chunked = true}},
};

// Runs the check for each kind of codes. Only devices of compute capability 9.0 make copies.
static void each_kind(const struct device_pair *pair,
                      void (*run)(const struct device_pair *pair, enum dtype kv_dtype)) {
    if (!cuda_backend_of(pair->device)->info.encode_tensor_map) skip();
    run(pair, DTYPE_I8);
    run(pair, DTYPE_F8_E4M3);
}

// Before the step the copy holds NaN.
static void expect_copy(struct backend *backend, struct kv_cache *cache, bool is_done) {
    struct err err = {0};
    size_t keys = (size_t)cache->copy_blocks * CUDA_KV_COPY_BLOCK * cache->spec.num_kv_heads *
                  cache->spec.head_dim * sizeof(uint16_t);
    size_t bytes = 2 * keys; // and values
    assert_true(bytes > 0);
    assert_true(bytes < backend->ops->kv_cache_workspace_bytes(backend, &cache->spec));
    if (is_done) {
        assert_true(cache->plans[cache->num_groups - 1].num_copies > 0);
        return;
    }
    char *nans = test_alloc(bytes);
    memset(nans, 0xff, bytes);
    backend->ops->upload(backend, cache->copy, nans, bytes);
    assert_int_equal(backend->ops->synchronize(backend, &err), OK);
    free(nans);
}

static void expect_no_copy(struct backend *backend, struct kv_cache *cache, bool is_done) {
    (void)backend;
    if (is_done) assert_int_equal(cache->plans[cache->num_groups - 1].num_copies, 0);
}

// Prompts that are read from a copy give the bits of those that are not.
static void check_copies(const struct device_pair *pair, enum dtype kv_dtype) {
    for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
        const struct work *work = &copied_works[i % ARRAY_LEN(copied_works)];
        struct inputs in = inputs_make(&copied[i].shape, work);
        in.special = copied[i].special;
        size_t row = (size_t)in.shape.num_heads * in.shape.head_dim;
        const struct variant by_copy = {
            .kv_dtype = kv_dtype, .kv_group = i % 2, .look = expect_copy};
        const struct variant by_codes = {
            .kv_dtype = kv_dtype, .kv_group = i % 2, .hides_prompts = true, .look = expect_no_copy};
        float *want = attention_on(pair->device, &in, &by_codes);
        float *got = attention_on(pair->device, &in, &by_copy);
        ops_assert_same_bits(got, want, in.num_queries, row, "from a copy");
        free(got);
        free(want);
        inputs_free(&in);
    }
}

static void test_prompts_from_a_copy(void **state) {
    each_kind(*state, check_copies);
}

// Prompts that are too short for a copy, or more than it holds, are read from the cache.
static void check_no_copies(const struct device_pair *pair, enum dtype kv_dtype) {
    static const struct work few = {.num_seqs = 3, .seqs = {{2000, 100}, {900, 150}, {300, 90}}};
    static const struct work many = {.num_seqs = 4,
                                     .seqs = {{1500, 300}, {1500, 300}, {1500, 300}, {1500, 300}}};
    const struct variant variant = {.kv_dtype = kv_dtype, .look = expect_no_copy};
    check_variant(pair, &copied[0].shape, &few, &variant);
    check_variant(pair, &copied[0].shape, &many, &variant);
}

static void test_prompts_without_a_copy(void **state) {
    each_kind(*state, check_no_copies);
}

// Near the scalar results too, and with a key that is not finite in one of the prompts.
static void check_copied_values(const struct device_pair *pair, enum dtype kv_dtype) {
    static const struct work work = {.num_seqs = 3, .seqs = {{530, 530}, {600, 520}, {40, 1}}};
    const struct variant variant = {.kv_dtype = kv_dtype, .look = expect_copy};
    const struct shape *shape = &copied[0].shape;
    check_variant(pair, shape, &work, &variant);
    struct inputs in = inputs_make(shape, &work);
    size_t row = (size_t)shape->num_heads * shape->head_dim;
    in.qkv[1][7 * in.row_floats + row + 3] = INFINITY;
    float *got = attention_on(pair->device, &in, &variant);
    for (size_t i = 0; i < in.num_queries * row; i++) {
        bool is_second = i / row >= 530 && i / row < 530 + 520;
        uint32_t kv_head =
            (uint32_t)(i % row / shape->head_dim) * shape->num_kv_heads / shape->num_heads;
        assert_int_equal(!!isnan(got[i]), is_second && kv_head == 0);
    }
    free(got);
    inputs_free(&in);
}

static void test_values_from_a_copy(void **state) {
    each_kind(*state, check_copied_values);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_from_a_copy),
        cmocka_unit_test(test_prompts_without_a_copy),
        cmocka_unit_test(test_values_from_a_copy),
    };
    return device_pair_run(argc, argv, "cuda kv copies", tests, ARRAY_LEN(tests));
}
