/* The tensors of a short convolution, of which a rank has a share of the channels. */
#ifndef MODEL_LOAD_CONV_LOAD_H
#define MODEL_LOAD_CONV_LOAD_H

#include "model/load/loader.h"

MUST_USE enum status conv_load(struct loader *l, uint32_t index, struct decoder_layer *layer);

#endif
