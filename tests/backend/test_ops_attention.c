// attention_prepare and attention of every instruction set, driven as by an engine: sequences run
// in steps over a paged cache. Its blocks are scattered and hold NaN before they are written.
// Results are compared with double precision and with the scalar kernels. They must have the same
// bits for any chunk size, batch, block size and thread count.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/ops_util.h"

// Bounds for a float32 cache; for a bf16 or int8 cache, whose keys double precision may round the
// other way; and for kernels that also round queries and exponentials to bf16.
#define ATTENTION_NMSE 1e-11
#define ATTENTION_NMSE_INT8 1e-7
#define ATTENTION_NMSE_BF16 1e-7
#define ATTENTION_NMSE_ALL_BF16 3e-5

enum { SEQS_MAX = 6, LAYERS = 2, LAYER = 1 };

struct shape {
    uint32_t num_heads, num_kv_heads, head_dim, block_size;
    bool norm;
    uint32_t num_seqs;
    uint32_t len[SEQS_MAX];
};

// How the sequences are run. A step has up to `chunk` tokens of each (0: all), or, with
// `one_by_one`, of one sequence only.
struct schedule {
    uint32_t chunk;
    bool one_by_one;
    int threads;
};

// The inputs of a run, besides the backend.
struct inputs {
    struct shape shape;
    uint32_t num_tokens, max_len;
    size_t row_floats; // (heads + 2 kv heads) * head_dim
    size_t out_floats; // heads * head_dim
    float *qkv; // [num_tokens][row_floats], sequences one after the other
    float *q_norm, *k_norm; // [head_dim] or NULL
    float *rope; // [max_len][head_dim]
    float scale;
    enum dtype dtype; // of the cache
};

static struct inputs inputs_make(const struct shape *shape, enum dtype dtype) {
    struct inputs in = {.shape = *shape, .dtype = dtype};
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
    for (uint32_t position = 0; position < in.max_len; position++) {
        for (uint32_t i = 0; i < head_dim / 2; i++) {
            double angle = position * pow(10000.0, -2.0 * i / head_dim);
            in.rope[(size_t)position * head_dim + i] = (float)cos(angle);
            in.rope[(size_t)position * head_dim + head_dim / 2 + i] = (float)sin(angle);
        }
    }
    if (shape->norm) {
        in.q_norm = malloc(head_dim * sizeof(float));
        in.k_norm = malloc(head_dim * sizeof(float));
        ops_rng_fill(&rng, in.q_norm, head_dim);
        ops_rng_fill(&rng, in.k_norm, head_dim);
    }
    return in;
}

static void inputs_free(struct inputs *in) {
    free(in->qkv);
    free(in->rope);
    free(in->q_norm);
    free(in->k_norm);
}

static void oracle_head(const struct inputs *in, const float *head, const float *norm,
                        uint32_t position, double *out) {
    uint32_t head_dim = in->shape.head_dim, half = head_dim / 2;
    double mean = 0;
    for (uint32_t d = 0; d < head_dim; d++) mean += (double)head[d] * (double)head[d] / head_dim;
    double scale = norm ? 1 / sqrt(mean + 1e-6) : 1;
    const float *rope = in->rope + (size_t)position * head_dim;
    for (uint32_t d = 0; d < half; d++) {
        double a = (double)head[d] * scale * (norm ? (double)norm[d] : 1);
        double b = (double)head[half + d] * scale * (norm ? (double)norm[half + d] : 1);
        out[d] = a * (double)rope[d] - b * (double)rope[half + d];
        out[half + d] = b * (double)rope[d] + a * (double)rope[half + d];
    }
}

// Rounds a position's key or value of one head as the cache stores it.
static void keep_row(const struct inputs *in, double *row) {
    double largest = 0;
    for (uint32_t d = 0; d < in->shape.head_dim; d++) largest = fmax(largest, fabs(row[d]));
    for (uint32_t d = 0; d < in->shape.head_dim && in->dtype != DTYPE_F32; d++) {
        row[d] = in->dtype == DTYPE_I8 ? nearbyint(row[d] / largest * 127) * largest / 127
                                       : (double)bf16_to_f32(f32_to_bf16((float)row[d]));
    }
}

// The bound for an ISA's kernels.
static double bound_of(const struct inputs *in, const char *isa) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    if (in->dtype == DTYPE_F32) return ATTENTION_NMSE;
    if (in->dtype == DTYPE_I8) return ATTENTION_NMSE_INT8;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (strcmp(table[i].name, isa) || !table[i].is_here) continue;
        if (table[i].kernels.attention_bf16.queries != QUERIES_F32) return ATTENTION_NMSE_ALL_BF16;
    }
    return ATTENTION_NMSE_BF16;
}

// One query head of one token: softmax(q k) v over the sequence's tokens up to it.
static void oracle_row(const struct inputs *in, uint32_t first_token, uint32_t position,
                       uint32_t head, const double *keys, const double *values, double *out) {
    const struct shape *shape = &in->shape;
    uint32_t head_dim = shape->head_dim, kv_head = head / (shape->num_heads / shape->num_kv_heads);
    double *q = malloc(head_dim * sizeof *q), *p = malloc((position + 1) * sizeof *p);
    const float *row = in->qkv + (first_token + position) * in->row_floats;
    oracle_head(in, row + head * head_dim, in->q_norm, position, q);
    double largest = -1e300, sum = 0;
    for (uint32_t j = 0; j <= position; j++) {
        const double *k = keys + ((size_t)j * shape->num_kv_heads + kv_head) * head_dim;
        p[j] = 0;
        for (uint32_t d = 0; d < head_dim; d++) p[j] += q[d] * k[d];
        p[j] *= (double)in->scale;
        if (p[j] > largest) largest = p[j];
    }
    for (uint32_t j = 0; j <= position; j++) sum += p[j] = exp(p[j] - largest);
    memset(out, 0, head_dim * sizeof *out);
    for (uint32_t j = 0; j <= position; j++) {
        const double *v = values + ((size_t)j * shape->num_kv_heads + kv_head) * head_dim;
        for (uint32_t d = 0; d < head_dim; d++) out[d] += p[j] / sum * v[d];
    }
    free(q);
    free(p);
}

static double *oracle(const struct inputs *in) {
    const struct shape *shape = &in->shape;
    uint32_t head_dim = shape->head_dim;
    double *out = malloc(in->num_tokens * in->out_floats * sizeof *out);
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
        for (uint32_t j = 0; j < shape->len[s]; j++) {
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

// The state of an engine: the cache, the block tables and how far each sequence is.
struct runner {
    struct backend *backend;
    struct kv_cache *cache;
    const struct inputs *in;
    uint32_t table_stride, num_blocks;
    int32_t *tables; // [num_seqs][table_stride]
    uint32_t done[SEQS_MAX];
    float *out; // [num_tokens][out_floats]
};

// Gives blocks to the sequences in a shuffled order, and fills every slot with NaN.
static void runner_start(struct runner *runner) {
    const struct shape *shape = &runner->in->shape;
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
    struct kv_cache_spec spec = {
        .num_layers = LAYERS,
        .num_blocks = runner->num_blocks,
        .block_size = shape->block_size,
        .num_kv_heads = shape->num_kv_heads,
        .head_dim = shape->head_dim,
        .num_heads = shape->num_heads,
        .limits = {.max_num_seqs = SEQS_MAX, .max_num_tokens = (uint32_t)runner->in->num_tokens},
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

// One forward step of tokens[s] more tokens of each sequence.
static void runner_step(struct runner *runner, const uint32_t tokens[SEQS_MAX]) {
    const struct inputs *in = runner->in;
    const struct shape *shape = &in->shape;
    uint32_t num_tokens = 0, num_seqs = 0, seq_first = 0;
    for (uint32_t s = 0; s < shape->num_seqs; s++) num_tokens += tokens[s];
    float *qkv = ops_guard_alloc(num_tokens * in->row_floats);
    float *out = ops_guard_alloc(num_tokens * in->out_floats);
    int32_t *positions = malloc(num_tokens * sizeof *positions);
    int32_t *slots = malloc(num_tokens * sizeof *slots);
    size_t *destination = malloc(num_tokens * sizeof *destination);
    int32_t query_start[SEQS_MAX + 1] = {0}, context_len[SEQS_MAX];
    int32_t *tables = malloc(runner->table_stride * SEQS_MAX * sizeof *tables);
    uint32_t max_query = 0, max_context = 0, n = 0;
    for (uint32_t s = 0; s < shape->num_seqs; seq_first += shape->len[s], s++) {
        if (tokens[s] == 0) continue;
        const int32_t *table = runner->tables + (size_t)s * runner->table_stride;
        for (uint32_t i = 0; i < tokens[s]; i++, n++) {
            uint32_t position = runner->done[s] + i;
            positions[n] = (int32_t)position;
            slots[n] = table[position / shape->block_size] * (int32_t)shape->block_size +
                       (int32_t)(position % shape->block_size);
            destination[n] = seq_first + position;
            memcpy(qkv + n * in->row_floats, in->qkv + destination[n] * in->row_floats,
                   in->row_floats * sizeof *qkv);
        }
        runner->done[s] += tokens[s];
        memcpy(tables + num_seqs * runner->table_stride, table,
               runner->table_stride * sizeof *tables);
        context_len[num_seqs++] = (int32_t)runner->done[s];
        query_start[num_seqs] = (int32_t)n;
        if (tokens[s] > max_query) max_query = tokens[s];
        if (runner->done[s] > max_context) max_context = runner->done[s];
    }
    struct backend *backend = runner->backend;
    const struct step step = {.num_tokens = num_tokens,
                              .num_seqs = num_seqs,
                              .block_table_stride = runner->table_stride,
                              .max_query_len = max_query,
                              .max_context_len = max_context,
                              .positions = positions,
                              .slot_mapping = slots,
                              .query_start = query_start,
                              .context_len = context_len,
                              .block_tables = tables};
    const struct attention_args args = {.step = &step,
                                        .cache = runner->cache,
                                        .layer = LAYER,
                                        .num_heads = shape->num_heads,
                                        .num_kv_heads = shape->num_kv_heads,
                                        .head_dim = shape->head_dim,
                                        .qkv = qkv,
                                        .out = out,
                                        .q_norm = in->q_norm,
                                        .k_norm = in->k_norm,
                                        .rope = in->rope,
                                        .eps = 1e-6f,
                                        .scale = in->scale};
    backend->ops->attention_prepare(backend, &args);
    backend->ops->attention(backend, &args);
    for (uint32_t i = 0; i < num_tokens; i++) {
        memcpy(runner->out + destination[i] * in->out_floats, out + i * in->out_floats,
               in->out_floats * sizeof *out);
    }
    ops_guard_free(qkv, num_tokens * in->row_floats);
    ops_guard_free(out, num_tokens * in->out_floats);
    free(positions);
    free(slots);
    free(destination);
    free(tables);
}

// Runs all sequences to their end. The caller frees the result, [num_tokens][out_floats].
static float *run(const char *isa, const struct inputs *in, const struct schedule *schedule) {
    struct runner runner = {.backend = ops_backend(isa, schedule->threads, DTYPE_BF16), .in = in};
    runner.out = malloc(in->num_tokens * in->out_floats * sizeof(float));
    runner_start(&runner);
    for (;;) {
        uint32_t tokens[SEQS_MAX] = {0}, total = 0;
        for (uint32_t s = 0; s < in->shape.num_seqs; s++) {
            uint32_t left = in->shape.len[s] - runner.done[s];
            tokens[s] = schedule->chunk && schedule->chunk < left ? schedule->chunk : left;
            total += tokens[s];
            if (schedule->one_by_one && total) break;
        }
        if (total == 0) break;
        runner_step(&runner, tokens);
    }
    runner.backend->ops->kv_cache_destroy(runner.backend, runner.cache);
    backend_destroy(runner.backend);
    free(runner.tables);
    return runner.out;
}

static const struct shape shapes[] = {
    {1, 1, 16, 16, true, 1, {1}},        {2, 1, 64, 16, true, 3, {65, 3, 17}},
    {4, 1, 128, 32, true, 2, {70, 130}}, {7, 1, 96, 16, false, 2, {40, 64}},
    {8, 1, 64, 256, true, 2, {128, 33}}, {16, 2, 80, 48, false, 3, {15, 100, 1}},
    {6, 6, 256, 16, true, 2, {67, 5}},   {60, 1, 48, 16, false, 1, {9}},
    {2, 1, 32, 32, true, 2, {1040, 30}}, // three parts, as short as can be: the sums are quadratic
};

// What every instruction set must come near to. Computed once for each shape and dtype, and kept:
// the oracle takes longer than the kernels.
struct wanted {
    double *exact;
    float *scalar;
};

static const struct wanted *wanted_of(size_t shape, const struct inputs *in) {
    static struct wanted wanted[ARRAY_LEN(shapes)][DTYPE_F32 + 1];
    struct wanted *w = &wanted[shape][in->dtype];
    if (!w->exact) {
        w->exact = oracle(in);
        w->scalar = run("scalar", in, &(struct schedule){11, false, 1});
    }
    return w;
}

static void check_matches(const char *isa, enum dtype dtype) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct inputs in = inputs_make(&shapes[i], dtype);
        double bound = bound_of(&in, isa);
        size_t count = in.num_tokens * in.out_floats;
        const struct wanted *want = wanted_of(i, &in);
        float *got = run(isa, &in, &(struct schedule){0, false, 2});
        assert_nmse(got, want->exact, count, bound);
        assert_true(ops_nmse_f32(got, want->scalar, count) <= bound);
        free(got);
        inputs_free(&in);
    }
}

static void test_matches_f32(void **state) {
    check_matches(*state, DTYPE_F32);
}

static void test_matches_bf16(void **state) {
    check_matches(*state, DTYPE_BF16);
}

static void test_matches_int8(void **state) {
    check_matches(*state, DTYPE_I8);
}

// A sequence's rows have the same bits however it is cut into steps, and whatever runs beside it.
static void check_same_bits(const char *isa, enum dtype dtype) {
    static const struct shape same_bits_shapes[] = {
        {4, 2, 64, 16, true, 4, {150, 7, 64, 33}},
        {7, 1, 48, 32, false, 3, {97, 30, 80}},
        {3, 1, 128, 16, true, 3, {65, 129, 16}},
        {2, 1, 32, 16, false, 2, {1040, 20}}, // more than one part
    };
    static const struct schedule schedules[] = {
        {0, true, 1},  {16, false, 2}, {1, false, 1},  {1, true, 3},
        {7, false, 3}, {40, true, 2},  {64, false, 2}, {520, false, 4},
    };
    for (size_t i = 0; i < ARRAY_LEN(same_bits_shapes); i++) {
        struct inputs in = inputs_make(&same_bits_shapes[i], dtype);
        float *want = run(isa, &in, &(struct schedule){0, false, 1});
        for (size_t s = 0; s < ARRAY_LEN(schedules); s++) {
            float *got = run(isa, &in, &schedules[s]);
            ops_assert_same_bits(got, want, in.num_tokens, in.out_floats, "another schedule");
            free(got);
        }
        const uint32_t block_sizes[] = {16, 32, 48, 64, 256};
        for (size_t b = 0; b < ARRAY_LEN(block_sizes); b++) {
            in.shape.block_size = block_sizes[b];
            float *got = run(isa, &in, &(struct schedule){30, false, 2});
            ops_assert_same_bits(got, want, in.num_tokens, in.out_floats, "another block size");
            free(got);
        }
        free(want);
        inputs_free(&in);
    }
}

static void test_same_bits_f32(void **state) {
    check_same_bits(*state, DTYPE_F32);
}

static void test_same_bits_bf16(void **state) {
    check_same_bits(*state, DTYPE_BF16);
}

static void test_same_bits_int8(void **state) {
    check_same_bits(*state, DTYPE_I8);
}

// Tokens of NaN or inf do not change the tokens before them, and those that see them are NaN.
static void check_nonfinite_tokens(const char *isa, enum dtype dtype) {
    const struct shape shape = {4, 2, 64, 16, false, 1, {40}};
    struct inputs in = inputs_make(&shape, dtype);
    float *clean = run(isa, &in, &(struct schedule){0, false, 2});
    for (size_t i = 0; i < in.row_floats; i++) {
        in.qkv[25 * in.row_floats + i] = i % 2 ? INFINITY : NAN;
        in.qkv[33 * in.row_floats + i] = -INFINITY;
    }
    float *got = run(isa, &in, &(struct schedule){0, false, 2});
    ops_assert_same_bits(got, clean, 25, in.out_floats, "before the bad token");
    // Tokens 25 to 39 see it.
    for (size_t i = 25 * in.out_floats; i < 40 * in.out_floats; i++) assert_true(isnan(got[i]));
    free(clean);
    free(got);
    inputs_free(&in);
}

// A value that is inf in one dimension leaves the other dimensions alone, in all rows.
static void check_infinite_value(const char *isa, enum dtype dtype) {
    enum { TOKENS = 560, DIM = 32 };
    const struct shape shape = {4, 2, DIM, 16, false, 1, {TOKENS}};
    struct inputs in = inputs_make(&shape, dtype);
    float *clean = run(isa, &in, &(struct schedule){0, false, 1});
    const size_t bad[] = {25, 200, 530}; // in several spans and parts
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        in.qkv[bad[i] * in.row_floats + (size_t)6 * DIM] = INFINITY; // dimension 0 of kv head 0
    }
    float *got = run(isa, &in, &(struct schedule){0, false, 1});
    float *chunked = run(isa, &in, &(struct schedule){40, false, 2});
    ops_assert_same_bits(chunked, got, TOKENS, in.out_floats, "chunks of 40");
    for (size_t token = 0; token < TOKENS; token++) {
        for (size_t head = 0; head < 4; head++) {
            size_t skipped = head < 2 ? 1 : 0, at = (token * 4 + head) * DIM + skipped;
            ops_assert_same_bits(got + at, clean + at, 1, DIM - skipped, "other dimensions");
            if (skipped) assert_true(isfinite(got[at - 1]) == (token < 25));
        }
    }
    free(chunked);
    free(clean);
    free(got);
    inputs_free(&in);
}

static void test_nonfinite_tokens(void **state) {
    check_infinite_value(*state, DTYPE_F32);
    check_infinite_value(*state, DTYPE_BF16);
    check_nonfinite_tokens(*state, DTYPE_F32);
    check_nonfinite_tokens(*state, DTYPE_BF16);
    check_nonfinite_tokens(*state, DTYPE_I8);
}

// Queries and keys times `factor`. The running maximum keeps exp in range and rises often.
static void check_large_scores(const char *isa, enum dtype dtype, float factor, double bound) {
    const struct shape shape = {2, 1, 64, 16, false, 1, {540}};
    struct inputs in = inputs_make(&shape, dtype);
    for (size_t i = 0; i < in.num_tokens * in.row_floats; i++) {
        if (i % in.row_floats < 192) in.qkv[i] *= factor;
    }
    double *want = oracle(&in);
    float *got = run(isa, &in, &(struct schedule){0, false, 2});
    assert_nmse(got, want, in.num_tokens * in.out_floats, bound);
    free(want);
    free(got);
    inputs_free(&in);
}

static void test_large_scores(void **state) {
    // Scores around 400 have an absolute error near 1e-4. The exponential makes it a relative one.
    check_large_scores(*state, DTYPE_F32, 10.0f, 1e-7);
    // Queries rounded to bf16 change a score of 40 by 0.1.
    check_large_scores(*state, DTYPE_BF16, 3.0f, 1e-2);
}

// Slot -1 writes nothing: the cache still holds what was written before.
static void test_skipped_slot(void **state) {
    const struct shape shape = {2, 1, 32, 16, false, 1, {20}};
    struct inputs in = inputs_make(&shape, DTYPE_F32);
    struct runner runner = {.backend = ops_backend(*state, 1, DTYPE_BF16), .in = &in};
    struct backend *backend = runner.backend;
    runner.out = malloc(in.num_tokens * in.out_floats * sizeof(float));
    runner_start(&runner);
    runner_step(&runner, (uint32_t[SEQS_MAX]){19});
    float *row = malloc(in.row_floats * sizeof *row);
    memset(row, 0xff, in.row_floats * sizeof *row);
    int32_t position = 3, slot = -1;
    const struct step step = {.num_tokens = 1, .positions = &position, .slot_mapping = &slot};
    const struct attention_args args = {.step = &step,
                                        .cache = runner.cache,
                                        .layer = LAYER,
                                        .num_heads = 2,
                                        .num_kv_heads = 1,
                                        .head_dim = 32,
                                        .qkv = row,
                                        .rope = in.rope,
                                        .eps = 1e-6f};
    backend->ops->attention_prepare(backend, &args);
    runner_step(&runner, (uint32_t[SEQS_MAX]){1});
    double *want = oracle(&in);
    assert_nmse(runner.out, want, in.num_tokens * in.out_floats, ATTENTION_NMSE);
    backend->ops->kv_cache_destroy(backend, runner.cache);
    backend_destroy(backend);
    free(row);
    free(want);
    free(runner.out);
    free(runner.tables);
    inputs_free(&in);
}

int main(void) {
    static const struct ops_case cases[] = {
        {"matches double precision and scalar, float32 cache", test_matches_f32, ISA_ATTENTION},
        {"matches double precision and scalar, bf16 cache", test_matches_bf16, ISA_ATTENTION},
        {"matches double precision and scalar, int8 cache", test_matches_int8, ISA_ATTENTION},
        {"same bits for any schedule and block size, float32 cache", test_same_bits_f32,
         ISA_ATTENTION},
        {"same bits for any schedule and block size, bf16 cache", test_same_bits_bf16,
         ISA_ATTENTION},
        {"same bits for any schedule and block size, int8 cache", test_same_bits_int8,
         ISA_ATTENTION},
        {"non-finite tokens leave earlier ones alone", test_nonfinite_tokens, ISA_ATTENTION},
        {"large scores", test_large_scores, ISA_ATTENTION},
        {"slot -1 writes nothing", test_skipped_slot, ISA_ATTENTION},
    };
    return ops_run("attention", cases, ARRAY_LEN(cases));
}
