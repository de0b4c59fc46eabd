/* Loads a layer's gated delta net. */
#ifndef MODEL_LOAD_DELTA_LOAD_H
#define MODEL_LOAD_DELTA_LOAD_H

#include "model/load/loader.h"

// Loads what a gated delta net has in attention's place: this rank's key heads and their heads.
MUST_USE enum status delta_load(struct loader *l, uint32_t index, struct decoder_layer *layer);

#endif
