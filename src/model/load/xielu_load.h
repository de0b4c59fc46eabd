/* The two numbers of a layer's xIELU. */
#ifndef MODEL_LOAD_XIELU_LOAD_H
#define MODEL_LOAD_XIELU_LOAD_H

#include "model/load/loader.h"

// A layer without ACTIVATION_XIELU has none.
MUST_USE enum status xielu_load(struct loader *l, uint32_t index, struct decoder_layer *layer);

#endif
