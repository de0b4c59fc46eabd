/* Weights of 8 and 4 bits, made from rows of any float type while a model is loaded.
 *
 * int8: round(w / scale) with scale = largest magnitude of an output / 127.
 *
 * int4: an output has a scale of largest magnitude / 126, and every 32 weights an integer s of 1 ..
 * 18. A weight is stored as q of 0 .. 14, and (q - 7) * s is an 8-bit weight again. So sums over
 * all groups are exact, and one float multiplication completes them. s is the one of three
 * candidates with the least squared error. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear/linear_packing.h"

enum { INT4_MOST = INT4_ZERO, INT4_SCALE_MAX = 18, INT4_CANDIDATES = 3 };

// Rounds to the nearest even; magnitudes below 2^22.
static float round_even(float value) {
    return value + 12582912.0f - 12582912.0f;
}

static float largest_of(const struct source_row *row, uint32_t in) {
    uint32_t largest = 0; // as bits, which order like magnitudes; NaN is the largest
    for (uint32_t begin = 0; begin < in; begin += SOURCE_LOAD_MAX) {
        float wide[SOURCE_LOAD_MAX];
        uint32_t bits[SOURCE_LOAD_MAX], left = in - begin;
        uint32_t count = left < SOURCE_LOAD_MAX ? left : SOURCE_LOAD_MAX;
        linear_source_load(row, begin, count, wide);
        memcpy(bits, wide, count * sizeof *bits);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t magnitude = bits[i] & 0x7fffffffu;
            largest = magnitude > largest ? magnitude : largest;
        }
    }
    float value;
    memcpy(&value, &largest, sizeof value);
    return value;
}

// A chunk of a row, padded with zeros, in units of the scale.
static void load_chunk(const struct source_row *row, uint32_t in, uint32_t chunk, float inverse,
                       float out[CHUNK_BYTES]) {
    uint32_t begin = chunk * CHUNK_BYTES, count = in - begin;
    if (count > CHUNK_BYTES) count = CHUNK_BYTES;
    memset(out, 0, CHUNK_BYTES * sizeof *out);
    linear_source_load(row, begin, count, out);
    for (uint32_t i = 0; i < CHUNK_BYTES; i++) out[i] *= inverse;
}

// Returns the sum of the weights.
static int32_t quantize_int8(const float value[CHUNK_BYTES], uint32_t lane, unsigned char *tile) {
    int32_t sum = 0;
    for (uint32_t k = 0; k < CHUNK_BYTES; k++) {
        int32_t weight = (int32_t)round_even(value[k]);
        sum += weight;
        tile[(k / 4 * LANES + lane) * 4 + k % 4] = (unsigned char)weight;
    }
    return sum;
}

// Fills q with a group's weights at scale s and returns their squared error.
static float try_scale(const float value[INT4_GROUP], float s, float q[INT4_GROUP]) {
    float error = 0, inverse = 1.0f / s;
    for (uint32_t k = 0; k < INT4_GROUP; k++) {
        float rounded = round_even(value[k] * inverse);
        rounded = rounded > INT4_MOST ? INT4_MOST : rounded;
        q[k] = rounded < -INT4_MOST ? -INT4_MOST : rounded;
        float off = value[k] - q[k] * s;
        error += off * off;
    }
    return error;
}

// Returns the sum of the 8-bit weights that the group's 4-bit weights stand for.
static int32_t quantize_group(const float value[INT4_GROUP], uint32_t lane, uint32_t half,
                              unsigned char *quads, unsigned char *scale) {
    float largest = 0, best_q[INT4_GROUP] = {0}, best_error = INFINITY;
    int32_t best = 1, sum = 0;
    for (uint32_t k = 0; k < INT4_GROUP; k++) largest = fmaxf(largest, fabsf(value[k]));
    int32_t covering = (int32_t)ceilf(largest / INT4_MOST - 1e-4f); // the least that clips nothing
    if (covering > INT4_SCALE_MAX) covering = INT4_SCALE_MAX;
    if (covering < 1) covering = 1;
    for (int32_t s = covering; s >= 1 && s > covering - INT4_CANDIDATES; s--) {
        float q[INT4_GROUP];
        float error = try_scale(value, (float)s, q);
        if (error < best_error) {
            best_error = error;
            best = s;
            memcpy(best_q, q, sizeof q);
        }
    }
    *scale = (unsigned char)best;
    for (uint32_t k = 0; k < INT4_GROUP; k++) {
        int32_t q = (int32_t)best_q[k];
        sum += q * best;
        unsigned char *both = &quads[(k / 4 * LANES + lane) * 4 + k % 4];
        unsigned bits = (unsigned)(q + INT4_MOST);
        *both = (unsigned char)(half ? *both | bits << 4 : bits);
    }
    return sum;
}

// An output's weights are in units of its largest magnitude / most: this is 1 / that. 0: the output
// counts as zeros.
static float inverse_of(float largest, float most) {
    return largest > 0x1p-100f && largest < INFINITY ? most / largest : 0;
}

static void finish_output(const struct linear *linear, size_t output, float largest, float most,
                          int32_t sum) {
    bool usable = inverse_of(largest, most) != 0;
    linear->scale[output] = usable ? largest / most : largest < INFINITY ? 0 : NAN;
    linear->sum128[output] = 128 * sum;
}

void linear_pack_int8(const struct cpu_kernels *kernels, const struct linear *linear,
                      uint32_t block, const struct source_row rows[LANES]) {
    (void)kernels;
    unsigned char *weights = (unsigned char *)linear->weights + block * linear->block_bytes;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        float largest = largest_of(&rows[lane], linear->in), inverse = inverse_of(largest, 127);
        int32_t sum = 0;
        for (uint32_t chunk = 0; chunk < linear->depth / CHUNK_BYTES; chunk++) {
            float value[CHUNK_BYTES] = {0};
            if (inverse != 0) load_chunk(&rows[lane], linear->in, chunk, inverse, value);
            sum += quantize_int8(value, lane, weights + (size_t)chunk * TILE_BYTES);
        }
        finish_output(linear, (size_t)block * LANES + lane, largest, 127, sum);
    }
}

void linear_pack_int4(const struct cpu_kernels *kernels, const struct linear *linear,
                      uint32_t block, const struct source_row rows[LANES]) {
    (void)kernels;
    const float most = INT4_MOST * INT4_SCALE_MAX;
    uint32_t chunks = linear->depth / CHUNK_BYTES;
    unsigned char *weights = (unsigned char *)linear->weights + block * linear->block_bytes;
    unsigned char *scales = weights + (size_t)chunks * INT4_TILE_BYTES;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        float largest = largest_of(&rows[lane], linear->in), inverse = inverse_of(largest, most);
        int32_t sum = 0;
        for (uint32_t chunk = 0; chunk < chunks; chunk++) {
            float value[CHUNK_BYTES] = {0};
            if (inverse != 0) load_chunk(&rows[lane], linear->in, chunk, inverse, value);
            unsigned char *quads = weights + (size_t)chunk * INT4_TILE_BYTES;
            unsigned char *scale = scales + (size_t)chunk * INT4_SCALE_BYTES + lane;
            sum += quantize_group(value, lane, 0, quads, scale);
            sum += quantize_group(value + INT4_GROUP, lane, 1, quads, scale + LANES);
        }
        finish_output(linear, (size_t)block * LANES + lane, largest, most, sum);
    }
}
