/* Mixture of experts: choosing each token's experts, and running them.
 *
 * The (token, slot) pairs are sorted by expert. Then the experts that have rows run in waves, as
 * many at a time as the scratch memory holds. In a wave all first linears are one parallel loop,
 * and so are the second ones. An expert's weights are read in one wave only. In the end each token
 * adds up its own rows, slots ascending: its bits do not depend on the other tokens of the call. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/ops.h"
#include "base/check.h"

// Most rows of a wave, unless the call has more tokens: enough for all threads, with little scratch
// memory.
enum { WAVE_ROWS = 1024 };

struct experts {
    struct experts_shape shape;
    enum activation activation;
    struct linear **gate_up; // [num_experts] of [2 intermediate][hidden], or up alone
    struct linear **down; // [num_experts] of [hidden][intermediate]
};

void cpu_experts_destroy(struct backend *backend, struct experts *experts) {
    if (!experts) return;
    for (uint32_t i = 0; i < experts->shape.num_experts; i++) {
        if (experts->gate_up) cpu_linear_destroy(backend, experts->gate_up[i]);
        if (experts->down) cpu_linear_destroy(backend, experts->down[i]);
    }
    free(experts->gate_up);
    free(experts->down);
    free(experts);
}

// *linear is `name` of an expert and must be [out][in].
static enum status check_shape(const struct linear *linear, uint32_t out, uint32_t in,
                               const char *name, struct err *err) {
    if (linear->out == out && linear->in == in) return OK;
    return err_set(err, ERR_INVALID, "an expert's %s weights are [%u][%u], want [%u][%u]", name,
                   linear->out, linear->in, out, in);
}

// Outputs of the first linear.
static uint32_t first_outputs(const struct experts_shape *shape) {
    return (shape->lacks_gate ? 1 : 2) * shape->intermediate;
}

static enum status create_expert(struct backend *backend, const struct experts_spec *spec,
                                 uint32_t i, struct experts *experts, struct err *err) {
    uint32_t hidden = spec->shape.hidden, intermediate = spec->shape.intermediate;
    uint32_t first_up = spec->shape.lacks_gate ? 0 : 1;
    struct matrix_slice gate_up[2];
    if (first_up) gate_up[0] = spec->gate[i];
    gate_up[first_up] = spec->up[i];
    bool has_bias = spec->shape.has_bias, has_down_bias = has_bias && spec->down_bias;
    struct matrix_slice biases[2] = {{0}};
    if (has_bias) biases[0] = spec->gate_bias[i];
    if (has_bias) biases[1] = spec->up_bias[i];
    const struct linear_spec first = {gate_up, has_bias ? biases : NULL, first_up + 1,
                                      spec->format};
    const struct linear_spec second = {&spec->down[i], has_down_bias ? &spec->down_bias[i] : NULL,
                                       1, spec->format};
    enum status status = cpu_linear_create(backend, &first, &experts->gate_up[i], err);
    if (!status) status = cpu_linear_create(backend, &second, &experts->down[i], err);
    if (!status) {
        status = check_shape(experts->gate_up[i], first_outputs(&spec->shape), hidden,
                             first_up ? "gate and up" : "up", err);
    }
    if (!status) status = check_shape(experts->down[i], hidden, intermediate, "down", err);
    if (!status) cpu_linear_set_next(backend, experts->gate_up[i], experts->down[i]);
    return status;
}

enum status cpu_experts_create(struct backend *backend, const struct experts_spec *spec,
                               struct experts **out, struct err *err) {
    uint32_t count = spec->shape.num_experts;
    enum status status = OK;
    struct experts *experts = calloc(1, sizeof *experts);
    if (!experts) return err_nomem(err, "experts");
    experts->shape = spec->shape;
    experts->activation = spec->activation;
    experts->gate_up = calloc(count, sizeof(struct linear *));
    experts->down = calloc(count, sizeof(struct linear *));
    if (!experts->gate_up || !experts->down) {
        status = err_nomem(err, "experts");
        goto fail;
    }
    for (uint32_t i = 0; i < count; i++) {
        if ((status = create_expert(backend, spec, i, experts, err))) goto fail;
    }
    *out = experts;
    return OK;
fail:
    cpu_experts_destroy(backend, experts);
    return status;
}

size_t cpu_experts_bytes(const struct backend *backend, const struct experts_shape *shape,
                         struct weight_format format) {
    size_t expert =
        cpu_linear_bytes(backend, first_outputs(shape), shape->hidden, shape->has_bias, format) +
        cpu_linear_bytes(backend, shape->hidden, shape->intermediate, shape->has_bias, format);
    return expert * shape->num_experts;
}

void cpu_experts_set_next(struct backend *backend, struct experts *experts,
                          const struct linear *next) {
    for (uint32_t i = 0; i < experts->shape.num_experts; i++) {
        cpu_linear_set_next(backend, experts->down[i], next);
    }
}

struct route_job {
    const struct route_args *args;
    uint32_t tokens_per_item;
};

// values: logits on entry; they become scores. Where one is no number, all are NaN.
static void score_token(const struct route_args *args, float *values) {
    uint32_t count = args->num_experts;
    float largest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < count; i++) largest = fmaxf(largest, values[i]);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = args->is_sigmoid ? 1 / (1 + expf(-values[i])) : expf(values[i] - largest);
        sum += values[i];
    }
    float divisor = args->is_sigmoid && !isnan(sum) ? 1 : sum;
    for (uint32_t i = 0; i < count; i++) values[i] /= divisor;
}

static float rank_of(const struct route_args *args, const float *values, uint32_t i) {
    return args->bias ? fmaxf(values[i] + args->bias[i], -FLT_MAX) : values[i];
}

// How good the group of experts from `first` on is.
static float group_rank(const struct route_args *args, const float *values, uint32_t first,
                        uint32_t size) {
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = first; i < first + size; i++) {
        float rank = rank_of(args, values, i);
        if (rank > best) {
            second = best;
            best = rank;
        } else if (rank > second) {
            second = rank;
        }
    }
    return args->group_best == 2 ? best + second : best;
}

// Overwrites the scores of all but the best groups' experts.
static void drop_groups(const struct route_args *args, float *values, float dropped) {
    uint32_t count = args->num_groups, size = args->num_experts / count;
    float ranks[ROUTE_GROUPS_MAX];
    for (uint32_t g = 0; g < count; g++) ranks[g] = group_rank(args, values, g * size, size);
    for (uint32_t g = 0; g < count; g++) {
        uint32_t better = 0;
        for (uint32_t k = 0; k < count; k++) {
            better += k < g ? !(ranks[k] < ranks[g]) : ranks[k] > ranks[g];
        }
        for (uint32_t i = 0; i < size && better >= args->top_groups; i++) {
            values[g * size + i] = dropped;
        }
    }
}

// values: logits on entry; they become scores, and those of the chosen experts are overwritten.
static void route_token(const struct route_args *args, float *values, int32_t *ids,
                        float *weights) {
    uint32_t count = args->num_experts;
    const float taken = -1; // no score
    float chosen = 0;
    score_token(args, values);
    if (args->num_groups) drop_groups(args, values, taken);
    for (uint32_t slot = 0; slot < args->top_k; slot++) {
        uint32_t best = count;
        float best_rank = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (values[i] == taken) continue;
            float rank = rank_of(args, values, i);
            if (best < count && !(rank > best_rank)) continue;
            best = i;
            best_rank = rank;
        }
        ids[slot] = (int32_t)best;
        weights[slot] = values[best];
        chosen += values[best];
        values[best] = taken;
    }
    // All chosen sigmoids may be 0: then so are the weights.
    float divisor = args->normalize ? fmaxf(chosen, 1e-20f) : 1;
    for (uint32_t slot = 0; slot < args->top_k; slot++) {
        weights[slot] = weights[slot] / divisor * args->factor;
        if (args->scales) weights[slot] *= args->scales[ids[slot]];
    }
}

static void route_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct route_job *job = arg;
    const struct route_args *args = job->args;
    uint32_t begin = item * job->tokens_per_item;
    uint32_t left = args->num_tokens - begin;
    uint32_t end = begin + (left < job->tokens_per_item ? left : job->tokens_per_item);
    for (uint32_t token = begin; token < end; token++) {
        size_t at = (size_t)token * args->top_k;
        route_token(args, args->logits + (size_t)token * args->num_experts, args->ids + at,
                    args->weights + at);
    }
}

void cpu_route(struct backend *backend, const struct route_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    CHECK(args->top_k >= 1 && args->top_k <= args->num_experts, "top_k=%u", args->top_k);
    CHECK(args->num_groups <= ROUTE_GROUPS_MAX, "num_groups=%u", args->num_groups);
    struct route_job job = {args, thread_pool_grain(cpu->pool, args->num_tokens, 16)};
    uint32_t num_items = (args->num_tokens + job.tokens_per_item - 1) / job.tokens_per_item;
    thread_pool_for(cpu->pool, num_items, route_item, &job);
}

// The scratch memory of a call. A row is a (token, slot) pair; rows are in the order of experts.
struct layout {
    uint32_t *source; // [rows] the token of a row
    uint32_t *position; // [num_tokens][top_k] the row of a pair
    uint32_t *end; // [num_experts] where an expert's rows end
    struct linear_group *groups; // [num_experts]
    void *packed; // [wave_rows][larger depth] floats, or narrower numbers
    float *x_scale; // [wave_rows]
    float *gate_up; // [wave_rows][2 intermediate]
    float *activated; // [wave_rows][intermediate], or x of the second linears, packed
    float *down; // [rows][hidden]
    uint32_t wave_rows; // at least num_tokens, the most rows of one expert
    size_t bytes;
};

static void *take(char *base, size_t *offset, size_t bytes) {
    void *p = base ? base + *offset : NULL;
    *offset += (bytes + 63) & ~(size_t)63;
    return p;
}

// base: NULL if only the size is wanted.
static struct layout layout_of(char *base, const struct experts_shape *shape, uint32_t num_tokens,
                               uint32_t top_k) {
    CHECK((uint64_t)num_tokens * top_k <= INT32_MAX, "num_tokens=%u", num_tokens);
    size_t rows = (size_t)num_tokens * top_k;
    size_t wave = num_tokens > WAVE_ROWS ? num_tokens : WAVE_ROWS;
    if (wave > rows) wave = rows;
    size_t hidden = shape->hidden, intermediate = shape->intermediate;
    // The most that any kind pads.
    size_t padded = (intermediate + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    size_t depth = (hidden + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    if (depth < padded) depth = padded;
    struct layout l = {.wave_rows = (uint32_t)wave};
    l.source = take(base, &l.bytes, rows * sizeof *l.source);
    l.position = take(base, &l.bytes, rows * sizeof *l.position);
    l.end = take(base, &l.bytes, shape->num_experts * sizeof *l.end);
    l.groups = take(base, &l.bytes, shape->num_experts * sizeof *l.groups);
    l.packed = take(base, &l.bytes, wave * depth * sizeof(float));
    l.x_scale = take(base, &l.bytes, wave * sizeof *l.x_scale);
    l.gate_up = take(base, &l.bytes, wave * 2 * intermediate * sizeof(float));
    l.activated = take(base, &l.bytes, wave * padded * sizeof(float));
    l.down = take(base, &l.bytes, rows * hidden * sizeof(float));
    return l;
}

size_t cpu_experts_scratch_bytes(const struct backend *backend, const struct experts_shape *shape,
                                 uint32_t num_tokens, uint32_t top_k) {
    (void)backend;
    return layout_of(NULL, shape, num_tokens, top_k).bytes;
}

// A counting sort by expert, in which tokens stay in order.
static void sort_pairs(const struct experts_args *args, const struct layout *l) {
    uint32_t num_experts = args->experts->shape.num_experts;
    uint32_t num_pairs = args->num_tokens * args->top_k;
    memset(l->end, 0, num_experts * sizeof *l->end);
    for (uint32_t pair = 0; pair < num_pairs; pair++) {
        uint32_t id = (uint32_t)args->ids[pair];
        CHECK(id < num_experts, "expert=%u", id);
        l->end[id]++;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < num_experts; i++) {
        uint32_t count = l->end[i];
        l->end[i] = first; // moves to the end while the rows are placed
        first += count;
    }
    for (uint32_t pair = 0; pair < num_pairs; pair++) {
        uint32_t row = l->end[args->ids[pair]]++;
        l->source[row] = pair / args->top_k;
        l->position[pair] = row;
    }
}

struct wave {
    uint32_t next_expert; // of the wave to come
    uint32_t num_groups;
    uint32_t first_row, num_rows;
};

// Makes linear groups of the next experts that have rows; false when no experts are left.
static bool next_wave(const struct experts *experts, const struct layout *l, struct wave *wave) {
    wave->first_row += wave->num_rows;
    wave->num_rows = 0;
    wave->num_groups = 0;
    for (; wave->next_expert < experts->shape.num_experts; wave->next_expert++) {
        uint32_t i = wave->next_expert;
        uint32_t count = l->end[i] - (i ? l->end[i - 1] : 0);
        if (count == 0) continue;
        if (count > l->wave_rows - wave->num_rows) break;
        l->groups[wave->num_groups++] = (struct linear_group){
            .linear = experts->gate_up[i], .first_row = wave->num_rows, .num_rows = count};
        wave->num_rows += count;
    }
    return wave->num_groups > 0;
}

// Whether gate and up run side by side: x is narrow, and each has whole blocks.
static bool is_gated_run(const struct cpu_backend *cpu, const struct experts *experts) {
    return linear_is_narrow(cpu, experts->down[0]) && experts->shape.intermediate % LANES == 0 &&
           !experts->shape.lacks_gate;
}

// Changes the groups from the first linears to the second ones of the same experts, in the same
// order.
static void use_down(const struct experts *experts, const struct layout *l,
                     const struct wave *wave) {
    uint32_t expert = 0;
    for (uint32_t i = 0; i < wave->num_groups; i++, expert++) {
        while (experts->gate_up[expert] != l->groups[i].linear) expert++;
        l->groups[i].linear = experts->down[expert];
    }
}

// activated = activation(up(x)).
static void run_up(struct backend *backend, const struct layout *l, const struct wave *wave,
                   const struct experts *experts, struct linear_run *run) {
    size_t count = (size_t)wave->num_rows * experts->shape.intermediate;
    run->out = l->activated;
    linear_run(cpu_backend_of(backend), run);
    cpu_activate(backend, &(struct activate_args){.x = l->activated,
                                                  .count = count,
                                                  .activation = experts->activation});
}

// activated = activation(gate(x), up(x)). Where x is narrow, the threads that multiply do that too,
// and `activated` is packed if the second linears take bf16.
static void run_gate_up(struct backend *backend, const struct experts_args *args,
                        const struct layout *l, const struct wave *wave) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    const struct experts *experts = args->experts;
    struct gated_sink sink = {cpu, experts->activation, experts->down[0], l->activated,
                              linear_is_pairs(cpu, experts->down[0])};
    struct linear_run run = {.groups = l->groups,
                             .num_groups = wave->num_groups,
                             .x = args->x,
                             .source = l->source + wave->first_row,
                             .packed = l->packed,
                             .x_scale = l->x_scale};
    if (experts->shape.lacks_gate) {
        run_up(backend, l, wave, experts, &run);
        return;
    }
    if (is_gated_run(cpu, experts)) {
        run.is_gated = true;
        run.sink = linear_sink_gated;
        run.sink_arg = &sink;
        linear_run(cpu, &run);
        return;
    }
    run.out = l->gate_up;
    linear_run(cpu, &run);
    cpu_silu_mul(backend, &(struct silu_mul_args){.gate_up = l->gate_up,
                                                  .out = l->activated,
                                                  .rows = wave->num_rows,
                                                  .cols = experts->shape.intermediate,
                                                  .activation = experts->activation});
}

static void run_wave(struct backend *backend, const struct experts_args *args,
                     const struct layout *l, const struct wave *wave) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    const struct experts *experts = args->experts;
    bool is_packed = is_gated_run(cpu, experts) && linear_is_pairs(cpu, experts->down[0]);
    float *down = l->down + (size_t)wave->first_row * experts->shape.hidden;
    run_gate_up(backend, args, l, wave);
    use_down(experts, l, wave);
    linear_run(cpu, &(struct linear_run){.groups = l->groups,
                                         .num_groups = wave->num_groups,
                                         .x = l->activated,
                                         .packed = is_packed ? (void *)l->activated : l->packed,
                                         .is_packed = is_packed,
                                         .x_scale = l->x_scale,
                                         .out = down});
}

struct combine_job {
    const struct experts_args *args;
    const struct layout *layout;
    uint32_t tokens_per_item;
};

static void combine_token(const struct combine_job *job, uint32_t token) {
    const struct experts_args *args = job->args;
    size_t hidden = args->experts->shape.hidden;
    float *out = (float *)args->out + token * hidden;
    for (uint32_t slot = 0; slot < args->top_k; slot++) {
        size_t pair = (size_t)token * args->top_k + slot;
        const float *row = job->layout->down + job->layout->position[pair] * hidden;
        float weight = args->weights[pair];
        if (slot == 0) {
            for (size_t i = 0; i < hidden; i++) out[i] = weight * row[i];
        } else {
            for (size_t i = 0; i < hidden; i++) out[i] += weight * row[i];
        }
    }
}

static void combine_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct combine_job *job = arg;
    uint32_t begin = item * job->tokens_per_item;
    uint32_t left = job->args->num_tokens - begin;
    uint32_t end = begin + (left < job->tokens_per_item ? left : job->tokens_per_item);
    for (uint32_t token = begin; token < end; token++) combine_token(job, token);
}

void cpu_experts(struct backend *backend, const struct experts_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    CHECK(args->scratch, "num_tokens=%u", args->num_tokens);
    struct layout l =
        layout_of(args->scratch, &args->experts->shape, args->num_tokens, args->top_k);
    sort_pairs(args, &l);
    struct wave wave = {0};
    while (next_wave(args->experts, &l, &wave)) run_wave(backend, args, &l, &wave);
    struct combine_job job = {args, &l, thread_pool_grain(cpu->pool, args->num_tokens, 4)};
    uint32_t num_items = (args->num_tokens + job.tokens_per_item - 1) / job.tokens_per_item;
    thread_pool_for(cpu->pool, num_items, combine_item, &job);
}
