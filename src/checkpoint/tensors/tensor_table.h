/* The tensors of a checkpoint by the names that a text model has for them (text_part.h).
 *
 * MLX (mlx-lm, mlx-vlm) has the experts of a layer in one tensor, quantized or not, and so the
 * heads of latent attention. Here each part has its own name, "P.experts.3.gate_proj.weight"
 * [rows][columns], and is a part of those bytes:
 *
 *   P.switch_mlp.gate_proj.weight [E][rows][columns]    P.experts.3.gate_proj.weight
 *   P.experts.switch_glu.up_proj.weight                 P.experts.3.up_proj.weight
 *   P.experts.down_proj.weight, .bias [E][rows]         P.experts.3.down_proj.weight, .bias
 *   P.switch_mlp.fc1.weight                             P.experts.3.up_proj.weight
 *   P.embed_q.weight, P.unembed_out.weight              P.kv_b_heads.3.key.weight, .value.weight
 *
 * likewise "scales", "biases" and "global_scale" [E]. Where a model wants a name that is not there,
 * MLX's name for the same tensor is looked for: "feed_forward.gate_proj" for "feed_forward.w1". */
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
    struct tensor *slices; // [num_slices] parts of others
    size_t num_slices;
    // The text model's convolutions have weights [channels][width][1]: MLX wrote the checkpoint,
    // and changed other tensors too.
    bool has_mlx_convs;
};

// After an error tensor_table_close is called too.
MUST_USE enum status tensor_table_open(struct tensor_table *table,
                                       const struct checkpoint *checkpoint, struct err *err);
void tensor_table_close(struct tensor_table *table);
// NULL: there is none of this name, nor of MLX's name for it.
struct table_entry *tensor_table_find(const struct tensor_table *table, const char *name);

#endif
