// Which products are recorded to load cuBLASLt's kernels: those of the cache for the model's
// shapes, once each. The library is replaced by functions that take notes.
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_linear_util.h"
#include "backend/cuda/gemm/gemm_trial.h"
#include "base/compiler.h"

enum { CALLS_MAX = 16 };

// What the thread has asked for.
static struct notes {
    struct {
        cublasLtMatmulAlgo_t algo;
        const void *weight, *out, *workspace;
        size_t workspace_bytes;
    } calls[CALLS_MAX];
    uint32_t num_calls, num_layouts, num_open;
    uint64_t rows[3 * CALLS_MAX], cols[3 * CALLS_MAX]; // of the layouts: weight, x, out
} notes;

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *out, cublasComputeType_t type,
                                  cudaDataType_t scale) {
    (void)type, (void)scale;
    *out = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc) {
    (void)desc;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
    (void)desc, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                    uint64_t cols, int64_t stride) {
    (void)type, (void)stride;
    uint32_t i = notes.num_layouts++;
    if (i >= ARRAY_LEN(notes.rows)) return CUBLAS_STATUS_NOT_SUPPORTED;
    notes.rows[i] = rows;
    notes.cols[i] = cols;
    notes.num_open++;
    *out = (cublasLtMatrixLayout_t)(void *)&notes.rows[i];
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) {
    (void)layout;
    notes.num_open--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                             const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                             cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                             cublasLtMatrixLayout_t c_layout, void *d,
                             cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                             void *workspace, size_t bytes, cudaStream_t stream) {
    (void)handle, (void)desc, (void)alpha, (void)a_layout, (void)b, (void)b_layout, (void)beta;
    (void)c, (void)c_layout, (void)d_layout, (void)stream;
    uint32_t i = notes.num_calls++;
    if (i >= CALLS_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
    notes.calls[i].algo = *algo;
    notes.calls[i].weight = a;
    notes.calls[i].out = d;
    notes.calls[i].workspace = workspace;
    notes.calls[i].workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static struct gemm_way way_of(unsigned char byte) {
    struct gemm_way way = {.kind = KERNEL_CUBLAS, .has_algo = 1};
    memset(&way.algo, byte, sizeof way.algo);
    return way;
}

static void put(struct cuda_gemm *gemm, uint32_t rows, uint32_t out, uint32_t in,
                const struct gemm_way *way) {
    const struct gemm_key key = {.rows = rows, .out = out, .in = in};
    gemm_cache_put(gemm->cache, &key, way);
}

// With a cache of three algorithms for [1000][64], another way for it, and one for [64][64].
static void gemm_init(struct cuda_gemm *gemm, void *workspace) {
    memset(&notes, 0, sizeof notes);
    *gemm = (struct cuda_gemm){
        .library = {.matmul = matmul,
                    .desc_create = desc_create,
                    .desc_destroy = desc_destroy,
                    .desc_set = desc_set,
                    .layout_create = layout_create,
                    .layout_destroy = layout_destroy},
        .workspace = workspace,
    };
    assert_int_equal(gemm_cache_open(&gemm->cache, NULL, "GPU", 1, NULL), OK);
    put(gemm, 16, 3000, 64, &(struct gemm_way){.kind = KERNEL_BATCH, .split = 1});
    put(gemm, 32, 3000, 64, &(struct gemm_way){.kind = KERNEL_CUBLAS}); // cuBLASLt would choose
    for (unsigned char i = 1; i <= 3; i++) {
        const struct gemm_way way = way_of(i);
        put(gemm, 1024u * i, 3000, 64, &way);
    }
    const struct gemm_way other = way_of(9);
    put(gemm, 48, 64, 64, &other);
}

static bool has(const struct cuda_gemm *gemm, uint32_t rows, uint32_t out, uint32_t in) {
    const struct gemm_key key = {.rows = rows, .out = out, .in = in};
    return gemm_preload_has(gemm->preload, &key);
}

static void test_kernels_of_the_model(void **state) {
    (void)state;
    struct cuda_gemm gemm;
    char *workspace = (char *)(uintptr_t)4096; // nothing reads or writes it
    gemm_init(&gemm, workspace);
    gemm_preload_shape(&gemm.preload, &gemm, 3000, 64);
    assert_non_null(gemm.preload);
    gemm_preload_shape(&gemm.preload, &gemm, 128, 64); // unknown to the cache
    gemm_preload_shape(&gemm.preload, &gemm, 3000, 64); // the next layer's
    gemm_preload_wait(gemm.preload);
    assert_int_equal(gemm_preload_later_bytes(gemm.preload), 0);
    gemm_preload_need(gemm.preload, &(struct gemm_key){.rows = 1024, .out = 3000, .in = 64});
    assert_int_equal(notes.num_calls, 3);
    assert_int_equal(notes.num_open, 0);
    for (uint32_t i = 0; i < 3; i++) {
        const struct gemm_way way = way_of((unsigned char)(i + 1));
        assert_memory_equal(&notes.calls[i].algo, &way.algo, sizeof way.algo);
        // [in][outputs] and [in][rows]
        assert_int_equal(notes.rows[3 * i], 64);
        assert_int_equal(notes.cols[3 * i], 3000);
        assert_int_equal(notes.cols[3 * i + 1], 1024 * (i + 1));
        assert_ptr_equal(notes.calls[i].weight, workspace);
        assert_int_equal(notes.calls[i].workspace_bytes, GEMM_WORKSPACE_BYTES);
        assert_true(has(&gemm, 1024 * (i + 1), 3000, 64));
    }
    assert_false(has(&gemm, 16, 3000, 64)); // a kernel of ours
    assert_false(has(&gemm, 32, 3000, 64)); // unknown
    assert_false(has(&gemm, 48, 64, 64)); // of another model
    gemm_preload_destroy(gemm.preload);
    gemm_cache_close(gemm.cache);
}

static void test_nothing_to_load(void **state) {
    (void)state;
    struct cuda_gemm gemm;
    gemm_init(&gemm, NULL);
    gemm_cache_close(gemm.cache);
    assert_int_equal(gemm_cache_open(&gemm.cache, NULL, "GPU", 1, NULL), OK);
    gemm_preload_shape(&gemm.preload, &gemm, 3000, 64); // without a cache
    assert_null(gemm.preload);
    gemm_preload_wait(NULL);
    gemm_preload_need(NULL, &(struct gemm_key){.rows = 1024, .out = 3000, .in = 64});
    assert_int_equal(gemm_preload_later_bytes(NULL), 0);
    assert_false(has(&gemm, 1024, 3000, 64));
    gemm_preload_destroy(NULL);
    gemm_cache_close(gemm.cache);
}

static void test_an_end_while_it_loads(void **state) {
    (void)state;
    struct cuda_gemm gemm;
    gemm_init(&gemm, NULL);
    gemm_preload_shape(&gemm.preload, &gemm, 3000, 64);
    gemm_preload_destroy(gemm.preload);
    assert_in_range(notes.num_calls, 0, 3);
    assert_int_equal(notes.num_open, 0);
    gemm_cache_close(gemm.cache);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_of_the_model),
        cmocka_unit_test(test_nothing_to_load),
        cmocka_unit_test(test_an_end_while_it_loads),
    };
    return device_pair_run(argc, argv, "cuda gemm preload", tests, ARRAY_LEN(tests));
}
