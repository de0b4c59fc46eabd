#include "backend/cuda/linear/gemm_preload.h"

#include <pthread.h>
#include <stdlib.h>

#include "backend/cuda/linear/gemm_product.h"
#include "base/thread/thread_start.h"

enum {
    SHAPES_MAX = 64,
    ROWS_MAX = 512, // of a product that only loads its kernel
    OUT_MAX = 512,
    DATA_BYTES = GEMM_WORKSPACE_BYTES / 2, // of weights, x and results, which lie upon each other
};

struct shape {
    uint32_t out, in;
};

struct gemm_preload {
    struct cuda_gemm *gemm;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct shape shapes[SHAPES_MAX];
    uint32_t num_shapes;
    bool is_ended, is_stopped; // no more shapes will come; loads no more kernels
    int device;
};

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// The kernel follows from the algorithm, so the product may be smaller than the cached one. Its
// number of outputs has the same remainders, as kernels differ by alignment.
static struct cuda_linear_task small_task(const struct cuda_gemm *gemm,
                                          const struct gemm_key *key) {
    uint32_t out = key->out > 2 * OUT_MAX ? OUT_MAX + key->out % OUT_MAX : key->out;
    uint32_t rows = least(key->rows, ROWS_MAX);
    void *data = gemm->workspace;
    return (struct cuda_linear_task){
        .linear = {.weight = data, .bias = key->has_bias ? data : NULL, .out = out, .in = key->in},
        .x = data,
        .out = data,
        .rows = rows,
        .out_is_float = key->out_is_float,
    };
}

static bool fits(const struct cuda_linear_task *task) {
    size_t in_bytes = (size_t)task->linear.in * sizeof(uint16_t);
    return task->linear.out * in_bytes <= DATA_BYTES && task->rows * in_bytes <= DATA_BYTES;
}

// A product that is refused loads nothing, and is no failure.
static void load(const struct cuda_gemm *gemm, const struct gemm_key *key,
                 const struct gemm_way *way, cudaStream_t stream) {
    const struct cuda_linear_task task = small_task(gemm, key);
    const float one = 1.0f, zero = 0.0f;
    void *data = gemm->workspace, *workspace = (char *)data + DATA_BYTES;
    struct gemm_product p;
    if (!fits(&task)) return;
    cublasStatus_t r = gemm_product_init(gemm, &p, &task, CUDA_R_16BF,
                                         task.out_is_float ? CUDA_R_32F : CUDA_R_16BF);
    if (!r) {
        (void)gemm->library.matmul(gemm->handle, p.desc, &one, data, p.weight, data, p.x, &zero,
                                   data, p.out, data, p.out, &way->algo, workspace,
                                   GEMM_WORKSPACE_BYTES - DATA_BYTES, stream);
    }
    gemm_product_fini(gemm, &p);
}

static bool is_stopped(struct gemm_preload *preload) {
    pthread_mutex_lock(&preload->mutex);
    bool stopped = preload->is_stopped;
    pthread_mutex_unlock(&preload->mutex);
    return stopped;
}

static void load_shape(struct gemm_preload *preload, const struct shape *shape,
                       cudaStream_t stream) {
    const struct gemm_cache *cache = preload->gemm->cache;
    struct gemm_key key;
    struct gemm_way way;
    for (uint32_t i = 0; gemm_cache_at(cache, i, &key, &way); i++) {
        if (key.out != shape->out || key.in != shape->in) continue;
        if (way.kind != KERNEL_CUBLAS || !way.has_algo) continue;
        if (is_stopped(preload)) return;
        load(preload->gemm, &key, &way, stream);
    }
}

// False: there will be none.
static bool next_shape(struct gemm_preload *preload, uint32_t index, struct shape *shape) {
    pthread_mutex_lock(&preload->mutex);
    while (index == preload->num_shapes && !preload->is_ended) {
        pthread_cond_wait(&preload->changed, &preload->mutex);
    }
    bool is_there = index < preload->num_shapes;
    if (is_there) *shape = preload->shapes[index];
    pthread_mutex_unlock(&preload->mutex);
    return is_there;
}

static void *run(void *arg) {
    struct gemm_preload *preload = arg;
    cudaStream_t stream = NULL;
    struct shape shape;
    if (cudaSetDevice(preload->device)) return NULL;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return NULL;
    for (uint32_t i = 0; next_shape(preload, i, &shape); i++) load_shape(preload, &shape, stream);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    (void)cudaGetLastError(); // of a product that was refused; the error is this thread's alone
    return NULL;
}

static struct gemm_preload *start(struct cuda_gemm *gemm) {
    struct gemm_preload *preload = calloc(1, sizeof *preload);
    if (!preload) return NULL;
    preload->gemm = gemm;
    pthread_mutex_init(&preload->mutex, NULL);
    pthread_cond_init(&preload->changed, NULL);
    if (!cudaGetDevice(&preload->device) &&
        thread_start(&preload->thread, NULL, run, preload) == 0) {
        return preload;
    }
    pthread_cond_destroy(&preload->changed);
    pthread_mutex_destroy(&preload->mutex);
    free(preload);
    return NULL;
}

void gemm_preload_shape(struct gemm_preload **preload, struct cuda_gemm *gemm, uint32_t out,
                        uint32_t in) {
    struct gemm_key key;
    struct gemm_way way;
    bool has_any = gemm_cache_at(gemm->cache, 0, &key, &way);
    if (!*preload && has_any) *preload = start(gemm);
    struct gemm_preload *p = *preload;
    if (!p) return;
    for (uint32_t i = 0; i < p->num_shapes; i++) {
        if (p->shapes[i].out == out && p->shapes[i].in == in) return;
    }
    pthread_mutex_lock(&p->mutex);
    if (p->num_shapes < SHAPES_MAX) p->shapes[p->num_shapes++] = (struct shape){out, in};
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

static void end(struct gemm_preload **preload, bool stops) {
    struct gemm_preload *p = *preload;
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->is_ended = true;
    p->is_stopped = stops;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
    free(p);
    *preload = NULL;
}

void gemm_preload_finish(struct gemm_preload **preload) {
    end(preload, false);
}

void gemm_preload_stop(struct gemm_preload **preload) {
    end(preload, true);
}
