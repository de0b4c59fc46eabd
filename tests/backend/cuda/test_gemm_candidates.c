// Which of cuBLASLt's algorithms compete. The library is replaced by functions whose algorithms
// have a tile, a cluster and an option.
#include "backend/cuda/gemm/gemm_candidates.h"

#include "support/cmocka_all.h"

enum { TILE, CLUSTER, OPTION }; // of cublasLtMatmulAlgo_t.data

// What the library has, and what is still open.
static struct library {
    int num_proposals, num_refused;
    uint64_t options; // of every tile
    size_t workspace_bytes; // of algorithms with option 1
    int num_open;
} library;

static cublasStatus_t desc_create(cublasLtMatmulDesc_t *out, cublasComputeType_t type,
                                  cudaDataType_t scale) {
    (void)type, (void)scale;
    library.num_open++;
    *out = (cublasLtMatmulDesc_t)(void *)&library;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_destroy(cublasLtMatmulDesc_t desc) {
    (void)desc;
    library.num_open--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t desc_set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                               const void *value, size_t bytes) {
    (void)desc, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                    uint64_t cols, int64_t stride) {
    (void)type, (void)rows, (void)cols, (void)stride;
    library.num_open++;
    *out = (cublasLtMatrixLayout_t)(void *)&library;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout) {
    (void)layout;
    library.num_open--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_create(cublasLtMatmulPreference_t *out) {
    library.num_open++;
    *out = (cublasLtMatmulPreference_t)(void *)&library;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_destroy(cublasLtMatmulPreference_t preference) {
    (void)preference;
    library.num_open--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t preference_set(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t attribute,
                                     const void *value, size_t bytes) {
    (void)preference, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

// Proposal i has tile 100 + i, and a cluster of one block, as has the first of its variants.
static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t *results, int *count) {
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *count = wanted < library.num_proposals ? wanted : library.num_proposals;
    for (int i = 0; i < *count; i++) {
        const cublasLtMatmulAlgo_t algo = {{100 + (uint64_t)i, CUBLASLT_CLUSTER_SHAPE_1x1x1}};
        results[i] = (cublasLtMatmulHeuristicResult_t){.algo = algo};
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algo_set(cublasLtMatmulAlgo_t *algo,
                               cublasLtMatmulAlgoConfigAttributes_t attribute, const void *value,
                               size_t bytes) {
    if (attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) {
        assert_int_equal(bytes, 2);
        algo->data[CLUSTER] = *(const uint16_t *)value;
    } else {
        assert_int_equal(attribute, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
        assert_int_equal(bytes, 4);
        algo->data[OPTION] = *(const uint32_t *)value;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t algo_check(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                 const cublasLtMatmulAlgo_t *algo,
                                 cublasLtMatmulHeuristicResult_t *result) {
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
    bool is_refused = algo->data[OPTION] >= library.options;
    library.num_refused += is_refused;
    *result = (cublasLtMatmulHeuristicResult_t){
        .algo = *algo,
        .workspaceSize = algo->data[OPTION] == 1 ? library.workspace_bytes : 0,
    };
    return is_refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static int list(uint32_t rows, uint32_t out, bool is_float, cublasLtMatmulAlgo_t *algos, int max) {
    const struct cuda_gemm gemm = {.library = {.desc_create = desc_create,
                                               .desc_destroy = desc_destroy,
                                               .desc_set = desc_set,
                                               .layout_create = layout_create,
                                               .layout_destroy = layout_destroy,
                                               .preference_create = preference_create,
                                               .preference_destroy = preference_destroy,
                                               .preference_set = preference_set,
                                               .heuristic = heuristic,
                                               .algo_set = algo_set,
                                               .algo_check = algo_check}};
    const struct cuda_linear_task task = {
        .linear = {.out = out, .in = 4096}, .rows = rows, .out_is_float = is_float};
    int count = gemm_candidates(&gemm, &task, algos, max);
    assert_int_equal(library.num_open, 0);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++) {
            assert_memory_not_equal(&algos[i], &algos[k], sizeof algos[i]);
        }
    }
    return count;
}

// Two proposals, each with three clusters and four options. The proposals themselves are two of
// these, and come first.
static void test_variants(void **state) {
    (void)state;
    cublasLtMatmulAlgo_t algos[GEMM_CANDIDATES_MAX];
    library = (struct library){.num_proposals = 2, .options = 4};
    assert_int_equal(list(128, 4096, false, algos, GEMM_CANDIDATES_MAX), 24);
    assert_int_equal(library.num_refused, 24);
    assert_int_equal(algos[0].data[TILE], 100);
    assert_int_equal(algos[1].data[TILE], 101);
    int num_of_tile[2] = {0}, num_of_cluster[16] = {0};
    for (int i = 0; i < 24; i++) {
        num_of_tile[algos[i].data[TILE] - 100]++;
        num_of_cluster[algos[i].data[CLUSTER]]++;
    }
    assert_int_equal(num_of_tile[0], 12);
    assert_int_equal(num_of_tile[1], 12);
    assert_int_equal(num_of_cluster[CUBLASLT_CLUSTER_SHAPE_1x1x1], 8);
    assert_int_equal(num_of_cluster[CUBLASLT_CLUSTER_SHAPE_2x1x1], 8);
    assert_int_equal(num_of_cluster[CUBLASLT_CLUSTER_SHAPE_1x2x1], 8);
}

static void test_too_large_a_workspace(void **state) {
    (void)state;
    cublasLtMatmulAlgo_t algos[GEMM_CANDIDATES_MAX];
    library =
        (struct library){.num_proposals = 1, .options = 4, .workspace_bytes = GEMM_WORKSPACE_BYTES};
    assert_int_equal(list(128, 4096, false, algos, GEMM_CANDIDATES_MAX), 12);
    library.workspace_bytes++;
    assert_int_equal(list(128, 4096, false, algos, GEMM_CANDIDATES_MAX), 9);
}

static void test_where_variants_compete(void **state) {
    (void)state;
    static const struct {
        uint32_t rows, out;
        bool is_float;
        int count;
    } cases[] = {{112, 4096, false, 3}, {113, 4096, false, 72}, {400, 8192, false, 72},
                 {401, 4096, false, 3}, {256, 8193, false, 3},  {256, 4095, false, 3},
                 {256, 4096, true, 3}};
    cublasLtMatmulAlgo_t algos[GEMM_CANDIDATES_MAX];
    library = (struct library){.num_proposals = 3, .options = 8};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            list(cases[i].rows, cases[i].out, cases[i].is_float, algos, GEMM_CANDIDATES_MAX),
            cases[i].count);
    }
}

static void test_limits(void **state) {
    (void)state;
    cublasLtMatmulAlgo_t algos[GEMM_CANDIDATES_MAX];
    library = (struct library){.num_proposals = 100, .options = 100};
    assert_int_equal(list(128, 4096, false, algos, 1), 1);
    assert_int_equal(algos[0].data[TILE], 100);
    assert_int_equal(list(128, 4096, false, algos, 9), 9);
    assert_in_range(list(128, 4096, false, algos, GEMM_CANDIDATES_MAX), 190, GEMM_CANDIDATES_MAX);
    library.num_proposals = 0;
    assert_int_equal(list(128, 4096, false, algos, GEMM_CANDIDATES_MAX), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_too_large_a_workspace),
        cmocka_unit_test(test_where_variants_compete),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
