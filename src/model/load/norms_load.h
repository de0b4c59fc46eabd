/* The norms of a layer: around attention and the MLP, and of heads. */
#ifndef MODEL_LOAD_NORMS_LOAD_H
#define MODEL_LOAD_NORMS_LOAD_H

#include "model/load/loader.h"

MUST_USE enum status norms_load(struct loader *l, uint32_t index, struct decoder_layer *layer);
// A vector of ones, for a norm that has no weights.
MUST_USE enum status norms_make_ones(struct loader *l, uint32_t count, float **out);

#endif
