#include "model/load/scaled_rows.h"

#include <string.h>

#include "base/check.h"

// Reads plain elements. Those of 2 bytes are first in the second half of `out`: each is written
// before the ones behind it are reached.
static enum status read_plain(const struct matrix_slice *from, uint64_t row, uint64_t col,
                              size_t count, float *out, struct err *err) {
    size_t size = dtype_size(from->dtype);
    uint64_t offset = (row * from->row_stride + col) * size;
    char *buffer = (char *)out + count * (sizeof *out - size);
    const char *bytes = byte_source_get(&from->source, offset, count * size, buffer, err);
    if (!bytes) return ERR_IO;
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        if (from->dtype == DTYPE_F32) {
            memmove(&out[i], bytes + i * size, size);
            continue;
        }
        memcpy(&half, bytes + i * size, size);
        out[i] = from->dtype == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
    return OK;
}

static enum status read(const struct matrix_reader *base, uint64_t row, uint64_t col, size_t count,
                        float *out, struct err *err) {
    const struct scaled_rows *rows = (const struct scaled_rows *)base;
    const struct matrix_slice *from = &rows->from;
    enum status status = from->reader
                             ? from->reader->read(from->reader, matrix_slice_row(from, row),
                                                  from->first_col + col, count, out, err)
                             : read_plain(from, row, col, count, out, err);
    if (status) return status;
    for (size_t i = 0; i < count; i++) out[i] *= rows->factor;
    return OK;
}

static enum status read_codes(const struct matrix_reader *base, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    const struct scaled_rows *rows = (const struct scaled_rows *)base;
    const struct matrix_slice *from = &rows->from;
    enum status status = from->reader->read_codes(from->reader, matrix_slice_row(from, row), col,
                                                  count, group, out, err);
    if (out->scale_multiples) group = out->unit; // units are multiplied
    size_t num_scales = group ? (count + group - 1) / group : 1;
    if (status) return status;
    for (size_t i = 0; i < num_scales; i++) {
        out->scales[i] *= rows->factor;
        if (rows->base.form.has_offsets) out->offsets[i] *= rows->factor;
    }
    return OK;
}

static void close_nothing(struct matrix_reader *base) {
    (void)base;
}

void scaled_rows_init(struct scaled_rows *out, struct matrix_slice *slice, float factor) {
    CHECK(slice->first_col == 0, "first_col=%llu", (unsigned long long)slice->first_col);
    *out = (struct scaled_rows){
        .base = {.read = read, .close = close_nothing}, .from = *slice, .factor = factor};
    if (slice->reader && slice->reader->form.code != WEIGHT_CODE_NONE) {
        out->base.form = slice->reader->form;
        out->base.read_codes = read_codes;
    }
    slice->dtype = DTYPE_F32;
    slice->source = (struct byte_source){0};
    slice->reader = &out->base;
    slice->first_row = 0;
    slice->skipped_rows = 0;
}
