/* The table of rotary angles for every position, in each scaling that checkpoints name.
 * Sources: RoPE, arXiv 2104.09864; linear, arXiv 2306.15595; YaRN, arXiv 2309.00071; llama3,
 * Llama 3.1's published config and arXiv 2407.21783. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include <stdint.h>

#include "checkpoint/model_config.h"

enum { ROPE_HEAD_DIM_MAX = 1024 };

// Fills inv_freq[head_dim / 2], radians per position. Returns the factor of cosines and sines.
float rope_frequencies(const struct rope_config *rope, uint32_t head_dim, float *inv_freq);

// table[num_positions][head_dim]: head_dim/2 cosines, then head_dim/2 sines.
void rope_fill_table(const struct rope_config *rope, uint32_t head_dim, uint32_t num_positions,
                     float *table);

#endif
