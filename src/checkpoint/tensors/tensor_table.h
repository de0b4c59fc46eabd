/* The tensors of a checkpoint by the names that a text model has for them (text_part.h).
 *
 * MLX has the experts of a layer in one tensor, whether they are quantized or not:
 *
 *   P.switch_mlp.gate_proj.weight [E][rows][columns], and likewise "scales" and "biases"
 *
 * Here each expert has its own, "P.experts.3.gate_proj.weight" [rows][columns], a part of those
 * bytes. In models whose experts are in block_sparse_moe or feed_forward it is
 * "P.experts.3.w1.weight". */
#ifndef CHECKPOINT_TENSOR_TABLE_H
#define CHECKPOINT_TENSOR_TABLE_H

#include <stdbool.h>

#include "base/os/map.h"
#include "checkpoint/tensor.h"

struct checkpoint;

struct table_entry {
    const struct tensor *tensor; // has its name in the file
    char *name; // the text model's; NULL: the same
    bool is_other_part; // of a model for images or sound
    bool used; // taken or ignored
};

// All-zero is a table without tensors.
struct tensor_table {
    struct tensor_set *set;
    struct table_entry *entries; // [count], in the set's order
    size_t count;
    struct strmap by_name; // -> index into entries
    struct tensor *slices; // [num_slices] of experts
    size_t num_slices;
};

// After an error tensor_table_close is called too.
MUST_USE enum status tensor_table_open(struct tensor_table *table,
                                       const struct checkpoint *checkpoint, struct err *err);
void tensor_table_close(struct tensor_table *table);
struct table_entry *tensor_table_find(const struct tensor_table *table, const char *name);

#endif
