/* Copies weights from the host to the device. Several threads read a checkpoint's bytes into pinned
 * buffers, and convert them to bf16 if they have another type. Each buffer is sent when it is full,
 * so reading, converting and the bus transfer overlap. */
#ifndef BACKEND_CUDA_STAGING_H
#define BACKEND_CUDA_STAGING_H

#include "backend/backend.h"

struct cuda_staging;

// `num_threads` includes the calling thread.
MUST_USE enum status cuda_staging_create(struct cuda_staging **out, uint32_t num_threads,
                                         struct err *err);
void cuda_staging_destroy(struct cuda_staging *staging); // NULL is fine

// Copies a slice to dense device rows as bf16. The host data may be released on return. The device
// data is complete after cuda_staging_finish.
MUST_USE enum status cuda_staging_copy(struct cuda_staging *staging, void *dev,
                                       const struct matrix_slice *slice, struct err *err);
// Where the scales and offsets of a slice's codes go, by row.
struct cuda_code_rows {
    uint32_t group, num_groups; // columns that share a scale, or 0; scales of a row
    uint32_t row_codes; // of a device row: codes beyond the slice's columns are 0
    float *scales; // [rows][num_groups]
    float *offsets; // the same, or NULL
};
// The same for codes (base/matrix_reader.h), a byte each.
MUST_USE enum status cuda_staging_copy_codes(struct cuda_staging *staging, void *dev,
                                             const struct matrix_slice *slice,
                                             const struct cuda_code_rows *rows, struct err *err);
// Runs the items of a loop by the threads that copy; as thread_pool_for.
void cuda_staging_for(struct cuda_staging *staging, uint32_t num_items,
                      void (*fn)(void *arg, uint32_t item, uint32_t thread), void *arg);
MUST_USE enum status cuda_staging_finish(struct cuda_staging *staging, struct err *err);

#endif
