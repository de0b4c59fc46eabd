#include "backend/cuda/gemm/gemm_candidates.h"

#include <string.h>

#include "backend/cuda/gemm/gemm_product.h"
#include "base/compiler.h"

// A product whose algorithms are listed.
struct listing {
    const struct cuda_gemm *gemm;
    struct gemm_product product;
    cublasLtMatmulAlgo_t *algos;
    int count, max;
};

// Requires partial sums of split inputs to stay in float32, not in the result's type.
static cublasStatus_t make_preference(const struct cuda_gemm *g,
                                      cublasLtMatmulPreference_t *preference) {
    const struct gemm_library *l = &g->library;
    const size_t bytes = GEMM_WORKSPACE_BYTES;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t r = l->preference_create(preference);
    if (!r) {
        r = l->preference_set(*preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                              sizeof bytes);
    }
    if (!r) {
        r = l->preference_set(*preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                              sizeof reduction);
    }
    return r;
}

static void list_proposals(struct listing *list) {
    const struct gemm_library *l = &list->gemm->library;
    const struct gemm_product *p = &list->product;
    cublasLtMatmulHeuristicResult_t results[GEMM_PROPOSALS_MAX];
    cublasLtMatmulPreference_t preference = NULL;
    int wanted = list->max < GEMM_PROPOSALS_MAX ? list->max : GEMM_PROPOSALS_MAX, count = 0;
    cublasStatus_t r = make_preference(list->gemm, &preference);
    if (!r) {
        r = l->heuristic(list->gemm->handle, p->desc, p->weight, p->x, p->out, p->out, preference,
                         wanted, results, &count);
    }
    if (preference) l->preference_destroy(preference);
    for (int i = 0; !r && i < count; i++) list->algos[list->count++] = results[i].algo;
}

static bool has(const struct listing *list, const cublasLtMatmulAlgo_t *algo) {
    for (int i = 0; i < list->count; i++) {
        if (memcmp(&list->algos[i], algo, sizeof *algo) == 0) return true;
    }
    return false;
}

// Whether the library has such an algorithm for this product.
static bool is_valid(const struct listing *list, const cublasLtMatmulAlgo_t *algo) {
    const struct gemm_product *p = &list->product;
    cublasLtMatmulHeuristicResult_t result = {0};
    return !list->gemm->library.algo_check(list->gemm->handle, p->desc, p->weight, p->x, p->out,
                                           p->out, algo, &result) &&
           !result.state && result.workspaceSize <= GEMM_WORKSPACE_BYTES;
}

// Options are numbers whose meaning the library does not tell.
static void list_variants(struct listing *list, const cublasLtMatmulAlgo_t *proposal) {
    enum { OPTIONS = 8 };
    static const uint16_t clusters[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                        CUBLASLT_CLUSTER_SHAPE_1x2x1};
    const struct gemm_library *l = &list->gemm->library;
    for (size_t i = 0; i < ARRAY_LEN(clusters) * OPTIONS && list->count < list->max; i++) {
        const uint16_t *cluster = &clusters[i / OPTIONS];
        const uint32_t option = i % OPTIONS;
        cublasLtMatmulAlgo_t algo = *proposal;
        if (l->algo_set(&algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster, sizeof *cluster) ||
            l->algo_set(&algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &option, sizeof option)) {
            continue;
        }
        if (!has(list, &algo) && is_valid(list, &algo)) list->algos[list->count++] = algo;
    }
}

static bool is_worth_variants(const struct cuda_linear_task *task) {
    // Fewer rows are bound by the weights' bytes, and more rows or outputs have many tiles
    // (measurements: doc/log-cuda.md).
    enum { ROWS_MIN = 113, ROWS_MAX = 400, OUT_MAX = 8192, WEIGHTS_MIN = 16 << 20 };
    return task->rows >= ROWS_MIN && task->rows <= ROWS_MAX && !task->out_is_float &&
           task->linear.out <= OUT_MAX && (size_t)task->linear.out * task->linear.in >= WEIGHTS_MIN;
}

int gemm_candidates(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                    cublasLtMatmulAlgo_t *algos, int max) {
    struct listing list = {.gemm = g, .algos = algos, .max = max};
    if (!gemm_product_init(g, &list.product, task, CUDA_R_16BF,
                           task->out_is_float ? CUDA_R_32F : CUDA_R_16BF)) {
        list_proposals(&list);
        int num_proposals = is_worth_variants(task) ? list.count : 0;
        for (int i = 0; i < num_proposals; i++) list_variants(&list, &algos[i]);
    }
    gemm_product_fini(g, &list.product);
    return list.count;
}
