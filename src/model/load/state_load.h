/* What layers with a state have beside their linears: taps of a convolution, and vectors. A rank
 * takes some elements of each. */
#ifndef MODEL_LOAD_STATE_LOAD_H
#define MODEL_LOAD_STATE_LOAD_H

#include "model/load/loader.h"

// Elements [start, start + count) of a tensor.
struct state_part {
    uint32_t start, count;
};

// The parts of a convolution's channels, of a tensor [channels][num_taps]: *out is dev [num_taps]
// [channels of the parts].
MUST_USE enum status state_load_taps(struct loader *l, uint32_t layer, const char *module,
                                     uint32_t channels, uint32_t num_taps,
                                     const struct state_part *parts, uint32_t num_parts,
                                     float **out);
// The parts of a vector [count], whose whole name below the layer is `name`.
MUST_USE enum status state_load_vector(struct loader *l, uint32_t layer, const char *name,
                                       uint32_t count, const struct state_part *parts,
                                       uint32_t num_parts, float **out);
// Loads e^A_log of each head from the tensor A_log of `module`. A GGUF file has -e^A_log instead,
// as the module's tensor A.
MUST_USE enum status state_load_decay(struct loader *l, uint32_t layer, const char *module,
                                      uint32_t num_heads, const struct state_part *part,
                                      float **out);

#endif
