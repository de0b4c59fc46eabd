/* Weights of a linear that stay quantized on the device: 8-bit floats (e4m3) or 4-bit integers,
 * multiplied by linear/packed_few_rows.cu and linear/packed_batch_sm90.cu.
 *
 * A tile is 8 outputs. A step is the inputs of a tile that fill 512 bytes: 64 inputs of 8 bits or
 * 128 of 4 bits. Codes are [tiles][steps][32 lanes][16 bytes]: lane l of a warp reads its 16 bytes
 * of output l / 4 of the tile with one load, in the order of the matrix instruction's operand:
 *
 *   e4m3:  word w of lane q = l % 4 has inputs 16 w + 2 q + {0, 1, 8, 9} of the step, in an order
 *          of bits that makes two pairs of bf16 in 5 instructions (packed.cuh).
 *   4 bit: word w of lane q has inputs 32 w + 2 q + {0, 1, 8, 9, 16, 17, 24, 25}. Of a pair of
 *          inputs the first is in the word's low half.
 *
 * Scales come in three forms:
 *
 *   e4m3, group 0: float [out], a factor of the whole row
 *   e4m3, group 128: float [tiles][in / 128][8], or [tiles][in / 128] if the view shares_scales
 *   4 bit: uint32_t [tiles][in / 128][8][128 / group], a float whose low 8 bits hold the group's
 *          zero. Scales of f16 and bf16 lose nothing. value = (code - zero) * scale */
#ifndef BACKEND_CUDA_LINEAR_PACKED_H
#define BACKEND_CUDA_LINEAR_PACKED_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_PACKED_TILE = 8, // outputs
    CUDA_PACKED_BLOCK = 128, // inputs that share a word of scales, or have one word for each group
    CUDA_PACKED_STEP_BYTES = 512,
};

// Inputs of a step.
static inline uint32_t cuda_packed_step(uint32_t bits) {
    return bits == 8 ? 64 : 128;
}

// Packs codes [out][in], a byte each. `codes` has out * in * bits / 8 bytes.
void cuda_packed_pack_launch(void *codes, const uint8_t *raw, uint32_t out, uint32_t in,
                             uint32_t bits, cudaStream_t stream);
// Writes the weights as bf16 [out][in].
void cuda_packed_unpack_launch(void *weight, const struct cuda_linear_view *view,
                               cudaStream_t stream);
// Rows of a table as bf16; as in backend.h's embed_args.
void cuda_packed_embed_launch(const struct embed_args *args, const struct cuda_linear_view *table,
                              cudaStream_t stream);
// linear/packed_few_rows.cu: up to CUDA_FEW_ROWS rows. Shared memory of its largest block.
size_t cuda_packed_few_rows_bytes(uint32_t rows, uint32_t in, const struct weight_format *format);
void cuda_packed_few_rows_launch(const struct cuda_few_rows_linear *args,
                                 const struct cuda_device_info *info, cudaStream_t stream);
// linear/packed_batch_sm90.cu: any number of rows. `split` blocks, 1 to CUDA_BATCH_SPLIT_MAX,
// divide the inputs among them; 0 chooses. Returns false if the device refuses the launch.
bool cuda_packed_batch_launch(const struct cuda_linear_task *task, uint32_t split,
                              const struct cuda_device_info *info, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
