/* The grids of the IQ types: the combinations of levels that a block's indices stand for. They are
 * a part of the file format, as llama.cpp defines it; the numbers were made from those of the
 * Python package gguf (quants.py).
 *
 * An entry has the levels of 8 neighbouring elements in 2 bits each (IQ1, IQ2), or of 4 elements in
 * 3 bits each (IQ3), the first one lowest. Entries ascend. What the levels stand for:
 *
 *   IQ1      -1, 0, 1
 *   IQ2      8, 25, 43; the levels of an entry have an even sum
 *   IQ3_XXS  4, 12, 20, 28, 36, 44, 52, 62
 *   IQ3_S    1, 3, 5, 7, 9, 11, 13, 15 */
#ifndef CHECKPOINT_GGUF_GGUF_GRIDS_H
#define CHECKPOINT_GGUF_GGUF_GRIDS_H

#include <stdint.h>

extern const uint16_t gguf_grid_iq1[2048]; // of IQ1_S and IQ1_M
extern const uint16_t gguf_grid_iq2_xxs[256];
extern const uint16_t gguf_grid_iq2_xs[512];
extern const uint16_t gguf_grid_iq2_s[1024];
extern const uint16_t gguf_grid_iq3_xxs[256];
extern const uint16_t gguf_grid_iq3_s[512];

#endif
