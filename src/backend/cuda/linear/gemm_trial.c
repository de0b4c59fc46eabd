#include "backend/cuda/linear/gemm_trial.h"

#include "base/check.h"

enum {
    ALGORITHMS = 8, // of cuBLASLt's, timed per shape
    WAYS_MAX = ALGORITHMS + 8,
    ROUNDS = 5, // that are timed
    SHORT_RUNS = 4, // of a short task at once
    PADDED_ROWS_MAX = 512, // up to which ways are timed with a bucket's largest row count
};

static const float never_ms = 1e30f; // of a way that does not run
static const float late_ms = 1e-3f; // what a kernel of cuBLASLt's costs beside its own time

// One product's descriptors. C is row-major [rows][out], which cuBLAS reads as its transpose:
// [out x rows] = W [in x out] transposed times x [in x rows].
struct product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight, x, out;
};

uint32_t gemm_bucket(uint32_t rows) {
    if (rows <= PADDED_ROWS_MAX) return rows <= 8 ? 8 : (rows + 15) / 16 * 16;
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

// product_fini also after an error.
static cublasStatus_t product_init(const struct cuda_gemm *g, struct product *p,
                                   const struct cuda_linear_task *task) {
    const struct gemm_library *l = &g->library;
    const struct cuda_linear_view *linear = &task->linear;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cudaDataType_t out_type = task->out_is_float ? CUDA_R_32F : CUDA_R_16BF;
    *p = (struct product){0};
    cublasStatus_t r = l->desc_create(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!r) {
        r = l->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    }
    if (!r && linear->bias) r = set_bias(g, p, linear->bias);
    if (!r) r = l->layout_create(&p->weight, CUDA_R_16BF, linear->in, linear->out, linear->in);
    if (!r) r = l->layout_create(&p->x, CUDA_R_16BF, linear->in, task->rows, linear->in);
    if (!r) r = l->layout_create(&p->out, out_type, linear->out, task->rows, linear->out);
    return r;
}

// cuBLASLt's product, into scratch where a kernel follows; what is added to is its C.
static bool run_cublas(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                       const cublasLtMatmulAlgo_t *algo, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    void *out = task->is_gated ? task->scratch : task->out;
    struct product p;
    cublasStatus_t r = product_init(g, &p, task);
    if (!r) {
        r = g->library.matmul(g->handle, p.desc, &one, task->linear.weight, p.weight, task->x, p.x,
                              task->is_added ? &one : &zero, out, p.out, out, p.out, algo,
                              g->workspace, GEMM_WORKSPACE_BYTES, stream);
    }
    product_fini(g, &p);
    if (!r && task->is_gated) {
        const struct silu_mul_args gate = {out, task->out, task->rows, task->linear.out / 2};
        cuda_silu_mul_launch(&gate, g->info, stream);
    }
    return !r;
}

bool gemm_run_way(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                  const struct gemm_way *way, cudaStream_t stream) {
    switch ((enum gemm_kind)way->kind) {
    case GEMM_CUBLAS:
        return run_cublas(g, task, way->has_algo ? &way->algo : NULL, stream);
    case GEMM_BATCH:
        return cuda_linear_batch_takes(task, way->split, g->info) &&
               cuda_linear_batch_launch(task, way->split, g->info, stream);
    case GEMM_GATED:
        return cuda_linear_gated_takes(task, g->info) &&
               cuda_linear_gated_launch(task, g->info, stream);
    }
    return false;
}

// Sums of parts of the inputs are to be kept in float32, not rounded to the result's type.
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

// What the heuristic proposes for the task, best first; returns how many.
static int propose(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                   cublasLtMatmulHeuristicResult_t results[ALGORITHMS]) {
    const struct gemm_library *l = &g->library;
    cublasLtMatmulPreference_t preference = NULL;
    struct product p;
    int count = 0;
    cublasStatus_t r = product_init(g, &p, task);
    if (!r) r = make_preference(g, &preference);
    if (!r) {
        r = l->heuristic(g->handle, p.desc, p.weight, p.x, p.out, p.out, preference, ALGORITHMS,
                         results, &count);
    }
    if (preference) l->preference_destroy(preference);
    product_fini(g, &p);
    return r ? 0 : count;
}

static bool is_capturing(cudaStream_t stream) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &capture) || capture != cudaStreamCaptureStatusNone;
}

// What is timed stands for all row counts of a bucket: its largest, in memory of its own where
// decode batches are, which graphs run padded to a bucket. Timed with 242 rows, a tile of 248 has
// won that then took twice the time of others for 256. x is repeated, for it takes the chip less to
// multiply zeros. NULL: no memory, or none of its own is needed; the caller's rows have to do.
static void *pad(struct cuda_linear_task *task, cudaStream_t stream) {
    uint32_t padded = gemm_bucket(task->rows);
    size_t row_bytes = (size_t)task->linear.in * sizeof(uint16_t), x_bytes = padded * row_bytes;
    size_t out_bytes = (size_t)padded * task->linear.out * (task->out_is_float ? 4 : 2);
    size_t out_at = (x_bytes + 255) / 256 * 256;
    size_t scratch_at = out_at + (out_bytes + 255) / 256 * 256;
    char *memory = NULL;
    if (padded == task->rows || padded > PADDED_ROWS_MAX) return NULL;
    if (cudaMalloc((void **)&memory, scratch_at + (task->is_gated ? out_bytes : 0))) return NULL;
    for (uint32_t done = 0; done < padded; done += task->rows) {
        uint32_t count = padded - done < task->rows ? padded - done : task->rows;
        cudaMemcpyAsync(memory + done * row_bytes, task->x, count * row_bytes,
                        cudaMemcpyDeviceToDevice, stream);
    }
    task->x = memory;
    task->out = memory + out_at;
    task->scratch = memory + scratch_at;
    task->rows = padded;
    return memory;
}

// The ways that a task could go, and what was measured of them.
struct contest {
    struct gemm_way ways[WAYS_MAX];
    float ms[WAYS_MAX];
    int num_ways;
};

static void enter(struct contest *c, const struct gemm_way *way) {
    CHECK(c->num_ways < WAYS_MAX, "num_ways=%d", c->num_ways);
    c->ways[c->num_ways++] = *way;
}

static void enter_cublas(struct contest *c, const struct cuda_gemm *g,
                         const struct cuda_linear_task *task) {
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS];
    int count = propose(g, task, results);
    for (int i = 0; i < count; i++) {
        enter(c, &(struct gemm_way){.kind = GEMM_CUBLAS, .has_algo = 1, .algo = results[i].algo});
    }
}

// Those that do not take the task drop out in their first run.
static void enter_ours(struct contest *c) {
    for (uint32_t split = 1; split <= CUDA_BATCH_SPLIT_MAX; split *= 2) {
        enter(c, &(struct gemm_way){.kind = GEMM_BATCH, .split = split});
    }
    enter(c, &(struct gemm_way){.kind = GEMM_GATED});
}

static bool is_long(const struct cuda_linear_task *task) {
    return task->rows > PADDED_ROWS_MAX;
}

// `count` runs one behind the other, as launches of a step are: ours begin before the one in front
// has ended. Small weights come from the L2 then, which in a step they do not. never_ms: it does
// not run.
static float time_runs(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                       const struct gemm_way *way, int count, cudaStream_t stream) {
    float ms = never_ms;
    cudaEventRecord(g->start, stream);
    for (int i = 0; i < count; i++) {
        if (!gemm_run_way(g, task, way, stream)) return never_ms;
    }
    cudaEventRecord(g->stop, stream);
    if (cudaEventSynchronize(g->stop) || cudaEventElapsedTime(&ms, g->start, g->stop)) {
        return never_ms;
    }
    return ms;
}

// A way that is far behind after one round will not win, and a first start is not to wait for it.
static void drop_slow(struct contest *c) {
    float best = never_ms;
    for (int i = 0; i < c->num_ways; i++) best = c->ms[i] < best ? c->ms[i] : best;
    for (int i = 0; i < c->num_ways; i++) {
        if (c->ms[i] > best * 1.3f) c->ms[i] = never_ms;
    }
}

// Ways take turns, so that what changes with time, clocks above all, is the same for all of them.
// Of a short task the least time counts, for nothing makes a run faster than it is and there are
// too few for a median. A long one runs into the limit of the device's power, as it will in steps
// that are full of them, and the whole time counts.
static void measure(struct contest *c, const struct cuda_gemm *g,
                    const struct cuda_linear_task *task, cudaStream_t stream) {
    bool whole = is_long(task);
    for (int round = 0; round <= ROUNDS; round++) {
        for (int i = 0; i < c->num_ways; i++) {
            if (round > 0 && c->ms[i] == never_ms) continue;
            float ms = time_runs(g, task, &c->ways[i], whole ? 1 : SHORT_RUNS, stream);
            if (round <= 1 || ms == never_ms) { // the first round warms up
                c->ms[i] = ms;
            } else if (whole) {
                c->ms[i] += ms;
            } else if (ms < c->ms[i]) {
                c->ms[i] = ms;
            }
        }
        if (round == 1) drop_slow(c);
    }
}

// Earlier ones win ties within the noise: ours, which send less through memory. Of a short task
// cuBLASLt's have to be better by what the kernels around them lose, since a kernel that neither
// begins early nor lets the next one begin keeps those waiting. False: none runs.
static bool winner(const struct contest *c, bool whole, struct gemm_way *way) {
    float best = never_ms;
    for (int i = 0; i < c->num_ways; i++) {
        bool is_late = !whole && c->ways[i].kind == GEMM_CUBLAS;
        float ms = c->ms[i] == never_ms || !is_late ? c->ms[i] : c->ms[i] + SHORT_RUNS * late_ms;
        if (ms >= best * 0.98f) continue;
        best = ms;
        *way = c->ways[i];
    }
    return best != never_ms;
}

// Timing and freeing memory would end a capture.
static bool first_proposed(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                           struct gemm_way *way) {
    struct contest contest = {.num_ways = 0};
    enter_cublas(&contest, g, task);
    if (contest.num_ways > 0) *way = contest.ways[0];
    return contest.num_ways > 0;
}

bool gemm_choose(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                 cudaStream_t stream, struct gemm_way *way, bool *is_timed) {
    *is_timed = !is_capturing(stream);
    if (!*is_timed) return first_proposed(g, task, way);
    struct contest contest = {.num_ways = 0};
    struct cuda_linear_task trial = *task;
    bool was_well = cudaPeekAtLastError() == cudaSuccess;
    void *memory = pad(&trial, stream);
    // The same product, but what is added to may not be touched.
    if (task->is_added && !memory) trial.out = task->scratch;
    trial.is_added = false;
    enter_ours(&contest);
    enter_cublas(&contest, g, &trial);
    measure(&contest, g, &trial, stream);
    cudaFree(memory); // waits for what uses it
    // No memory for a trial, or a way that was refused, is no fault of the step's.
    if (was_well) (void)cudaGetLastError();
    return winner(&contest, is_long(task), way);
}
