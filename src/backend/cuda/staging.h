/* Host to device copies of weights: several threads read a checkpoint's bytes into pinned pieces, with
 * conversion to bf16 where the checkpoint has another type. Each piece is sent on as soon as it is
 * full, so that reading, converting and the bus overlap. */
#ifndef BACKEND_CUDA_STAGING_H
#define BACKEND_CUDA_STAGING_H

#include "backend/backend.h"

struct cuda_staging;

// `num_threads` counts the caller.
MUST_USE enum status cuda_staging_create(struct cuda_staging **out, uint32_t num_threads,
                                         struct err *err);
void cuda_staging_destroy(struct cuda_staging *staging); // NULL is fine

// Copies a rectangle to dense device rows as bf16. The host data may be released on return; the
// device data is there after cuda_staging_finish.
MUST_USE enum status cuda_staging_copy(struct cuda_staging *staging, void *dev,
                                       const struct matrix_slice *slice, struct err *err);
MUST_USE enum status cuda_staging_finish(struct cuda_staging *staging, struct err *err);

#endif
