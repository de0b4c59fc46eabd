/* Loads what a layer with Mamba-2 has in attention's place. */
#ifndef MODEL_LOAD_MAMBA_LOAD_H
#define MODEL_LOAD_MAMBA_LOAD_H

#include "model/load/loader.h"

MUST_USE enum status mamba_load(struct loader *l, uint32_t index, struct decoder_layer *layer);

#endif
