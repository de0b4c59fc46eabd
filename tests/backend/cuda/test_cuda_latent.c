// Compares the CUDA backend's latent attention with the scalar one, over steps that cut a sequence,
// with another one and padding beside it.
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

// Queries in latents, their rotated part, the exponentials, the sum of latents, the result, and
// rows of the cache that are rounded from other sums.
#define LATENT_NMSE (8 * BF16_NMSE)

enum { RANK = 512, ROPE = 64, ROW = RANK + ROPE };
enum { BLOCK = 16, BLOCKS = 64, TABLE_ROWS = 3, TABLE_STRIDE = 32, SEQS = 3, TOKENS = 224 };
enum { NUM_STEPS = 5, POSITIONS = TABLE_STRIDE * BLOCK, LAYERS = 2 };

static const struct latent_shape shapes[] = {{16, RANK, 128, ROPE, 128, false},
                                             {20, RANK, 192, ROPE, 256, false},
                                             {3, RANK, 64, ROPE, 64, false},
                                             {40, RANK, 64, ROPE, 128, false},
                                             {128, RANK, 128, ROPE, 128, false}};

// The last sequence is padding, which the CPU has not.
static const struct {
    int32_t query_start[SEQS + 1], context_len[SEQS];
} steps[NUM_STEPS] = {{{0, 90, 130, 131}, {90, 40, 0}},
                      {{0, 1, 31, 32}, {91, 70, 0}},
                      {{0, 1, 2, 3}, {92, 71, 0}},
                      {{0, 200, 203, 204}, {292, 74, 0}},
                      {{0, 1, 2, 3}, {293, 75, 0}}};

static const int32_t table_rows[SEQS] = {2, 0, 1};

struct inputs {
    struct latent_shape shape;
    float *keys, *values; // [heads][RANK][nope_dim], [heads][value_dim][RANK]
    float *norm, *rope; // [RANK], [POSITIONS][ROPE]
    float *q_nope, *q_rope, *kv; // [TOKENS][heads][nope_dim], [TOKENS][heads][ROPE], [TOKENS][ROW]
};

static struct inputs make_inputs(const struct latent_shape *s) {
    struct ops_rng rng = ops_rng_of(s->num_heads);
    size_t queries = (size_t)TOKENS * s->num_heads;
    return (struct inputs){
        .shape = *s,
        .keys = bf16_values(&rng, (size_t)s->num_heads * RANK * s->nope_dim, 0.1f),
        .values = bf16_values(&rng, (size_t)s->num_heads * s->value_dim * RANK, 0.1f),
        .norm = bf16_values(&rng, RANK, 2),
        .rope = bf16_values(&rng, (size_t)POSITIONS * ROPE, 1),
        .q_nope = bf16_values(&rng, queries * s->nope_dim, 1),
        .q_rope = bf16_values(&rng, queries * ROPE, 1),
        .kv = bf16_values(&rng, (size_t)TOKENS * ROW, 1),
    };
}

static void free_inputs(struct inputs *in) {
    float *all[] = {in->keys, in->values, in->norm, in->rope, in->q_nope, in->q_rope, in->kv};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

static struct matrix_slice slice_of(const float *values, uint32_t rows, uint32_t cols) {
    return (struct matrix_slice){.source = {.data = values},
                                 .dtype = DTYPE_F32,
                                 .rows = rows,
                                 .cols = cols,
                                 .row_stride = cols};
}

static struct latent *create(struct backend *backend, const struct inputs *in) {
    const struct latent_shape *s = &in->shape;
    struct matrix_slice *slices = test_alloc(2 * s->num_heads * sizeof *slices);
    for (uint32_t h = 0; h < s->num_heads; h++) {
        slices[h] = slice_of(in->keys + (size_t)h * RANK * s->nope_dim, RANK, s->nope_dim);
        slices[s->num_heads + h] =
            slice_of(in->values + (size_t)h * s->value_dim * RANK, s->value_dim, RANK);
    }
    const struct latent_spec spec = {*s, slices, slices + s->num_heads};
    struct latent *latent = NULL;
    struct err err = {0};
    if (backend->latent->create(backend, &spec, &latent, &err)) fail_msg("%s", err.message);
    if (backend->queue && backend->queue->weights_finish(backend, 0, &err)) {
        fail_msg("%s", err.message);
    }
    free(slices);
    return latent;
}

static struct kv_cache *create_cache(struct backend *backend, const struct latent_shape *s) {
    const struct kv_cache_spec spec = {.num_layers = LAYERS,
                                       .num_blocks = BLOCKS,
                                       .block_size = BLOCK,
                                       .num_kv_heads = 1,
                                       .head_dim = ROW,
                                       .num_heads = s->num_heads,
                                       .latent_rank = RANK,
                                       .limits = {.max_num_tokens = TOKENS,
                                                  .max_num_seqs = SEQS,
                                                  .max_positions = POSITIONS,
                                                  .max_blocks_per_seq = TABLE_STRIDE,
                                                  .num_kv_groups = 1}};
    struct kv_cache *cache = NULL;
    struct err err = {0};
    if (backend->ops->kv_cache_create(backend, &spec, &cache, &err)) fail_msg("%s", err.message);
    return cache;
}

// The sequences' blocks are apart and in no order.
static int32_t block_of(int32_t row, int32_t i) {
    return row == 1 ? 0 : (i * 5 + 1) % 31 * 2 + row / 2 + 1;
}

struct arrays {
    int32_t tables[TABLE_ROWS][TABLE_STRIDE], positions[TOKENS], slots[TOKENS];
};

static struct arrays arrays_of(int step, uint32_t num_seqs) {
    struct arrays out = {0};
    for (int32_t row = 0; row < TABLE_ROWS; row++) {
        for (int32_t i = 0; i < TABLE_STRIDE; i++) out.tables[row][i] = block_of(row, i);
    }
    for (uint32_t s = 0; s < num_seqs; s++) {
        int32_t begin = steps[step].query_start[s], end = steps[step].query_start[s + 1];
        for (int32_t t = begin; t < end; t++) {
            int32_t position = steps[step].context_len[s] - (end - t);
            bool is_padding = !steps[step].context_len[s];
            out.positions[t] = is_padding ? 0 : position;
            out.slots[t] = -1;
            if (is_padding) continue;
            int32_t block = block_of(table_rows[s], position / BLOCK);
            out.slots[t] = block * BLOCK + position % BLOCK;
        }
    }
    return out;
}

static float *run_step(struct backend *backend, const struct inputs *in, int i, uint32_t layer,
                       struct kv_cache *cache, const struct latent *latent,
                       struct tensor *const constants) {
    const struct latent_shape *s = &in->shape;
    uint32_t num_seqs = backend->queue ? SEQS : SEQS - 1;
    uint32_t tokens = (uint32_t)steps[i].query_start[num_seqs];
    const struct arrays arrays = arrays_of(i, num_seqs);
    size_t scratch_bytes = backend->latent->scratch_bytes(backend, s, TOKENS),
           queries = s->num_heads;
    queries *= tokens;
    struct tensor all[] = {
        tensor_of(backend, in->q_nope, queries * s->nope_dim),
        tensor_of(backend, in->q_rope, queries * ROPE),
        tensor_of(backend, in->kv, (size_t)tokens * ROW),
        tensor_nan(backend, queries * s->value_dim),
        tensor_raw(backend, NULL, scratch_bytes),
        tensor_raw(backend, arrays.tables, sizeof arrays.tables),
        tensor_raw(backend, arrays.positions, sizeof arrays.positions),
        tensor_raw(backend, arrays.slots, sizeof arrays.slots),
        tensor_raw(backend, steps[i].query_start, (num_seqs + 1) * sizeof(int32_t)),
        tensor_raw(backend, steps[i].context_len, num_seqs * sizeof(int32_t)),
        tensor_raw(backend, table_rows, sizeof table_rows),
    };
    const struct step step = {.num_tokens = tokens,
                              .num_seqs = num_seqs,
                              .table_rows = TABLE_ROWS,
                              .table_stride = TABLE_STRIDE,
                              .max_query_len = tokens,
                              .max_context_len = POSITIONS,
                              .block_tables = all[5].dev,
                              .positions = all[6].dev,
                              .slot_mapping = all[7].dev,
                              .group_tokens = tokens,
                              .query_start = all[8].dev,
                              .context_len = all[9].dev,
                              .table_row = all[10].dev};
    const struct latent_args args = {.step = &step,
                                     .cache = cache,
                                     .layer = layer,
                                     .latent = latent,
                                     .q_nope = all[0].dev,
                                     .q_rope = all[1].dev,
                                     .kv = all[2].dev,
                                     .norm = constants[0].dev,
                                     .rope = constants[1].dev,
                                     .out = all[3].dev,
                                     .scratch = all[4].dev,
                                     .eps = 1e-2f,
                                     .scale = 0.05f};
    backend->latent->attend(backend, &args);
    float *values = tensor_read(&all[3]);
    for (size_t k = 0; k < ARRAY_LEN(all); k++) tensor_free(&all[k]);
    return values;
}

static void run_on(struct backend *backend, const struct inputs *in, float *out[NUM_STEPS]) {
    struct tensor constants[] = {
        tensor_raw(backend, in->norm, RANK * sizeof(float)),
        tensor_raw(backend, in->rope, (size_t)POSITIONS * ROPE * sizeof(float))};
    struct latent *latent = create(backend, in);
    struct kv_cache *cache = create_cache(backend, &in->shape);
    for (int i = 0; i < NUM_STEPS; i++) {
        out[i] = run_step(backend, in, i, LAYERS - 1, cache, latent, constants);
    }
    backend->ops->kv_cache_destroy(backend, cache);
    backend->latent->destroy(backend, latent);
    for (size_t i = 0; i < ARRAY_LEN(constants); i++) tensor_free(&constants[i]);
}

static void test_matches(void **state) {
    const struct device_pair *pair = *state;
    if (!pair->device->latent) skip();
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct inputs in = make_inputs(&shapes[i]);
        float *want[NUM_STEPS], *got[NUM_STEPS];
        run_on(pair->scalar, &in, want);
        run_on(pair->device, &in, got);
        for (int k = 0; k < NUM_STEPS; k++) {
            size_t tokens = (size_t)steps[k].query_start[SEQS - 1]; // without padding
            size_t width = (size_t)in.shape.num_heads * in.shape.value_dim;
            double nmse = ops_nmse_f32(got[k], want[k], tokens * width);
            print_message("%u heads, step %d: %.2g\n", in.shape.num_heads, k, nmse);
            assert_true(nmse <= LATENT_NMSE);
            free(want[k]);
            free(got[k]);
        }
        free_inputs(&in);
    }
}

static void test_other_lengths_are_refused(void **state) {
    struct backend *backend = ((const struct device_pair *)*state)->device;
    if (!backend->latent || !backend->queue) skip();
    const struct latent_shape shape = {4, 256, 128, ROPE, 128, false};
    struct err err = {0};
    assert_int_equal(backend->latent->check_shape(backend, &shape, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "latents of 256"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_other_lengths_are_refused),
    };
    return device_pair_run(argc, argv, "cuda_latent", tests, ARRAY_LEN(tests));
}
