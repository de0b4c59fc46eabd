// The latent group of device cuda, and the launchers of its kernels.
#ifndef BACKEND_CUDA_LATENT_H
#define BACKEND_CUDA_LATENT_H

#include "backend/cuda/kernels.h"

extern const struct backend_latent cuda_latent;

#endif
