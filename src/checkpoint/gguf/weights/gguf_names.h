/* The names of a GGUF file's tensors, in those of Hugging Face's checkpoints. */
#ifndef CHECKPOINT_GGUF_GGUF_NAMES_H
#define CHECKPOINT_GGUF_GGUF_NAMES_H

#include "checkpoint/gguf/gguf_model.h"

struct gguf_place {
    char name[320]; // "model.layers.0.self_attn.q_proj.weight"; of experts without their number
    const char *expert_part; // "gate_proj": the tensor has this part of all experts; else NULL
    bool is_bias; // of that part
    bool is_query_or_key; // its rows may be stored in another order
};

// Sets the name of a tensor. A tensor that no model has keeps its own: weights.c then says that it
// is not used.
void gguf_name_tensor(const struct gguf_model *model, struct gguf_string name,
                      struct gguf_place *out);

#endif
