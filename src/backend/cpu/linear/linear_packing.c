/* The formats in which this backend keeps weights. */
#include "backend/cpu/linear/linear_packing.h"

#include <string.h>

// Without branches, so that the compiler vectorizes it (f16_to_f32 is for single values).
// Multiplying by 2^112 corrects the exponent's bias and is exact for subnormals too. Only inf and
// NaN need more.
static float f16_convert(uint16_t bits) {
    uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
    float value;
    memcpy(&value, &magnitude, sizeof value);
    value *= 0x1p112f;
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    wide |= magnitude >= 0x0f800000u ? 0x7f800000u : 0;
    wide |= (uint32_t)(bits & 0x8000u) << 16;
    memcpy(&value, &wide, sizeof value);
    return value;
}

void linear_source_load(const struct source_row *row, size_t begin, size_t count, float *out) {
    uint16_t narrow[SOURCE_LOAD_MAX];
    switch (row->data ? row->dtype : DTYPE_NONE) {
    case DTYPE_F32:
        memcpy(out, row->data + begin * 4, count * 4);
        break;
    case DTYPE_BF16:
        memcpy(narrow, row->data + begin * 2, count * 2);
        for (size_t i = 0; i < count; i++) out[i] = bf16_to_f32(narrow[i]);
        break;
    case DTYPE_F16:
        memcpy(narrow, row->data + begin * 2, count * 2);
        for (size_t i = 0; i < count; i++) out[i] = f16_convert(narrow[i]);
        break;
    default:
        memset(out, 0, count * sizeof *out);
    }
}

static void load_bf16(const struct source_row *row, size_t begin, size_t count, uint16_t *out) {
    if (row->data && row->dtype == DTYPE_BF16) {
        memcpy(out, row->data + begin * 2, count * 2);
        return;
    }
    float wide[SOURCE_LOAD_MAX];
    linear_source_load(row, begin, count, wide);
    for (size_t i = 0; i < count; i++) out[i] = f32_to_bf16(wide[i]);
}

// Packs the elements that are left after the kernel's multiples of 32.
static void pack_rest(const struct source_row rows[LANES], size_t begin, size_t in, uint16_t *out) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (size_t k = begin; k < in; k++) {
            load_bf16(&rows[lane], k, 1, out + (k / 2 * LANES + lane) * 2 + k % 2);
        }
    }
}

static void *block_of(const struct linear *linear, uint32_t block) {
    return (char *)linear->weights + block * linear->block_bytes;
}

static void pack_block_bf16(const struct cpu_kernels *kernels, const struct linear *linear,
                            uint32_t block, const struct source_row rows[LANES]) {
    uint16_t *out = block_of(linear, block);
    size_t in = linear->in, full = in / 32 * 32;
    const unsigned char *direct[LANES];
    bool all_direct = true;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        direct[lane] = rows[lane].data;
        all_direct = all_direct && rows[lane].data && rows[lane].dtype == DTYPE_BF16;
    }
    if (all_direct) {
        kernels->pack_bf16(direct, full, out);
    } else {
        uint16_t converted[LANES][SOURCE_LOAD_MAX];
        for (uint32_t lane = 0; lane < LANES; lane++) direct[lane] = (void *)converted[lane];
        for (size_t k = 0; k < full; k += SOURCE_LOAD_MAX) {
            size_t count = full - k < SOURCE_LOAD_MAX ? full - k : SOURCE_LOAD_MAX;
            for (uint32_t lane = 0; lane < LANES; lane++) {
                load_bf16(&rows[lane], k, count, converted[lane]);
            }
            kernels->pack_bf16(direct, count, out + k * LANES);
        }
    }
    pack_rest(rows, full, in, out);
}

static void pack_block_f32(const struct cpu_kernels *kernels, const struct linear *linear,
                           uint32_t block, const struct source_row rows[LANES]) {
    (void)kernels;
    float *out = block_of(linear, block);
    size_t in = linear->in;
    for (size_t k = 0; k < in; k += SOURCE_LOAD_MAX) {
        size_t count = in - k < SOURCE_LOAD_MAX ? in - k : SOURCE_LOAD_MAX;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            float wide[SOURCE_LOAD_MAX];
            linear_source_load(&rows[lane], k, count, wide);
            for (size_t i = 0; i < count; i++) out[(k + i) * LANES + lane] = wide[i];
        }
    }
}

static void load_bf16_output(const struct linear *linear, uint32_t output, float *out) {
    const uint16_t *block = block_of(linear, output / LANES);
    const uint16_t *pairs = block + output % LANES * 2;
    for (size_t k = 0; k < linear->in; k++) out[k] = bf16_to_f32(pairs[k / 2 * 32 + k % 2]);
}

static void load_f32_output(const struct linear *linear, uint32_t output, float *out) {
    const float *block = block_of(linear, output / LANES);
    for (size_t k = 0; k < linear->in; k++) out[k] = block[k * LANES + output % LANES];
}

static void load_int8_output(const struct linear *linear, uint32_t output, float *out) {
    const int8_t *block = block_of(linear, output / LANES);
    const int8_t *quads = block + output % LANES * 4;
    for (size_t k = 0; k < linear->in; k++) {
        size_t at = k / 4 * CHUNK_BYTES + k % 4;
        out[k] = (float)quads[at] * linear->scale[output];
    }
}

// struct linear_item has the layout.
static void load_int4_output(const struct linear *linear, uint32_t output, float *out) {
    const unsigned char *block = block_of(linear, output / LANES);
    const unsigned char *scales = block + (size_t)linear->depth / CHUNK_BYTES * INT4_TILE_BYTES;
    uint32_t lane = output % LANES;
    for (uint32_t k = 0; k < linear->in; k++) {
        uint32_t chunk = k / CHUNK_BYTES, quad = k % CHUNK_BYTES / 4, half = quad / 8;
        const unsigned char *tile = block + (size_t)chunk * INT4_TILE_BYTES;
        unsigned both = tile[(quad % 8 * LANES + lane) * 4 + k % 4];
        int scale = scales[chunk * INT4_SCALE_BYTES + half * LANES + lane];
        int8_t weight = (int8_t)((int)((half ? both >> 4 : both & 15) - INT4_ZERO) * scale);
        out[k] = (float)weight * linear->scale[output];
    }
}

static const struct linear_packing packings[] = {
    {{.bits = 32}, pack_block_f32, load_f32_output},
    {{.bits = 16}, pack_block_bf16, load_bf16_output},
    {{.bits = 8}, linear_pack_int8, load_int8_output},
    {{.bits = 4, .group = INT4_GROUP, .zero = INT4_ZERO}, linear_pack_int4, load_int4_output},
};

static const struct linear_packing packed = {.pack_block = linear_pack_packed,
                                             .load_output = linear_load_packed};

const struct linear_packing *linear_packing_of(struct weight_format format) {
    if (weight_format_is_packed(format)) return linear_has_packed(format) ? &packed : NULL;
    for (size_t i = 0; i < ARRAY_LEN(packings); i++) {
        if (weight_format_is(packings[i].format, format)) return &packings[i];
    }
    return NULL;
}
