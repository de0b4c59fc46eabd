/* A dummy matrix of codes. An element's code is a byte of the hash of its row and eight columns, so
 * that it has memory for nothing. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/dummy/weights_dummy.h"
#include "checkpoint/quantized/quantized_matrix.h"

struct dummy_codes {
    struct matrix_reader base;
    uint64_t seed;
};

// The codes of columns 8 * word and up, one in each byte. 8-bit floats are those below 2.
static uint64_t codes_of(const struct dummy_codes *dummy, uint64_t row, uint64_t word) {
    enum weight_code code = dummy->base.form.code;
    uint64_t z = dummy->seed + (row << 32 ^ word) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 27;
    if (weight_code_bits(code) == 4) return z & 0x0f0f0f0f0f0f0f0fu;
    return code == WEIGHT_CODE_E4M3 ? z & 0xbfbfbfbfbfbfbfbfu : z;
}

static void fill_codes(const struct dummy_codes *dummy, uint64_t row, uint64_t col, size_t count,
                       uint8_t *out) {
    for (size_t done = 0; done < count;) {
        uint64_t word = codes_of(dummy, row, (col + done) / 8);
        size_t skip = (size_t)((col + done) % 8), len = 8 - skip;
        if (len > count - done) len = count - done;
        if (len == 8) {
            memcpy(out + done, &word, 8);
        } else {
            for (size_t i = 0; i < len; i++) out[done + i] = (uint8_t)(word >> (8 * (skip + i)));
        }
        done += len;
    }
}

// Such that weights have a standard deviation near 0.02. A power of 2 for E2M1, as MXFP4 has.
static float scale_of(enum weight_code code) {
    return code == WEIGHT_CODE_INT4   ? 0.02f / 4.6f
           : code == WEIGHT_CODE_E2M1 ? 0x1p-7f
           : code == WEIGHT_CODE_IQ4  ? 0.02f / 69.0f
           : code == WEIGHT_CODE_INT8 ? 0.02f / 74.0f
                                      : 0.02f / 0.6f;
}

static enum status read_codes(const struct matrix_reader *base, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    (void)err;
    const struct dummy_codes *dummy = (const struct dummy_codes *)base;
    fill_codes(dummy, row, col, count, out->codes);
    size_t num_groups = group ? (count + group - 1) / group : 1;
    for (size_t i = 0; i < num_groups; i++) {
        out->scales[i] = scale_of(base->form.code);
        if (base->form.has_offsets) out->offsets[i] = out->scales[i] / 2;
    }
    return OK;
}

static enum status read(const struct matrix_reader *base, uint64_t row, uint64_t col, size_t count,
                        float *out, struct err *err) {
    (void)err;
    const struct dummy_codes *dummy = (const struct dummy_codes *)base;
    enum weight_code code = base->form.code;
    const float *values = weight_code_values(code);
    float scale = scale_of(code), offset = base->form.has_offsets ? scale / 2 : 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = col + i;
        uint8_t q = (uint8_t)(codes_of(dummy, row, at / 8) >> (at % 8 * 8));
        float value = values                     ? values[q]
                      : code == WEIGHT_CODE_INT8 ? (float)(int8_t)q
                                                 : e4m3_to_f32(q);
        out[i] = value * scale + offset;
    }
    return OK;
}

static void close_codes(struct matrix_reader *base) {
    free((struct dummy_codes *)base);
}

enum status weights_dummy_codes(struct matrix_reader **out, const char *name,
                                struct matrix_form form, struct err *err) {
    struct dummy_codes *dummy = malloc(sizeof *dummy);
    *out = NULL;
    if (!dummy) return err_nomem(err, "dummy weights");
    *dummy = (struct dummy_codes){
        {.read = read, .read_codes = read_codes, .form = form, .close = close_codes},
        XXH3_64bits(name, strlen(name))};
    *out = &dummy->base;
    return OK;
}
