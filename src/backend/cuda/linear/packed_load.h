/* Loads the codes of a quantized checkpoint into the form of linear/packed.h. */
#ifndef BACKEND_CUDA_LINEAR_PACKED_LOAD_H
#define BACKEND_CUDA_LINEAR_PACKED_LOAD_H

#include "backend/cuda/cuda_ops.h"

// The format in which a linear of this shape is kept: with the group of the kernels, or
// WEIGHTS_NATIVE where the shape does not suit their tiles. Formats that are not packed stay.
struct weight_format cuda_packed_kept(struct weight_format format, uint32_t out, uint32_t in);
// Most bytes of codes and scales.
size_t cuda_packed_bytes(struct weight_format format, uint32_t out, uint32_t in);
// Of cuda->unpacked: all weights as bf16. 0: the linear is not packed.
size_t cuda_packed_scratch_bytes(uint32_t out, uint32_t in, struct weight_format format);
// Allocates and fills the linear's weight and scales, by its format. The linear may have more
// inputs than the parts have columns: their codes are 0.
MUST_USE enum status cuda_packed_load(struct cuda_backend *cuda, const struct linear_spec *spec,
                                      struct linear *linear, struct err *err);
// Makes cuda->unpacked large enough for the linear.
MUST_USE enum status cuda_packed_grow_unpacked(struct cuda_backend *cuda,
                                               const struct linear *linear, struct err *err);

#endif
