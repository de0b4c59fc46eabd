#include "backend/cuda/gemm/gemm_preload.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "backend/cuda/gemm/gemm_product.h"
#include "base/thread/background.h"

enum {
    SHAPES_MAX = 64,
    ENTRIES_MAX = 2048,
    // What a kernel may take of memory; on an H200 they took 50 KB on average. The first one of a
    // type of results may take more.
    KERNEL_BYTES = 256 << 10,
    FIRST_BYTES = 32 << 20,
};

// A step launches products that need kernels one after the other, each within this time.
static const double pause_seconds = 0.01;

struct shape {
    uint32_t out, in;
};

// An entry of the cache, which changes while the thread runs.
struct job {
    struct gemm_key key;
    struct gemm_way way;
    uint32_t number; // in struct gemm_preload
    bool is_first; // with bfloat16 results, or with float32 results
};

struct entry {
    struct gemm_key key;
    atomic_bool is_loaded;
};

struct gemm_preload {
    struct cuda_gemm *gemm;
    struct background *thread;
    struct shape shapes[SHAPES_MAX];
    uint32_t num_shapes;
    struct entry *entries; // [ENTRIES_MAX] of all jobs so far
    uint32_t num_entries;
    atomic_uint num_left, num_first_left; // entries that are not loaded; of these the first jobs
    bool has_first[2]; // a job with bfloat16 results, and with float32 results
    int device;
    cudaStream_t stream;
};

// Enqueues nothing but a recording, so addresses stand for arrays of any size.
static void enqueue(const struct gemm_preload *preload, const struct job *job) {
    const struct cuda_gemm *gemm = preload->gemm;
    const struct gemm_key *key = &job->key;
    void *data = gemm->workspace;
    const struct cuda_linear_task task = {
        .linear = {.bias = key->has_bias ? data : NULL, .out = key->out, .in = key->in},
        .rows = key->rows,
    };
    const float one = 1.0f, zero = 0.0f;
    struct gemm_product p;
    cublasStatus_t r = gemm_product_init(gemm, &p, &task, CUDA_R_16BF,
                                         key->out_is_float ? CUDA_R_32F : CUDA_R_16BF);
    if (!r) {
        (void)gemm->library.matmul(gemm->handle, p.desc, &one, data, p.weight, data, p.x, &zero,
                                   data, p.out, data, p.out, &job->way.algo, data,
                                   GEMM_WORKSPACE_BYTES, preload->stream);
    }
    gemm_product_fini(gemm, &p);
}

// On the thread. A product that is refused loads nothing, and is no failure. The engine's thread
// may allocate memory meanwhile, which only a relaxed recording allows.
static void load(void *context, const void *bytes) {
    struct gemm_preload *preload = context;
    const struct job *job = bytes;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    (void)cudaSetDevice(preload->device);
    if (!cudaStreamBeginCapture(preload->stream, cudaStreamCaptureModeRelaxed)) {
        enqueue(preload, job);
        (void)cudaStreamEndCapture(preload->stream, &graph);
    }
    if (graph && !cudaGraphInstantiate(&executable, graph, 0)) cudaGraphExecDestroy(executable);
    if (graph) cudaGraphDestroy(graph);
    (void)cudaGetLastError(); // of a product that was refused; the error is this thread's alone
    atomic_store(&preload->entries[job->number].is_loaded, true);
    atomic_fetch_sub(&preload->num_first_left, job->is_first);
    atomic_fetch_sub(&preload->num_left, 1);
}

static struct gemm_preload *start(struct cuda_gemm *gemm) {
    struct gemm_preload *preload = calloc(1, sizeof *preload);
    if (!preload) return NULL;
    preload->gemm = gemm;
    preload->entries = calloc(ENTRIES_MAX, sizeof *preload->entries);
    if (preload->entries && !cudaGetDevice(&preload->device) &&
        !cudaStreamCreateWithFlags(&preload->stream, cudaStreamNonBlocking)) {
        preload->thread = background_create(load, preload, sizeof(struct job));
    }
    if (preload->thread) return preload;
    gemm_preload_destroy(preload);
    return NULL;
}

// Few rows first: recorded steps have those. But before all of them a kernel for each type of
// results: the first one takes 40 to 80 ms, the others 2 to 5.
static void add(struct gemm_preload *preload, struct job *job) {
    bool *has_first = &preload->has_first[job->key.out_is_float];
    if (preload->num_entries == ENTRIES_MAX) return;
    job->number = preload->num_entries;
    job->is_first = !*has_first;
    preload->entries[job->number].key = job->key;
    atomic_fetch_add(&preload->num_left, 1);
    atomic_fetch_add(&preload->num_first_left, job->is_first);
    if (background_add(preload->thread, job->is_first ? 0 : job->key.rows, job)) {
        preload->num_entries++;
        *has_first = true;
    } else {
        atomic_fetch_sub(&preload->num_left, 1);
        atomic_fetch_sub(&preload->num_first_left, job->is_first);
    }
}

void gemm_preload_shape(struct gemm_preload **preload, struct cuda_gemm *gemm, uint32_t out,
                        uint32_t in) {
    struct job job;
    bool has_any = gemm_cache_at(gemm->cache, 0, &job.key, &job.way);
    if (!*preload && has_any) *preload = start(gemm);
    struct gemm_preload *p = *preload;
    if (!p || p->num_shapes == SHAPES_MAX) return;
    for (uint32_t i = 0; i < p->num_shapes; i++) {
        if (p->shapes[i].out == out && p->shapes[i].in == in) return;
    }
    p->shapes[p->num_shapes++] = (struct shape){out, in};
    for (uint32_t i = 0; gemm_cache_at(gemm->cache, i, &job.key, &job.way); i++) {
        if (job.key.out != out || job.key.in != in) continue;
        if (job.way.kind == KERNEL_CUBLAS && job.way.has_algo) add(p, &job);
    }
}

static const struct entry *find(const struct gemm_preload *preload, const struct gemm_key *key) {
    for (uint32_t i = 0; preload && i < preload->num_entries; i++) {
        if (gemm_key_equal(&preload->entries[i].key, key)) return &preload->entries[i];
    }
    return NULL;
}

bool gemm_preload_has(const struct gemm_preload *preload, const struct gemm_key *key) {
    return find(preload, key) != NULL;
}

void gemm_preload_need(struct gemm_preload *preload, const struct gemm_key *key) {
    if (!preload || !atomic_load(&preload->num_left)) return;
    const struct entry *entry = find(preload, key);
    if (entry && !atomic_load(&entry->is_loaded)) {
        background_pause(preload->thread, pause_seconds);
    }
}

size_t gemm_preload_later_bytes(const struct gemm_preload *preload) {
    if (!preload) return 0;
    return (size_t)atomic_load(&preload->num_left) * KERNEL_BYTES +
           (size_t)atomic_load(&preload->num_first_left) * FIRST_BYTES;
}

void gemm_preload_wait(struct gemm_preload *preload) {
    if (preload) background_wait(preload->thread);
}

void gemm_preload_destroy(struct gemm_preload *preload) {
    if (!preload) return;
    background_destroy(preload->thread);
    if (preload->stream) cudaStreamDestroy(preload->stream);
    free(preload->entries);
    free(preload);
}
