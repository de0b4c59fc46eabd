/* Multi-head latent attention (backend/latent.h). The rows of the cache are one KV head, so softmax
 * attention is that of other models, with 16 to 128 queries a token. A row is kept twice, as
 * attention_kernels.h wants it: as a key and as a value, whose last rope_dim elements nobody reads.
 *
 * The matrices of the heads are linears that run together, as those of experts do: a group of rows
 * for each head, of some tokens at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/ops.h"
#include "backend/latent.h"
#include "base/check.h"

struct latent {
    struct latent_shape shape;
    struct linear **keys; // [num_heads] of [rank][nope_dim]
    struct linear **values; // [num_heads] of [value_dim][rank]
};

void cpu_latent_destroy(struct backend *backend, struct latent *latent) {
    if (!latent) return;
    for (uint32_t i = 0; i < latent->shape.num_heads; i++) {
        if (latent->keys) cpu_linear_destroy(backend, latent->keys[i]);
        if (latent->values) cpu_linear_destroy(backend, latent->values[i]);
    }
    free(latent->keys);
    free(latent->values);
    free(latent);
}

enum status cpu_latent_create(struct backend *backend, const struct latent_spec *spec,
                              struct latent **out, struct err *err) {
    uint32_t heads = spec->shape.num_heads;
    enum status status = OK;
    struct latent *latent = calloc(1, sizeof *latent);
    if (!latent) return err_nomem(err, "latent attention");
    latent->shape = spec->shape;
    latent->keys = calloc(heads, sizeof(struct linear *));
    latent->values = calloc(heads, sizeof(struct linear *));
    if (!latent->keys || !latent->values) status = err_nomem(err, "latent attention");
    for (uint32_t i = 0; i < heads && !status; i++) {
        const struct linear_spec keys = {.parts = &spec->keys[i], .num_parts = 1},
                                 values = {.parts = &spec->values[i], .num_parts = 1};
        status = cpu_linear_create(backend, &keys, &latent->keys[i], err);
        if (!status) status = cpu_linear_create(backend, &values, &latent->values[i], err);
    }
    if (status) {
        cpu_latent_destroy(backend, latent);
        return status;
    }
    *out = latent;
    return OK;
}

size_t cpu_latent_bytes(const struct backend *backend, const struct latent_shape *s) {
    size_t head = cpu_linear_bytes(backend, s->rank, s->nope_dim, false, WEIGHTS_NATIVE) +
                  cpu_linear_bytes(backend, s->value_dim, s->rank, false, WEIGHTS_NATIVE);
    return head * s->num_heads;
}

// The scratch memory of a call. Its matrices run on the heads of up to chunk_tokens tokens.
struct layout {
    float *queries; // [num_tokens][num_heads][row_dim]; attention's results take their place
    float *rows; // [chunk_tokens][num_heads][rank]: input of the values' matrices
    float *results; // [num_heads][tokens of the chunk][rank, or value_dim]
    void *packed; // x of the linears
    float *x_scale;
    uint32_t *source; // [num_heads][tokens of the chunk]: the row of x
    struct linear_group *groups; // [num_heads]
    uint32_t chunk_tokens;
    size_t bytes;
};

static void *take(char *base, size_t *offset, size_t bytes) {
    void *p = base ? base + *offset : NULL;
    *offset += (bytes + 63) & ~(size_t)63;
    return p;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

// base: NULL if only the size is wanted.
static struct layout layout_of(char *base, const struct latent_shape *s, uint32_t num_tokens) {
    enum { TOKENS_MIN = 64, ROWS = 2048 }; // of a chunk: enough for all threads
    uint32_t chunk = larger(TOKENS_MIN, ROWS / s->num_heads);
    if (chunk > num_tokens) chunk = num_tokens;
    size_t rows = (size_t)chunk * s->num_heads;
    size_t depth = larger(s->rank, s->nope_dim) + (CHUNK_BYTES - 1); // the most that any kind pads
    struct layout l = {.chunk_tokens = chunk};
    l.queries = take(base, &l.bytes,
                     (size_t)num_tokens * s->num_heads * latent_row_dim(s) * sizeof *l.queries);
    l.rows = take(base, &l.bytes, rows * s->rank * sizeof *l.rows);
    l.results = take(base, &l.bytes, rows * larger(s->rank, s->value_dim) * sizeof *l.results);
    l.packed = take(base, &l.bytes, rows * depth * sizeof(float));
    l.x_scale = take(base, &l.bytes, rows * sizeof *l.x_scale);
    l.source = take(base, &l.bytes, rows * sizeof *l.source);
    l.groups = take(base, &l.bytes, s->num_heads * sizeof *l.groups);
    return l;
}

size_t cpu_latent_scratch_bytes(const struct backend *backend, const struct latent_shape *shape,
                                uint32_t num_tokens) {
    (void)backend;
    return layout_of(NULL, shape, num_tokens).bytes;
}

struct job {
    const struct cpu_kernels *kernels;
    const struct latent_args *args;
    const struct latent_shape *shape;
    struct kv_layer kv;
    struct layout layout;
    uint32_t first, num; // the chunk's tokens
};

// results = the matrix of each head times its rows of x, which is [num][num_heads][in].
static void run_heads(struct cpu_backend *cpu, const struct job *job, struct linear *const *linears,
                      const float *x) {
    const struct layout *l = &job->layout;
    uint32_t heads = job->shape->num_heads;
    for (uint32_t head = 0; head < heads; head++) {
        l->groups[head] = (struct linear_group){
            .linear = linears[head], .first_row = head * job->num, .num_rows = job->num};
        for (uint32_t i = 0; i < job->num; i++) {
            l->source[head * job->num + i] = i * heads + head;
        }
    }
    linear_run(cpu, &(struct linear_run){.groups = l->groups,
                                         .num_groups = heads,
                                         .x = x,
                                         .source = l->source,
                                         .packed = l->packed,
                                         .x_scale = l->x_scale,
                                         .out = l->results});
}

// Where the queries of a token of the chunk begin.
static float *token_queries(const struct job *job, uint32_t item) {
    size_t row = (size_t)(job->first + item) * job->shape->num_heads;
    return job->layout.queries + row * latent_row_dim(job->shape);
}

// A query's factor by its position.
static float query_factor(const struct latent_args *args, int32_t position) {
    return 1 + args->query_beta * logf(1 + floorf((float)position / args->query_length));
}

static void prepare_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const struct latent_args *args = job->args;
    const struct latent_shape *s = job->shape;
    uint32_t token = job->first + item, row_dim = latent_row_dim(s);
    int32_t slot = step_slots(args->step, args->kv_group)[token];
    int32_t position = args->step->positions[token];
    CHECK(position >= 0, "token=%u position=%d", token, position);
    const float *rope = args->rope + (size_t)position * s->rope_dim;
    const float *q_rope = (const float *)args->q_rope + (size_t)token * s->num_heads * s->rope_dim;
    float factor = args->query_beta != 0 ? query_factor(args, position) : 1;
    float *q = token_queries(job, item), *kv = (float *)args->kv + (size_t)token * row_dim;
    for (uint32_t head = 0; head < s->num_heads; head++, q += row_dim, q_rope += s->rope_dim) {
        const float *result = job->layout.results + ((size_t)head * job->num + item) * s->rank;
        memcpy(q, result, s->rank * sizeof *q);
        memcpy(q + s->rank, q_rope, s->rope_dim * sizeof *q);
        job->kernels->rope_head(q + s->rank, NULL, rope, s->rope_dim, args->eps);
        for (uint32_t i = 0; i < row_dim && factor != 1; i++) q[i] *= factor;
    }
    job->kernels->rms_norm(kv, NULL, args->norm, kv, s->rank, args->eps);
    job->kernels->rope_head(kv + s->rank, NULL, rope, s->rope_dim, args->eps);
    if (slot >= 0) kv_cache_store(job->kernels, &job->kv, (uint32_t)slot, 0, kv, kv);
}

// Copies the latents of attention's results.
static void gather_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const struct latent_shape *s = job->shape;
    const float *from = token_queries(job, item);
    float *to = job->layout.rows + (size_t)item * s->num_heads * s->rank;
    for (uint32_t head = 0; head < s->num_heads; head++) {
        memcpy(to, from, s->rank * sizeof *to);
        from += latent_row_dim(s);
        to += s->rank;
    }
}

static void put_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    uint32_t heads = job->shape->num_heads, dim = job->shape->value_dim;
    float *out = (float *)job->args->out + (size_t)(job->first + item) * heads * dim;
    for (uint32_t head = 0; head < heads; head++, out += dim) {
        const float *result = job->layout.results + ((size_t)head * job->num + item) * dim;
        memcpy(out, result, dim * sizeof *out);
    }
}

// Goes to the next chunk; false: there is none.
static bool next_chunk(struct job *job) {
    uint32_t left = job->args->step->num_tokens - job->first - job->num;
    job->first += job->num;
    job->num = left < job->layout.chunk_tokens ? left : job->layout.chunk_tokens;
    return left > 0;
}

void cpu_latent_attend(struct backend *backend, const struct latent_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    const struct latent_shape *s = &args->latent->shape;
    CHECK(args->scratch, "num_tokens=%u", args->step->num_tokens);
    struct job job = {.kernels = &cpu->kernels,
                      .args = args,
                      .shape = s,
                      .layout = layout_of(args->scratch, s, args->step->num_tokens)};
    // A token's results are written when no other item reads its queries any more.
    const struct attention_args attention = {.step = args->step,
                                             .cache = args->cache,
                                             .layer = args->layer,
                                             .kv_group = args->kv_group,
                                             .place = args->place,
                                             .num_heads = s->num_heads,
                                             .num_kv_heads = 1,
                                             .head_dim = latent_row_dim(s),
                                             .qkv = job.layout.queries,
                                             .reads_kv = true,
                                             .out = job.layout.queries,
                                             .scale = args->scale};
    job.kv = kv_cache_layer(&attention);
    if (args->layer == 0) kv_cache_touch(cpu, args->cache, args->step, args->kv_group);
    while (next_chunk(&job)) {
        size_t row = (size_t)job.first * s->num_heads;
        run_heads(cpu, &job, args->latent->keys, (const float *)args->q_nope + row * s->nope_dim);
        thread_pool_for(cpu->pool, job.num, prepare_item, &job);
    }
    cpu_attention(backend, &attention);
    job.first = job.num = 0;
    while (next_chunk(&job)) {
        thread_pool_for(cpu->pool, job.num, gather_item, &job);
        run_heads(cpu, &job, args->latent->values, job.layout.rows);
        thread_pool_for(cpu->pool, job.num, put_item, &job);
    }
}
