#include "checkpoint/fp8_matrix.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

enum { PIECE = 4096 }; // elements that are read from a file together

struct fp8_matrix {
    struct matrix_reader base;
    const struct tensor *elements;
    const char *path;
    uint64_t block_rows, block_cols;
    uint64_t scale_cols;
    float scales[]; // [scale rows][scale_cols]
};

// Exact for subnormals too: the bits are those of a float whose exponent is 120 too small. NaN must
// be found before.
static float decode(uint8_t code) {
    uint32_t bits = (uint32_t)(code & 0x7fu) << 20;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 0x1p120f;
    return code & 0x80u ? -value : value;
}

// Decodes codes that lie in one row, the first in column `at`. Returns whether one is NaN.
static bool decode_codes(const struct fp8_matrix *m, const float *scales, uint64_t at,
                         const uint8_t *codes, size_t count, float *out) {
    bool has_nan = false;
    for (size_t begin = 0, end; begin < count; begin = end) { // up to the end of a block of columns
        uint64_t block = (at + begin) / m->block_cols;
        uint64_t left = (block + 1) * m->block_cols - (at + begin);
        end = left < count - begin ? begin + (size_t)left : count;
        for (size_t i = begin; i < end; i++) {
            has_nan |= (codes[i] & 0x7fu) == 0x7fu;
            out[i] = decode(codes[i]) * scales[block];
        }
    }
    return has_nan;
}

static enum status fp8_read(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                            size_t count, float *out, struct err *err) {
    const struct fp8_matrix *m = (const struct fp8_matrix *)reader;
    const float *scales = m->scales + row / m->block_rows * m->scale_cols;
    uint8_t room[PIECE];
    bool has_nan = false;
    for (size_t done = 0; done < count;) {
        uint64_t at = col + done;
        size_t piece = count - done < PIECE ? count - done : PIECE;
        const uint8_t *codes = byte_source_get(&m->elements->source,
                                               row * m->elements->shape[1] + at, piece, room, err);
        if (!codes) return ERR_IO;
        has_nan |= decode_codes(m, scales, at, codes, piece, out + done);
        done += piece;
    }
    if (!has_nan) return OK;
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a NaN in row %llu", m->path,
                   m->elements->name, (unsigned long long)row);
}

// A scale of 8 bits is a power of two.
static float scale_at(const char *bytes, enum dtype dtype, uint64_t i) {
    uint16_t half;
    float value;
    switch (dtype) {
    case DTYPE_F8_E8M0:
        return ldexpf(1, (int)((const uint8_t *)bytes)[i] - 127);
    case DTYPE_BF16:
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        return bf16_to_f32(half);
    case DTYPE_F16:
        memcpy(&half, bytes + i * sizeof half, sizeof half);
        return f16_to_f32(half);
    default:
        memcpy(&value, bytes + i * sizeof value, sizeof value);
        return value;
    }
}

static enum status check_scales(const struct tensor *scales, uint64_t rows, uint64_t cols,
                                bool is_one, const char *path, struct err *err) {
    enum dtype dtype = scales->dtype;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16 && dtype != DTYPE_F8_E8M0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.150s\" is %s, want F32, BF16, F16 or F8_E8M0", path,
                       scales->name, dtype_name(dtype));
    }
    bool is_scalar = scales->size_bytes == dtype_size(dtype);
    bool is_grid = scales->rank == 2 && scales->shape[0] == rows && scales->shape[1] == cols;
    if (is_one ? is_scalar : is_grid) return OK;
    return err_set(err, ERR_FORMAT,
                   "%s: tensor \"%.150s\" has %zu bytes of rank %u, want scales [%llu][%llu]", path,
                   scales->name, scales->size_bytes, scales->rank, (unsigned long long)rows,
                   (unsigned long long)cols);
}

enum status fp8_matrix_open(struct matrix_reader **out, const struct tensor *elements,
                            const struct tensor *scales, const struct quantization_config *config,
                            const char *path, struct err *err) {
    *out = NULL;
    bool is_one = config->block_rows == 0;
    uint64_t block_rows = is_one ? elements->shape[0] : config->block_rows;
    uint64_t block_cols = is_one ? elements->shape[1] : config->block_cols;
    uint64_t rows = (elements->shape[0] + block_rows - 1) / block_rows;
    uint64_t cols = (elements->shape[1] + block_cols - 1) / block_cols;
    enum status status = check_scales(scales, rows, cols, is_one, path, err);
    if (status) return status;
    size_t count = (size_t)(rows * cols); // as many as there are in the file
    struct fp8_matrix *m = malloc(sizeof *m + count * sizeof(float));
    char *room = malloc(scales->size_bytes);
    const char *bytes = NULL;
    if (!m || !room) {
        status = err_nomem(err, "scales of weights");
    } else {
        bytes = byte_source_get(&scales->source, 0, scales->size_bytes, room, err);
        if (!bytes) status = ERR_IO;
    }
    if (!status) {
        *m = (struct fp8_matrix){.base.read = fp8_read,
                                 .elements = elements,
                                 .path = path,
                                 .block_rows = block_rows,
                                 .block_cols = block_cols,
                                 .scale_cols = cols};
    }
    for (size_t i = 0; i < count && !status; i++) {
        m->scales[i] = scale_at(bytes, scales->dtype, i);
        if (isfinite(m->scales[i])) continue;
        status = err_set(err, ERR_FORMAT, "%s: tensor \"%.150s\" has a scale that is no number",
                         path, scales->name);
    }
    free(room);
    if (status) {
        free(m);
        return status;
    }
    *out = &m->base;
    return OK;
}
