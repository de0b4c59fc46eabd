/* Experts that a checkpoint has in one tensor for all of a layer. Their matrices get the names that
 * they have in checkpoints with a tensor for each: "P.experts.3.gate_proj.weight", and likewise
 * up_proj and down_proj. E experts, H inputs, I of the intermediate size:
 *
 *   P.experts.gate_up_proj [E][H][2 I]: gate's and up's columns take turns
 *   P.experts.down_proj [E][I][H]
 *   P.experts.gate_up_proj_bias [E][2 I], P.experts.down_proj_bias [E][H]
 *
 * Those are gpt-oss' tensors. In Qwen3-VL's, as published, all of gate's columns are before up's.
 * transformers 5 writes Qwen3-VL's without the transposition:
 *
 *   P.experts.gate_up_proj [E][2 I][H], P.experts.down_proj [E][H][I]
 *
 * Shapes tell the two forms apart. Where a matrix is square, the layer's other one is not.
 *
 * In MXFP4 the matrices are not transposed, and gate's and up's rows take turns:
 *
 *   P.experts.gate_up_proj_blocks [E][2 I][H / 32][16], _scales [E][2 I][H / 32]
 *   P.experts.down_proj_blocks [E][H][I / 32][16], _scales [E][H][I / 32]
 *
 * transformers 5 writes FP8 with a tensor for each expert's codes, but scales of all in one. Blocks
 * have B rows and C columns, and gate's are before up's:
 *
 *   P.experts.gate_up_proj_scale_inv [E][2 I / B][H / C]
 *   P.experts.down_proj_scale_inv [E][H / B][I / C] */
#ifndef CHECKPOINT_EXPERT_STACK_H
#define CHECKPOINT_EXPERT_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/matrix_reader.h"
#include "checkpoint/tensor.h"

enum expert_layout {
    EXPERTS_APART,
    EXPERTS_INTERLEAVED, // gate's and up's take turns
    EXPERTS_HALVED, // gate's are before up's
};

enum { EXPERT_MODULE_BYTES = 256 };

// A matrix or a bias of one expert.
struct expert_place {
    char module[EXPERT_MODULE_BYTES]; // "P.experts.gate_up_proj"
    char other_module[EXPERT_MODULE_BYTES]; // then "P.experts.down_proj", and the reverse
    uint32_t expert, num_experts; // num_experts: the caller's, of config.json
    uint32_t part, num_parts; // of the matrix: gate is 0 and up is 1 of 2, down is 0 of 1
    bool is_bias;
    bool is_halved; // EXPERTS_HALVED
    const struct tensor *other; // the caller's: of other_module, or NULL
};

// False: it is not the name of an expert's weight or bias.
bool expert_place_parse(struct expert_place *out, const char *name);

// The expert's matrix [rows][cols] of `tensor`, which has floats, in *memory, which the caller
// frees. ERR_FORMAT: another shape, or another number of experts.
MUST_USE enum status expert_stack_matrix(const struct expert_place *place,
                                         const struct tensor *tensor, uint64_t rows, uint64_t cols,
                                         void **memory, struct err *err);
// The expert's bias [count] in `tensor`, which has floats, in *memory.
MUST_USE enum status expert_stack_bias(const struct expert_place *place,
                                       const struct tensor *tensor, uint64_t count, void **memory,
                                       struct err *err);
// The scales of the expert's matrix in `tensor`, as a tensor that borrows from it. `rows`: of the
// matrix; block_rows 0: the matrix has one scale. ERR_FORMAT: other shapes. ERR_UNSUPPORTED: a
// block has rows of gate and up.
MUST_USE enum status expert_stack_scales(struct tensor *out, const struct expert_place *place,
                                         const struct tensor *tensor, uint64_t rows,
                                         uint32_t block_rows, struct err *err);
// The form of a matrix in MXFP4, and a reader of the expert's.
struct matrix_form expert_stack_form(uint64_t cols);
MUST_USE enum status expert_stack_open(const struct expert_place *place,
                                       const struct tensor *blocks, const struct tensor *scales,
                                       uint64_t rows, uint64_t cols, struct matrix_reader **out,
                                       struct err *err);

#endif
