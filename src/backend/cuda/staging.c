#include "backend/cuda/staging.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/os/pages.h"
#include "base/thread/thread_pool.h"

// BUFFER_BYTES: the largest copy. PART_BYTES: the smallest one, so that all threads have a part of
// a matrix of 2 MiB. SCRATCH_BYTES: data of another type is converted in parts of this size, which
// stay in a core's cache.
enum {
    BUFFER_BYTES = 4 << 20,
    BUFFERS_PER_THREAD = 2,
    PART_BYTES = 256 << 10,
    SCRATCH_BYTES = 128 << 10
};

// Pinned memory that one thread fills while its other buffer is being copied to the device.
struct buffer {
    char *host; // pinned [BUFFER_BYTES]
    cudaEvent_t sent;
};

struct cuda_staging {
    struct thread_pool *pool;
    cudaStream_t stream;
    struct buffer *buffers; // [num_threads][BUFFERS_PER_THREAD]
    char *pinned; // [num_buffers][BUFFER_BYTES]
    bool is_pinned;
    uint8_t *next; // [num_threads] number of the buffer to fill next
    char *scratch; // [num_threads][SCRATCH_BYTES]
    uint32_t num_buffers;
    int device;
};

// The copy of one slice, shared by all threads.
struct copy {
    struct cuda_staging *staging;
    const struct matrix_slice *slice;
    const struct cuda_code_rows *codes; // NULL: the slice becomes bf16
    char *dev;
    uint32_t rows_per_item;
    struct thread_pool_fault fault;
};

static void convert(uint16_t *out, const char *from, enum dtype dtype, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        float value;
        if (dtype == DTYPE_F16) {
            memcpy(&half, from + i * sizeof half, sizeof half);
            value = f16_to_f32(half);
        } else {
            memcpy(&value, from + i * sizeof value, sizeof value);
        }
        out[i] = f32_to_bf16(value);
    }
}

static enum status fill_decoded_row(const struct matrix_slice *s, uint32_t row, uint16_t *out,
                                    char *scratch, struct err *err) {
    float *floats = (float *)(void *)scratch;
    for (uint32_t col = 0; col < s->cols;) {
        uint32_t count = s->cols - col, most = SCRATCH_BYTES / sizeof *floats;
        if (count > most) count = most;
        enum status status = s->reader->read(s->reader, matrix_slice_row(s, row),
                                             s->first_col + col, count, floats, err);
        if (status) return status;
        convert(out + col, scratch, DTYPE_F32, count);
        col += count;
    }
    return OK;
}

// Fills `host` with `count` contiguous elements of the slice, starting with element `first`, as
// bf16.
static enum status fill_run(const struct matrix_slice *s, size_t first, size_t count, char *host,
                            char *scratch, struct err *err) {
    size_t element = dtype_size(s->dtype);
    if (s->dtype == DTYPE_BF16) {
        const void *from = byte_source_get(&s->source, first * element, count * element, host, err);
        if (!from) return ERR_IO;
        if (from != host) memcpy(host, from, count * element);
        return OK;
    }
    uint16_t *out = (uint16_t *)(void *)host;
    for (size_t done = 0; done < count;) {
        size_t left = count - done, part = SCRATCH_BYTES / element;
        if (part > left) part = left;
        const char *from =
            byte_source_get(&s->source, (first + done) * element, part * element, scratch, err);
        if (!from) return ERR_IO;
        convert(out + done, from, s->dtype, part);
        done += part;
    }
    return OK;
}

static enum status fill(const struct matrix_slice *s, uint32_t first, uint32_t rows, char *host,
                        char *scratch, struct err *err) {
    bool is_dense = s->row_stride == s->cols;
    uint32_t together = is_dense ? rows : 1;
    enum status status = OK;
    for (uint32_t r = 0; s->reader && r < rows && !status; r++) {
        uint16_t *out = (uint16_t *)(void *)host + (size_t)r * s->cols;
        status = fill_decoded_row(s, first + r, out, scratch, err);
    }
    for (uint32_t r = 0; !s->reader && r < rows && !status; r += together) {
        status = fill_run(s, (first + r) * s->row_stride, (size_t)together * s->cols,
                          host + (size_t)r * s->cols * sizeof(uint16_t), scratch, err);
    }
    return status;
}

static enum status fill_codes(const struct copy *copy, uint32_t first, uint32_t rows, char *host,
                              struct err *err) {
    const struct matrix_slice *s = copy->slice;
    const struct cuda_code_rows *to = copy->codes;
    enum status status = OK;
    for (uint32_t r = 0; r < rows && !status; r++) {
        size_t at = (size_t)(first + r) * to->num_groups;
        uint8_t *row = (uint8_t *)host + (size_t)r * to->row_codes;
        memset(row + s->cols, 0, to->row_codes - s->cols);
        struct matrix_codes codes = {.codes = row,
                                     .scales = to->scales + at,
                                     .offsets = to->offsets ? to->offsets + at : NULL};
        status = s->reader->read_codes(s->reader, matrix_slice_row(s, first + r), s->first_col,
                                       s->cols, to->group, &codes, err);
    }
    return status;
}

static size_t row_bytes_of(const struct copy *copy) {
    return copy->codes ? copy->codes->row_codes : copy->slice->cols * sizeof(uint16_t);
}

static enum status copy_rows(const struct copy *copy, uint32_t first, uint32_t rows,
                             uint32_t thread, struct err *err) {
    struct cuda_staging *st = copy->staging;
    struct buffer *buffer = &st->buffers[thread * BUFFERS_PER_THREAD + st->next[thread]];
    st->next[thread] = (uint8_t)((st->next[thread] + 1) % BUFFERS_PER_THREAD);
    size_t row_bytes = row_bytes_of(copy);
    cudaError_t e = cudaSetDevice(st->device); // cudaSetDevice applies to one thread
    if (!e) e = cudaEventSynchronize(buffer->sent);
    if (!e) {
        char *scratch = st->scratch + (size_t)thread * SCRATCH_BYTES;
        enum status status = copy->codes
                                 ? fill_codes(copy, first, rows, buffer->host, err)
                                 : fill(copy->slice, first, rows, buffer->host, scratch, err);
        if (status) return status;
        e = cudaMemcpyAsync(copy->dev + first * row_bytes, buffer->host, rows * row_bytes,
                            cudaMemcpyHostToDevice, st->stream);
    }
    if (!e) e = cudaEventRecord(buffer->sent, st->stream);
    return e ? cuda_error(err, e, "copying weights") : OK;
}

static void copy_item(void *arg, uint32_t item, uint32_t thread) {
    struct copy *copy = arg;
    struct err err;
    if (atomic_load(&copy->fault.is_set)) return;
    uint32_t first = item * copy->rows_per_item, rows = copy->slice->rows - first;
    if (rows > copy->rows_per_item) rows = copy->rows_per_item;
    enum status status = copy_rows(copy, first, rows, thread, &err);
    if (status) thread_pool_fault_set(&copy->fault, status, &err);
}

static enum status copy_all(struct copy *copy, struct err *err) {
    const struct matrix_slice *slice = copy->slice;
    size_t row_bytes = row_bytes_of(copy);
    if (row_bytes > BUFFER_BYTES) {
        return err_set(err, ERR_UNSUPPORTED, "a matrix of %u columns: device cuda takes at most %u",
                       slice->cols, (unsigned)(BUFFER_BYTES / sizeof(uint16_t)));
    }
    copy->rows_per_item = (uint32_t)(BUFFER_BYTES / row_bytes);
    uint32_t num_threads = copy->staging->num_buffers / BUFFERS_PER_THREAD;
    uint32_t share = (slice->rows + num_threads - 1) / num_threads; // an expert has few rows
    uint32_t least = copy->codes ? 1 : (uint32_t)(PART_BYTES / row_bytes);
    if (share < least) share = least;
    if (share < copy->rows_per_item) copy->rows_per_item = share;
    uint32_t items = (slice->rows + copy->rows_per_item - 1) / copy->rows_per_item;
    thread_pool_for(copy->staging->pool, items, copy_item, copy);
    if (copy->fault.status && err) *err = copy->fault.err;
    return copy->fault.status;
}

enum status cuda_staging_copy(struct cuda_staging *st, void *dev, const struct matrix_slice *slice,
                              struct err *err) {
    struct copy copy = {.staging = st, .slice = slice, .dev = dev};
    return copy_all(&copy, err);
}

enum status cuda_staging_copy_codes(struct cuda_staging *st, void *dev,
                                    const struct matrix_slice *slice,
                                    const struct cuda_code_rows *rows, struct err *err) {
    struct copy copy = {.staging = st, .slice = slice, .codes = rows, .dev = dev};
    return copy_all(&copy, err);
}

void cuda_staging_for(struct cuda_staging *st, uint32_t num_items,
                      void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg) {
    thread_pool_for(st->pool, num_items, fn, arg);
}

enum status cuda_staging_finish(struct cuda_staging *st, struct err *err) {
    cudaError_t e = cudaStreamSynchronize(st->stream);
    return e ? cuda_error(err, e, "copying weights") : OK;
}

static void populate(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    pages_populate((char *)arg + (size_t)item * BUFFER_BYTES, BUFFER_BYTES);
}

// Huge pages that all threads have written take 5 ms to get and to pin; cudaHostAlloc takes 28.
static enum status make_pinned(struct cuda_staging *st, struct err *err) {
    size_t bytes = (size_t)st->num_buffers * BUFFER_BYTES;
    st->pinned = pages_map(0, bytes);
    if (!st->pinned) return err_nomem(err, "weight copies");
    thread_pool_for(st->pool, st->num_buffers, populate, st->pinned);
    // A system may refuse to pin memory of a program. The driver then copies by buffers of its own,
    // which is slower. Asking for the last error forgets it.
    st->is_pinned = cudaHostRegister(st->pinned, bytes, cudaHostRegisterDefault) == cudaSuccess;
    if (!st->is_pinned) (void)cudaGetLastError();
    return OK;
}

enum status cuda_staging_create(struct cuda_staging **out, uint32_t num_threads, struct err *err) {
    *out = NULL;
    enum status status = OK;
    struct cuda_staging *st = calloc(1, sizeof *st);
    if (!st) return err_nomem(err, "weight copies");
    st->num_buffers = num_threads * BUFFERS_PER_THREAD;
    st->buffers = calloc(st->num_buffers, sizeof *st->buffers);
    st->next = calloc(num_threads, sizeof *st->next);
    st->scratch = malloc((size_t)num_threads * SCRATCH_BYTES);
    if (!st->buffers || !st->next || !st->scratch) {
        status = err_nomem(err, "weight copies");
        goto fail;
    }
    status = thread_pool_create(&st->pool, num_threads, err);
    if (status) goto fail;
    CU(cudaGetDevice(&st->device));
    CU(cudaStreamCreateWithFlags(&st->stream, cudaStreamNonBlocking));
    if ((status = make_pinned(st, err))) goto fail;
    for (uint32_t i = 0; i < st->num_buffers; i++) {
        struct buffer *buffer = &st->buffers[i];
        buffer->host = st->pinned + (size_t)i * BUFFER_BYTES;
        CU(cudaEventCreateWithFlags(&buffer->sent, cudaEventDisableTiming));
    }
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
    // Events that were not created are NULL.
    for (uint32_t i = 0; st->buffers && i < st->num_buffers; i++) {
        if (st->buffers[i].sent) cudaEventDestroy(st->buffers[i].sent);
    }
    if (st->is_pinned) cudaHostUnregister(st->pinned);
    pages_unmap(st->pinned, (size_t)st->num_buffers * BUFFER_BYTES);
    free(st->buffers);
    free(st->next);
    free(st->scratch);
    free(st);
}
