/* Measures single ops of the CPU backend, compared with what the machine can do: the read bandwidth
 * of memory and the rate of fused multiply-adds. The same threads measure op and machine in turns,
 * so that other load on the machine slows both alike. Turns are short and the best one counts.
 *
 *   bench_ops [ISA [THREADS [TURNS [WHAT]]]]     defaults: auto, all cores, 40, all ops
 *
 * WHAT is linear, experts, attention, rows or sample, with bf16 weights. int8 or int4 measures
 * linears with such weights; their peak is still that of bf16. A line of attention names the kind
 * of the KV cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "base/os/clock.h"
#include "fma_peak.h"

enum {
    READ_BYTES = 512 << 20, // beyond any cache
    READ_ITEM = 1 << 20,
    READ_ITEMS_TURN = 32, // a few milliseconds: longer quiet gaps are rare on a busy machine
    FMA_ITEMS_THREAD = 4,
};

struct bench {
    struct backend *backend;
    struct weight_format format; // of linears
    struct cpu_backend *cpu;
    const char *isa;
    uint64_t *memory; // [READ_BYTES / 8] to measure reading
    uint32_t read_next; // where the next turn continues
    uint64_t sink;
    int turns;
    enum dtype kv_dtype; // of KV caches
    double read_rate; // bytes per second
    double fma_rate; // operations per second
};

static void *checked(void *memory) {
    if (memory) return memory;
    fputs("bench_ops: out of memory\n", stderr);
    exit(1);
}

// Time. With one thread it is the thread's processor time, which other programs do not lengthen.
static double bench_seconds(const struct bench *bench) {
    struct timespec time;
    if (thread_pool_num_threads(bench->cpu->pool) > 1) return clock_seconds();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Zeroed memory from the backend, so on huge pages as in an engine.
static void *bench_alloc(struct bench *bench, size_t bytes) {
    void *dev = NULL;
    return bench->backend->ops->alloc(bench->backend, bytes, &dev, NULL) == OK ? dev
                                                                               : checked(NULL);
}

static void touch_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct bench *bench = arg;
    memset((char *)bench->memory + (size_t)item * READ_ITEM, 1, READ_ITEM);
}

static void read_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    struct bench *bench = arg;
    // Four prefetched streams: the fastest way to read that was found.
    enum { QUARTER = READ_ITEM / 4 / 8 };
    size_t at = (bench->read_next + item) % (READ_BYTES / READ_ITEM);
    const uint64_t *p = bench->memory + at * (READ_ITEM / 8);
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < QUARTER; i += 8) {
        for (size_t q = 0; q < 4; q++) {
            const uint64_t *line = p + q * QUARTER + i;
            __builtin_prefetch(line + 128);
            for (size_t j = 0; j < 8; j++) sum[j] += line[j];
        }
    }
    for (size_t j = 1; j < 8; j++) sum[0] += sum[j];
    __atomic_fetch_add(&bench->sink, sum[0], __ATOMIC_RELAXED);
}

static void fma_item(void *arg, uint32_t item, uint32_t thread) {
    (void)item, (void)thread;
    struct bench *bench = arg;
    fma_peak_run(bench->isa);
}

// Measures the machine's two rates once, and keeps the best so far.
static void measure_machine(struct bench *bench) {
    double start = bench_seconds(bench);
    thread_pool_for(bench->cpu->pool, READ_ITEMS_TURN, read_item, bench);
    double rate = (double)READ_ITEMS_TURN * READ_ITEM / (bench_seconds(bench) - start);
    bench->read_next += READ_ITEMS_TURN;
    if (rate > bench->read_rate) bench->read_rate = rate;
    start = bench_seconds(bench);
    uint32_t items = FMA_ITEMS_THREAD * thread_pool_num_threads(bench->cpu->pool);
    thread_pool_for(bench->cpu->pool, items, fma_item, bench);
    rate = items * fma_peak_operations(bench->isa) / (bench_seconds(bench) - start);
    if (rate > bench->fma_rate) bench->fma_rate = rate;
}

// Returns the best seconds of one call over all turns, each of at least 2 ms.
static double time_op(struct bench *bench, void (*op)(struct bench *bench, void *arg), void *arg) {
    double best = 1e30;
    op(bench, arg);
    for (int turn = 0; turn < bench->turns; turn++) {
        measure_machine(bench);
        int calls = 0;
        double start = bench_seconds(bench), spent;
        do {
            op(bench, arg);
            calls++;
            spent = bench_seconds(bench) - start;
        } while (spent < 0.002);
        if (spent / calls < best) best = spent / calls;
    }
    return best;
}

static void report(const struct bench *bench, const char *what, double seconds, double bytes,
                   double operations) {
    double by_bytes = bytes / bench->read_rate, by_operations = operations / bench->fma_rate;
    double limit = by_bytes > by_operations ? by_bytes : by_operations;
    printf("%-44s %10.1f us %7.2f GB/s %8.1f GFLOP/s   %5.1f %% of %s\n", what, seconds * 1e6,
           bytes / seconds * 1e-9, operations / seconds * 1e-9, 100 * limit / seconds,
           by_bytes > by_operations ? "read bandwidth" : "FMA peak");
    fflush(stdout);
}

struct linear_bench {
    struct linear_args args[24]; // so many copies that they do not fit the last cache level
    uint32_t num_copies, next;
    struct linear_spec spec;
};

static void linear_op(struct bench *bench, void *arg) {
    struct linear_bench *linear = arg;
    bench->backend->ops->linear(bench->backend, &linear->args[linear->next]);
    linear->next = (linear->next + 1) % linear->num_copies;
}

static void pack_op(struct bench *bench, void *arg) {
    struct linear_bench *linear = arg;
    struct linear *made = NULL;
    if (bench->backend->ops->linear_create(bench->backend, &linear->spec, &made, NULL) != OK) {
        checked(NULL);
    }
    bench->backend->ops->linear_destroy(bench->backend, made);
}

// The bytes of the weights as the backend keeps them, without scales and sums of each output.
static double weight_bytes(const struct bench *bench, uint32_t out, uint32_t in) {
    struct weight_format format = bench->format;
    double bits = format.bits ? format.bits : 16;
    if (format.group) bits += 8.0 / format.group; // a byte for each
    return (double)out * in * bits / 8;
}

static void bench_linear(struct bench *bench, uint32_t out, uint32_t in, uint32_t rows) {
    size_t weights = (size_t)out * in;
    uint16_t *source = checked(malloc(weights * 2));
    float *x = bench_alloc(bench, (size_t)rows * in * sizeof *x);
    float *y = bench_alloc(bench, (size_t)rows * out * sizeof *y);
    for (size_t i = 0; i < weights; i++) source[i] = (uint16_t)(0x3c00 + i % 97);
    struct matrix_slice part = {
        .source = {.data = source}, .dtype = DTYPE_BF16, .rows = out, .cols = in, .row_stride = in};
    struct linear_bench linear = {.spec = {&part, NULL, 1, bench->format}};
    linear.num_copies = rows > 64 ? 1 : (uint32_t)((200u << 20) / (weights * 2)) + 1;
    if (linear.num_copies > 24) linear.num_copies = 24;
    for (uint32_t i = 0; i < linear.num_copies; i++) {
        struct linear *made = NULL;
        if (bench->backend->ops->linear_create(bench->backend, &linear.spec, &made, NULL) != OK) {
            checked(NULL);
        }
        linear.args[i] = (struct linear_args){.linear = made, .x = x, .out = y, .rows = rows};
    }
    char what[64];
    snprintf(what, sizeof what, "linear [%u][%u], %u row%s", out, in, rows, rows == 1 ? "" : "s");
    double seconds = time_op(bench, linear_op, &linear);
    report(bench, what, seconds, weight_bytes(bench, out, in), 2.0 * (double)weights * rows);
    if (rows == 1 && weights > (64u << 20)) {
        snprintf(what, sizeof what, "packing [%u][%u] bf16 (read + write)", out, in);
        report(bench, what, time_op(bench, pack_op, &linear), (double)weights * 4, 0);
    }
    for (uint32_t i = 0; i < linear.num_copies; i++) {
        struct linear *made = NULL;
        memcpy(&made, &linear.args[i].linear, sizeof made); // without the const
        bench->backend->ops->linear_destroy(bench->backend, made);
    }
    free(source);
    cpu_memory_free(x);
    cpu_memory_free(y);
}

// Qwen3-30B-A3B's experts, half as many.
enum { EXPERTS = 64, EXPERT_HIDDEN = 2048, EXPERT_SIZE = 768, EXPERT_TOP = 8, EXPERT_ROUTINGS = 8 };

struct experts_bench {
    struct experts_args args;
    int32_t *ids; // [EXPERT_ROUTINGS][num_tokens][EXPERT_TOP]: other experts in every call
    uint32_t next;
    struct route_args route;
};

static void experts_op(struct bench *bench, void *arg) {
    struct experts_bench *experts = arg;
    size_t pairs = (size_t)experts->args.num_tokens * EXPERT_TOP;
    experts->args.ids = experts->ids + experts->next++ % EXPERT_ROUTINGS * pairs;
    bench->backend->moe->experts(bench->backend, &experts->args);
}

static void route_op(struct bench *bench, void *arg) {
    struct experts_bench *experts = arg;
    bench->backend->moe->route(bench->backend, &experts->route);
}

static struct experts *make_experts(struct bench *bench) {
    const size_t weights = (size_t)EXPERT_HIDDEN * EXPERT_SIZE;
    uint16_t *source = checked(malloc(weights * 2));
    for (size_t i = 0; i < weights; i++) source[i] = (uint16_t)(0x3c00 + i % 97);
    struct matrix_slice in[EXPERTS], out[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        in[i] = (struct matrix_slice){.source = {.data = source},
                                      .dtype = DTYPE_BF16,
                                      .rows = EXPERT_SIZE,
                                      .cols = EXPERT_HIDDEN,
                                      .row_stride = EXPERT_HIDDEN};
        out[i] = (struct matrix_slice){.source = {.data = source},
                                       .dtype = DTYPE_BF16,
                                       .rows = EXPERT_HIDDEN,
                                       .cols = EXPERT_SIZE,
                                       .row_stride = EXPERT_SIZE};
    }
    const struct experts_spec spec = {
        .shape = {.num_experts = EXPERTS, .hidden = EXPERT_HIDDEN, .intermediate = EXPERT_SIZE},
        .gate = in,
        .up = in,
        .down = out,
        .format = bench->format};
    struct experts *experts = NULL;
    if (bench->backend->moe->experts_create(bench->backend, &spec, &experts, NULL) != OK) {
        checked(NULL);
    }
    free(source);
    return experts;
}

// Fills routings that look random. Returns how many experts a call reads, on average.
static double fill_routings(int32_t *ids, uint32_t num_tokens) {
    uint32_t random = 1;
    double num_read = 0;
    for (uint32_t routing = 0; routing < EXPERT_ROUTINGS; routing++) {
        uint64_t used = 0;
        for (uint32_t token = 0; token < num_tokens; token++) {
            random = random * 1664525u + 1013904223u;
            for (uint32_t slot = 0; slot < EXPERT_TOP; slot++) {
                uint32_t id = ((random >> 16) + slot * (2 * (random >> 8) + 1)) % EXPERTS;
                *ids++ = (int32_t)id;
                used |= (uint64_t)1 << id;
            }
        }
        num_read += __builtin_popcountll(used);
    }
    return num_read / EXPERT_ROUTINGS;
}

static void bench_experts(struct bench *bench, struct experts *experts, uint32_t num_tokens) {
    const struct experts_shape shape = {
        .num_experts = EXPERTS, .hidden = EXPERT_HIDDEN, .intermediate = EXPERT_SIZE};
    size_t pairs = (size_t)num_tokens * EXPERT_TOP, values = (size_t)num_tokens * EXPERT_HIDDEN;
    size_t scratch =
        bench->backend->moe->experts_scratch_bytes(bench->backend, &shape, num_tokens, EXPERT_TOP);
    struct experts_bench run = {.ids = checked(malloc(EXPERT_ROUTINGS * pairs * sizeof *run.ids))};
    double num_read = fill_routings(run.ids, num_tokens);
    float *weights = bench_alloc(bench, pairs * sizeof *weights);
    run.args = (struct experts_args){.experts = experts,
                                     .x = bench_alloc(bench, values * sizeof(float)),
                                     .weights = weights,
                                     .out = bench_alloc(bench, values * sizeof(float)),
                                     .scratch = bench_alloc(bench, scratch),
                                     .num_tokens = num_tokens,
                                     .top_k = EXPERT_TOP};
    run.route = (struct route_args){.logits = run.args.out,
                                    .ids = run.ids,
                                    .weights = weights,
                                    .num_tokens = num_tokens,
                                    .num_experts = EXPERTS,
                                    .top_k = EXPERT_TOP,
                                    .normalize = true,
                                    .factor = 1};
    double expert = 3.0 * EXPERT_HIDDEN * EXPERT_SIZE;
    char what[64];
    snprintf(what, sizeof what, "experts, %u tokens, %.0f of %d", num_tokens, num_read, EXPERTS);
    report(bench, what, time_op(bench, experts_op, &run), num_read * expert * 2,
           2 * expert * (double)pairs);
    snprintf(what, sizeof what, "route %u tokens to %d of %d", num_tokens, EXPERT_TOP, EXPERTS);
    report(bench, what, time_op(bench, route_op, &run), (double)num_tokens * EXPERTS * 4, 0);
    void *x = NULL;
    memcpy(&x, &run.args.x, sizeof x); // without the const
    cpu_memory_free(x), cpu_memory_free(run.args.out), cpu_memory_free(run.args.scratch);
    cpu_memory_free(weights);
    free(run.ids);
}

static void bench_all_experts(struct bench *bench) {
    struct experts *experts = make_experts(bench);
    const uint32_t num_tokens[] = {1, 2, 8, 64, 512, 2048};
    for (size_t i = 0; i < ARRAY_LEN(num_tokens); i++) bench_experts(bench, experts, num_tokens[i]);
    bench->backend->moe->experts_destroy(bench->backend, experts);
}

static void attention_op(struct bench *bench, void *arg) {
    bench->backend->ops->attention(bench->backend, arg);
}

static void prepare_op(struct bench *bench, void *arg) {
    bench->backend->ops->attention_prepare(bench->backend, arg);
}

// Sequences with Qwen3-0.6B's heads, `query` new tokens each, the last at position context - 1.
static void bench_attention(struct bench *bench, uint32_t num_seqs, uint32_t query,
                            uint32_t context) {
    enum {
        HEADS = 16,
        KV_HEADS = 8,
        HEAD_DIM = 128,
        BLOCK = 16,
        ROW = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    };
    uint32_t stride = (context + BLOCK - 1) / BLOCK, tokens = num_seqs * query;
    const struct kv_cache_spec spec = {.num_layers = 1,
                                       .num_blocks = num_seqs * stride,
                                       .block_size = BLOCK,
                                       .num_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .num_heads = HEADS,
                                       .limits = {.max_num_tokens = tokens,
                                                  .max_num_seqs = num_seqs,
                                                  .max_positions = context,
                                                  .max_blocks_per_seq = stride},
                                       .dtype = bench->kv_dtype};
    struct kv_cache *cache = NULL;
    if (bench->backend->ops->kv_cache_create(bench->backend, &spec, &cache, NULL) != OK)
        checked(NULL);
    float *qkv = bench_alloc(bench, (size_t)tokens * ROW * sizeof *qkv);
    float *out = bench_alloc(bench, (size_t)tokens * HEADS * HEAD_DIM * sizeof *out);
    float *rope = bench_alloc(bench, (size_t)context * HEAD_DIM * sizeof *rope);
    float *norm = bench_alloc(bench, HEAD_DIM * sizeof *norm);
    int32_t *tables = checked(calloc((size_t)num_seqs * stride, sizeof *tables));
    int32_t *positions = checked(calloc(tokens, sizeof *positions));
    int32_t *slots = checked(calloc(tokens, sizeof *slots));
    int32_t *query_start = checked(calloc(num_seqs + 1, sizeof *query_start));
    int32_t *context_len = checked(calloc(num_seqs, sizeof *context_len));
    int32_t *table_row = checked(calloc(num_seqs, sizeof *table_row));
    for (uint32_t i = 0; i < num_seqs * stride; i++) tables[i] = (int32_t)i;
    for (uint32_t i = 0; i < tokens; i++) {
        positions[i] = (int32_t)(context - query + i % query);
    }
    for (uint32_t s = 0; s < num_seqs; s++) {
        query_start[s + 1] = (int32_t)((s + 1) * query);
        context_len[s] = (int32_t)context;
        table_row[s] = (int32_t)s;
    }
    const struct step step = {.num_tokens = tokens,
                              .num_seqs = num_seqs,
                              .table_stride = stride,
                              .max_query_len = query,
                              .max_context_len = context,
                              .positions = positions,
                              .slot_mapping = slots,
                              .query_start = query_start,
                              .context_len = context_len,
                              .block_tables = tables,
                              .table_row = table_row};
    struct attention_args attention = {.step = &step,
                                       .cache = cache,
                                       .num_heads = HEADS,
                                       .num_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .qkv = qkv,
                                       .out = out,
                                       .q_norm = norm,
                                       .k_norm = norm,
                                       .rope = rope,
                                       .eps = 1e-6f,
                                       .scale = 0.088f};
    // Writes every position. Otherwise the whole cache would be the kernel's one page of zeros.
    for (int32_t back = 0; back < (int32_t)context; back += (int32_t)query) {
        for (uint32_t i = 0; i < tokens; i++) {
            int32_t position = (int32_t)(i % query) + back;
            slots[i] = (int32_t)(i / query * stride * BLOCK) + position % (int32_t)context;
        }
        bench->backend->ops->attention_prepare(bench->backend, &attention);
    }
    // Pairs of a query and a position that it sees: q k and p v are 2 operations per dimension
    // each.
    double pairs = (double)num_seqs * query * (context - (query - 1) / 2.0);
    double block_bytes = (double)bench->backend->ops->kv_cache_block_bytes(bench->backend, &spec);
    double kv_bytes = (double)num_seqs * context / BLOCK * block_bytes;
    char what[64];
    snprintf(what, sizeof what, "attention %u x %u, context %u, %s", num_seqs, query, context,
             dtype_name(bench->kv_dtype));
    report(bench, what, time_op(bench, attention_op, &attention), kv_bytes,
           pairs * HEADS * HEAD_DIM * 4);
    snprintf(what, sizeof what, "attention_prepare %u tokens", tokens);
    report(bench, what, time_op(bench, prepare_op, &attention), (double)tokens * ROW * 4, 0);
    bench->backend->ops->kv_cache_destroy(bench->backend, cache);
    cpu_memory_free(qkv), cpu_memory_free(out), cpu_memory_free(rope), cpu_memory_free(norm);
    free(tables);
    free(positions), free(slots), free(query_start), free(context_len), free(table_row);
}

static void rms_norm_op(struct bench *bench, void *arg) {
    bench->backend->ops->rms_norm(bench->backend, arg);
}

static void silu_mul_op(struct bench *bench, void *arg) {
    bench->backend->ops->silu_mul(bench->backend, arg);
}

static void bench_rows(struct bench *bench, uint32_t rows) {
    enum { HIDDEN = 1024, INTERMEDIATE = 3072 };
    float *x = bench_alloc(bench, (size_t)rows * 2 * INTERMEDIATE * sizeof *x);
    float *residual = bench_alloc(bench, (size_t)rows * HIDDEN * sizeof *residual);
    float *out = bench_alloc(bench, (size_t)rows * INTERMEDIATE * sizeof *out);
    float *weight = bench_alloc(bench, HIDDEN * sizeof *weight);
    struct rms_norm_args norm = {.x = x,
                                 .residual = residual,
                                 .weight = weight,
                                 .out = out,
                                 .rows = rows,
                                 .cols = HIDDEN,
                                 .eps = 1e-6f};
    struct silu_mul_args silu = {x, out, rows, INTERMEDIATE, false};
    char what[64];
    snprintf(what, sizeof what, "rms_norm + residual [%u][%d]", rows, HIDDEN);
    report(bench, what, time_op(bench, rms_norm_op, &norm), (double)rows * HIDDEN * 8, 0);
    snprintf(what, sizeof what, "silu_mul [%u][%d]", rows, INTERMEDIATE);
    report(bench, what, time_op(bench, silu_mul_op, &silu), (double)rows * INTERMEDIATE * 8, 0);
    cpu_memory_free(x), cpu_memory_free(residual), cpu_memory_free(out), cpu_memory_free(weight);
}

// Qwen3's vocabulary; the length of a penalized sequence.
enum { SAMPLE_VOCAB = 151936, SAMPLE_ROWS = 32, SAMPLE_PROMPT = 1000 };

static void sample_op(struct bench *bench, void *arg) {
    bench->backend->sampler->sample(bench->backend, arg);
}

// A sampled row's bound is reading its logits once.
static void bench_sample(struct bench *bench, struct token_counts *counts, const float *logits,
                         uint32_t num_rows, const char *name, struct sample_row how) {
    struct sample_row rows[SAMPLE_ROWS];
    struct sample_result results[SAMPLE_ROWS];
    size_t floats = bench->backend->sampler->scratch_floats(bench->backend, SAMPLE_VOCAB, num_rows);
    struct sample_args args = {.logits = logits,
                               .rows = rows,
                               .counts = counts,
                               .results = results,
                               .num_rows = num_rows,
                               .vocab_size = SAMPLE_VOCAB,
                               .scratch = bench_alloc(bench, floats * sizeof(float))};
    for (uint32_t row = 0; row < num_rows; row++) {
        rows[row] = how;
        rows[row].seed_low = row;
        if (how.counts_slot) rows[row].counts_slot = row + 1;
    }
    char what[64];
    snprintf(what, sizeof what, "sample %u x %d, %s", num_rows, SAMPLE_VOCAB, name);
    report(bench, what, time_op(bench, sample_op, &args), (double)num_rows * SAMPLE_VOCAB * 4, 0);
    cpu_memory_free(args.scratch);
}

// Logits as of a trained model: nearly a normal distribution, and a few far above it.
static void fill_logits(float *logits, size_t count) {
    uint32_t random = 1;
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int part = 0; part < 4; part++) {
            random = random * 1664525u + 1013904223u;
            sum += (float)(random >> 8) * 0x1p-24f - 0.5f;
        }
        logits[i] = 4.0f * sum;
        if (i % 9973 == 17) logits[i] += 12.0f;
    }
}

static void bench_all_samples(struct bench *bench) {
    static const struct {
        const char *name;
        struct sample_row how;
    } cases[] = {
        {"greedy", {.top_p = 1, .num_top = -1}},
        {"greedy, 5 logprobs", {.top_p = 1, .num_top = 5}},
        {"temperature", {.temperature = 0.7f, .top_p = 1, .num_top = -1}},
        {"top_k 20", {.temperature = 0.7f, .top_p = 1, .top_k = 20, .num_top = -1}},
        {"top_k 20, top_p", {.temperature = 0.7f, .top_p = 0.8f, .top_k = 20, .num_top = -1}},
        {"top_p", {.temperature = 0.7f, .top_p = 0.8f, .num_top = -1}},
        {"penalties",
         {.top_p = 1,
          .num_top = -1,
          .counts_slot = 1,
          .repetition_penalty = 1.1f,
          .presence_penalty = 0.5f}},
    };
    const uint32_t num_rows[] = {1, SAMPLE_ROWS};
    float *logits = bench_alloc(bench, (size_t)SAMPLE_ROWS * SAMPLE_VOCAB * sizeof *logits);
    fill_logits(logits, (size_t)SAMPLE_ROWS * SAMPLE_VOCAB);
    struct token_counts *counts = NULL;
    const struct backend_sampler *sampler = bench->backend->sampler;
    if (sampler->counts_create(bench->backend, SAMPLE_ROWS, SAMPLE_VOCAB, SAMPLE_PROMPT, &counts,
                               NULL) != OK) {
        checked(NULL);
    }
    int32_t ids[SAMPLE_PROMPT];
    for (int32_t i = 0; i < SAMPLE_PROMPT; i++) ids[i] = i * 149;
    for (uint32_t slot = 1; slot <= SAMPLE_ROWS; slot++) {
        sampler->counts_begin(bench->backend, counts, slot, ids, SAMPLE_PROMPT / 2, SAMPLE_PROMPT);
    }
    for (size_t r = 0; r < ARRAY_LEN(num_rows); r++) {
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            bench_sample(bench, counts, logits, num_rows[r], cases[i].name, cases[i].how);
        }
    }
    sampler->counts_destroy(bench->backend, counts);
    cpu_memory_free(logits);
}

static void bench_all_linears(struct bench *bench) {
    const uint32_t shapes[][2] = {{4096, 1024}, {6144, 1024}, {1024, 2048}, {1024, 3072}};
    const uint32_t rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            bench_linear(bench, shapes[s][0], shapes[s][1], rows[r]);
        }
    }
    bench_linear(bench, 151936, 1024, 1);
}

static void bench_all_attention(struct bench *bench) {
    bench->kv_dtype = DTYPE_F32;
    bench_attention(bench, 1, 512, 4096);
    bench_attention(bench, 1, 1, 4096);
    const enum dtype narrow[] = {DTYPE_BF16, DTYPE_I8};
    for (size_t i = 0; i < ARRAY_LEN(narrow); i++) {
        bench->kv_dtype = narrow[i];
        bench_attention(bench, 1, 512, 512);
        bench_attention(bench, 1, 512, 4096);
        bench_attention(bench, 1, 1, 4096);
        bench_attention(bench, 1, 1, 16000);
        bench_attention(bench, 32, 1, 1024);
    }
}

static bool is_wanted(const char *group, const char *name) {
    return !group || strcmp(group, name) == 0;
}

static void refuse(const char *argument, const char *want) {
    fprintf(stderr, "bench_ops: \"%s\", want %s\n", argument, want);
    exit(2);
}

static int number_of(const char *text, long least, const char *want) {
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (!*text || *end || number < least || number > INT32_MAX) refuse(text, want);
    return (int)number;
}

static void check_group(const char *group) {
    static const char *const groups[] = {"linear", "experts", "attention", "rows",
                                         "sample", "int8",    "int4"};
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        if (strcmp(group, groups[i]) == 0) return;
    }
    refuse(group, "linear, experts, attention, rows, sample, int8 or int4");
}

int main(int argc, char **argv) {
    struct backend_options options = {
        .device = "cpu",
        .cpu_isa = argc > 1 ? argv[1] : "auto",
        .threads = argc > 2 ? number_of(argv[2], 0, "a number of threads, 0 for all cores") : 0,
        .weight_dtype = DTYPE_BF16,
    };
    struct bench bench = {.turns = argc > 3 ? number_of(argv[3], 1, "at least 1 turn") : 40};
    const char *group = argc > 4 ? argv[4] : NULL;
    if (group) check_group(group);
    if (group && strcmp(group, "int8") == 0) bench.format = WEIGHTS_INT8;
    if (group && strcmp(group, "int4") == 0) bench.format = WEIGHTS_INT4;
    if (bench.format.bits) group = "linear";
    struct err err = {0};
    if (backend_create(&bench.backend, &options, &err) != OK) {
        fprintf(stderr, "bench_ops: %s\n", err.message);
        return 1;
    }
    bench.cpu = cpu_backend_of(bench.backend);
    bench.isa = bench.cpu->kernels.isa;
    bench.memory = checked(cpu_memory_alloc(READ_BYTES));
    thread_pool_for(bench.cpu->pool, READ_BYTES / READ_ITEM, touch_item, &bench);
    for (int turn = 0; turn < bench.turns; turn++) measure_machine(&bench);
    printf("%s: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench.backend->description,
           bench.read_rate * 1e-9, bench.fma_rate * 1e-9);

    if (is_wanted(group, "linear")) bench_all_linears(&bench);
    if (is_wanted(group, "experts")) bench_all_experts(&bench);
    if (is_wanted(group, "attention")) bench_all_attention(&bench);
    if (is_wanted(group, "rows")) {
        bench_rows(&bench, 1);
        bench_rows(&bench, 512);
    }
    if (is_wanted(group, "sample")) bench_all_samples(&bench);
    printf("at the end: read %.2f GB/s, FMA %.1f GFLOP/s\n", bench.read_rate * 1e-9,
           bench.fma_rate * 1e-9);
    cpu_memory_free(bench.memory);
    backend_destroy(bench.backend);
    return 0;
}
