/* The table of rotary angles for every position, in each scaling that checkpoints name.
 * Sources: RoPE, arXiv 2104.09864; linear, arXiv 2306.15595; YaRN, arXiv 2309.00071; llama3,
 * Llama 3.1's published config and arXiv 2407.21783; longrope, arXiv 2402.13753. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include <stdint.h>

#include "checkpoint/model_config.h"

enum { ROPE_HEAD_DIM_MAX = 1024 };

// Fills inv_freq[rotary_dim / 2], radians per position. Returns the factor of cosines and sines. A
// longrope has its long factors where there may be more positions than the original ones: one
// choice for all sequences, so that the cache's keys agree.
float rope_frequencies(const struct rope_config *rope, uint32_t rotary_dim, uint32_t num_positions,
                       float *inv_freq);

// YaRN's factor of cosines and sines, as DeepSeek-V2 has it: 0.1 mscale ln(factor) + 1.
double rope_yarn_mscale(double factor, double mscale);

// table[num_positions][head_dim]: head_dim / 2 cosines, then head_dim / 2 sines, of the pairs
// (i, i + head_dim / 2). The first rotary_dim / 2 pairs are rotated, the others stay.
void rope_fill_table(const struct rope_config *rope, uint32_t head_dim, uint32_t rotary_dim,
                     uint32_t num_positions, float *table);

// The table for q of a model that scales q by its position: out[p] = table[p] times the scale.
void rope_scale_table(const struct rope_config *rope, uint32_t head_dim, uint32_t num_positions,
                      const float *table, float *out);

#endif
