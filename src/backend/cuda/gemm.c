#include "backend/cuda/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm_cache.h"
#include "backend/cuda/gemm_library.h"

enum {
    WORKSPACE_BYTES = 64 << 20, // what split-K of the largest products asks for
    CANDIDATES = 8, // algorithms timed per shape
    TIMED_RUNS = 5,
    PADDED_ROWS_MAX = 512, // up to which algorithms are timed with a bucket's largest row count
};

static const float never_ms = 1e30f; // of an algorithm that does not run

struct cuda_gemm {
    struct gemm_library library;
    cublasLtHandle_t handle;
    void *workspace; // dev [WORKSPACE_BYTES]
    cudaEvent_t start, stop;
    struct gemm_cache *cache;
};

// One product's descriptors. C is row-major [rows][out], which cuBLAS reads as its transpose:
// [out x rows] = W [in x out] transposed times x [in x rows].
struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight, x, out;
    const void *weight_data, *x_data;
    void *out_data;
};

// Row counts that share an algorithm, so that a step has the same bits padded as by itself: powers of
// two, and in between where decode batches are.
static uint32_t bucket_of(uint32_t rows) {
    if (rows <= PADDED_ROWS_MAX) return rows <= 16 ? rows : (rows + 15) / 16 * 16;
    uint32_t bucket = 1024;
    while (bucket < rows && bucket < 65536) bucket *= 2;
    return bucket;
}

static void product_fini(const struct cuda_gemm *g, struct product *p) {
    if (p->out) g->library.layout_destroy(p->out);
    if (p->x) g->library.layout_destroy(p->x);
    if (p->weight) g->library.layout_destroy(p->weight);
    if (p->desc) g->library.desc_destroy(p->desc);
}

static cublasStatus_t set_bias(const struct cuda_gemm *g, struct product *p, const void *bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = CUDA_R_16BF;
    cublasStatus_t r =
        g->library.desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!r) {
        r = g->library.desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    if (r) return r;
    return g->library.desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
}

static cublasStatus_t product_init(const struct cuda_gemm *g, struct product *p,
                                   const struct cuda_linear_view *linear, uint32_t rows,
                                   bool out_is_float) {
    const struct gemm_library *l = &g->library;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cudaDataType_t out_type = out_is_float ? CUDA_R_32F : CUDA_R_16BF;
    cublasStatus_t r = l->desc_create(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!r) {
        r = l->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    }
    if (!r && linear->bias) r = set_bias(g, p, linear->bias);
    if (!r) r = l->layout_create(&p->weight, CUDA_R_16BF, linear->in, linear->out, linear->in);
    if (!r) r = l->layout_create(&p->x, CUDA_R_16BF, linear->in, rows, linear->in);
    if (!r) r = l->layout_create(&p->out, out_type, linear->out, rows, linear->out);
    return r;
}

static cublasStatus_t multiply(const struct cuda_gemm *g, const struct product *p,
                               const cublasLtMatmulAlgo_t *algo, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    return g->library.matmul(g->handle, p->desc, &one, p->weight_data, p->weight, p->x_data, p->x,
                             &zero, p->out_data, p->out, p->out_data, p->out, algo, g->workspace,
                             WORKSPACE_BYTES, stream);
}

// The median would need more runs than starting up has time for; the least is close to it, since
// nothing can make a run faster than it is. never_ms: it does not run.
static float time_algorithm(const struct cuda_gemm *g, const struct product *p,
                            const cublasLtMatmulAlgo_t *algo, cudaStream_t stream) {
    float best = never_ms;
    for (int i = 0; i <= TIMED_RUNS; i++) {
        float ms = 0;
        cudaEventRecord(g->start, stream);
        if (multiply(g, p, algo, stream)) return never_ms;
        cudaEventRecord(g->stop, stream);
        if (cudaEventSynchronize(g->stop)) return never_ms;
        cudaEventElapsedTime(&ms, g->start, g->stop);
        if (i > 0 && ms < best) best = ms; // the first run warms up
    }
    return best;
}

static bool propose(const struct cuda_gemm *g, const struct product *p,
                    cublasLtMatmulHeuristicResult_t results[CANDIDATES], int *count) {
    const struct gemm_library *l = &g->library;
    const size_t bytes = WORKSPACE_BYTES;
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t r = l->preference_create(&preference);
    if (!r) {
        r = l->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                              sizeof bytes);
    }
    if (!r) {
        r = l->heuristic(g->handle, p->desc, p->weight, p->x, p->out, p->out, preference,
                         CANDIDATES, results, count);
    }
    if (preference) l->preference_destroy(preference);
    return !r && *count > 0;
}

static bool is_capturing(cudaStream_t stream) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &capture) || capture != cudaStreamCaptureStatusNone;
}

// What is timed stands for all row counts of a bucket: its largest, in memory of its own where
// decode batches are, which graphs run padded to a bucket. Timed with 242 rows, a tile of 248 has
// won that then took twice the time of others for 256.
struct trial {
    struct product product;
    void *memory; // dev: x, then the result; or NULL: the caller's
};

// x is repeated, for it takes the chip less to multiply zeros. False: no memory, or an error of
// cuBLASLt's; the caller's own rows have to do.
static bool trial_init(const struct cuda_gemm *g, struct trial *t,
                       const struct cuda_linear_view *linear, const void *x, uint32_t rows,
                       bool out_is_float, cudaStream_t stream) {
    uint32_t padded = bucket_of(rows);
    size_t row_bytes = (size_t)linear->in * sizeof(uint16_t), x_bytes = padded * row_bytes;
    size_t out_bytes = (size_t)padded * linear->out * (out_is_float ? 4 : 2);
    size_t out_at = (x_bytes + 255) / 256 * 256;
    *t = (struct trial){0};
    if (padded == rows || padded > PADDED_ROWS_MAX) return false;
    if (cudaMalloc(&t->memory, out_at + out_bytes)) return false;
    t->product = (struct product){
        .weight_data = linear->weight,
        .x_data = t->memory,
        .out_data = (char *)t->memory + out_at,
    };
    for (uint32_t done = 0; done < padded; done += rows) {
        uint32_t count = padded - done < rows ? padded - done : rows;
        cudaMemcpyAsync((char *)t->memory + done * row_bytes, x, count * row_bytes,
                        cudaMemcpyDeviceToDevice, stream);
    }
    return !product_init(g, &t->product, linear, padded, out_is_float);
}

static void trial_fini(const struct cuda_gemm *g, struct trial *t) {
    product_fini(g, &t->product);
    cudaFree(t->memory); // waits for what uses it
}

// The fastest of what is proposed for `p`; false: none runs it.
static bool fastest(const struct cuda_gemm *g, const struct product *p, cudaStream_t stream,
                    cublasLtMatmulAlgo_t *out) {
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int count = 0, best = 0;
    float best_ms = never_ms;
    if (!propose(g, p, results, &count)) return false;
    for (int i = 0; i < count; i++) {
        float ms = time_algorithm(g, p, &results[i].algo, stream);
        // The heuristic's order breaks ties within the noise.
        if (ms < best_ms * 0.97f) {
            best_ms = ms;
            best = i;
        }
    }
    *out = results[best].algo;
    return best_ms != never_ms;
}

// Chooses an algorithm for `p`, which is of that many rows; false: none runs it.
static bool choose(struct cuda_gemm *g, const struct product *p, const struct gemm_key *key,
                   const struct cuda_linear_view *linear, uint32_t rows, cudaStream_t stream,
                   cublasLtMatmulAlgo_t *out) {
    if (is_capturing(stream)) {
        cublasLtMatmulHeuristicResult_t results[CANDIDATES];
        int count = 0;
        bool is_proposed = propose(g, p, results, &count);
        if (is_proposed) *out = results[0].algo;
        return is_proposed;
    }
    struct trial trial;
    bool was_well = cudaPeekAtLastError() == cudaSuccess;
    bool is_padded = trial_init(g, &trial, linear, p->x_data, rows, key->out_is_float, stream);
    bool is_chosen = is_padded && fastest(g, &trial.product, stream, out);
    if (!is_chosen) is_chosen = fastest(g, p, stream, out);
    trial_fini(g, &trial);
    // No memory for a trial, or a candidate that was refused, is no fault of the step's.
    if (was_well) (void)cudaGetLastError();
    if (is_chosen) gemm_cache_put(g->cache, key, out); // else nothing is kept for the next start
    return is_chosen;
}

bool cuda_gemm_run(struct cuda_gemm *g, const struct cuda_linear_view *linear, const void *x,
                   void *out, uint32_t rows, bool out_is_float, cudaStream_t stream) {
    const struct gemm_key key = {bucket_of(rows), linear->out, linear->in, out_is_float,
                                 linear->bias != NULL};
    struct product p = {.weight_data = linear->weight, .x_data = x, .out_data = out};
    cublasLtMatmulAlgo_t algo;
    cublasStatus_t r = product_init(g, &p, linear, rows, out_is_float);
    bool chosen = !r && (gemm_cache_get(g->cache, &key, &algo) ||
                         choose(g, &p, &key, linear, rows, stream, &algo));
    if (chosen) r = multiply(g, &p, &algo, stream);
    // An algorithm of a bucket may not take every row count in it.
    if (chosen && r) r = multiply(g, &p, NULL, stream);
    product_fini(g, &p);
    return chosen && !r;
}

enum status cuda_gemm_create(struct cuda_gemm **out, const struct cuda_gemm_options *options,
                             struct err *err) {
    *out = NULL;
    struct cuda_gemm *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(err, "matrix products");
    enum status status = gemm_library_open(&g->library, err);
    if (status) goto fail;
    if (g->library.create(&g->handle)) {
        status = err_set(err, ERR_DEVICE, "cuBLASLt could not be started");
        goto fail;
    }
    if (cudaMalloc(&g->workspace, WORKSPACE_BYTES) || cudaEventCreate(&g->start) ||
        cudaEventCreate(&g->stop)) {
        status = err_set(err, ERR_NOMEM, "no device memory for cuBLASLt's workspace");
        goto fail;
    }
    status = gemm_cache_open(&g->cache, options->cache_path, options->device_name,
                             g->library.version(), err);
    if (status) goto fail;
    *out = g;
    return OK;
fail:
    cuda_gemm_destroy(g);
    return status;
}

void cuda_gemm_destroy(struct cuda_gemm *g) {
    if (!g) return;
    gemm_cache_close(g->cache);
    if (g->start) cudaEventDestroy(g->start);
    if (g->stop) cudaEventDestroy(g->stop);
    cudaFree(g->workspace);
    if (g->handle) g->library.destroy(g->handle);
    gemm_library_close(&g->library);
    free(g);
}
