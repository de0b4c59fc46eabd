/* Compares the CUDA backend's fused `layers` with the scalar kernels' separate ops, composed as in
 * src/model. The cache is filled as by an engine: blocks are scattered over a cache of NaN, and
 * attention_prepare writes the past. Each work runs two steps. The second reads what the first
 * wrote to the cache.
 *
 * Bounds: a layer rounds 10 numbers to bfloat16: both norms' results, qkv, q and k after rotation,
 * the weights of positions, attended, activated, and the residual twice. Each adds about BF16_NMSE
 * to the residual, because the gains make a layer's parts about as large as it is; layers add up.
 * Half as much again is allowed for rows of few numbers, where a single one weighs more. With most
 * of these roundings added to the CPU's kernels, the inputs here gave a fifth of the bound on
 * average and 0.57 of it at worst. A wrong head, or 8 outputs of a product that are zero, give
 * several times the bound. ELEMENT catches most single wrong numbers. One wrong position of 1,500
 * stays below the bound, so another test counts positions exactly. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_decode_util.h"
#include "base/compiler.h"

// Roundings per layer, with the allowance for few numbers. NMSE is per row.
#define ROUNDINGS 15
// Largest error of one number of a row, relative to the row's root mean square.
#define ELEMENT 0.08

static const struct shape shapes[] = {
    {2, 128, 64, 1, 1, 64, 16, false, false, false},
    {3, 128, 192, 4, 2, 64, 16, true, true, false},
    {2, 448, 1088, 8, 1, 64, 48, false, true, false},
    {3, 448, 192, 14, 2, 64, 16, false, true, false},
    {2, 1024, 3072, 16, 8, 128, 16, true, false, false},
    {2, 1536, 4864, 8, 1, 128, 256, true, true, false},
    {2, 2560, 4864, 32, 8, 128, 16, true, false, false},
    {3, 1024, 1088, 4, 2, 128, 48, false, true, false},
    {2, 1536, 64, 14, 2, 64, 256, true, false, false},
    {2, 2560, 1088, 32, 8, 64, 48, false, true, false},
    {3, 1024, 192, 1, 1, 128, 256, true, true, false},
    {3, 448, 3072, 16, 8, 64, 16, false, false, false},
    {2, 1024, 64, 16, 16, 64, 16, true, false, false}, // so many units that splits are long
};

enum { WORKS = 4 }; // per number of rows

static const struct work works[SEQS][WORKS] = {
    {{1, {1}}, {1, {1500}}, {1, {130}}, {1, {128}}},
    {{2, {2, 129}}, {2, {17, 511}}, {2, {0, 1500}}, {2, {700, 127}}},
    {{3, {127, 1, 700}}, {3, {700, 0, 1}}, {3, {130, 128, 2}}, {3, {1500, 1500, 17}}},
    {{4, {128, 130, 2, 1500}},
     {4, {0, 17, 0, 129}},
     {4, {511, 1500, 700, 129}},
     {4, {1, 2, 127, 128}}},
};

// The residual from the scalar kernels for rows whose results are used; zeros for the others.
static float *want_of(const struct run *run, const struct decodes *decodes) {
    uint32_t hidden = run->model->shape->hidden;
    size_t row_bytes = hidden * sizeof(float);
    struct decodes wanted = {.residual = test_alloc(decodes->rows * row_bytes)};
    for (uint32_t r = 0; r < decodes->rows; r++) {
        if (!decodes->context[r]) continue;
        wanted.seq[wanted.rows] = decodes->seq[r];
        wanted.context[wanted.rows] = decodes->context[r];
        memcpy(wanted.residual + (size_t)wanted.rows++ * hidden,
               decodes->residual + (size_t)r * hidden, row_bytes);
    }
    float *few = one_by_one(run, &wanted), *all = test_alloc(decodes->rows * row_bytes);
    for (uint32_t r = 0, from = 0; r < decodes->rows; r++) {
        if (!decodes->context[r]) continue;
        memcpy(all + (size_t)r * hidden, few + (size_t)from++ * hidden, row_bytes);
    }
    free(few);
    free(wanted.residual);
    return all;
}

static void check_row(const struct shape *s, const struct decodes *decodes, uint32_t number,
                      uint32_t r, const float *got, const float *want) {
    char what[160];
    double squares = 0;
    for (uint32_t i = 0; i < s->hidden; i++) squares += (double)want[i] * (double)want[i];
    double limit = ELEMENT * sqrt(squares / s->hidden), nmse = ops_nmse_f32(got, want, s->hidden);
    snprintf(what, sizeof what, "hidden %u, %u, %u heads over %u of %u: row %u of %u, step %u, %u",
             s->hidden, s->intermediate, s->num_heads, s->num_kv_heads, s->head_dim, r,
             decodes->rows, number, decodes->context[r]);
    if (!(nmse <= s->num_layers * ROUNDINGS * BF16_NMSE)) fail_msg("%s: nmse %g", what, nmse);
    for (uint32_t i = 0; i < s->hidden; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (off <= limit) continue;
        fail_msg("%s: number %u is %g, want %g", what, i, (double)got[i], (double)want[i]);
    }
}

// In the second step the scratch memory overlaps.
static void check_work(const struct model models[2], const struct work *work) {
    const struct shape *s = models[0].shape;
    struct run scalar = run_start(&models[0], work), device = run_start(&models[1], work);
    for (uint32_t number = 0; number < STEPS; number++) {
        struct decodes decodes = decodes_make(&scalar, number, work->num_seqs, 500 + number);
        float *want = want_of(&scalar, &decodes),
              *got = all_at_once(&device, &decodes, number == 1);
        for (uint32_t r = 0; r < decodes.rows; r++) {
            size_t at = (size_t)r * s->hidden;
            if (decodes.context[r]) check_row(s, &decodes, number, r, got + at, want + at);
        }
        free(got);
        free(want);
        free(decodes.residual);
    }
    run_end(&device);
    run_end(&scalar);
}

static void test_layers(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct model models[2];
        models_make(*state, &shapes[i], models);
        bool is_there = can_decode(&models[1], SEQS);
        // Neighbouring shapes differ. With 13 shapes, every work runs with a small and a large one.
        for (size_t rows = 0; is_there && rows < SEQS; rows++) {
            check_work(models, &works[rows][(i + rows) % WORKS]);
            check_work(models, &works[rows][(i + rows + 1) % WORKS]);
        }
        models_free(models);
    }
}

// A result is the number of visible positions with a 1 in its dimension, divided by the number of
// visible positions, summed over layers. All weights are zero except o, the identity. All visible
// positions weigh alike, and the residual starts as zeros. The values of the steps' own tokens are
// ones.
static void check_counted(const struct shape *s, const float *got, uint32_t past, uint32_t ones) {
    uint32_t group = s->num_heads / s->num_kv_heads, visible = past + ones;
    for (uint32_t i = 0; i < s->hidden; i++) {
        uint32_t head = i / s->head_dim, count = ones * s->num_layers;
        for (uint32_t l = 0; l < s->num_layers; l++) {
            for (uint32_t p = 0; p < past; p++) {
                count += counts_in(p, head / group, l, i % s->head_dim, s->head_dim);
            }
        }
        float want = (float)count / (float)visible;
        if (!(fabsf(got[i] - want) <= want / 128)) {
            fail_msg("head %u of %u of %u, blocks of %u: %g of %u positions, want %u", head,
                     s->num_heads, s->head_dim, s->block_size, (double)(got[i] * (float)visible),
                     visible, count);
        }
    }
}

static void test_every_position_counts_once(void **state) {
    static const struct shape counting[] = {
        {2, 128, 64, 2, 1, 64, 16, false, false, true},
        {2, 896, 64, 14, 2, 64, 48, true, false, true},
        {2, 2048, 64, 16, 8, 128, 256, false, false, true},
        {2, 1024, 64, 8, 1, 128, 16, true, false, true},
        {2, 1024, 64, 16, 16, 64, 16, false, false, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(counting) * SEQS * WORKS; i++) {
        const struct shape *s = &counting[i / (SEQS * WORKS)];
        const struct work *work = &works[i / WORKS % SEQS][i % WORKS];
        struct model models[2];
        models_make(*state, s, models);
        if (can_decode(&models[1], work->num_seqs)) {
            struct run run = run_start(&models[1], work);
            for (uint32_t number = 0; number < STEPS; number++) {
                struct decodes decodes = decodes_make(&run, number, work->num_seqs, 1);
                float *got = all_at_once(&run, &decodes, false);
                for (uint32_t r = 0; r < decodes.rows; r++) {
                    if (!decodes.context[r]) continue;
                    check_counted(s, got + (size_t)r * s->hidden, work->context[r] - 1, number + 1);
                }
                free(got);
                free(decodes.residual);
            }
            run_end(&run);
        }
        models_free(models);
    }
}

// A step of tokens without a slot changes no bit of later steps. Slot -1 would lie in the cache's
// last block, which is part of the first sequence's past.
static void test_skipped_slots(void **state) {
    static const struct work work = {3, {300, 33, 128}};
    for (size_t i = 1; i < ARRAY_LEN(shapes); i += 3) {
        struct model models[2];
        models_make(*state, &shapes[i], models);
        if (can_decode(&models[1], work.num_seqs)) {
            struct run plain = run_start(&models[1], &work), other = run_start(&models[1], &work);
            struct decodes skipped = decodes_make(&other, 0, work.num_seqs, 7);
            skipped.no_slots = true;
            free(all_at_once(&other, &skipped, false));
            free(skipped.residual);
            for (uint32_t number = 0; number < STEPS; number++) {
                struct decodes decodes = decodes_make(&plain, number, work.num_seqs, 8 + number);
                float *want = all_at_once(&plain, &decodes, false);
                float *got = all_at_once(&other, &decodes, false);
                ops_assert_same_bits(got, want, decodes.rows, shapes[i].hidden, "after no slots");
                free(got);
                free(want);
                free(decodes.residual);
            }
            run_end(&other);
            run_end(&plain);
        }
        models_free(models);
    }
}

// Calls of several kinds in turn. Each has its own number of rows and residual; the sequences are
// the same.
enum { CALLS = 50, KINDS = 12 };

struct calls {
    const struct run *run;
    struct scratch scratch;
    struct batch batches[CALLS];
    void *residuals[CALLS]; // the residuals at the start
    float *results[KINDS]; // of the first call of each kind
};

static uint32_t rows_of_kind(uint32_t kind) {
    return 1 + (kind * 3 + kind / SEQS) % SEQS;
}

static struct calls calls_make(const struct run *run) {
    struct calls calls = {.run = run, .scratch = scratch_make(run, SEQS, false)};
    for (uint32_t i = 0; i < CALLS; i++) {
        struct decodes decodes = decodes_make(run, 0, rows_of_kind(i % KINDS), 600 + i % KINDS);
        calls.batches[i] = batch_make(run, &decodes);
        calls.residuals[i] = test_alloc(calls.batches[i].residual.bytes);
        tensor_read_raw(&calls.batches[i].residual, calls.residuals[i]);
        free(decodes.residual);
    }
    return calls;
}

static void calls_free(struct calls *calls) {
    for (uint32_t i = 0; i < CALLS; i++) {
        batch_free(&calls->batches[i]);
        free(calls->residuals[i]);
    }
    for (uint32_t i = 0; i < KINDS; i++) free(calls->results[i]);
    scratch_free(&calls->scratch);
}

static void enqueue_calls(const struct calls *calls) {
    for (uint32_t i = 0; i < CALLS; i++) {
        run_layers(calls->run, &calls->batches[i], &calls->scratch);
    }
}

// Runs all calls without a pause, as a graph if there is one. All calls of a kind must give the
// same bits, in this run and in the last.
static void check_calls(struct calls *calls, struct backend_graph *graph) {
    struct backend *backend = calls->run->model->backend;
    for (uint32_t i = 0; i < CALLS; i++) {
        const struct tensor *residual = &calls->batches[i].residual;
        backend->ops->upload(backend, residual->dev, calls->residuals[i], residual->bytes);
    }
    if (graph) {
        backend->queue->graph_launch(backend, graph);
    } else {
        enqueue_calls(calls);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        float *got = tensor_read(&calls->batches[i].residual), **first = &calls->results[i % KINDS];
        if (*first) {
            char what[64];
            snprintf(what, sizeof what, "call %u%s", i, graph ? " of a graph" : "");
            ops_assert_same_bits(got, *first, calls->batches[i].step.num_tokens,
                                 calls->run->model->shape->hidden, what);
            free(got);
        } else {
            *first = got;
        }
    }
}

static void check_recorded(struct calls *calls) {
    struct backend *backend = calls->run->model->backend;
    struct backend_graph *graph = NULL;
    struct err err = {0};
    if (!backend->queue) {
        print_message("skipped: this backend records no graphs\n");
        return;
    }
    if (backend->queue->graph_begin(backend, &err)) fail_msg("%s", err.message);
    enqueue_calls(calls);
    if (backend->queue->graph_end(backend, &graph, &err)) {
        fail_msg("%s", err.message);
    }
    check_calls(calls, graph);
    check_calls(calls, graph);
    backend->queue->graph_destroy(backend, graph);
}

static void test_same_bits_every_time(void **state) {
    static const struct work work = {SEQS, {1500, 129, 17, 700}};
    static const size_t which[] = {1, 4, 12};
    for (size_t i = 0; i < ARRAY_LEN(which); i++) {
        struct model models[2];
        models_make(*state, &shapes[which[i]], models);
        if (can_decode(&models[1], SEQS)) {
            struct run run = run_start(&models[1], &work);
            struct calls calls = calls_make(&run);
            check_calls(&calls, NULL);
            check_calls(&calls, NULL);
            check_recorded(&calls);
            calls_free(&calls);
            run_end(&run);
        }
        models_free(models);
    }
}

// The same work with another fused model of the same layers.
static void check_model_refused(const struct model *model, const struct work *work, bool is_whole,
                                bool is_any_size, const char *what) {
    struct backend *backend = model->backend;
    struct model other = *model;
    other.fused = fused_make(model, is_whole, is_any_size);
    struct run run = run_start(&other, work);
    struct decodes decodes = decodes_make(&run, 0, work->num_seqs, 1);
    struct batch batch = batch_make(&run, &decodes);
    if (takes_layers(&run, &batch)) fail_msg("%s was taken", what);
    batch_free(&batch);
    free(decodes.residual);
    run_end(&run);
    backend->fusion->model_destroy(backend, other.fused);
}

// Refused: more rows than `layers` takes, a prompt among decodes, a rank with only a part of each
// layer, and layers too small for one kernel to be faster.
static void test_what_is_refused(void **state) {
    static const struct work work = {2, {17, 33}};
    const struct device_pair *pair = *state;
    struct model models[2];
    models_make(pair, &shapes[0], models);
    if (can_decode(&models[1], work.num_seqs)) {
        struct run run = run_start(&models[1], &work);
        struct decodes decodes = decodes_make(&run, 0, ROWS_MAX, 1);
        struct batch batch = batch_make(&run, &decodes);
        if (takes_layers(&run, &batch)) fail_msg("%s was taken", "a step of too many rows");
        batch_free(&batch);
        free(decodes.residual);
        decodes = decodes_make(&run, 0, work.num_seqs, 1);
        batch = batch_make(&run, &decodes);
        const int32_t query_start[] = {0, 2}; // both tokens belong to the first sequence
        batch.step.num_seqs = 1;
        batch.step.max_query_len = 2;
        pair->device->ops->upload(pair->device, batch.query_start.dev, query_start,
                                  sizeof query_start);
        if (takes_layers(&run, &batch)) fail_msg("%s was taken", "a step with a prompt");
        batch_free(&batch);
        free(decodes.residual);
        run_end(&run);
        check_model_refused(&models[1], &work, false, true, "a model in parts");
        check_model_refused(&models[1], &work, true, false, "a small model");
    }
    models_free(models);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),          cmocka_unit_test(test_every_position_counts_once),
        cmocka_unit_test(test_skipped_slots),   cmocka_unit_test(test_same_bits_every_time),
        cmocka_unit_test(test_what_is_refused),
    };
    return device_pair_run(argc, argv, "cuda decode layers", tests, ARRAY_LEN(tests));
}
