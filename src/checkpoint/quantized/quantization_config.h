/* The "quantization_config" of config.json: in which format a checkpoint's linears are stored. Keys
 * and values that are not known are refused by name, for each may change what the numbers mean.
 *
 *   fp8                 8-bit floats, a scale for each block or matrix
 *   fbgemm_fp8          8-bit floats, a scale for each output
 *   gptq                2 to 8 bits, packed along the inputs; the first version stores zeros - 1
 *   awq                 4 bits, packed along the outputs ("gemm")
 *   auto-round          integers packed as gptq's or awq's; 8-bit floats, NVFP4, MXFP4 and MXFP8
 *   modelopt            8-bit floats, a scale for each matrix, row or block; MXFP8, NVFP4
 *   mxfp4               the experts of gpt-oss
 *   quark               8-bit floats, a scale for each matrix or row; MXFP4
 *   compressed-tensors  8-bit floats and integers, packed 2 to 8 bits, NVFP4, MXFP4 and MXFP8
 *   bitsandbytes        4 bits that are decoded, and 8-bit integers
 *
 * MLX has a "quantization" instead: 2 to 8 bits in groups, also as floats (mlx_config.h).
 *
 * Some say that inputs of linears are rounded too. rounds_inputs has that for 8-bit floats, whose
 * rounding GPUs make use of. A scale for the inputs that is the same for all tokens is not needed:
 * each row, or group of a row, gets one that fits it. Of other formats inputs are not rounded to
 * the codes' type, which is only closer to the model before it was quantized. */
#ifndef CHECKPOINT_QUANTIZED_QUANTIZATION_CONFIG_H
#define CHECKPOINT_QUANTIZED_QUANTIZATION_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "checkpoint/quantized/module_targets.h"

enum quantization_method {
    QUANTIZED_NOT,
    QUANTIZED_FP8, // E4M3 codes
    QUANTIZED_INT8,
    QUANTIZED_PACKED, // compressed-tensors' "pack-quantized"
    QUANTIZED_GPTQ,
    QUANTIZED_AWQ,
    QUANTIZED_NVFP4,
    QUANTIZED_MXFP4,
    QUANTIZED_MLX, // of any number of bits, with a scale and a bias for each group
    QUANTIZED_MLX_FLOATS, // E2M1 or E4M3 with 8-bit scales: MLX's mxfp4, mxfp8 and nvfp4
    QUANTIZED_BNB4, // bitsandbytes.h
    QUANTIZED_BNB8,
};

struct quantization_config {
    enum quantization_method method;
    uint32_t bits; // of a code
    uint32_t block_rows, block_cols; // of a matrix that share a scale; 0: all
    bool is_symmetric; // the zero of all codes is the middle one
    bool is_zero_less_one; // gptq, first version
    bool has_global_scale; // of QUANTIZED_MLX_FLOATS: one more scale for each matrix
    bool rounds_inputs; // of 8-bit floats: inputs of linears are rounded to them
    char **skipped; // [num_skipped] modules whose weights are not quantized
    uint32_t num_skipped;
    struct module_targets skip_patterns; // more of them
    // compressed-tensors stores modules in several ways, or not all. What is above is of the first
    // group; the owner of a target is its group.
    struct quantization_config *groups; // [num_groups]; NULL: all modules are stored alike
    uint32_t num_groups;
    struct module_targets targets;
    bool is_by_tensors; // a module's group is the one of its tensors, quantization_config_kind
};

// Reads root's "quantization_config". None: all zero. After an error it is all zero too.
MUST_USE enum status quantization_config_read(struct quantization_config *out, const json_t *root,
                                              const char *what, struct err *err);
void quantization_config_fini(struct quantization_config *config); // all-zero is fine
// Whether the configuration says that a module's weights are not quantized: an entry's components
// (between dots) are components of the name, in a row. So "mlp.gate" is not "mlp.gate_proj".
bool quantization_config_skips(const struct quantization_config *config, const char *module);
// How a module's weights are stored. *out is `config`, one of its groups, or NULL: not quantized.
// `own_name`: its name in the checkpoint, which the configuration may have instead. ERR_INVALID: a
// pattern takes too long.
MUST_USE enum status quantization_config_of(const struct quantization_config **out,
                                            const struct quantization_config *config,
                                            const char *module, const char *own_name,
                                            struct err *err);
// Of a configuration that quantization_config_of gave: itself, or the group of the module's
// tensors. is_fp8: the weight is of that type.
const struct quantization_config *quantization_config_kind(const struct quantization_config *config,
                                                           bool is_fp8);

#endif
