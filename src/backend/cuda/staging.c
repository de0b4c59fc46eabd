#include "backend/cuda/staging.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "backend/cuda/cuda_backend.h"
#include "base/thread_pool.h"

enum { PIECE_BYTES = 4 << 20, PIECES_PER_THREAD = 2 };

// Pinned memory that one thread fills while another piece of its own is on the bus.
struct piece {
    void *host; // pinned [PIECE_BYTES]
    cudaEvent_t sent;
};

struct cuda_staging {
    struct thread_pool *pool;
    cudaStream_t stream;
    struct piece *pieces; // [num_threads][PIECES_PER_THREAD]
    uint8_t *next; // [num_threads] piece to fill
    uint32_t num_pieces;
    int device;
};

// One rectangle being copied.
struct copy {
    struct cuda_staging *staging;
    const struct matrix_slice *slice;
    char *dev;
    uint32_t rows_per_item;
    atomic_int error; // cudaError_t of the first that failed
};

static void convert_row(uint16_t *out, const char *from, enum dtype dtype, uint32_t cols) {
    for (uint32_t i = 0; i < cols; i++) {
        uint16_t half;
        float value;
        if (dtype == DTYPE_F16) {
            memcpy(&half, from + (size_t)i * sizeof half, sizeof half);
            value = f16_to_f32(half);
        } else {
            memcpy(&value, from + (size_t)i * sizeof value, sizeof value);
        }
        out[i] = f32_to_bf16(value);
    }
}

static void fill(const struct copy *copy, char *host, uint32_t first, uint32_t rows) {
    const struct matrix_slice *s = copy->slice;
    size_t element = dtype_size(s->dtype), row_bytes = (size_t)s->cols * sizeof(uint16_t);
    const char *from = (const char *)s->data + first * s->row_stride * element;
    if (s->dtype == DTYPE_BF16 && s->row_stride == s->cols) {
        memcpy(host, from, rows * row_bytes);
        return;
    }
    for (uint32_t r = 0; r < rows; r++) {
        const char *row = from + r * s->row_stride * element;
        if (s->dtype == DTYPE_BF16) {
            memcpy(host + r * row_bytes, row, row_bytes);
        } else {
            convert_row((uint16_t *)(void *)(host + r * row_bytes), row, s->dtype, s->cols);
        }
    }
}

static void copy_item(void *arg, uint32_t item, uint32_t thread) {
    struct copy *copy = arg;
    struct cuda_staging *st = copy->staging;
    if (atomic_load(&copy->error)) return;
    uint32_t first = item * copy->rows_per_item, rows = copy->slice->rows - first;
    if (rows > copy->rows_per_item) rows = copy->rows_per_item;
    struct piece *piece = &st->pieces[thread * PIECES_PER_THREAD + st->next[thread]];
    st->next[thread] = (uint8_t)((st->next[thread] + 1) % PIECES_PER_THREAD);
    cudaError_t e = cudaSetDevice(st->device); // a thread's own setting
    if (!e) e = cudaEventSynchronize(piece->sent);
    size_t row_bytes = (size_t)copy->slice->cols * sizeof(uint16_t);
    if (!e) {
        fill(copy, piece->host, first, rows);
        e = cudaMemcpyAsync(copy->dev + first * row_bytes, piece->host, rows * row_bytes,
                            cudaMemcpyHostToDevice, st->stream);
    }
    if (!e) e = cudaEventRecord(piece->sent, st->stream);
    if (e) atomic_store(&copy->error, (int)e);
}

enum status cuda_staging_copy(struct cuda_staging *st, void *dev, const struct matrix_slice *slice,
                              struct err *err) {
    size_t row_bytes = (size_t)slice->cols * sizeof(uint16_t);
    if (row_bytes > PIECE_BYTES) {
        return err_set(err, ERR_UNSUPPORTED,
                       "a matrix of %u columns is wider than device cuda takes", slice->cols);
    }
    struct copy copy = {.staging = st,
                        .slice = slice,
                        .dev = dev,
                        .rows_per_item = (uint32_t)(PIECE_BYTES / row_bytes)};
    uint32_t items = (slice->rows + copy.rows_per_item - 1) / copy.rows_per_item;
    thread_pool_for(st->pool, items, copy_item, &copy);
    int error = atomic_load(&copy.error);
    return error ? cuda_error(err, (cudaError_t)error, "copying weights") : OK;
}

enum status cuda_staging_finish(struct cuda_staging *st, struct err *err) {
    cudaError_t e = cudaStreamSynchronize(st->stream);
    return e ? cuda_error(err, e, "copying weights") : OK;
}

enum status cuda_staging_create(struct cuda_staging **out, uint32_t num_threads, struct err *err) {
    *out = NULL;
    enum status status = OK;
    struct cuda_staging *st = calloc(1, sizeof *st);
    if (!st) return err_nomem(err, "weight copies");
    st->num_pieces = num_threads * PIECES_PER_THREAD;
    st->pieces = calloc(st->num_pieces, sizeof *st->pieces);
    st->next = calloc(num_threads, sizeof *st->next);
    if (!st->pieces || !st->next) {
        status = err_nomem(err, "weight copies");
        goto fail;
    }
    CU(cudaGetDevice(&st->device));
    CU(cudaStreamCreateWithFlags(&st->stream, cudaStreamNonBlocking));
    for (uint32_t i = 0; i < st->num_pieces; i++) {
        struct piece *piece = &st->pieces[i];
        CU(cudaHostAlloc(&piece->host, PIECE_BYTES, cudaHostAllocDefault));
        CU(cudaEventCreateWithFlags(&piece->sent, cudaEventDisableTiming));
    }
    status = thread_pool_create(&st->pool, num_threads, err);
    if (status) goto fail;
    *out = st;
    return OK;
fail:
    cuda_staging_destroy(st);
    return status;
}

void cuda_staging_destroy(struct cuda_staging *st) {
    if (!st) return;
    thread_pool_destroy(st->pool);
    if (st->stream) {
        cudaStreamSynchronize(st->stream);
        cudaStreamDestroy(st->stream);
    }
    for (uint32_t i = 0; st->pieces && i < st->num_pieces; i++) { // what was not made is NULL
        if (st->pieces[i].sent) cudaEventDestroy(st->pieces[i].sent);
        cudaFreeHost(st->pieces[i].host);
    }
    free(st->pieces);
    free(st->next);
    free(st);
}
