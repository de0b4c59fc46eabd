/* The MLP of a layer: dense, down(activation(gate, up)) or without a gate down(activation(up)); or
 * experts. */
#ifndef MODEL_MLP_H
#define MODEL_MLP_H

#include "model/compose.h"

// residual += mlp(norm(residual)). In a parallel layer workspace.hidden has the norm already.
void mlp_dense(struct pass *pass, uint32_t layer_index);
// sum += this rank's part of mlp(workspace.hidden). `sum`: dev [num_tokens][hidden], not
// workspace.projected.
void mlp_add_to(struct pass *pass, uint32_t layer_index, void *sum);
// residual += experts(norm(residual)), with what is beside them.
void mlp_sparse(struct pass *pass, uint32_t layer_index);
// As mlp_add_to, times mlp_scale. `sum` may be workspace.residual.
void mlp_sparse_add_to(struct pass *pass, uint32_t layer_index, void *sum);

#endif
