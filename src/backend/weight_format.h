/* The formats in which linears keep their weights. Which one a linear has is decided for each, by
 * whoever creates it; backends say which formats they have.
 *
 * There are three kinds:
 *   floats           the weights themselves, in the device's type
 *   made             numbers of 8 or 4 bits that the backend makes from floats while it loads
 *   packed           the codes of a quantized checkpoint as they are (base/weight_code.h) */
#ifndef BACKEND_WEIGHT_FORMAT_H
#define BACKEND_WEIGHT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/matrix_reader.h"

/* How a linear's weights are kept. Numbers of 32 and 16 bits, float32 and bfloat16, are the weights
 * themselves. A made number q of fewer bits stands for the weight
 *   (q - zero) * s * scale
 * with a float scale for each output and a whole number s for each group of an output's weights.
 *
 * A packed code stands for the weight value(code) * scale + offset, with a float scale, and perhaps
 * a float offset, for each group of an output's weights. */
struct weight_format {
    uint32_t bits; // of a number or code; 0: the floats that the device keeps (weight_dtype)
    // Weights of an output that share an s, or a scale. 0: there is no s; packed: one scale.
    uint32_t group;
    uint32_t zero; // of made numbers: the one that stands for 0
    enum weight_code code; // WEIGHT_CODE_NONE: not packed
    bool has_offsets; // of codes
    // As in matrix_form. A backend whose hardware multiplies the codes may round x to their type.
    bool rounds_inputs;
    // Of codes, as in matrix_form: scales and offsets are kept as multiples of units. 0: as floats.
    uint32_t unit, shift;
};

static const struct weight_format WEIGHTS_NATIVE = {0, 0, 0, WEIGHT_CODE_NONE, false, false, 0, 0};
static const struct weight_format WEIGHTS_INT8 = {8, 0, 0, WEIGHT_CODE_NONE, false, false, 0, 0};
static const struct weight_format WEIGHTS_INT4 = {4, 32, 7, WEIGHT_CODE_NONE, false, false, 0, 0};

static inline bool weight_format_is(struct weight_format a, struct weight_format b) {
    return a.bits == b.bits && a.group == b.group && a.zero == b.zero && a.code == b.code &&
           a.has_offsets == b.has_offsets && a.rounds_inputs == b.rounds_inputs &&
           a.unit == b.unit && a.shift == b.shift;
}

static inline bool weight_format_is_packed(struct weight_format format) {
    return format.code != WEIGHT_CODE_NONE;
}

enum { PACKED_GROUP_MIN = 16, PACKED_GROUP_MAX = 128, PACKED_UNIT_MIN = 32, PACKED_UNIT_MAX = 256 };

// The same weights with scales and offsets as floats.
static inline struct weight_format weight_format_without_units(struct weight_format format) {
    format.unit = format.shift = 0;
    return format;
}

// The packed format of a matrix's columns from first_col on. Its groups are the largest that lie in
// the matrix's groups: where a rank's columns begin inside of one, smaller ones that repeat its
// scale. So are the columns that share a unit. WEIGHTS_NATIVE: the matrix has no codes, or groups
// that are too small.
static inline struct weight_format weight_format_packed(struct matrix_form form,
                                                        uint64_t first_col) {
    uint32_t group = PACKED_GROUP_MAX;
    if (form.code == WEIGHT_CODE_NONE) return WEIGHTS_NATIVE;
    while (group >= PACKED_GROUP_MIN && (form.group % group || first_col % group)) group /= 2;
    if (form.group && group < PACKED_GROUP_MIN) return WEIGHTS_NATIVE;
    uint32_t unit = form.unit ? (uint32_t)PACKED_UNIT_MAX : 0;
    while (unit >= PACKED_UNIT_MIN && (form.unit % unit || first_col % unit)) unit /= 2;
    bool has_units = form.group && unit >= PACKED_UNIT_MIN && unit % group == 0;
    struct weight_format format = {weight_code_bits(form.code),
                                   form.group ? group : 0,
                                   0,
                                   form.code,
                                   form.has_offsets,
                                   form.rounds_inputs,
                                   has_units ? unit : 0,
                                   has_units ? form.shift : 0};
    return format;
}

#endif
