/* The IQ1, IQ2 and IQ3 types as codes: what `unpack` of gguf_codes.h is for them. */
#ifndef CHECKPOINT_GGUF_GGUF_GRID_CODES_H
#define CHECKPOINT_GGUF_GGUF_GRID_CODES_H

#include <stddef.h>
#include <stdint.h>

void unpack_iq1_s(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets);
void unpack_iq1_m(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets);
void unpack_iq2_xxs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                    float *offsets);
void unpack_iq2_xs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                   float *offsets);
void unpack_iq2_s(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets);
void unpack_iq3_xxs(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                    float *offsets);
void unpack_iq3_s(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                  float *offsets);

#endif
