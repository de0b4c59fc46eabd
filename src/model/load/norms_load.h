/* The norms of a layer: around attention and the MLP, and of heads. */
#ifndef MODEL_LOAD_NORMS_LOAD_H
#define MODEL_LOAD_NORMS_LOAD_H

#include "model/load/loader.h"

MUST_USE enum status norms_load(struct loader *l, uint32_t index, struct decoder_layer *layer);
// The weights of a norm that has none.
MUST_USE enum status norms_make_ones(struct loader *l, uint32_t count, float **out);

#endif
