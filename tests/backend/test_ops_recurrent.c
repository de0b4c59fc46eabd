// Linear attention against double precision, with guard bytes around every output. Cut into steps,
// with other sequences beside it and with more threads it must give the same bits.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops_util.h"

enum { TOKENS_MAX = 40, SLOTS = 3 };

static const struct shape {
    uint32_t num_heads, num_kv_heads, head_dim;
    bool is_normed;
} shapes[] = {{4, 2, 16, false}, {3, 3, 48, true}, {8, 1, 64, true}, {2, 2, 128, false}};

static const float scale = 0.25f, eps = 1e-6f;

struct run {
    const struct shape *shape;
    struct backend *backend;
    float *qkv, *scratch; // [TOKENS_MAX][stride]; the op norms its copy
    float *q_norm, *k_norm;
    float *out; // [TOKENS_MAX][heads * dim]
    float *states; // [SLOTS][slot_floats]
    size_t slot_floats, stride, width;
};

static struct run run_create(const struct shape *shape, const char *isa, int threads) {
    struct run run = {.shape = shape, .backend = ops_backend(isa, threads, DTYPE_BF16)};
    uint32_t dim = shape->head_dim;
    run.width = (size_t)shape->num_heads * dim;
    run.stride = run.width + 2 * (size_t)shape->num_kv_heads * dim;
    size_t bytes =
        run.backend->recurrent->linear_attention_bytes(run.backend, shape->num_kv_heads, dim);
    assert_int_equal(bytes % 64, 0);
    run.slot_floats = bytes / sizeof(float);
    run.qkv = ops_guard_alloc(TOKENS_MAX * run.stride);
    run.scratch = ops_guard_alloc(TOKENS_MAX * run.stride);
    run.out = ops_guard_alloc(TOKENS_MAX * run.width);
    run.states = ops_guard_alloc(SLOTS * run.slot_floats); // NaN: nobody clears slots
    run.q_norm = ops_guard_alloc(dim);
    run.k_norm = ops_guard_alloc(dim);
    struct ops_rng rng = ops_rng_of(dim);
    ops_rng_fill(&rng, run.qkv, TOKENS_MAX * run.stride);
    ops_rng_fill(&rng, run.q_norm, dim);
    ops_rng_fill(&rng, run.k_norm, dim);
    return run;
}

static void run_destroy(struct run *run) {
    ops_guard_free(run->qkv, TOKENS_MAX * run->stride);
    ops_guard_free(run->scratch, TOKENS_MAX * run->stride);
    ops_guard_free(run->out, TOKENS_MAX * run->width);
    ops_guard_free(run->states, SLOTS * run->slot_floats);
    ops_guard_free(run->q_norm, run->shape->head_dim);
    ops_guard_free(run->k_norm, run->shape->head_dim);
    backend_destroy(run->backend);
}

// A step of sequences whose queries are the run's tokens in order; each begins at starts[s].
static void attend(struct run *run, const int32_t *query_start, const int32_t *starts,
                   uint32_t num_seqs, const int32_t *slots) {
    int32_t context_len[SLOTS];
    for (uint32_t s = 0; s < num_seqs; s++) {
        context_len[s] = starts[s] < 0 ? 0 : starts[s] + query_start[s + 1] - query_start[s];
    }
    struct step step = {.num_tokens = (uint32_t)query_start[num_seqs],
                        .num_seqs = num_seqs,
                        .table_rows = SLOTS,
                        .query_start = (int32_t *)(uintptr_t)query_start,
                        .context_len = context_len,
                        .table_row = (int32_t *)(uintptr_t)slots};
    bool is_normed = run->shape->is_normed;
    const struct linear_attention_args args = {.step = &step,
                                               .states = run->states,
                                               .num_heads = run->shape->num_heads,
                                               .num_kv_heads = run->shape->num_kv_heads,
                                               .head_dim = run->shape->head_dim,
                                               .qkv = run->scratch,
                                               .out = run->out,
                                               .q_norm = is_normed ? run->q_norm : NULL,
                                               .k_norm = is_normed ? run->k_norm : NULL,
                                               .eps = eps,
                                               .scale = scale};
    run->backend->recurrent->linear_attention(run->backend, &args);
}

static void norm(const float *x, const float *weight, double *out, uint32_t dim) {
    double mean = 0;
    for (uint32_t i = 0; i < dim; i++) mean += (double)x[i] * (double)x[i] / dim;
    double factor = weight ? 1 / sqrt(mean + (double)eps) : 1;
    for (uint32_t i = 0; i < dim; i++) {
        out[i] = (double)x[i] * factor * (weight ? (double)weight[i] : 1);
    }
}

// out_t = scale * sum over u <= t of (q_t k_u) v_u.
static void oracle(const struct run *run, uint32_t num_tokens, double *out) {
    uint32_t dim = run->shape->head_dim, heads = run->shape->num_heads;
    uint32_t kv_heads = run->shape->num_kv_heads;
    double *q = malloc(2 * dim * sizeof *q), *k = q + dim;
    assert_non_null(q);
    memset(out, 0, num_tokens * run->width * sizeof *out);
    for (uint32_t t = 0; t < num_tokens; t++) {
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t kv_head = h / (heads / kv_heads);
            double *to = out + t * run->width + (size_t)h * dim;
            norm(run->qkv + t * run->stride + (size_t)h * dim,
                 run->shape->is_normed ? run->q_norm : NULL, q, dim);
            for (uint32_t u = 0; u <= t; u++) {
                const float *row = run->qkv + u * run->stride;
                const float *v = row + (size_t)(heads + kv_heads + kv_head) * dim;
                norm(row + (size_t)(heads + kv_head) * dim,
                     run->shape->is_normed ? run->k_norm : NULL, k, dim);
                double score = 0;
                for (uint32_t i = 0; i < dim; i++) score += q[i] * k[i];
                for (uint32_t i = 0; i < dim; i++) to[i] += (double)scale * score * (double)v[i];
            }
        }
    }
    free(q);
}

static void test_matches_double_precision(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct run run = run_create(&shapes[i], *state, 2);
        double *want = malloc(TOKENS_MAX * run.width * sizeof *want);
        assert_non_null(want);
        oracle(&run, TOKENS_MAX, want);
        memcpy(run.scratch, run.qkv, TOKENS_MAX * run.stride * sizeof *run.qkv);
        attend(&run, (const int32_t[]){0, TOKENS_MAX}, (const int32_t[]){0}, 1,
               (const int32_t[]){1});
        assert_nmse(run.out, want, TOKENS_MAX * run.width, 1e-11);
        free(want);
        run_destroy(&run);
    }
}

// The first tokens go through slot 2 in three steps, beside a sequence in slot 0 and padding that
// names slot 2 as well.
static void test_same_bits_however_steps_are_cut(void **state) {
    static const int32_t ends[] = {0, 1, 17, 30};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct run whole = run_create(&shapes[i], *state, 1);
        struct run cut = run_create(&shapes[i], *state, 3);
        memcpy(whole.scratch, whole.qkv, TOKENS_MAX * whole.stride * sizeof *whole.qkv);
        attend(&whole, (const int32_t[]){0, 30}, (const int32_t[]){0}, 1, (const int32_t[]){1});
        for (int step = 0; step < 3; step++) {
            int32_t begin = ends[step], num = ends[step + 1] - begin;
            size_t row = cut.stride * sizeof *cut.qkv;
            memcpy(cut.scratch, cut.qkv + (size_t)begin * cut.stride, (size_t)num * row);
            memcpy(cut.scratch + (size_t)num * cut.stride, cut.qkv, 2 * row); // the other, padding
            attend(&cut, (const int32_t[]){0, num, num + 1, num + 2},
                   (const int32_t[]){begin, 0, -1}, 3, (const int32_t[]){2, 0, 2});
            ops_assert_same_bits(cut.out, whole.out + (size_t)begin * whole.width, (size_t)num,
                                 cut.width, "outputs");
        }
        assert_true(isfinite(whole.states[whole.slot_floats])); // it was in slot 1
        ops_assert_same_bits(cut.states + 2 * cut.slot_floats, whole.states + whole.slot_floats, 1,
                             whole.slot_floats, "states");
        run_destroy(&whole);
        run_destroy(&cut);
    }
}

int main(void) {
    static const struct ops_case cases[] = {
        {"linear attention matches double precision", test_matches_double_precision, ISA_ROWS},
        {"linear attention: same bits however steps are cut", test_same_bits_however_steps_are_cut,
         ISA_ROWS},
    };
    return ops_run("recurrent", cases, ARRAY_LEN(cases));
}
