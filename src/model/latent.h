/* Layers with multi-head latent attention (backend/latent.h) in the forward pass. */
#ifndef MODEL_LATENT_H
#define MODEL_LATENT_H

#include "model/compose.h"

// The linears of the normed residual: q, and the latents of keys and values.
void latent_project(struct pass *pass, uint32_t layer_index);
// workspace.attended = attention of what latent_project made.
void latent_attend(struct pass *pass, uint32_t layer_index);

#endif
