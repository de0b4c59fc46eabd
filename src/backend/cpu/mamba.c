/* Mamba-2 layers (recurrent.h). A state is float32. The unit of work is some heads of one sequence,
 * which go through its tokens in order, one by one, so a step's cut and its other sequences change
 * no bit. Heads of a group share B and C: each unit convolves them for itself.
 *
 * A slot: the last tokens' channels [DELTA_TAPS - 1][channels], oldest first, then S of each head.
 * Units read the channels that the step before has left, so these are replaced when all are
 * done. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/recurrent_step.h"

enum { SLOT_ALIGN = 64, RUN_TOKENS = 16, DIM_MAX = 256, KEPT = DELTA_TAPS - 1, ITEM_HEADS = 4 };

size_t cpu_mamba_bytes(const struct backend *backend, const struct mamba_shape *shape) {
    (void)backend;
    size_t state = (size_t)shape->num_heads * shape->state_dim * shape->head_dim;
    size_t bytes = (state + (size_t)KEPT * mamba_channels(shape)) * sizeof(float);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

struct job {
    const struct cpu_kernels *kernels;
    const struct mamba_args *args;
};

// The tokens begin .. end - 1 of the step, which are one sequence's.
struct sequence {
    int32_t begin, end;
    bool is_new; // its first query is at position 0
    float *own, *from; // slots: its own, and the one with what is left of the tokens before
};

// Some tokens of a sequence in one head.
struct chunk {
    float b[RUN_TOKENS * DIM_MAX], c[RUN_TOKENS * DIM_MAX]; // [tokens][state_dim]
    float x[RUN_TOKENS * DIM_MAX], out[RUN_TOKENS * DIM_MAX]; // [tokens][head_dim]
    float decay[RUN_TOKENS], dt[RUN_TOKENS];
};

static float *slot_at(const struct job *job, int32_t slot) {
    size_t floats = cpu_mamba_bytes(NULL, &job->args->shape) / sizeof(float);
    return (float *)job->args->states + (size_t)slot * floats;
}

// False: padding.
static bool sequence_of(const struct job *job, uint32_t s, struct sequence *out) {
    struct recurrent_span span;
    if (!recurrent_span_of(job->args->step, s, &span)) return false;
    *out = (struct sequence){span.begin, span.end, span.is_new, slot_at(job, span.own),
                             slot_at(job, span.from)};
    return true;
}

// A sequence's state of the heads from `head` on.
static float *state_of(const struct mamba_shape *shape, float *slot, uint32_t head) {
    size_t size = (size_t)shape->state_dim * shape->head_dim;
    return slot + (size_t)KEPT * mamba_channels(shape) + head * size;
}

// The channels from `channel` on, at most DIM_MAX, of token t, which may be one before the step.
static const float *channels_of(const struct job *job, const struct sequence *seq, int32_t t,
                                uint32_t channel) {
    static const float zeros[DIM_MAX];
    const struct mamba_shape *shape = &job->args->shape;
    size_t channels = mamba_channels(shape);
    size_t stride = channels + (size_t)shape->num_heads * shape->head_dim;
    if (t >= seq->begin) return (const float *)job->args->xbcz + (size_t)t * stride + channel;
    if (seq->is_new) return zeros;
    return seq->from + (size_t)(t - seq->begin + KEPT) * channels + channel;
}

// out[tokens][count]: `count` channels of the tokens from t on.
static void convolve(const struct job *job, const struct sequence *seq, int32_t t, uint32_t tokens,
                     uint32_t channel, uint32_t count, float *out) {
    const struct mamba_args *args = job->args;
    for (uint32_t i = 0; i < tokens; i++) {
        const float *x[DELTA_TAPS];
        for (int32_t tap = 0; tap < DELTA_TAPS; tap++) {
            x[tap] = channels_of(job, seq, t + (int32_t)i + tap - KEPT, channel);
        }
        job->kernels->conv_silu(x, args->conv + channel, mamba_channels(&args->shape),
                                args->conv_bias + channel, out + (size_t)i * count, count);
    }
}

// b and c of the chunk are there.
static void run_head(const struct job *job, const struct sequence *seq, int32_t t, uint32_t tokens,
                     uint32_t head, struct chunk *chunk) {
    const struct mamba_args *args = job->args;
    const struct mamba_shape *shape = &args->shape;
    uint32_t dim = shape->head_dim, heads = shape->num_heads;
    convolve(job, seq, t, tokens, head * dim, dim, chunk->x);
    for (uint32_t i = 0; i < tokens; i++) {
        float dt = softplus(args->dt[((size_t)t + i) * heads + head] + args->dt_bias[head]);
        chunk->dt[i] = fminf(fmaxf(dt, args->dt_min), args->dt_max);
        chunk->decay[i] = expf(-args->decay[head] * chunk->dt[i]);
    }
    job->kernels->delta_rule(&(struct delta_run){
        .state = state_of(shape, seq->own, head),
        .q = chunk->c,
        .k = chunk->b,
        .v = chunk->x,
        .decay = chunk->decay,
        .beta = chunk->dt,
        .out = chunk->out,
        .num_tokens = tokens,
        .key_dim = shape->state_dim,
        .value_dim = dim,
        .takes_all = true,
    });
    for (uint32_t i = 0; i < tokens; i++) {
        const float *x = chunk->x + (size_t)i * dim;
        const float *z = channels_of(job, seq, t + (int32_t)i, mamba_channels(shape) + head * dim);
        float *sum = chunk->out + (size_t)i * dim;
        for (uint32_t k = 0; k < dim; k++) sum[k] += args->skip[head] * x[k];
        size_t row = (size_t)t + i;
        job->kernels->silu_mul(z, sum, (float *)args->out + (row * heads + head) * dim, dim);
    }
}

// Heads of one group.
struct head_range {
    uint32_t group, start, count;
};

static uint32_t items_per_group(const struct mamba_shape *shape) {
    return (shape->num_heads / shape->num_groups + ITEM_HEADS - 1) / ITEM_HEADS;
}

static struct head_range heads_of(const struct mamba_shape *shape, uint32_t item) {
    uint32_t all = shape->num_heads / shape->num_groups, in_group = item % items_per_group(shape);
    uint32_t group = item / items_per_group(shape), start = in_group * ITEM_HEADS;
    uint32_t count = all - start < ITEM_HEADS ? all - start : ITEM_HEADS;
    return (struct head_range){group, group * all + start, count};
}

static void run_chunk(const struct job *job, const struct sequence *seq,
                      const struct head_range *heads, int32_t t, uint32_t tokens,
                      struct chunk *chunk) {
    const struct mamba_shape *shape = &job->args->shape;
    uint32_t dim = shape->state_dim, b = shape->num_heads * shape->head_dim + heads->group * dim;
    convolve(job, seq, t, tokens, b, dim, chunk->b);
    convolve(job, seq, t, tokens, b + shape->num_groups * dim, dim, chunk->c);
    for (uint32_t i = 0; i < heads->count; i++) {
        run_head(job, seq, t, tokens, heads->start + i, chunk);
    }
}

static void heads_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const struct mamba_shape *shape = &job->args->shape;
    const struct step *step = job->args->step;
    uint32_t items = shape->num_groups * items_per_group(shape);
    struct head_range heads = heads_of(shape, item % items);
    struct sequence seq;
    if (!sequence_of(job, item / items, &seq)) return;
    size_t bytes = heads.count * (size_t)shape->state_dim * shape->head_dim * sizeof(float);
    float *state = state_of(shape, seq.own, heads.start);
    if (seq.is_new) {
        memset(state, 0, bytes);
    } else if (seq.from != seq.own) {
        memcpy(state, state_of(shape, seq.from, heads.start), bytes);
    }
    struct chunk chunk;
    int32_t slot = 0, last = recurrent_next_snapshot(step, seq.begin, seq.end, &slot);
    for (int32_t t = seq.begin; t < seq.end;) {
        int32_t end = last < seq.end ? last + 1 : seq.end;
        uint32_t tokens = end - t < RUN_TOKENS ? (uint32_t)(end - t) : RUN_TOKENS;
        run_chunk(job, &seq, &heads, t, tokens, &chunk);
        t += (int32_t)tokens;
        if (t != last + 1) continue;
        memcpy(state_of(shape, slot_at(job, slot), heads.start), state, bytes);
        last = recurrent_next_snapshot(step, t, seq.end, &slot);
    }
}

// Writes the channels of the last tokens before `end` to a slot, for the next step.
static void keep(const struct job *job, const struct sequence *seq, int32_t end, float *slot) {
    uint32_t channels = mamba_channels(&job->args->shape);
    for (int32_t row = 0; row < KEPT; row++) { // ascending: a row may come from a later one
        for (uint32_t at = 0; at < channels; at += DIM_MAX) {
            uint32_t count = channels - at < DIM_MAX ? channels - at : DIM_MAX;
            memmove(slot + (size_t)row * channels + at, channels_of(job, seq, end + row - KEPT, at),
                    count * sizeof *slot);
        }
    }
}

static void keep_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const struct step *step = job->args->step;
    struct sequence seq;
    if (!sequence_of(job, item, &seq)) return;
    int32_t slot = 0;
    for (int32_t t = seq.begin; (t = recurrent_next_snapshot(step, t, seq.end, &slot)) < seq.end;
         t++) {
        keep(job, &seq, t + 1, slot_at(job, slot));
    }
    keep(job, &seq, seq.end, seq.own);
}

void cpu_mamba(struct backend *backend, const struct mamba_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct job job = {&cpu->kernels, args};
    uint32_t items = args->shape.num_groups * items_per_group(&args->shape);
    thread_pool_for(cpu->pool, args->step->num_seqs * items, heads_item, &job);
    thread_pool_for(cpu->pool, args->step->num_seqs, keep_item, &job);
}
