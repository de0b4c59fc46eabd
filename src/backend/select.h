/* The devices that a build may be without. One of two files defines these: backend/cuda/select_cuda.c
 * where the CUDA backend is built, else select_no_cuda.c; the build links the right one. */
#ifndef BACKEND_SELECT_H
#define BACKEND_SELECT_H

#include "backend/backend.h"

// OK where the program has the CUDA backend and there is a device that it can use; else
// ERR_UNSUPPORTED and which of them is missing. What is broken rather than absent is found by
// select_cuda_create.
MUST_USE enum status select_cuda_available(struct err *err);
MUST_USE enum status select_cuda_create(struct backend **out, const struct backend_options *options,
                                        struct err *err);

#endif
