#include "backend/attention_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2 };

struct attend_inputs attend_inputs_make(const struct attend_shape *shape, enum dtype dtype) {
    struct attend_inputs in = {.shape = *shape, .dtype = dtype};
    if (getenv("NANOVLLM_TEST_ALL")) memset(in.shape.skip, 0, sizeof in.shape.skip);
    for (uint32_t s = 0; s < shape->num_seqs; s++) {
        in.num_tokens += shape->len[s];
        if (shape->len[s] > in.max_len) in.max_len = shape->len[s];
    }
    uint32_t head_dim = shape->head_dim;
    in.row_floats = ((size_t)shape->num_heads + 2 * (size_t)shape->num_kv_heads) * head_dim;
    in.out_floats = (size_t)shape->num_heads * head_dim;
    in.scale = 1.0f / sqrtf((float)head_dim);
    struct ops_rng rng = ops_rng_of(head_dim + shape->num_heads);
    in.qkv = malloc(in.num_tokens * in.row_floats * sizeof(float));
    ops_rng_fill(&rng, in.qkv, in.num_tokens * in.row_floats);
    for (size_t i = 0; i < in.num_tokens * in.row_floats; i++) in.qkv[i] *= 2.0f;
    in.rope = malloc((size_t)in.max_len * head_dim * sizeof(float));
    double factor = shape->has_norm_after_rope ? 1.25 : 1; // as yarn's
    for (uint32_t position = 0; position < in.max_len; position++) {
        for (uint32_t i = 0; i < head_dim / 2; i++) {
            double angle = position * pow(10000.0, -2.0 * i / head_dim);
            in.rope[(size_t)position * head_dim + i] = (float)(factor * cos(angle));
            in.rope[(size_t)position * head_dim + head_dim / 2 + i] = (float)(factor * sin(angle));
        }
    }
    if (shape->norm) {
        in.q_norm = malloc(head_dim * sizeof(float));
        in.k_norm = malloc(head_dim * sizeof(float));
        ops_rng_fill(&rng, in.q_norm, head_dim);
        ops_rng_fill(&rng, in.k_norm, head_dim);
    }
    if (shape->has_sinks) {
        in.sinks = malloc(shape->num_heads * sizeof(float));
        ops_rng_fill(&rng, in.sinks, shape->num_heads);
        // From far below all scores to far above them.
        for (uint32_t h = 0; h < shape->num_heads; h++) in.sinks[h] *= 5.0f * (float)(h + 1);
    }
    return in;
}

void attend_inputs_free(struct attend_inputs *in) {
    free(in->qkv);
    free(in->rope);
    free(in->sinks);
    free(in->q_norm);
    free(in->k_norm);
}

static void oracle_norm(const float *norm, uint32_t head_dim, double *head) {
    double mean = 0;
    for (uint32_t d = 0; d < head_dim; d++) mean += head[d] * head[d] / head_dim;
    for (uint32_t d = 0; d < head_dim; d++) head[d] *= (double)norm[d] / sqrt(mean + 1e-6);
}

static void oracle_head(const struct attend_inputs *in, const float *head, const float *norm,
                        uint32_t position, double *out) {
    uint32_t head_dim = in->shape.head_dim, half = head_dim / 2;
    const float *rope = in->rope + (size_t)position * head_dim;
    bool is_last = in->shape.has_norm_after_rope;
    for (uint32_t d = 0; d < head_dim; d++) out[d] = (double)head[d];
    if (norm && !is_last) oracle_norm(norm, head_dim, out);
    for (uint32_t d = 0; d < half; d++) {
        double a = out[d], b = out[half + d];
        out[d] = a * (double)rope[d] - b * (double)rope[half + d];
        out[half + d] = b * (double)rope[d] + a * (double)rope[half + d];
    }
    if (norm && is_last) oracle_norm(norm, head_dim, out);
}

// The nearest number of e4m3; ties go to the even one.
static double nearest_e4m3(double x) {
    int exponent;
    frexp(x, &exponent); // |x| < 2^exponent
    double step = ldexp(1, (exponent - 1 > -6 ? exponent - 1 : -6) - 3);
    return nearbyint(x / step) * step;
}

// Rounds a position's key or value of one head as the cache stores it.
static void keep_row(const struct attend_inputs *in, double *row) {
    double largest = 0;
    for (uint32_t d = 0; d < in->shape.head_dim; d++) largest = fmax(largest, fabs(row[d]));
    for (uint32_t d = 0; d < in->shape.head_dim && in->dtype != DTYPE_F32; d++) {
        row[d] = in->dtype == DTYPE_I8        ? nearbyint(row[d] / largest * 127) * largest / 127
                 : in->dtype == DTYPE_F8_E4M3 ? nearest_e4m3(row[d] / largest * 448) * largest / 448
                                              : (double)bf16_to_f32(f32_to_bf16((float)row[d]));
    }
}

// The first position that a query sees.
static uint32_t first_seen(const struct attend_inputs *in, uint32_t position) {
    uint32_t window = in->shape.window;
    return window && position + 1 > window ? position + 1 - window : 0;
}

// One query head of one token: softmax(q k) v over the sequence's tokens in its window.
static void oracle_row(const struct attend_inputs *in, uint32_t first_token, uint32_t position,
                       uint32_t head, const double *keys, const double *values, double *out) {
    const struct attend_shape *shape = &in->shape;
    uint32_t head_dim = shape->head_dim, kv_head = head / (shape->num_heads / shape->num_kv_heads);
    double *q = malloc(head_dim * sizeof *q), *p = malloc((position + 1) * sizeof *p);
    const float *row = in->qkv + (first_token + position) * in->row_floats;
    oracle_head(in, row + head * head_dim, in->q_norm, position, q);
    uint32_t first = first_seen(in, position);
    double largest = in->sinks ? (double)in->sinks[head] : -1e300;
    for (uint32_t j = first; j <= position; j++) {
        const double *k = keys + ((size_t)j * shape->num_kv_heads + kv_head) * head_dim;
        p[j] = 0;
        for (uint32_t d = 0; d < head_dim; d++) p[j] += q[d] * k[d];
        p[j] *= (double)in->scale;
        if (shape->softcap != 0) {
            p[j] = (double)shape->softcap * tanh(p[j] / (double)shape->softcap);
        }
        if (p[j] > largest) largest = p[j];
    }
    double sum = in->sinks ? exp((double)in->sinks[head] - largest) : 0;
    for (uint32_t j = first; j <= position; j++) sum += p[j] = exp(p[j] - largest);
    memset(out, 0, head_dim * sizeof *out);
    for (uint32_t j = first; j <= position; j++) {
        const double *v = values + ((size_t)j * shape->num_kv_heads + kv_head) * head_dim;
        for (uint32_t d = 0; d < head_dim; d++) out[d] += p[j] / sum * v[d];
    }
    free(q);
    free(p);
}

double *attend_oracle(const struct attend_inputs *in) {
    const struct attend_shape *shape = &in->shape;
    uint32_t head_dim = shape->head_dim;
    double *out = calloc(in->num_tokens * in->out_floats, sizeof *out);
    size_t row_numbers = (size_t)shape->num_kv_heads * head_dim;
    double *keys = malloc(in->max_len * row_numbers * sizeof *keys);
    double *values = malloc(in->max_len * row_numbers * sizeof *values);
    for (uint32_t s = 0, first = 0; s < shape->num_seqs; first += shape->len[s], s++) {
        for (uint32_t j = 0; j < shape->len[s]; j++) {
            for (uint32_t h = 0; h < shape->num_kv_heads; h++) {
                const float *k = in->qkv + (first + j) * in->row_floats +
                                 ((size_t)shape->num_heads + h) * head_dim;
                double *key = keys + j * row_numbers + (size_t)h * head_dim;
                double *value = values + j * row_numbers + (size_t)h * head_dim;
                oracle_head(in, k, in->k_norm, j, key);
                for (uint32_t d = 0; d < head_dim; d++) value[d] = (double)k[row_numbers + d];
                keep_row(in, key);
                keep_row(in, value);
            }
        }
        for (uint32_t j = shape->skip[s]; j < shape->len[s]; j++) {
            for (uint32_t h = 0; h < shape->num_heads; h++) {
                oracle_row(in, first, j, h, keys, values,
                           out + (first + j) * in->out_floats + (size_t)h * head_dim);
            }
        }
    }
    free(keys);
    free(values);
    return out;
}

void attend_runner_start(struct attend_runner *runner) {
    const struct attend_shape *shape = &runner->in->shape;
    struct ops_rng rng = ops_rng_of(99);
    runner->table_stride = (runner->in->max_len + shape->block_size - 1) / shape->block_size + 1;
    runner->num_blocks = runner->table_stride * shape->num_seqs + 2;
    runner->tables = malloc(runner->table_stride * shape->num_seqs * sizeof *runner->tables);
    int32_t *order = malloc(runner->num_blocks * sizeof *order);
    for (uint32_t i = 0; i < runner->num_blocks; i++) {
        uint32_t other = ops_rng_below(&rng, i + 1);
        order[i] = order[other];
        order[other] = (int32_t)i;
    }
    memcpy(runner->tables, order, runner->table_stride * shape->num_seqs * sizeof *runner->tables);
    free(order);
    struct kv_cache_spec spec = {.num_layers = LAYERS,
                                 .num_blocks = runner->num_blocks,
                                 .block_size = shape->block_size,
                                 .num_kv_heads = shape->num_kv_heads,
                                 .head_dim = shape->head_dim,
                                 .num_heads = shape->num_heads,
                                 .limits = {.max_num_seqs = ATTEND_SEQS_MAX,
                                            .max_num_tokens = (uint32_t)runner->in->num_tokens},
                                 .dtype = runner->in->dtype};
    struct err err = {0};
    struct backend *backend = runner->backend;
    if (backend->ops->kv_cache_create(backend, &spec, &runner->cache, &err) != OK) {
        fail_msg("%s", err.message);
    }
    uint32_t num_slots = runner->num_blocks * shape->block_size;
    float *nans = malloc(num_slots * runner->in->row_floats * sizeof *nans);
    int32_t *slots = malloc(num_slots * sizeof *slots), *zeros = calloc(num_slots, sizeof *zeros);
    memset(nans, 0xff, num_slots * runner->in->row_floats * sizeof *nans);
    for (uint32_t i = 0; i < num_slots; i++) slots[i] = (int32_t)i;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const struct step step = {
            .num_tokens = num_slots, .positions = zeros, .slot_mapping = slots};
        struct attention_args args = {.step = &step,
                                      .qkv = nans,
                                      .rope = runner->in->rope,
                                      .cache = runner->cache,
                                      .layer = layer,
                                      .num_heads = shape->num_heads,
                                      .num_kv_heads = shape->num_kv_heads,
                                      .head_dim = shape->head_dim,
                                      .eps = 1e-6f};
        backend->ops->attention_prepare(backend, &args);
    }
    free(nans);
    free(slots);
    free(zeros);
}

// `wants_results`: the tokens do not only fill the cache.
static void run_step(struct attend_runner *runner, const uint32_t tokens[ATTEND_SEQS_MAX],
                     bool wants_results) {
    const struct attend_inputs *in = runner->in;
    const struct attend_shape *shape = &in->shape;
    uint32_t num_tokens = 0, num_seqs = 0, seq_first = 0;
    for (uint32_t s = 0; s < shape->num_seqs; s++) num_tokens += tokens[s];
    float *qkv = ops_guard_alloc(num_tokens * in->row_floats);
    float *out = ops_guard_alloc(num_tokens * in->out_floats);
    int32_t *positions = malloc(num_tokens * sizeof *positions);
    int32_t *slots = malloc(num_tokens * sizeof *slots);
    size_t *destination = malloc(num_tokens * sizeof *destination);
    int32_t query_start[ATTEND_SEQS_MAX + 1] = {0}, context_len[ATTEND_SEQS_MAX];
    int32_t table_row[ATTEND_SEQS_MAX];
    uint32_t max_query = 0, max_context = 0, n = 0;
    for (uint32_t s = 0; s < shape->num_seqs; seq_first += shape->len[s], s++) {
        if (tokens[s] == 0) continue;
        int32_t *table = runner->tables + (size_t)s * runner->table_stride;
        for (uint32_t i = 0; i < tokens[s]; i++, n++) {
            uint32_t position = runner->done[s] + i;
            positions[n] = (int32_t)position;
            slots[n] = table[position / shape->block_size] * (int32_t)shape->block_size +
                       (int32_t)(position % shape->block_size);
            destination[n] = seq_first + position;
            memcpy(qkv + n * in->row_floats, in->qkv + destination[n] * in->row_floats,
                   in->row_floats * sizeof *qkv);
        }
        table_row[num_seqs] = (int32_t)s;
        // Blocks that no query sees any more are freed.
        uint32_t freed = first_seen(in, runner->done[s]) / shape->block_size;
        for (uint32_t block = 0; block < freed; block++) table[block] = -1;
        runner->done[s] += tokens[s];
        context_len[num_seqs++] = (int32_t)runner->done[s];
        query_start[num_seqs] = (int32_t)n;
        if (tokens[s] > max_query) max_query = tokens[s];
        if (runner->done[s] > max_context) max_context = runner->done[s];
    }
    struct backend *backend = runner->backend;
    const struct step step = {.num_tokens = num_tokens,
                              .num_seqs = num_seqs,
                              .table_stride = runner->table_stride,
                              .max_query_len = max_query,
                              .max_context_len = max_context,
                              .positions = positions,
                              .slot_mapping = slots,
                              .query_start = query_start,
                              .context_len = context_len,
                              .block_tables = runner->tables,
                              .table_row = table_row};
    const struct attention_args args = {.step = &step,
                                        .cache = runner->cache,
                                        .layer = ATTEND_LAYER,
                                        .num_heads = shape->num_heads,
                                        .num_kv_heads = shape->num_kv_heads,
                                        .head_dim = shape->head_dim,
                                        .qkv = qkv,
                                        .out = out,
                                        .q_norm = in->q_norm,
                                        .k_norm = in->k_norm,
                                        .has_norm_after_rope = shape->has_norm_after_rope,
                                        .rope = in->rope,
                                        .eps = 1e-6f,
                                        .scale = in->scale,
                                        .window = shape->window,
                                        .softcap = shape->softcap,
                                        .sinks = in->sinks};
    backend->ops->attention_prepare(backend, &args);
    if (wants_results) backend->ops->attention(backend, &args);
    for (uint32_t i = 0; i < num_tokens && wants_results; i++) {
        memcpy(runner->out + destination[i] * in->out_floats, out + i * in->out_floats,
               in->out_floats * sizeof *out);
    }
    ops_guard_free(qkv, num_tokens * in->row_floats);
    ops_guard_free(out, num_tokens * in->out_floats);
    free(positions);
    free(slots);
    free(destination);
}

void attend_runner_step(struct attend_runner *runner, const uint32_t tokens[ATTEND_SEQS_MAX]) {
    run_step(runner, tokens, true);
}

float *attend_run(const char *isa, const struct attend_inputs *in,
                  const struct attend_schedule *schedule) {
    struct attend_runner runner = {.backend = ops_backend(isa, schedule->threads, DTYPE_BF16),
                                   .in = in};
    runner.out = calloc(in->num_tokens * in->out_floats, sizeof(float));
    attend_runner_start(&runner);
    run_step(&runner, in->shape.skip, false);
    for (;;) {
        uint32_t tokens[ATTEND_SEQS_MAX] = {0}, total = 0;
        for (uint32_t s = 0; s < in->shape.num_seqs; s++) {
            uint32_t left = in->shape.len[s] - runner.done[s];
            tokens[s] = schedule->chunk && schedule->chunk < left ? schedule->chunk : left;
            total += tokens[s];
            if (schedule->one_by_one && total) break;
        }
        if (total == 0) break;
        attend_runner_step(&runner, tokens);
    }
    runner.backend->ops->kv_cache_destroy(runner.backend, runner.cache);
    backend_destroy(runner.backend);
    free(runner.tables);
    return runner.out;
}
