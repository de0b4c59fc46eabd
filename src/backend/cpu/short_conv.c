/* Gated short convolutions (recurrent.h). The unit of work is some channels of one sequence, which
 * go through its tokens in order. */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/recurrent_step.h"

enum { ITEM_CHANNELS = 256, KEPT = SHORT_CONV_TAPS - 1 };

// The channels start .. start + count - 1 of a sequence, whose products b x of the last tokens move
// through `last`.
struct strip {
    uint32_t start, count;
    float last[KEPT][ITEM_CHANNELS]; // oldest first
};

static float *slot_at(const struct short_conv_args *args, int32_t slot) {
    return args->states + (size_t)slot * short_conv_floats(args->channels);
}

static void load(const struct short_conv_args *args, struct strip *strip, int32_t slot) {
    for (uint32_t row = 0; row < KEPT; row++) {
        memcpy(strip->last[row], slot_at(args, slot) + (size_t)row * args->channels + strip->start,
               strip->count * sizeof(float));
    }
}

static void keep(const struct short_conv_args *args, const struct strip *strip, int32_t slot) {
    for (uint32_t row = 0; row < KEPT; row++) {
        memcpy(slot_at(args, slot) + (size_t)row * args->channels + strip->start, strip->last[row],
               strip->count * sizeof(float));
    }
}

static void run_token(const struct short_conv_args *args, struct strip *strip, int32_t t) {
    uint32_t channels = args->channels;
    const float *b = (const float *)args->bcx + (size_t)t * 3 * channels + strip->start;
    const float *c = b + channels, *x = c + channels;
    const float *taps[SHORT_CONV_TAPS];
    float *out = (float *)args->out + (size_t)t * channels + strip->start;
    for (uint32_t i = 0; i < SHORT_CONV_TAPS; i++) {
        taps[i] = args->taps + (size_t)i * channels + strip->start;
    }
    for (uint32_t i = 0; i < strip->count; i++) {
        float product = b[i] * x[i];
        float sum = taps[0][i] * strip->last[0][i];
        sum += taps[1][i] * strip->last[1][i];
        sum += taps[2][i] * product;
        out[i] = c[i] * sum;
        strip->last[0][i] = strip->last[1][i];
        strip->last[1][i] = product;
    }
}

static uint32_t num_strips(uint32_t channels) {
    return (channels + ITEM_CHANNELS - 1) / ITEM_CHANNELS;
}

static void strip_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct short_conv_args *args = *(const struct short_conv_args *const *)arg;
    const struct step *step = args->step;
    uint32_t s = item / num_strips(args->channels);
    struct strip strip = {.start = item % num_strips(args->channels) * ITEM_CHANNELS};
    uint32_t left = args->channels - strip.start;
    strip.count = left < ITEM_CHANNELS ? left : ITEM_CHANNELS;
    struct recurrent_span span;
    if (!recurrent_span_of(step, s, &span)) return;
    if (!span.is_new) load(args, &strip, span.from);
    for (int32_t t = span.begin; t < span.end; t++) {
        run_token(args, &strip, t);
        for (uint32_t i = 0; i < step->num_snapshots; i++) {
            if (step->snapshot_token[i] == t) keep(args, &strip, step->snapshot_slot[i]);
        }
    }
    keep(args, &strip, span.own);
}

void cpu_short_conv(struct backend *backend, const struct short_conv_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    thread_pool_for(cpu->pool, args->step->num_seqs * num_strips(args->channels), strip_item,
                    &args);
}
