/* Loads what a model with inputs of layers has for them (Gemma 4 E2B and E4B). */
#ifndef MODEL_LOAD_LAYER_INPUTS_LOAD_H
#define MODEL_LOAD_LAYER_INPUTS_LOAD_H

#include "model/load/loader.h"

// What makes the inputs of layers (layer_table.layer_input_size), and what each layer does with
// its own. Nothing where the model has none.
MUST_USE enum status layer_inputs_load(struct loader *l);
MUST_USE enum status layer_inputs_load_layer(struct loader *l, uint32_t index);
// Takes the keys and values that a checkpoint may have of a layer that reads those of another one.
MUST_USE enum status layer_inputs_drop_keys(struct loader *l, uint32_t index);

#endif
