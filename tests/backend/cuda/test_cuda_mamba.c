// Compares the CUDA backend's Mamba-2 with the scalar one, over steps that cut a sequence, with
// another one and padding beside it: convolved in the kernel of the states, and before it.
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

// The result, and a margin. States are compared by what later steps make of them.
#define DECODES_NMSE (2 * BF16_NMSE)
// x, B and C are rounded, too.
#define PROMPTS_NMSE (6 * BF16_NMSE)

enum { TOKENS = 223, SLOTS = 4, NUM_STEPS = 5 };

static const struct mamba_shape shapes[] = {
    {1, 2, 16, 48}, {2, 6, 32, 16}, {1, 3, 128, 64}, {2, 4, 128, 80}, {1, 2, 256, 32}};

// A step of three sequences: the first one's queries are in slot 2, the second's in slot 0, and the
// last one is padding.
static const struct {
    int32_t query_start[4], context_len[3];
    int32_t from_slot; // of the second sequence
    int32_t snapshot_token; // slot 3, or 1 for token 0, keeps the states behind it; -1: none does
} steps[NUM_STEPS] = {{{0, 1, 20, 21}, {1, 19, 0}, 0, -1},
                      {{0, 150, 151, 152}, {151, 20, 0}, 0, 124},
                      {{0, 1, 2, 3}, {152, 21, 0}, 0, -1},
                      {{0, 2, 40, 41}, {154, 38, 0}, 0, -1}, // the second one is new
                      {{0, 1, 222, 223}, {155, 347, 0}, 3, 0}}; // and goes on from the snapshot

static const int32_t slots[] = {2, 0, 2};

struct inputs {
    struct mamba_shape shape;
    size_t row, width;
    uint32_t
        max_query_len; // that steps tell: 1 and few tokens let the kernel of the states convolve
    float *xbcz, *dt; // [TOKENS][row] bfloat16 values, [TOKENS][heads]
    float *conv, *conv_bias, *decay, *dt_bias, *skip;
};

struct results {
    float *out[NUM_STEPS]; // [tokens of the step][width]
};

static struct inputs make_inputs(const struct mamba_shape *shape) {
    struct ops_rng rng = ops_rng_of(shape->head_dim);
    uint32_t channels = mamba_channels(shape), heads = shape->num_heads;
    struct inputs in = {.shape = *shape, .width = (size_t)heads * shape->head_dim};
    in.row = channels + in.width;
    in.xbcz = bf16_values(&rng, TOKENS * in.row, 1);
    in.dt = bf16_values(&rng, (size_t)TOKENS * heads, 2);
    in.conv = bf16_values(&rng, (size_t)DELTA_TAPS * channels, 1);
    in.conv_bias = bf16_values(&rng, channels, 1);
    in.decay = bf16_values(&rng, heads, 1);
    in.dt_bias = bf16_values(&rng, heads, 1);
    in.skip = bf16_values(&rng, heads, 1);
    for (uint32_t i = 0; i < heads; i++) in.decay[i] = 0.05f + 0.05f * (float)i;
    return in;
}

static void free_inputs(struct inputs *in) {
    float *all[] = {in->xbcz, in->dt, in->conv, in->conv_bias, in->decay, in->dt_bias, in->skip};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

static struct tensor scratch_of(struct backend *backend, const struct inputs *in) {
    const struct backend_recurrent *ops = backend->recurrent;
    size_t bytes = 64;
    if (ops->mamba_scratch_bytes) {
        bytes = ops->mamba_scratch_bytes(backend, &in->shape, TOKENS);
    }
    void *host = test_alloc(bytes);
    memset(host, 0xff, bytes); // NaN
    struct tensor scratch = tensor_raw(backend, host, bytes);
    free(host);
    return scratch;
}

static float *run_step(struct backend *backend, const struct inputs *in, int i, void *states,
                       struct tensor *const constants) {
    const int32_t *query_start = steps[i].query_start;
    uint32_t num_tokens = (uint32_t)query_start[3];
    struct tensor xbcz = tensor_of(backend, in->xbcz, num_tokens * in->row);
    size_t dt_bytes = (size_t)num_tokens * in->shape.num_heads * sizeof(float);
    struct tensor dt = tensor_raw(backend, in->dt, dt_bytes);
    struct tensor starts = tensor_raw(backend, query_start, 4 * sizeof *query_start);
    struct tensor lens = tensor_raw(backend, steps[i].context_len, 3 * sizeof(int32_t));
    struct tensor rows = tensor_raw(backend, slots, sizeof slots);
    struct tensor out = tensor_nan(backend, num_tokens * in->width);
    const int32_t from[] = {2, steps[i].from_slot, 2}, kept = steps[i].snapshot_token == 0 ? 1 : 3;
    struct tensor states_from = tensor_raw(backend, from, sizeof from);
    struct tensor token = tensor_raw(backend, &steps[i].snapshot_token, sizeof(int32_t));
    struct tensor slot = tensor_raw(backend, &kept, sizeof kept);
    struct tensor scratch = scratch_of(backend, in);
    const struct step step = {.num_tokens = num_tokens,
                              .num_seqs = 3,
                              .table_rows = SLOTS,
                              .max_query_len = in->max_query_len,
                              .query_start = starts.dev,
                              .context_len = lens.dev,
                              .table_row = rows.dev,
                              .state_row = states_from.dev,
                              .num_snapshots = steps[i].snapshot_token >= 0,
                              .snapshot_token = token.dev,
                              .snapshot_slot = slot.dev};
    const struct mamba_args args = {.step = &step,
                                    .states = states,
                                    .shape = in->shape,
                                    .xbcz = xbcz.dev,
                                    .dt = dt.dev,
                                    .out = out.dev,
                                    .conv = constants[0].dev,
                                    .conv_bias = constants[1].dev,
                                    .decay = constants[2].dev,
                                    .dt_bias = constants[3].dev,
                                    .skip = constants[4].dev,
                                    .scratch = scratch.dev,
                                    .dt_min = 0.1f,
                                    .dt_max = 2.5f};
    backend->recurrent->mamba(backend, &args);
    float *values = tensor_read(&out);
    struct tensor *all[] = {&xbcz, &dt,          &starts, &lens, &rows,
                            &out,  &states_from, &token,  &slot, &scratch};
    for (size_t k = 0; k < ARRAY_LEN(all); k++) tensor_free(all[k]);
    return values;
}

static struct results run_on(struct backend *backend, const struct inputs *in) {
    uint32_t heads = in->shape.num_heads;
    size_t channels = mamba_channels(&in->shape);
    struct tensor constants[] = {
        tensor_raw(backend, in->conv, DELTA_TAPS * channels * sizeof(float)),
        tensor_raw(backend, in->conv_bias, channels * sizeof(float)),
        tensor_raw(backend, in->decay, heads * sizeof(float)),
        tensor_raw(backend, in->dt_bias, heads * sizeof(float)),
        tensor_raw(backend, in->skip, heads * sizeof(float))};
    struct results results;
    size_t bytes = SLOTS * backend->recurrent->mamba_bytes(backend, &in->shape);
    void *nan = test_alloc(bytes);
    memset(nan, 0xff, bytes); // nobody clears slots
    struct tensor states = tensor_raw(backend, nan, bytes);
    free(nan);
    for (int i = 0; i < NUM_STEPS; i++) {
        results.out[i] = run_step(backend, in, i, states.dev, constants);
    }
    tensor_free(&states);
    for (size_t i = 0; i < ARRAY_LEN(constants); i++) tensor_free(&constants[i]);
    return results;
}

static void free_results(struct results *results) {
    for (int i = 0; i < NUM_STEPS; i++) free(results->out[i]);
}

static void check_shapes(const struct device_pair *pair, uint32_t max_query_len, double bound) {
    if (!pair->device->recurrent || !pair->device->recurrent->mamba) skip();
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct inputs in = make_inputs(&shapes[i]);
        in.max_query_len = max_query_len;
        struct results want = run_on(pair->scalar, &in), got = run_on(pair->device, &in);
        for (int k = 0; k < NUM_STEPS; k++) {
            size_t count = (size_t)steps[k].query_start[2] * in.width; // without padding
            double nmse = ops_nmse_f32(got.out[k], want.out[k], count);
            print_message("shape %zu, step %d: %.2g\n", i, k, nmse);
            assert_true(nmse <= bound);
        }
        free_results(&want);
        free_results(&got);
        free_inputs(&in);
    }
}

static void test_decodes(void **state) {
    check_shapes(*state, 1, DECODES_NMSE);
}

static void test_prompts(void **state) {
    check_shapes(*state, TOKENS, PROMPTS_NMSE);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes),
        cmocka_unit_test(test_prompts),
    };
    return device_pair_run(argc, argv, "cuda_mamba", tests, ARRAY_LEN(tests));
}
