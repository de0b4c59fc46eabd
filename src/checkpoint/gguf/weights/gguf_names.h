/* The names of a GGUF file's tensors, in those of Hugging Face's checkpoints. */
#ifndef CHECKPOINT_GGUF_GGUF_NAMES_H
#define CHECKPOINT_GGUF_GGUF_NAMES_H

#include "checkpoint/gguf/gguf_model.h"
#include "checkpoint/gguf/weights/gguf_order.h"

struct gguf_place {
    char name[320]; // "model.layers.0.self_attn.q_proj.weight"; of experts without their number
    const char *expert_part; // "gate_proj": the tensor has this part of all experts; else NULL
    const char *second_part; // of each expert, whose rows are behind the first's; NULL: none
    bool is_bias; // of that part
    bool is_row; // a matrix of one row, which may be stored as a vector
    bool is_vector; // it may be stored as a matrix
    bool is_as_stored; // a norm's weights without 1 added, whatever the others are
    struct gguf_order rows, cols;
};

// Sets the name of a tensor. A tensor that no model has keeps its own: weights.c then says that it
// is not used.
void gguf_name_tensor(const struct gguf_model *model, struct gguf_string name,
                      struct gguf_place *out);

#endif
