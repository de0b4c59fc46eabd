// Creating a backend and its objects: memory, and the options and shapes that are refused.
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/ops_util.h"

static enum status create(const char *device, const char *isa, int threads, enum dtype dtype,
                          struct err *err) {
    struct backend_options options = {
        .device = device, .cpu_isa = isa, .threads = threads, .weight_dtype = dtype};
    struct backend *backend = NULL;
    *err = (struct err){0};
    enum status status = backend_create(&backend, &options, err);
    assert_true((status == OK) == (backend != NULL));
    backend_destroy(backend);
    return status;
}

static void test_bad_options(void **state) {
    (void)state;
    struct err err;
    assert_int_equal(create("tpu", "auto", 1, DTYPE_BF16, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "\"tpu\""));
    assert_int_equal(create("cpu", "avx51", 1, DTYPE_BF16, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "unknown cpu isa \"avx51\""));
    assert_non_null(strstr(err.message, "did you mean \"avx512\""));
    assert_int_equal(create("cpu", "", 1, DTYPE_BF16, &err), ERR_INVALID);
    assert_int_equal(create("cpu", "auto", -1, DTYPE_BF16, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "threads is -1"));
    assert_int_equal(create("cpu", "auto", 100000, DTYPE_BF16, &err), ERR_INVALID);
    assert_int_equal(create("cpu", "auto", 1, DTYPE_I8, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "I8"));
}

static void test_good_options(void **state) {
    (void)state;
    struct err err;
    assert_int_equal(create("auto", "auto", 0, DTYPE_BF16, &err), OK);
    assert_int_equal(create(NULL, NULL, 1, DTYPE_F32, &err), OK);
    assert_int_equal(create("cpu", "scalar", 5, DTYPE_F32, &err), OK);
}

static int policy_of(void *memory) {
    int policy = -1;
    syscall(SYS_get_mempolicy, &policy, NULL, 0, memory, MPOL_F_ADDR);
    return policy;
}

// A single node stands for several: the kernel notes the policy either way.
static void test_memory_is_spread_over_nodes(void **state) {
    (void)state;
    const size_t big = 4 << 20;
    void *memory[2], *probe = cpu_memory_alloc_on(big, 1);
    bool can = policy_of(probe) == MPOL_INTERLEAVE;
    cpu_memory_free(probe);
    if (!can) {
        print_message("this system sets no memory policies, skipped\n");
        skip();
    }
    struct backend *backend = ops_backend("scalar", 1, DTYPE_BF16);
    for (uint64_t nodes = 0; nodes < 2; nodes++) {
        cpu_backend_of(backend)->nodes = nodes;
        assert_int_equal(backend->ops->alloc(backend, big, &memory[nodes], NULL), OK);
    }
    assert_int_equal(policy_of(memory[0]), MPOL_DEFAULT);
    assert_int_equal(policy_of(memory[1]), MPOL_INTERLEAVE);
    backend->ops->release(backend, memory[0]);
    backend->ops->release(backend, memory[1]);
    backend_destroy(backend);
}

// An ISA that the machine lacks is refused by name; "auto" takes the fastest kernels.
static void test_isas(void **state) {
    (void)state;
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    struct cpu_kernels best;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        struct err err;
        enum status status = create("cpu", table[i].name, 1, DTYPE_BF16, &err);
        assert_int_equal(status, table[i].is_here ? OK : ERR_UNSUPPORTED);
        if (table[i].is_here) {
            assert_string_equal(table[i].kernels.isa, table[i].name);
        } else {
            assert_non_null(strstr(err.message, table[i].name));
            assert_non_null(strstr(err.message, "it has: scalar"));
        }
    }
    cpu_kernels_choose(cpu_isa_features(), &best);
    struct backend *backend = ops_backend("auto", 2, DTYPE_BF16);
    char want[64];
    snprintf(want, sizeof want, "cpu %s, 2 threads", best.isa);
    assert_string_equal(backend->description, want);
    assert_int_equal(backend->activation_dtype, DTYPE_F32);
    backend_destroy(backend);
    backend_destroy(NULL);
}

static void test_memory(void **state) {
    (void)state;
    struct backend *backend = ops_backend("auto", 1, DTYPE_BF16);
    const size_t sizes[] = {0, 1, 63, 4096, (1 << 20) - 64, 1 << 20, (5 << 20) + 17};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        void *dev = NULL;
        unsigned char *host = malloc(sizes[i] + 1);
        assert_int_equal(backend->ops->alloc(backend, sizes[i], &dev, NULL), OK);
        assert_int_equal((uintptr_t)dev % 64, 0);
        backend->ops->download(backend, host, dev, sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++) assert_int_equal(host[j], 0);
        memset(host, 7, sizes[i] + 1);
        backend->ops->upload(backend, dev, host, sizes[i]);
        assert_memory_equal(dev, host, sizes[i]);
        assert_int_equal(backend->ops->synchronize(backend, NULL), OK);
        backend->ops->release(backend, dev);
        free(host);
    }
    void *dev = NULL;
    struct err err = {0};
    assert_int_equal(backend->ops->alloc(backend, SIZE_MAX - 10, &dev, &err), ERR_NOMEM);
    assert_int_equal(backend->ops->alloc(backend, (size_t)1 << 60, &dev, &err), ERR_NOMEM);
    backend->ops->release(backend, NULL);
    backend_destroy(backend);
}

static void test_bad_linears(void **state) {
    (void)state;
    struct backend *backend = ops_backend("auto", 1, DTYPE_BF16);
    static const uint16_t data[64];
    struct matrix_slice good = {.source = {.data = data},
                                .dtype = DTYPE_BF16,
                                .rows = 4,
                                .cols = 8,
                                .row_stride = 8},
                        other = good, bias = good;
    struct linear *linear = NULL;
    struct err err = {0};
    other.cols = 6;
    struct linear_spec differ = {(struct matrix_slice[]){good, other}, NULL, 2, WEIGHTS_NATIVE};
    assert_int_equal(backend->ops->linear_create(backend, &differ, &linear, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "[4][6]"));
    other = good, other.dtype = DTYPE_I8;
    struct linear_spec integers = {&other, NULL, 1, WEIGHTS_NATIVE};
    assert_int_equal(backend->ops->linear_create(backend, &integers, &linear, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "I8"));
    struct linear_spec wide_bias = {&good, &bias, 1, WEIGHTS_NATIVE};
    assert_int_equal(backend->ops->linear_create(backend, &wide_bias, &linear, &err), ERR_INVALID);
    struct linear_spec nothing = {NULL, NULL, 0, WEIGHTS_NATIVE};
    assert_int_equal(backend->ops->linear_create(backend, &nothing, &linear, &err), ERR_INVALID);
    other = good, other.rows = 0;
    struct linear_spec empty = {&other, NULL, 1, WEIGHTS_NATIVE};
    assert_int_equal(backend->ops->linear_create(backend, &empty, &linear, &err), ERR_INVALID);
    other = good, other.rows = INT32_MAX, other.cols = INT32_MAX;
    struct linear_spec huge = {&other, NULL, 1, WEIGHTS_NATIVE};
    assert_int_equal(backend->ops->linear_create(backend, &huge, &linear, &err), ERR_NOMEM);
    assert_null(linear);
    backend->ops->linear_destroy(backend, NULL);
    backend_destroy(backend);
}

static void test_linear_bytes(void **state) {
    (void)state;
    struct backend *bf16 = ops_backend("auto", 1, DTYPE_BF16);
    struct backend *f32 = ops_backend("auto", 1, DTYPE_F32);
    assert_int_equal(bf16->ops->linear_bytes(bf16, 17, 3, true, WEIGHTS_NATIVE),
                     32 * 32 * 2 + 32 * 4);
    assert_int_equal(f32->ops->linear_bytes(f32, 16, 4, false, WEIGHTS_NATIVE),
                     16 * 4 * 4 + 16 * 4);
    backend_destroy(bf16);
    backend_destroy(f32);
}

static void test_kv_caches(void **state) {
    (void)state;
    struct backend *backend = ops_backend("auto", 1, DTYPE_BF16);
    struct kv_cache_spec good = {.num_layers = 2,
                                 .num_blocks = 3,
                                 .block_size = 16,
                                 .num_kv_heads = 4,
                                 .head_dim = 64,
                                 .num_heads = 8,
                                 .limits = {1, 1, 16, 1, 1, 0},
                                 .dtype = DTYPE_F32};
    assert_int_equal(backend->ops->kv_cache_block_bytes(backend, &good), 2 * 4 * 16 * 64 * 2 * 4);
    good.dtype = DTYPE_I8; // a number of 4 bytes scales the 64 of a head
    assert_int_equal(backend->ops->kv_cache_block_bytes(backend, &good), 2 * 4 * 16 * (64 + 4) * 2);
    good.dtype = DTYPE_NONE; // bfloat16
    assert_int_equal(backend->ops->kv_cache_block_bytes(backend, &good), 2 * 4 * 16 * 64 * 2 * 2);
    struct kv_cache_spec bad[7];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) bad[i] = good;
    bad[0].block_size = 24;
    bad[1].block_size = 0;
    bad[2].head_dim = 40;
    bad[3].num_layers = 0;
    bad[4].num_blocks = 0;
    bad[5].num_kv_heads = 0;
    bad[6].dtype = DTYPE_F16;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct kv_cache *cache = NULL;
        struct err err = {0};
        enum status want = i == 2 || i == 6 ? ERR_UNSUPPORTED : ERR_INVALID;
        assert_int_equal(backend->ops->kv_cache_create(backend, &bad[i], &cache, &err), want);
        assert_null(cache);
        assert_true(err.message[0]);
    }
    struct kv_cache_spec huge = good;
    huge.num_blocks = UINT32_MAX, huge.num_layers = UINT32_MAX / 2;
    struct kv_cache *cache = NULL;
    assert_int_equal(backend->ops->kv_cache_create(backend, &huge, &cache, NULL), ERR_NOMEM);
    assert_int_equal(backend->ops->kv_cache_create(backend, &good, &cache, NULL), OK);
    backend->ops->kv_cache_destroy(backend, cache);
    backend->ops->kv_cache_destroy(backend, NULL);
    backend_destroy(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_good_options),
        cmocka_unit_test(test_memory_is_spread_over_nodes),
        cmocka_unit_test(test_isas),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bad_linears),
        cmocka_unit_test(test_linear_bytes),
        cmocka_unit_test(test_kv_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
