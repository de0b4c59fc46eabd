/* The codes in which published checkpoints store a matrix's weights, and the one form into which
 * all of their formats are brought:
 *
 *   weight = value(code) * scale + offset
 *
 * with a float scale, and perhaps a float offset, for each group of a row's columns. It is rounded
 * once, to float32. An integer q with a zero z is the value q - 8 with the offset (8 - z) * scale;
 * a K-quant's minimum is a negative offset. */
#ifndef BASE_WEIGHT_CODE_H
#define BASE_WEIGHT_CODE_H

#include <stddef.h>

enum weight_code {
    WEIGHT_CODE_NONE, // the weights are floats
    WEIGHT_CODE_INT4, // 4 bits: code - 8
    WEIGHT_CODE_E2M1, // 4 bits: a sign and 0, 0.5, 1, 1.5, 2, 3, 4 or 6
    WEIGHT_CODE_IQ4, // 4 bits: the 16 levels of IQ4_NL
    WEIGHT_CODE_INT8, // 8 bits, two's complement
    WEIGHT_CODE_E4M3, // 8 bits: a float without infinities; 0x7f and 0xff, NaN, do not occur
    WEIGHT_CODE_IQ3, // 4 bits: a sign and the eight magnitudes of IQ3_XXS
    WEIGHT_CODE_IQ2, // 4 bits: a sign and 8, 25 or 43
    WEIGHT_CODE_ODD, // 4 bits: 2 * code - 15
    WEIGHT_CODE_COUNT,
};

static inline unsigned weight_code_bits(enum weight_code code) {
    if (code == WEIGHT_CODE_NONE) return 0;
    return code == WEIGHT_CODE_INT8 || code == WEIGHT_CODE_E4M3 ? 8 : 4;
}

// The 16 values of codes of 4 bits; NULL for others.
static inline const float *weight_code_values(enum weight_code code) {
    static const float of_int4[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    static const float of_e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    static const float of_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    static const float of_iq3[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                     -4, -12, -20, -28, -36, -44, -52, -62};
    static const float of_iq2[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0};
    static const float of_odd[16] = {-15, -13, -11, -9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13, 15};
    return code == WEIGHT_CODE_INT4   ? of_int4
           : code == WEIGHT_CODE_E2M1 ? of_e2m1
           : code == WEIGHT_CODE_IQ4  ? of_iq4
           : code == WEIGHT_CODE_IQ3  ? of_iq3
           : code == WEIGHT_CODE_IQ2  ? of_iq2
           : code == WEIGHT_CODE_ODD  ? of_odd
                                      : NULL;
}

#endif
