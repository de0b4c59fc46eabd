/* Gated delta nets (backend.h). A state is float32. The unit of work is one key head of one
 * sequence with the heads that it serves. It goes through its tokens in order, one by one, so a
 * step's cut and its other sequences change no bit.
 *
 * A slot: the last tokens' channels [DELTA_TAPS - 1][channels], oldest first, then S of each
 * head. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/recurrent_step.h"

enum { SLOT_ALIGN = 64, RUN_TOKENS = 16, DIM_MAX = 256, KEPT = DELTA_TAPS - 1 };

static const float l2_eps = 1e-6f; // of the norms of q and k

size_t cpu_gated_delta_bytes(const struct backend *backend, const struct gated_delta_shape *shape) {
    (void)backend;
    size_t state = (size_t)shape->num_heads * shape->key_dim * shape->value_dim;
    size_t bytes = (state + (size_t)KEPT * gated_delta_channels(shape)) * sizeof(float);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

struct job {
    const struct cpu_kernels *kernels;
    const struct gated_delta_args *args;
};

// The tokens begin .. end - 1 of the step, which are one sequence's.
struct sequence {
    int32_t begin, end;
    float *kept; // [KEPT][channels] of the tokens before
    float *states; // [num_heads][key_dim][value_dim]
};

// Some tokens of a sequence in one head.
struct chunk {
    float q[RUN_TOKENS * DIM_MAX], k[RUN_TOKENS * DIM_MAX]; // [tokens][key_dim]
    float v[RUN_TOKENS * DIM_MAX], out[RUN_TOKENS * DIM_MAX]; // [tokens][value_dim]
    float decay[RUN_TOKENS], beta[RUN_TOKENS];
};

static size_t row_size(const struct gated_delta_shape *shape) {
    return gated_delta_channels(shape) + (size_t)shape->num_heads * shape->value_dim;
}

// The channels from `channel` on of token t, which may be one before the step.
static float *channels_of(const struct job *job, const struct sequence *seq, int32_t t,
                          uint32_t channel) {
    const struct gated_delta_shape *shape = &job->args->shape;
    if (t >= seq->begin) {
        return (float *)(uintptr_t)job->args->qkvz + (size_t)t * row_size(shape) + channel;
    }
    int32_t row = t - seq->begin + KEPT;
    return seq->kept + (size_t)row * gated_delta_channels(shape) + channel;
}

// out[tokens][count]: `count` channels of the tokens from t on.
static void convolve(const struct job *job, const struct sequence *seq, int32_t t, uint32_t tokens,
                     uint32_t channel, uint32_t count, float *out) {
    size_t stride = gated_delta_channels(&job->args->shape);
    for (uint32_t i = 0; i < tokens; i++) {
        const float *x[DELTA_TAPS];
        for (int32_t tap = 0; tap < DELTA_TAPS; tap++) {
            x[tap] = channels_of(job, seq, t + (int32_t)i + tap - KEPT, channel);
        }
        job->kernels->conv_silu(x, job->args->conv + channel, stride, NULL, out + (size_t)i * count,
                                count);
    }
}

// x[tokens][dim] becomes factor * x / sqrt(sum x^2 + eps), by head. That is an RMS norm with other
// weights.
static void norm_keys(const struct job *job, float *x, uint32_t tokens, uint32_t dim,
                      float factor) {
    float weight[DIM_MAX];
    for (uint32_t i = 0; i < dim; i++) weight[i] = factor / sqrtf((float)dim);
    for (uint32_t i = 0; i < tokens; i++) {
        float *row = x + (size_t)i * dim;
        job->kernels->rms_norm(row, NULL, weight, row, dim, l2_eps / (float)dim);
    }
}

static void run_head(const struct job *job, const struct sequence *seq, int32_t t, uint32_t tokens,
                     uint32_t head, struct chunk *chunk) {
    const struct gated_delta_args *args = job->args;
    const struct gated_delta_shape *shape = &args->shape;
    uint32_t dim = shape->value_dim, heads = shape->num_heads;
    uint32_t channel = 2 * shape->num_key_heads * shape->key_dim + head * dim;
    convolve(job, seq, t, tokens, channel, dim, chunk->v);
    for (uint32_t i = 0; i < tokens; i++) {
        const float *gates = args->gates + ((size_t)t + i) * 2 * heads;
        float step = softplus(gates[heads + head] + args->dt_bias[head]);
        chunk->decay[i] = expf(-args->decay[head] * step);
        chunk->beta[i] = 1 / (1 + expf(-gates[head]));
    }
    job->kernels->delta_rule(&(struct delta_run){
        .state = seq->states + (size_t)head * shape->key_dim * dim,
        .q = chunk->q,
        .k = chunk->k,
        .v = chunk->v,
        .decay = chunk->decay,
        .beta = chunk->beta,
        .out = chunk->out,
        .num_tokens = tokens,
        .key_dim = shape->key_dim,
        .value_dim = dim,
    });
    for (uint32_t i = 0; i < tokens; i++) {
        size_t row = (size_t)t + i;
        const float *z = (const float *)args->qkvz + row * row_size(shape) +
                         gated_delta_channels(shape) + (size_t)head * dim;
        float *result = chunk->out + (size_t)i * dim;
        job->kernels->rms_norm(result, NULL, args->norm, result, dim, args->eps);
        job->kernels->silu_mul(z, result, (float *)args->out + (row * heads + head) * dim, dim);
    }
}

// The channels of one key head and of the heads that it serves.
struct channel_range {
    uint32_t start, count;
};

static void ranges_of(const struct gated_delta_shape *shape, uint32_t key_head,
                      struct channel_range out[3]) {
    uint32_t keys = shape->num_key_heads * shape->key_dim, start = key_head * shape->key_dim;
    uint32_t values = shape->num_heads / shape->num_key_heads * shape->value_dim;
    out[0] = (struct channel_range){start, shape->key_dim};
    out[1] = (struct channel_range){keys + start, shape->key_dim};
    out[2] = (struct channel_range){2 * keys + key_head * values, values};
}

// Writes the channels of the last tokens before `end` to `kept`, for the next step.
static void keep(const struct job *job, const struct sequence *seq, uint32_t key_head, int32_t end,
                 float *kept) {
    struct channel_range ranges[3];
    ranges_of(&job->args->shape, key_head, ranges);
    for (int32_t row = 0; row < KEPT; row++) { // ascending: a row may come from a later one
        for (int i = 0; i < 3; i++) {
            float *to = kept + (size_t)row * gated_delta_channels(&job->args->shape);
            const float *from = channels_of(job, seq, end + row - KEPT, ranges[i].start);
            memmove(to + ranges[i].start, from, ranges[i].count * sizeof *to);
        }
    }
}

// The states of the heads that share a key head. *count: their floats.
static float *head_states(const struct gated_delta_shape *shape, float *slot, uint32_t key_head,
                          size_t *count) {
    *count = (size_t)shape->num_heads / shape->num_key_heads * shape->key_dim * shape->value_dim;
    return slot + (size_t)KEPT * gated_delta_channels(shape) + key_head * *count;
}

static float *slot_at(const struct job *job, int32_t slot) {
    size_t floats = cpu_gated_delta_bytes(NULL, &job->args->shape) / sizeof(float);
    return (float *)job->args->states + (size_t)slot * floats;
}

// The state behind token end - 1, to another slot.
static void snapshot(const struct job *job, const struct sequence *seq, uint32_t key_head,
                     int32_t end, float *slot) {
    size_t count;
    float *to = head_states(&job->args->shape, slot, key_head, &count);
    memcpy(to, seq->states + key_head * count, count * sizeof *to);
    keep(job, seq, key_head, end, slot);
}

// Brings a snapshot into the sequence's own slot.
static void restore(const struct job *job, const struct sequence *seq, uint32_t key_head,
                    float *slot) {
    const struct gated_delta_shape *shape = &job->args->shape;
    struct channel_range ranges[3];
    size_t count;
    const float *from = head_states(shape, slot, key_head, &count);
    memcpy(seq->states + key_head * count, from, count * sizeof *from);
    ranges_of(shape, key_head, ranges);
    for (size_t row = 0; row < KEPT; row++) {
        for (int i = 0; i < 3; i++) {
            size_t at = row * gated_delta_channels(shape) + ranges[i].start;
            memcpy(seq->kept + at, slot + at, ranges[i].count * sizeof *slot);
        }
    }
}

static void clear(const struct job *job, const struct sequence *seq, uint32_t key_head) {
    const struct gated_delta_shape *shape = &job->args->shape;
    uint32_t group = shape->num_heads / shape->num_key_heads;
    size_t size = (size_t)shape->key_dim * shape->value_dim;
    struct channel_range ranges[3];
    ranges_of(shape, key_head, ranges);
    for (int32_t row = 0; row < KEPT; row++) {
        for (int i = 0; i < 3; i++) {
            memset(channels_of(job, seq, seq->begin + row - KEPT, ranges[i].start), 0,
                   ranges[i].count * sizeof(float));
        }
    }
    memset(seq->states + key_head * group * size, 0, group * size * sizeof(float));
}

// The tokens from t on, before `end`, of one key head and the heads that it serves.
static void run_chunk(const struct job *job, const struct sequence *seq, uint32_t key_head,
                      int32_t t, uint32_t tokens, struct chunk *chunk) {
    const struct gated_delta_shape *shape = &job->args->shape;
    uint32_t group = shape->num_heads / shape->num_key_heads, dim = shape->key_dim;
    uint32_t keys = shape->num_key_heads * dim;
    convolve(job, seq, t, tokens, key_head * dim, dim, chunk->q);
    convolve(job, seq, t, tokens, keys + key_head * dim, dim, chunk->k);
    norm_keys(job, chunk->q, tokens, dim, 1 / sqrtf((float)dim));
    norm_keys(job, chunk->k, tokens, dim, 1);
    for (uint32_t i = 0; i < group; i++) {
        run_head(job, seq, t, tokens, key_head * group + i, chunk);
    }
}

static void key_head_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const struct gated_delta_shape *shape = &job->args->shape;
    const struct step *step = job->args->step;
    uint32_t s = item / shape->num_key_heads, key_head = item % shape->num_key_heads;
    struct recurrent_span span;
    if (!recurrent_span_of(step, s, &span)) return;
    struct sequence seq = {.begin = span.begin, .end = span.end, .kept = slot_at(job, span.own)};
    seq.states = seq.kept + (size_t)KEPT * gated_delta_channels(shape);
    if (span.is_new) {
        clear(job, &seq, key_head);
    } else if (span.from != span.own) {
        restore(job, &seq, key_head, slot_at(job, span.from));
    }
    struct chunk chunk;
    int32_t slot = 0, last = recurrent_next_snapshot(step, seq.begin, seq.end, &slot);
    for (int32_t t = seq.begin; t < seq.end;) {
        int32_t end = last < seq.end ? last + 1 : seq.end;
        uint32_t tokens = end - t < RUN_TOKENS ? (uint32_t)(end - t) : RUN_TOKENS;
        run_chunk(job, &seq, key_head, t, tokens, &chunk);
        t += (int32_t)tokens;
        if (t != last + 1) continue;
        snapshot(job, &seq, key_head, t, slot_at(job, slot));
        last = recurrent_next_snapshot(step, t, seq.end, &slot);
    }
    keep(job, &seq, key_head, seq.end, seq.kept);
}

void cpu_gated_delta(struct backend *backend, const struct gated_delta_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct job job = {&cpu->kernels, args};
    thread_pool_for(cpu->pool, args->step->num_seqs * args->shape.num_key_heads, key_head_item,
                    &job);
}
