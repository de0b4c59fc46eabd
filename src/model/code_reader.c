#include "model/code_reader.h"

#include <stdlib.h>
#include <string.h>

struct code_reader {
    struct matrix_reader base;
    const struct matrix_reader *from;
};

// Of E2M1, twice the value.
static bool is_integer(enum weight_code code) {
    return code != WEIGHT_CODE_NONE && code != WEIGHT_CODE_E4M3;
}

enum weight_code weight_code_of_both(enum weight_code a, enum weight_code b) {
    if (a == b) return a;
    return is_integer(a) && is_integer(b) ? WEIGHT_CODE_INT8 : WEIGHT_CODE_NONE;
}

// The shift of a format's weights in codes of another kind: widening adds it to the codes (widen).
static uint32_t shift_in(struct weight_format format, enum weight_code code) {
    return format.code == code ? format.shift : 0;
}

struct weight_format weight_format_of_both(struct weight_format a, struct weight_format b) {
    enum weight_code code = weight_code_of_both(a.code, b.code);
    if (code == WEIGHT_CODE_NONE) return WEIGHTS_NATIVE;
    a.shift = shift_in(a, code);
    if (!a.unit || !b.unit || a.shift != shift_in(b, code)) a = weight_format_without_units(a);
    if (a.unit > b.unit) a.unit = b.unit;
    a.code = code;
    a.bits = weight_code_bits(a.code);
    a.has_offsets |= b.has_offsets;
    a.rounds_inputs &= b.rounds_inputs;
    if (b.group && (!a.group || b.group < a.group)) a.group = b.group; // 0 is the largest
    return a;
}

static enum status read(const struct matrix_reader *base, uint64_t row, uint64_t col, size_t count,
                        float *out, struct err *err) {
    const struct matrix_reader *from = ((const struct code_reader *)base)->from;
    return from->read(from, row, col, count, out, err);
}

static void widen_int4(uint8_t *codes, size_t count, uint32_t shift) { // compilers vectorize this
    uint8_t less = (uint8_t)(8 - shift);
    for (size_t i = 0; i < count; i++) codes[i] = (uint8_t)((codes[i] & 15) - less);
}

// Codes of 4 bits become int8 with the same values. Values of E2M1 may end in .5, so they are
// doubled and their scales halved. With units the offset of int4 has a part of shift * scale
// (struct matrix_codes). A code that is larger by `shift` stands for that part.
static void widen(const struct matrix_form *form, const struct matrix_codes *out, size_t count,
                  size_t num_groups) {
    enum weight_code code = form->code;
    const float *values = weight_code_values(code);
    float factor = code == WEIGHT_CODE_E2M1 ? 2.0f : 1.0f;
    if (!values) return;
    if (code == WEIGHT_CODE_INT4) {
        widen_int4(out->codes, count, out->scale_multiples ? form->shift : 0);
        return;
    }
    uint8_t wide[16];
    for (int i = 0; i < 16; i++) wide[i] = (uint8_t)(int8_t)(values[i] * factor);
    for (size_t i = 0; i < count; i++) out->codes[i] = wide[out->codes[i] & 15];
    for (size_t i = 0; factor != 1 && i < num_groups; i++) out->scales[i] /= factor;
}

// Codes as `from` gives them are brought into those of the linear.
static void convert(const struct matrix_reader *base, const struct matrix_reader *from,
                    size_t count, uint32_t group, const struct matrix_codes *out) {
    size_t num_groups = group ? (count + group - 1) / group : 1;
    size_t num_numbers = out->scale_multiples ? (count + out->unit - 1) / out->unit : num_groups;
    if (from->form.code != base->form.code) widen(&from->form, out, count, num_numbers);
    if (!base->form.has_offsets || from->form.has_offsets) return;
    // -0 changes no bit of what it is added to.
    for (size_t i = 0; i < num_numbers; i++) out->offsets[i] = -0.0f;
    if (out->offset_multiples) memset(out->offset_multiples, 0, num_groups);
}

static struct matrix_codes codes_for(const struct matrix_reader *from, struct matrix_codes out) {
    if (!from->form.has_offsets) {
        out.offsets = NULL;
        out.offset_multiples = NULL;
    }
    return out;
}

static enum status read_codes(const struct matrix_reader *base, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    const struct matrix_reader *from = ((const struct code_reader *)base)->from;
    const struct matrix_codes own = codes_for(from, *out);
    enum status status = from->read_codes(from, row, col, count, group, &own, err);
    if (!status) convert(base, from, count, group, out);
    return status;
}

static enum status read_code_rows(const struct matrix_reader *base, uint64_t row, uint32_t num_rows,
                                  uint64_t col, size_t count, uint32_t group,
                                  const struct matrix_codes *out, struct err *err) {
    enum { TOGETHER = 16 };
    const struct matrix_reader *from = ((const struct code_reader *)base)->from;
    enum status status = OK;
    for (uint32_t first = 0; first < num_rows && !status; first += TOGETHER) {
        uint32_t left = num_rows - first, rows = left < TOGETHER ? left : TOGETHER;
        struct matrix_codes own[TOGETHER];
        for (uint32_t i = 0; i < rows; i++) own[i] = codes_for(from, out[first + i]);
        status = from->read_code_rows(from, row + first, rows, col, count, group, own, err);
        for (uint32_t i = 0; i < rows && !status; i++) {
            convert(base, from, count, group, &out[first + i]);
        }
    }
    return status;
}

static void close_nothing(struct matrix_reader *base) {
    (void)base;
}

static bool suits(const struct matrix_slice *slice, struct weight_format format) {
    return !slice->reader || (slice->reader->form.code == format.code &&
                              slice->reader->form.has_offsets == format.has_offsets &&
                              (!format.unit || slice->reader->form.shift == format.shift));
}

enum status code_readers_make(struct code_reader **out, struct matrix_slice *slices, uint32_t count,
                              struct weight_format format, struct err *err) {
    uint32_t i = 0;
    *out = NULL;
    while (i < count && suits(&slices[i], format)) i++;
    if (i == count || !weight_format_is_packed(format)) return OK;
    struct code_reader *readers = calloc(count, sizeof *readers);
    if (!readers) return err_nomem(err, "codes of weights");
    for (; i < count; i++) {
        const struct matrix_reader *from = slices[i].reader;
        if (suits(&slices[i], format)) continue;
        struct matrix_form form = from->form;
        form.code = format.code;
        form.has_offsets = format.has_offsets;
        if (!format.unit) form.unit = 0;
        form.shift = format.shift;
        readers[i] = (struct code_reader){
            .base = {.read = read,
                     .read_codes = read_codes,
                     .form = form,
                     .close = close_nothing,
                     .read_code_rows = from->read_code_rows ? read_code_rows : NULL},
            .from = from};
        slices[i].reader = &readers[i].base;
    }
    *out = readers;
    return OK;
}
