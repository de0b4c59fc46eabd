// How decode attention is divided and launched. Host arithmetic only, for several devices and
// models.
#include "backend/cuda/attention/decode_shape.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

static const int shared_bytes[] = {99 << 10, 163 << 10, 227 << 10}; // of sm_89, sm_80 and sm_90
static const int num_sms[] = {1, 46, 78, 108, 114, 128, 132, 148};
static const uint32_t head_dims[] = {32, 64, 80, 96, 128, 160, 256, 512};
static const uint32_t groups[] = {1, 2, 3, 5, 7, 8, 12, 16, 32};
static const uint32_t kv_heads[] = {1, 2, 4, 5, 6, 8, 10, 17, 32, 40, 64, 160};

static enum dtype kv_dtype; // of the cache

static struct cuda_decode_shape shape_of(const struct cuda_device_info *info, uint32_t num_heads,
                                         uint32_t num_kv_heads, uint32_t head_dim) {
    return cuda_decode_shape_of(info, num_heads, num_kv_heads, head_dim, kv_dtype);
}

typedef void check_fn(const struct cuda_device_info *info, uint32_t num_heads,
                      uint32_t num_kv_heads, uint32_t head_dim);

static void each_model_of_kind(check_fn *check) {
    for (size_t b = 0; b < ARRAY_LEN(shared_bytes) * ARRAY_LEN(num_sms); b++) {
        const struct cuda_device_info info = {
            .num_sms = num_sms[b % ARRAY_LEN(num_sms)],
            .shared_bytes_max = shared_bytes[b / ARRAY_LEN(num_sms)],
        };
        for (size_t m = 0; m < ARRAY_LEN(groups) * ARRAY_LEN(kv_heads); m++) {
            uint32_t heads = kv_heads[m / ARRAY_LEN(groups)];
            for (size_t d = 0; d < ARRAY_LEN(head_dims); d++) {
                // kernel_table.c gives them to no smaller device.
                if (head_dims[d] > 256 && info.shared_bytes_max < CUDA_WIDE_HEADS_BYTES) continue;
                check(&info, heads * groups[m % ARRAY_LEN(groups)], heads, head_dims[d]);
            }
        }
    }
}

static void each_model(check_fn *check) {
    static const enum dtype kinds[] = {DTYPE_BF16, DTYPE_F8_E4M3};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        kv_dtype = kinds[k];
        each_model_of_kind(check);
    }
}

static void check_fits(const struct cuda_device_info *info, uint32_t num_heads,
                       uint32_t num_kv_heads, uint32_t head_dim) {
    struct cuda_decode_shape s = shape_of(info, num_heads, num_kv_heads, head_dim);
    // Compiled for sm_90 the kernel has 512 bytes of static shared memory (cuobjdump -res-usage).
    int own = 512, blocks = s.num_blocks / info->num_sms;
    assert_in_range(s.stages, 1, 4);
    assert_in_range(blocks, 1, 2);
    assert_true(s.shared_bytes + CUDA_DECODE_RESERVED_BYTES <= info->shared_bytes_max);
    assert_true(own <= CUDA_DECODE_RESERVED_BYTES);
    // A multiprocessor has 1,024 bytes more than a block may use, and reserves as much for each
    // block.
    assert_true(blocks * (s.shared_bytes + own + 1024) <= info->shared_bytes_max + 1024);
}

// The launch fits in a block, and all counted blocks fit on a multiprocessor.
static void test_shared_memory_fits(void **state) {
    (void)state;
    each_model(check_fits);
}

static void check_work(const struct cuda_device_info *info, uint32_t num_heads,
                       uint32_t num_kv_heads, uint32_t head_dim) {
    struct cuda_decode_shape s = shape_of(info, num_heads, num_kv_heads, head_dim);
    assert_int_equal(s.units_per_span, (int)num_kv_heads * s.groups);
    assert_true(s.groups * s.queries >= (int)(num_heads / num_kv_heads));
    assert_true(s.num_spans >= 1);
    int units = s.num_spans * s.units_per_span;
    int rounds = (units + s.num_blocks - 1) / s.num_blocks;
    // With a single span the number of heads decides how full the last round is.
    if (s.num_spans == 1) return;
    int idle = rounds * s.num_blocks - units;
    assert_true(idle < s.units_per_span);
}

// In the last round fewer blocks idle than one more span would need.
static void test_blocks_have_work(void **state) {
    (void)state;
    each_model(check_work);
}

// A sequence gets as many blocks as let all clusters of a step run at once. Zero if even one block
// each would be too many.
static void test_few_sequences_share_the_device(void **state) {
    (void)state;
    const struct cuda_device_info info = {.num_sms = 132, .max_clusters = {132, 66, 32, 15}};
    const struct {
        uint32_t num_seqs, num_heads, num_kv_heads, head_dim;
        int size;
    } cases[] = {{1, 16, 8, 128, 8}, {2, 16, 8, 128, 4},  {3, 16, 8, 128, 4},  {8, 16, 8, 128, 2},
                 {9, 16, 8, 128, 1}, {16, 16, 8, 128, 1}, {17, 16, 8, 128, 0}, {1, 32, 1, 64, 8},
                 {4, 32, 1, 64, 4},  {1, 16, 8, 256, 8},  {1, 16, 8, 512, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(cuda_attention_cluster_size(&info, cases[i].num_seqs, cases[i].num_heads,
                                                     cases[i].num_kv_heads, cases[i].head_dim),
                         cases[i].size);
    }
    const struct cuda_device_info older = {.num_sms = 108};
    assert_int_equal(cuda_attention_cluster_size(&older, 1, 16, 8, 128), 0);
}

// The engine pads, so every count is used as it is. Clusters are the largest for which all of a
// step run at once.
static void test_the_count_given_decides(void **state) {
    (void)state;
    const struct cuda_device_info info = {.num_sms = 132, .max_clusters = {132, 66, 32, 15}};
    for (uint32_t n = 1; n <= 140; n++) {
        // A cluster for each 8 heads that share keys
        for (uint32_t heads = 8; heads <= 24; heads += 8) {
            uint32_t clusters = n * heads / 8;
            int want = clusters <= 15    ? 8
                       : clusters <= 32  ? 4
                       : clusters <= 66  ? 2
                       : clusters <= 132 ? 1
                                         : 0;
            assert_int_equal(cuda_attention_cluster_size(&info, n, heads, 1, 128), want);
        }
    }
}

// Tiles that the busiest multiprocessor reads, with two more for each item's ends.
static uint64_t shared_time(const struct cuda_device_info *info, uint32_t num_heads,
                            uint32_t num_kv_heads, const struct shared_prefixes *shared,
                            uint32_t tiles) {
    uint32_t items = cuda_shared_items(shared, num_heads, num_kv_heads, tiles);
    uint32_t sms = (uint32_t)info->num_sms;
    return (uint64_t)((items + sms - 1) / sms) * (tiles + 2);
}

static void check_shared(const struct cuda_device_info *info, uint32_t num_heads,
                         uint32_t num_kv_heads, const struct shared_prefixes *shared,
                         uint32_t most_rounds, uint32_t most_tiles) {
    uint32_t num_seqs = 0, slots = 0;
    for (uint32_t i = 0; i < shared->num; i++) num_seqs += shared->list[i].num_seqs;
    uint32_t max_slots = cuda_shared_slots_max(info, num_heads, num_seqs);
    uint32_t tiles = cuda_shared_item_tiles(info, shared, num_heads, num_kv_heads, max_slots);
    uint32_t items = cuda_shared_items(shared, num_heads, num_kv_heads, tiles);
    for (uint32_t i = 0; i < shared->num; i++) {
        slots += shared->list[i].num_seqs * cuda_shared_splits(&shared->list[i], tiles);
        assert_true(cuda_shared_splits(&shared->list[i], tiles) >= 1);
    }
    assert_true(slots <= max_slots);
    assert_in_range(items, 1, most_rounds * (uint32_t)info->num_sms);
    assert_in_range(tiles, 1, most_tiles);
    // No other number of tiles whose results fit ends sooner, and no smaller one as soon.
    for (uint32_t other = 1; other <= most_tiles; other++) {
        uint32_t results = 0;
        bool fits = true;
        for (uint32_t i = 0; i < shared->num; i++) {
            uint32_t splits = cuda_shared_splits(&shared->list[i], other);
            fits = fits && splits <= CUDA_SHARED_SPLITS_MAX;
            results += shared->list[i].num_seqs * splits;
        }
        if (!fits || results > max_slots) continue;
        uint64_t time = shared_time(info, num_heads, num_kv_heads, shared, other);
        uint64_t chosen = shared_time(info, num_heads, num_kv_heads, shared, tiles);
        assert_true(other < tiles ? time > chosen : time >= chosen);
    }
}

// Items of shared prefixes load the multiprocessors evenly, and their results fit.
static void test_items_of_shared_prefixes(void **state) {
    (void)state;
    const struct cuda_device_info info = {.num_sms = 132};
    // 256 sequences of 2,048 positions: 32 and 64 units of 16 tiles, in 128 items.
    const struct shared_prefixes one = {.num = 1, .list = {{0, 256, 2048}}};
    check_shared(&info, 16, 8, &one, 1, 4);
    check_shared(&info, 32, 8, &one, 1, 8);
    const struct shared_prefixes few = {.num = 1, .list = {{0, 16, 4096 + 16}}};
    check_shared(&info, 16, 8, &few, 1, 3);
    check_shared(&info, 64, 1, &few, 1, 5);
    const struct shared_prefixes two = {.num = 2, .list = {{0, 100, 1024}, {100, 40, 128}}};
    check_shared(&info, 16, 8, &two, 1, 8);
    for (uint32_t n = 2; n < 1100; n += 7) {
        const struct shared_prefixes any = {.num = 2, .list = {{0, n, 16 * n}, {n, 17, 16}}};
        check_shared(&info, 16, 8, &any, 9, 16 * n / CUDA_SHARED_TILE + 1);
        check_shared(&info, 7, 1, &any, 9, 16 * n / CUDA_SHARED_TILE + 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory_fits),
        cmocka_unit_test(test_blocks_have_work),
        cmocka_unit_test(test_the_count_given_decides),
        cmocka_unit_test(test_items_of_shared_prefixes),
        cmocka_unit_test(test_few_sequences_share_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
