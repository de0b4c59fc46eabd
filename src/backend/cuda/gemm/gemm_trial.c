#include "backend/cuda/gemm/gemm_trial.h"

#include "backend/cuda/gemm/gemm_candidates.h"
#include "backend/cuda/gemm/gemm_contest.h"
#include "backend/cuda/gemm/gemm_product.h"
#include "base/check.h"

enum {
    PADDED_ROWS_MAX = 512, // up to here, ways are timed with the largest row count of a bucket
};

// What a kernel of cuBLASLt adds to a step of short kernels besides its own time. It neither starts
// early nor lets the next kernel start early, so the kernels around it wait.
static const float late_ms = 1e-3f;

uint32_t gemm_bucket(uint32_t rows) {
    if (rows <= PADDED_ROWS_MAX) return rows <= 8 ? 8 : (rows + 15) / 16 * 16;
    uint32_t bucket = 1024;
    while (bucket < rows && bucket < 65536) bucket *= 2;
    return bucket;
}

static cublasStatus_t product_init(const struct cuda_gemm *g, struct gemm_product *p,
                                   const struct cuda_linear_task *task) {
    return gemm_product_init(g, p, task, CUDA_R_16BF,
                             task->out_is_float ? CUDA_R_32F : CUDA_R_16BF);
}

// cuBLASLt's product. A gated one goes to scratch, and a kernel gates it. An added one uses `out`
// as matrix C.
static bool run_cublas(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                       const cublasLtMatmulAlgo_t *algo, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    void *out = task->is_gated ? task->scratch : task->out;
    struct gemm_product p;
    cublasStatus_t r = product_init(g, &p, task);
    if (!r) {
        r = g->library.matmul(g->handle, p.desc, &one, task->linear.weight, p.weight, task->x, p.x,
                              task->is_added ? &one : &zero, out, p.out, out, p.out, algo,
                              g->workspace, GEMM_WORKSPACE_BYTES, stream);
    }
    gemm_product_fini(g, &p);
    if (!r && task->is_gated) {
        const struct silu_mul_args gate = {out, task->out, task->rows, task->linear.out / 2,
                                           task->activation};
        cuda_silu_mul_launch(&gate, g->info, stream);
    }
    return !r;
}

bool gemm_run_way(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                  const struct gemm_way *way, cudaStream_t stream) {
    const struct kernel_job job = kernel_job_of_task(task, way->split);
    if (!kernel_table_has(way->kind, &job, g->info)) return false;
    switch (way->kind) {
    case KERNEL_BATCH:
        return cuda_linear_batch_launch(task, way->split, g->info, stream);
    case KERNEL_GATED:
        return cuda_linear_gated_launch(task, g->info, stream);
    case KERNEL_CUBLAS:
        return run_cublas(g, task, way->has_algo ? &way->algo : NULL, stream);
    default:
        return false;
    }
}

static bool is_capturing(cudaStream_t stream) {
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &capture) || capture != cudaStreamCaptureStatusNone;
}

// Replaces the task's rows by the largest row count of their bucket, in newly allocated memory,
// because one choice serves the whole bucket. Graphs of decode batches are padded to a bucket
// anyway. Measured: with 242 rows a tile of 248 won, which then took twice the time of others for
// 256 rows. The rows of x are repeated, because multiplying zeros takes less power. NULL: no
// memory, or padding is not needed; the task keeps the caller's rows.
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

// The ways for a task, in the order of the table. Earlier ones win ties.
struct trial {
    const struct cuda_gemm *gemm;
    const struct cuda_linear_task *task;
    cudaStream_t stream;
    struct gemm_way ways[GEMM_WAYS_MAX];
    int num_ways;
};

static void enter(struct trial *t, const struct gemm_way *way) {
    CHECK(t->num_ways < GEMM_WAYS_MAX, "num_ways=%d", t->num_ways);
    t->ways[t->num_ways++] = *way;
}

// Enters at most `max` algorithms.
static void enter_cublas(struct trial *t, int max) {
    cublasLtMatmulAlgo_t algos[GEMM_CANDIDATES_MAX];
    int count = gemm_candidates(t->gemm, t->task, algos, max);
    for (int i = 0; i < count; i++) {
        enter(t, &(struct gemm_way){.kind = KERNEL_CUBLAS, .has_algo = 1, .algo = algos[i]});
    }
}

// Enters a kernel with every number of blocks that may divide the inputs.
static void enter_ours(struct trial *t, const struct kernel_row *row) {
    uint32_t splits_max = row->splits_max ? row->splits_max : 1;
    for (uint32_t split = 1; split <= splits_max; split *= 2) {
        const struct kernel_job job = kernel_job_of_task(t->task, split);
        if (!kernel_row_takes(row, &job, t->gemm->info)) continue;
        enter(t, &(struct gemm_way){.kind = row->kernel, .split = row->splits_max ? split : 0});
    }
}

static void enter_all(struct trial *t) {
    const struct kernel_job job = kernel_job_of_task(t->task, 1);
    const struct kernel_row *row = NULL;
    while ((row = kernel_table_next(row, &job, t->gemm->info))) {
        if (row->chosen != BY_CONTEST) continue;
        if (row->kernel == KERNEL_CUBLAS) {
            enter_cublas(t, GEMM_CANDIDATES_MAX);
        } else {
            enter_ours(t, row);
        }
    }
}

// The contest's `run`. Kernels are launched as in a step, so ours start before the previous one has
// ended. Unlike in a step, small weights then come from the L2.
static float time_runs(void *context, int number, int count) {
    const struct trial *t = context;
    const struct cuda_gemm *g = t->gemm;
    float ms = GEMM_NEVER_MS;
    cudaEventRecord(g->start, t->stream);
    for (int i = 0; i < count; i++) {
        if (!gemm_run_way(g, t->task, &t->ways[number], t->stream)) return GEMM_NEVER_MS;
    }
    cudaEventRecord(g->stop, t->stream);
    if (cudaEventSynchronize(g->stop) || cudaEventElapsedTime(&ms, g->start, g->stop)) {
        return GEMM_NEVER_MS;
    }
    return ms;
}

// A long task is limited by the device's power, as it will be in steps full of such tasks.
static bool time_ways(struct trial *t, struct gemm_way *way) {
    struct gemm_contest contest = {
        .num_ways = t->num_ways,
        .is_long = t->task->rows > PADDED_ROWS_MAX,
        .run = time_runs,
        .context = t,
    };
    for (int i = 0; i < t->num_ways && !contest.is_long; i++) {
        if (t->ways[i].kind == KERNEL_CUBLAS) contest.late_ms[i] = late_ms;
    }
    int winner = gemm_contest_winner(&contest);
    if (winner >= 0) *way = t->ways[winner];
    return winner >= 0;
}

// For use during a graph capture, which timing or freeing memory would end.
static bool first_proposed(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                           struct gemm_way *way) {
    struct trial trial = {.gemm = g, .task = task};
    enter_cublas(&trial, 1);
    if (trial.num_ways > 0) *way = trial.ways[0];
    return trial.num_ways > 0;
}

bool gemm_choose(const struct cuda_gemm *g, const struct cuda_linear_task *task,
                 cudaStream_t stream, struct gemm_way *way, bool *is_timed) {
    *is_timed = !is_capturing(stream);
    if (!*is_timed) return first_proposed(g, task, way);
    struct cuda_linear_task padded = *task;
    struct trial trial = {.gemm = g, .task = &padded, .stream = stream};
    bool was_well = cudaPeekAtLastError() == cudaSuccess;
    void *memory = pad(&padded, stream);
    // The same product without the addition: `out` must keep its content.
    if (task->is_added && !memory) padded.out = task->scratch;
    padded.is_added = false;
    enter_all(&trial);
    bool is_chosen = time_ways(&trial, way);
    cudaFree(memory); // waits for the kernels that use it
    // A trial without memory, or a way that was refused, must not fail the step.
    if (was_well) (void)cudaGetLastError();
    return is_chosen;
}
