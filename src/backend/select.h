/* Access to the CUDA backend, which a build may lack. A build with it links
 * backend/cuda/select_cuda.c, and one without it select_no_cuda.c: both define these functions. */
#ifndef BACKEND_SELECT_H
#define BACKEND_SELECT_H

#include "backend/backend.h"

// OK where the program has the CUDA backend and there is a device that it can use. Otherwise
// ERR_UNSUPPORTED says which of them is missing. A device that is present but broken is OK here:
// select_cuda_create reports it.
MUST_USE enum status select_cuda_available(struct err *err);
// Creates it on the GPU options->gpu of all that this process sees.
MUST_USE enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                                        struct err *err);

// ERR_UNSUPPORTED unless options->gpu is one of `count`. Here, because the CUDA backend does not
// link select.c.
static inline enum status select_check_gpu(const struct backend_options *options, uint32_t count,
                                           struct err *err) {
    if (options->gpu < count) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "device cuda: each rank needs a GPU of its own, and there is no GPU %u (of %u)",
                   options->gpu, count);
}

#endif
