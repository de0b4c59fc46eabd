#include "checkpoint/quantized/quantized_matrix.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 4096 }; // of codes that are read from a file together

struct reader {
    struct matrix_reader base;
    struct quantized_matrix matrix;
};

// Exact for subnormals too: the bits are those of a float whose exponent is 120 too small. NaN must
// be found before.
static float decode_e4m3(uint8_t code) {
    uint32_t bits = (uint32_t)(code & 0x7fu) << 20 | (uint32_t)(code & 0x80u) << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value * 0x1p120f;
}

float e4m3_to_f32(uint8_t code) {
    return (code & 0x7fu) == 0x7fu ? NAN : decode_e4m3(code);
}

// values[code] of 4-bit codes first .. first + count - 1.
static void decode_halves(const float values[16], const uint8_t *codes, size_t first, size_t count,
                          float *out) {
    size_t i = 0;
    if (first % 2 && count) out[i++] = values[codes[first / 2] >> 4];
    for (; i + 1 < count; i += 2) {
        uint8_t both = codes[(first + i) / 2];
        out[i] = values[both & 15];
        out[i + 1] = values[both >> 4];
    }
    if (i < count) out[i] = values[codes[(first + i) / 2] & 15];
}

// Code i of those that follow each other.
static uint32_t code_at(const uint8_t *codes, size_t i, uint32_t bits) {
    size_t at = i * bits / 8, shift = i * bits % 8;
    uint32_t word = codes[at];
    if (shift + bits > 8) word |= (uint32_t)codes[at + 1] << 8;
    return word >> shift & ((1u << bits) - 1);
}

// Decodes elements first .. first + count - 1 of `codes`. Returns whether one is NaN.
static bool decode(const struct quantized_matrix *m, const uint8_t *codes, size_t first,
                   size_t count, float *out) {
    static const float uint4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    uint32_t num_nans = 0; // a count, because compilers vectorize its loop
    switch (m->code) {
    case CODE_E4M3:
        for (size_t i = 0; i < count; i++) {
            num_nans += (codes[first + i] & 0x7fu) == 0x7fu;
            out[i] = decode_e4m3(codes[first + i]);
        }
        break;
    case CODE_INT8:
        for (size_t i = 0; i < count; i++) out[i] = (float)(int8_t)codes[first + i];
        break;
    case CODE_UINT8:
        for (size_t i = 0; i < count; i++) out[i] = (float)codes[first + i];
        break;
    case CODE_UINT4:
        decode_halves(uint4, codes, first, count, out);
        break;
    case CODE_E2M1:
        decode_halves(e2m1, codes, first, count, out);
        break;
    case CODE_LEVEL:
        for (size_t i = 0; i < count; i++) {
            uint8_t both = codes[(first + i) / 2];
            out[i] = m->levels[(first + i) % 2 ? both & 15 : both >> 4];
        }
        break;
    case CODE_UINT:
        for (size_t i = 0; i < count; i++) out[i] = (float)code_at(codes, first + i, m->bits);
        break;
    }
    return num_nans != 0;
}

// Applies scales, zeros and biases to values in one row, the first in column `at`. `row`:
// of the scales.
static void scale_values(const struct quantized_matrix *m, uint64_t row, uint64_t at, size_t count,
                         float *values) {
    const float *scales = m->scales + row * m->num_groups;
    const uint8_t *zeros = m->zeros ? m->zeros + row * m->num_groups : NULL;
    if (m->groups) {
        for (size_t i = 0; i < count; i++) {
            uint32_t group = m->groups[at + i];
            values[i] = (values[i] - (float)(zeros ? zeros[group] : m->zero)) * scales[group];
        }
        return;
    }
    for (size_t begin = 0, end; begin < count; begin = end) { // up to the end of a group
        uint64_t group = (at + begin) / m->block_cols;
        uint64_t left = (group + 1) * m->block_cols - (at + begin);
        end = left < count - begin ? begin + (size_t)left : count;
        float zero = (float)(zeros ? zeros[group] : m->zero), scale = scales[group];
        float bias = m->biases ? m->biases[row * m->num_groups + group] : 0;
        if (m->biases) {
            for (size_t i = begin; i < end; i++) values[i] = values[i] * scale + bias;
            continue;
        }
        for (size_t i = begin; i < end; i++) values[i] = (values[i] - zero) * scale;
    }
}

// Some codes of a row: bytes from the one that has the first code on.
struct code_chunk {
    const uint8_t *bytes; // NULL: they cannot be read
    size_t first, count; // codes: the first counts from the first byte's begin
};

// Up to `count` codes from column `at` on. `buffer` is for CHUNK_BYTES.
static struct code_chunk read_chunk(const struct quantized_matrix *m, uint64_t row, uint64_t at,
                                    size_t count, uint8_t *buffer, struct err *err) {
    bool is_half = m->code == CODE_UINT4 || m->code == CODE_E2M1 || m->code == CODE_LEVEL;
    bool is_any = m->code == CODE_UINT;
    // Codes that fill whole bytes together: so many, and the bytes.
    size_t per_unit = is_any ? 8 : is_half ? 2 : 1, unit_bytes = is_any ? m->bits : 1;
    size_t most = CHUNK_BYTES / unit_bytes * per_unit - (per_unit - 1); // wherever they begin
    uint64_t first = at / per_unit * unit_bytes;
    struct code_chunk chunk = {.first = (size_t)(at % per_unit),
                               .count = count < most ? count : most};
    size_t bytes = ((chunk.first + chunk.count) * unit_bytes + per_unit - 1) / per_unit;
    chunk.bytes = byte_source_get(&m->codes, row * m->row_bytes + first, bytes, buffer, err);
    return chunk;
}

static enum status fail_nan(const struct quantized_matrix *m, uint64_t row, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a NaN in row %llu", m->path, m->name,
                   (unsigned long long)row);
}

static enum status read_row(const struct matrix_reader *base, uint64_t row, uint64_t col,
                            size_t count, float *out, struct err *err) {
    const struct quantized_matrix *m = &((const struct reader *)base)->matrix;
    uint8_t buffer[CHUNK_BYTES];
    bool has_nan = false;
    for (size_t done = 0; done < count;) {
        struct code_chunk chunk = read_chunk(m, row, col + done, count - done, buffer, err);
        if (!chunk.bytes) return ERR_IO;
        has_nan |= decode(m, chunk.bytes, chunk.first, chunk.count, out + done);
        scale_values(m, row / m->block_rows, col + done, chunk.count, out + done);
        done += chunk.count;
    }
    return has_nan ? fail_nan(m, row, err) : OK;
}

// The unsigned code that has the value 0 in the matrix's form.
static uint32_t middle_of(const struct quantized_matrix *m) {
    return m->code == CODE_UINT ? 1u << (m->bits - 1) : m->code == CODE_UINT4 ? 8 : 128;
}

// Brings a chunk's codes into those of the matrix's form, one a byte. Returns whether one is NaN.
static bool copy_codes(const struct quantized_matrix *m, const struct code_chunk *chunk,
                       uint8_t *out) {
    const uint8_t *bytes = chunk->bytes;
    uint32_t num_nans = 0, zero = m->form.code == WEIGHT_CODE_INT4 ? 8 : 0;
    switch (m->code) {
    case CODE_E4M3:
        for (size_t i = 0; i < chunk->count; i++) {
            out[i] = bytes[i];
            num_nans += (bytes[i] & 0x7fu) == 0x7fu;
        }
        break;
    case CODE_INT8:
        memcpy(out, bytes, chunk->count);
        break;
    case CODE_UINT8: // a zero of 128 becomes 0
        for (size_t i = 0; i < chunk->count; i++) out[i] = bytes[i] ^ 0x80u;
        break;
    case CODE_UINT4:
    case CODE_E2M1:
        for (size_t i = 0; i < chunk->count; i++) {
            size_t at = chunk->first + i;
            out[i] = at % 2 ? bytes[at / 2] >> 4 : bytes[at / 2] & 15;
        }
        break;
    case CODE_LEVEL: // has no form
        break;
    case CODE_UINT: // becomes 4 or 8 bits wide
        for (size_t i = 0; i < chunk->count; i++) {
            out[i] = (uint8_t)(code_at(bytes, chunk->first + i, m->bits) + zero - middle_of(m));
        }
        break;
    }
    return num_nans != 0;
}

static enum status read_codes(const struct matrix_reader *base, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    const struct quantized_matrix *m = &((const struct reader *)base)->matrix;
    uint8_t buffer[CHUNK_BYTES];
    bool has_nan = false;
    for (size_t done = 0; done < count;) {
        struct code_chunk chunk = read_chunk(m, row, col + done, count - done, buffer, err);
        if (!chunk.bytes) return ERR_IO;
        has_nan |= copy_codes(m, &chunk, out->codes + done);
        done += chunk.count;
    }
    const float middle = (float)middle_of(m);
    size_t scale_row = (size_t)(row / m->block_rows * m->num_groups);
    for (size_t i = 0, at = 0; at < count; i++, at = group ? i * group : count) {
        size_t g = scale_row + (size_t)((col + at) / m->block_cols);
        out->scales[i] = m->scales[g];
        if (!out->offsets) continue;
        float zero = m->biases ? 0 : (float)(m->zeros ? m->zeros[g] : m->zero);
        out->offsets[i] = (middle - zero) * m->scales[g];
        if (m->biases) out->offsets[i] += m->biases[g];
    }
    return has_nan ? fail_nan(m, row, err) : OK;
}

void quantized_matrix_fini(struct quantized_matrix *matrix) {
    free(matrix->memory);
    free(matrix->scales);
    free(matrix->zeros);
    free(matrix->biases);
    free(matrix->groups);
    *matrix = (struct quantized_matrix){0};
}

static void close_reader(struct matrix_reader *base) {
    struct reader *reader = (struct reader *)base;
    quantized_matrix_fini(&reader->matrix);
    free(reader);
}

enum status quantized_matrix_open(struct matrix_reader **out, const struct quantized_matrix *matrix,
                                  struct err *err) {
    *out = NULL;
    struct reader *reader = malloc(sizeof *reader);
    if (!reader) {
        struct quantized_matrix taken = *matrix;
        quantized_matrix_fini(&taken);
        return err_nomem(err, "quantized weights");
    }
    *reader = (struct reader){.base = {.read = read_row,
                                       .read_codes = matrix->form.code ? read_codes : NULL,
                                       .form = matrix->form,
                                       .close = close_reader},
                              .matrix = *matrix};
    *out = &reader->base;
    return OK;
}
