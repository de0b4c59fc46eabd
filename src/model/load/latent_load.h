/* Loads a layer's latent attention. */
#ifndef MODEL_LATENT_LOAD_H
#define MODEL_LATENT_LOAD_H

#include "model/load/loader.h"

MUST_USE enum status latent_load(struct loader *l, uint32_t i, struct decoder_layer *layer);

#endif
