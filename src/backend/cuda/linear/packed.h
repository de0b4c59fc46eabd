/* Weights of a linear that stay quantized on the device, as the codes of base/weight_code.h,
 * multiplied by linear/packed_few_rows.cu and linear/packed_batch_sm90.cu.
 *
 * A tile is 8 outputs. A step is the inputs of a tile that fill 512 bytes: 64 inputs of 8 bits or
 * 128 of 4 bits. Codes are [tiles][steps][32 lanes][16 bytes]: lane l of a warp reads its 16 bytes
 * of output l / 4 of the tile with one load, in the order of the matrix instruction's operand:
 *
 *   8 bits: word w of lane q = l % 4 has inputs 16 w + 2 q + {0, 1, 8, 9} of the step.
 *   4 bits: word w of lane q has inputs 32 w + 2 q + {0, 1, 8, 9, 16, 17, 24, 25}.
 *
 * The order of bits in a word is that of the fewest instructions to bf16 (packed.cuh).
 *
 * A scale of whole rows is float [out], group 0. Otherwise an output has for each group:
 *
 *   e2m1 in groups of 32 (MXFP4): a byte, the scale's exponent: scale = 2^(byte - 127)
 *   int4 without minima: a float whose low 8 bits hold the group's zero. Scales of f16 and bf16
 *                        lose nothing. value = (code - zero) * scale
 *   others: a float, the scale; with has_offsets another, the offset
 *
 * A span is the larger of a step and a group. Scales are [tiles][in / span][8][those of a span], or
 * [tiles][in / 128] if the view shares_scales. */
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
    CUDA_PACKED_BLOCK = 128, // inputs: the largest group, and a multiple of all steps
    CUDA_PACKED_STEP_BYTES = 512,
    CUDA_PACKED_MINIMA_GROUP = 32, // offsets of int4 in larger groups are zeros
};

// Inputs of a step.
static inline uint32_t cuda_packed_step(uint32_t bits) {
    return bits == 8 ? 64 : 128;
}

// Whether int4's offsets are zeros, 8 if it has none.
static inline bool cuda_packed_has_zeros(enum weight_code code, uint32_t group, bool has_offsets) {
    return code == WEIGHT_CODE_INT4 && !(has_offsets && group <= CUDA_PACKED_MINIMA_GROUP);
}

// Whether scales are powers of 2, kept as exponents.
static inline bool cuda_packed_has_exponents(enum weight_code code, uint32_t group) {
    return code == WEIGHT_CODE_E2M1 && group == CUDA_PACKED_MINIMA_GROUP;
}

// Bytes of a group's scale and offset.
static inline uint32_t cuda_packed_group_bytes(enum weight_code code, uint32_t group,
                                               bool has_offsets) {
    if (cuda_packed_has_exponents(code, group)) return 1;
    bool has_both = has_offsets && !cuda_packed_has_zeros(code, group, has_offsets);
    return (has_both ? 2 : 1) * (uint32_t)sizeof(float);
}

// Packs codes [out][in], a byte each, those of iq4, iq3 and iq2 as int8, those of odd as int4.
// `codes` has out * in * bits / 8 bytes.
void cuda_packed_pack_launch(void *codes, const uint8_t *raw, uint32_t out, uint32_t in,
                             enum weight_code code, cudaStream_t stream);
// Writes the weights as bf16 [out][in].
void cuda_packed_unpack_launch(void *weight, const struct cuda_linear_view *view,
                               cudaStream_t stream);
// Writes codes of e4m3 as bytes [out][in].
void cuda_packed_plain_launch(void *to, const struct cuda_linear_view *view, cudaStream_t stream);
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
