/* Access to the CUDA backend, which a build may lack. A build with it links
 * backend/cuda/select_cuda.c, and one without it select_no_cuda.c: both define these functions. */
#ifndef BACKEND_SELECT_H
#define BACKEND_SELECT_H

#include "backend/backend.h"

// OK where the program has the CUDA backend and there is a device that it can use. Otherwise
// ERR_UNSUPPORTED says which of them is missing. A device that is present but broken is OK here:
// select_cuda_create reports it.
MUST_USE enum status select_cuda_available(struct err *err);
// Creates it on the GPU that gpu_choice.h gives to options->rank_on_host.
MUST_USE enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                                        struct err *err);
enum { SELECT_GPU_BYTES = 160 };
// A GPU for people: "NVIDIA H100, 80 GiB, compute capability 9.0". False: there is no such GPU.
bool select_cuda_describe(uint32_t gpu, char text[SELECT_GPU_BYTES]);

#endif
