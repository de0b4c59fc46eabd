/* The formats in which linears keep their weights. Which one a linear has is decided for each, by
 * whoever creates it; backends say which formats they have. */
#ifndef BACKEND_WEIGHT_FORMAT_H
#define BACKEND_WEIGHT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

/* How a linear's weights are kept. Numbers of 32 and 16 bits, float32 and bfloat16, are the weights
 * themselves. A number q of fewer bits stands for the weight
 *   (q - zero) * s * scale
 * with a float scale for each output and a whole number s for each group of an output's weights.
 * They are made while the weights are loaded. */
struct weight_format {
    uint32_t bits; // of a number; 0: the floats that the device keeps (weight_dtype)
    uint32_t group; // weights that share an s; 0: there is no s
    uint32_t zero; // the number that stands for 0
};

static const struct weight_format WEIGHTS_NATIVE = {0, 0, 0};
static const struct weight_format WEIGHTS_INT8 = {8, 0, 0};
static const struct weight_format WEIGHTS_INT4 = {4, 32, 7};

static inline bool weight_format_is(struct weight_format a, struct weight_format b) {
    return a.bits == b.bits && a.group == b.group && a.zero == b.zero;
}

#endif
