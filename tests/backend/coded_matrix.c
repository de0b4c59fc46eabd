#include "backend/coded_matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t group_of(const struct coded *m, uint64_t col) {
    return m->reader.form.group ? (uint32_t)(col / m->reader.form.group) : 0;
}

// Written from the formats' definitions, not as the kernels do it.
float coded_value(enum weight_code code, uint8_t q) {
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    static const float iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
    static const float iq3[8] = {4, 12, 20, 28, 36, 44, 52, 62}, iq2[3] = {8, 25, 43};
    int exponent = q >> 3 & 15, mantissa = q & 7;
    switch (code) {
    case WEIGHT_CODE_INT4:
        return (float)((int)q - 8);
    case WEIGHT_CODE_E2M1:
        return q & 8 ? -e2m1[q & 7] : e2m1[q];
    case WEIGHT_CODE_IQ4:
        return iq4[q];
    case WEIGHT_CODE_IQ3:
        return q & 8 ? -iq3[q & 7] : iq3[q];
    case WEIGHT_CODE_IQ2:
        return (q & 7) > 2 ? 0 : q & 8 ? -iq2[q & 7] : iq2[q];
    case WEIGHT_CODE_ODD:
        return (float)(2 * (int)q - 15);
    case WEIGHT_CODE_INT8:
        return q < 128 ? (float)q : (float)q - 256;
    default:
        break;
    }
    float magnitude =
        exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa / 8, -6);
    return q & 128 ? -magnitude : magnitude;
}

static enum status read_floats(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                               size_t count, float *out, struct err *err) {
    (void)err;
    const struct coded *m = (const struct coded *)reader;
    for (size_t i = 0; i < count; i++) {
        size_t g = (size_t)row * m->groups + group_of(m, col + i);
        float offset = reader->form.has_offsets ? m->offsets[g] : -0.0f;
        float value = coded_value(reader->form.code, m->codes[row * m->cols + col + i]);
        out[i] = value * m->scales[g] + offset; // the product is exact
    }
    return OK;
}

static enum status read_codes(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    (void)err;
    const struct coded *m = (const struct coded *)reader;
    memcpy(out->codes, m->codes + row * m->cols + col, count);
    for (size_t i = 0, at = 0; at < count; i++, at = group ? i * group : count) {
        size_t g = (size_t)row * m->groups + group_of(m, col + at);
        if (out->scale_multiples) {
            out->scale_multiples[i] = m->scale_multiples[g];
            if (out->offset_multiples) out->offset_multiples[i] = m->offset_multiples[g];
            continue;
        }
        out->scales[i] = m->scales[g];
        if (out->offsets) out->offsets[i] = m->offsets[g];
    }
    for (size_t i = 0; out->scale_multiples && i * out->unit < count; i++) {
        size_t u = (size_t)row * m->units + (size_t)(col + i * out->unit) / reader->form.unit;
        out->scales[i] = m->scale_units[u];
        if (out->offsets) out->offsets[i] = m->offset_units[u];
    }
    return OK;
}

// Random units and multiples, and the scales and offsets that they stand for.
static void make_units(struct coded *m, uint32_t rows, struct ops_rng *rng) {
    const struct matrix_form *form = &m->reader.form;
    m->units = (m->cols + form->unit - 1) / form->unit;
    size_t num_units = (size_t)rows * m->units, num_groups = (size_t)rows * m->groups;
    m->scale_units = malloc(num_units * sizeof *m->scale_units);
    m->offset_units = malloc(num_units * sizeof *m->offset_units);
    m->scale_multiples = malloc(num_groups);
    m->offset_multiples = malloc(num_groups);
    assert_true(m->scale_units && m->offset_units && m->scale_multiples && m->offset_multiples);
    for (size_t i = 0; i < num_units; i++) {
        m->scale_units[i] = ldexpf((float)(128 + ops_rng_below(rng, 128)), -20);
        m->offset_units[i] = ldexpf((float)ops_rng_below(rng, 256) - 128, -16);
    }
    for (size_t i = 0; i < num_groups; i++) {
        size_t row = i / m->groups, col = i % m->groups * form->group;
        size_t unit = row * m->units + col / form->unit;
        m->scale_multiples[i] = (int8_t)((int)ops_rng_below(rng, 256) - 128);
        m->offset_multiples[i] = (int8_t)((int)ops_rng_below(rng, 256) - 128);
        m->scales[i] = m->scale_units[unit] * m->scale_multiples[i];
        m->offsets[i] = m->offset_units[unit] * m->offset_multiples[i];
        m->offsets[i] += (float)form->shift * m->scales[i]; // exact
    }
}

struct coded coded_make(uint64_t seed, uint32_t rows, uint32_t cols, struct matrix_form form) {
    uint32_t groups = form.group ? (cols + form.group - 1) / form.group : 1;
    size_t count = (size_t)rows * cols, num_scales = (size_t)rows * groups;
    struct coded m = {.reader = {.read = read_floats, .read_codes = read_codes, .form = form},
                      .cols = cols,
                      .groups = groups,
                      .codes = malloc(count),
                      .scales = malloc(num_scales * sizeof *m.scales),
                      .offsets = malloc(num_scales * sizeof *m.offsets)};
    assert_true(m.codes && m.scales && m.offsets);
    struct ops_rng rng = ops_rng_of(seed);
    for (size_t i = 0; i < count; i++) {
        uint8_t q = (uint8_t)ops_rng_below(&rng, weight_code_bits(form.code) == 4 ? 16 : 256);
        if (form.code == WEIGHT_CODE_E4M3 && (q & 127) == 127) q--; // NaN
        m.codes[i] = q;
    }
    bool is_mxfp4 = form.code == WEIGHT_CODE_E2M1 && form.group == 32;
    for (size_t i = 0; i < num_scales; i++) {
        m.scales[i] = ldexpf((float)(1024 + ops_rng_below(&rng, 1024)), -18);
        if (is_mxfp4) m.scales[i] = ldexpf(1, (int)ops_rng_below(&rng, 5) - 10);
        m.offsets[i] = ldexpf((float)ops_rng_below(&rng, 2048) - 1024, -12);
    }
    if (form.unit) make_units(&m, rows, &rng);
    return m;
}

void coded_free(struct coded *m) {
    free(m->codes);
    free(m->scales);
    free(m->offsets);
    free(m->scale_units);
    free(m->offset_units);
    free(m->scale_multiples);
    free(m->offset_multiples);
}
