/* What takes attention's place in layers that keep a state: workspace.attended is made of
 * workspace.qkv and workspace.gates. */
#ifndef MODEL_RECURRENT_H
#define MODEL_RECURRENT_H

#include "model/compose.h"

// Whether the step's gates are not needed in workspace.gates.
bool recurrent_computes_gates(const struct pass *pass, uint32_t layer_index);
void recurrent_gated_delta(struct pass *pass, uint32_t layer_index);
void recurrent_mamba(struct pass *pass, uint32_t layer_index); // with the norm behind it
void recurrent_short_conv(struct pass *pass, uint32_t layer_index);

#endif
