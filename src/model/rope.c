#include "model/rope.h"

#include <math.h>

#include "base/check.h"

static const double pi = 3.14159265358979323846;

// Short wavelengths stay, long ones are stretched by `factor`, and those between change smoothly.
static double llama3_frequency(const struct rope_config *rope, double frequency) {
    double wavelength = 2 * pi / frequency;
    double original = rope->original_max_position_embeddings;
    if (wavelength < original / rope->high_freq_factor) return frequency;
    if (wavelength >= original / rope->low_freq_factor) return frequency / rope->factor;
    double smooth = (original / wavelength - rope->low_freq_factor) /
                    (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

// YaRN's equation for the (fractional) dimension that makes `rotations` turns over the context.
static double yarn_dimension(double rotations, double head_dim, double theta, double context) {
    return head_dim * log(context / (rotations * 2 * pi)) / (2 * log(theta));
}

double rope_yarn_mscale(double factor, double mscale) {
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

static double yarn_attention_factor(const struct rope_config *rope) {
    if (rope->attention_factor > 0) return rope->attention_factor;
    if (rope->mscale > 0 && rope->mscale_all_dim > 0) {
        return rope_yarn_mscale(rope->factor, rope->mscale) /
               rope_yarn_mscale(rope->factor, rope->mscale_all_dim);
    }
    return rope_yarn_mscale(rope->factor, 1);
}

struct yarn_ramp {
    double low,
        high; // dimensions below low keep their frequency; those above high are interpolated
};

static struct yarn_ramp yarn_ramp_of(const struct rope_config *rope, uint32_t head_dim) {
    double context = rope->original_max_position_embeddings;
    double low = yarn_dimension(rope->beta_fast, head_dim, rope->theta, context);
    double high = yarn_dimension(rope->beta_slow, head_dim, rope->theta, context);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)head_dim - 1);
    if (low == high) high += 0.001; // no division by zero
    return (struct yarn_ramp){low, high};
}

// sqrt(1 + ln(factor) / ln(original context)): arXiv 2402.13753.
static double long_attention_factor(const struct rope_config *rope) {
    if (rope->attention_factor > 0) return rope->attention_factor;
    if (rope->factor <= 1) return 1;
    return sqrt(1 + log(rope->factor) / log(rope->original_max_position_embeddings));
}

float rope_frequencies(const struct rope_config *rope, uint32_t rotary_dim, uint32_t num_positions,
                       float *inv_freq) {
    bool is_long = num_positions > rope->original_max_position_embeddings;
    const float *factors = is_long ? rope->long_factors : rope->short_factors;
    struct yarn_ramp ramp = {0, 0};
    if (rope->type == ROPE_YARN) ramp = yarn_ramp_of(rope, rotary_dim);
    for (uint32_t i = 0; i < rotary_dim / 2; i++) {
        double frequency = pow(rope->theta, -2.0 * i / rotary_dim);
        switch (rope->type) {
        case ROPE_DEFAULT:
            break;
        case ROPE_LINEAR:
            frequency /= rope->factor;
            break;
        case ROPE_LLAMA3:
            frequency = llama3_frequency(rope, frequency);
            break;
        case ROPE_YARN: {
            double interpolated = (i - ramp.low) / (ramp.high - ramp.low);
            interpolated = fmin(fmax(interpolated, 0), 1);
            frequency *= interpolated / rope->factor + (1 - interpolated);
            break;
        }
        case ROPE_LONG:
            frequency /= (double)factors[i];
            break;
        case ROPE_PROPORTIONAL: // floor, as in transformers
            frequency = i < floor(rope->proportion * rotary_dim / 2) ? frequency / rope->factor : 0;
            break;
        }
        inv_freq[i] = (float)(rope->is_reversed ? -frequency : frequency);
    }
    if (rope->type == ROPE_LONG) return (float)long_attention_factor(rope);
    return rope->type == ROPE_YARN ? (float)yarn_attention_factor(rope) : 1.0f;
}

void rope_fill_table(const struct rope_config *rope, uint32_t head_dim, uint32_t rotary_dim,
                     uint32_t num_positions, float *table) {
    CHECK(head_dim <= ROPE_HEAD_DIM_MAX, "head_dim=%u", head_dim);
    CHECK(rotary_dim <= head_dim, "rotary_dim=%u", rotary_dim);
    float inv_freq[ROPE_HEAD_DIM_MAX / 2];
    float scale = rope_frequencies(rope, rotary_dim, num_positions, inv_freq);
    uint32_t half = head_dim / 2;
    for (uint32_t position = 0; position < num_positions; position++) {
        float *row = table + (size_t)position * head_dim;
        for (uint32_t i = 0; i < half; i++) {
            row[i] = 1; // no rotation
            row[half + i] = 0;
        }
        for (uint32_t i = 0; i < rotary_dim / 2; i++) {
            // Rounded to float32, as in training.
            float angle = (float)position * inv_freq[i];
            row[i] = cosf(angle) * scale;
            row[half + i] = sinf(angle) * scale;
        }
    }
}

void rope_scale_table(const struct rope_config *rope, uint32_t head_dim, uint32_t num_positions,
                      const float *table, float *out) {
    for (uint32_t position = 0; position < num_positions; position++) {
        double turns = floor((position + rope->query_offset) / rope->query_length);
        float scale = (float)(1 + rope->query_beta * log(1 + turns));
        size_t at = (size_t)position * head_dim;
        for (uint32_t i = 0; i < head_dim; i++) out[at + i] = scale * table[at + i];
    }
}
