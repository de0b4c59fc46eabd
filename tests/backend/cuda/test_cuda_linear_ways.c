// Tests every way to compute a linear of many rows (linear/gemm_trial.h), not only the fastest on
// this device. Outputs do not fill a block, inputs do not fill a stage or are shared by a cluster,
// row counts lie on both sides of each kernel's limits. Also tests which way project_in takes.
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda_linear_util.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/gemm_trial.h"
#include "base/compiler.h"

// A linear's inputs and output on the device.
struct buffers {
    struct linear *linear;
    struct tensor x, out, scratch;
};

static const struct fused_case cases[] = {
    {1024, 1024, false, false, false, false}, {264, 200, false, false, false, true},
    {520, 640, false, false, true, false},    {136, 72, false, false, true, true},
    {1040, 512, false, true, false, true},    {528, 1096, false, true, false, false},
    {16, 8, false, true, false, false},
};

static struct buffers buffers_make(struct backend *backend, const struct fused_case *c,
                                   const struct fused_inputs *v, uint32_t rows) {
    size_t num_results = (size_t)rows * fused_columns(c);
    const struct matrix_slice part = {.source = {.data = v->weight},
                                      .dtype = DTYPE_F32,
                                      .rows = c->out,
                                      .cols = c->in,
                                      .row_stride = c->in};
    const struct matrix_slice bias = {.source = {.data = v->bias},
                                      .dtype = DTYPE_F32,
                                      .rows = 1,
                                      .cols = c->out,
                                      .row_stride = c->out};
    const struct linear_spec spec = {&part, c->has_bias ? &bias : NULL, 1, WEIGHTS_NATIVE};
    return (struct buffers){.linear = linear_of(backend, &spec),
                            .x = tensor_of(backend, v->x, (size_t)rows * c->in),
                            .out = c->has_residual ? tensor_of(backend, v->residual, num_results)
                                                   : tensor_nan(backend, num_results),
                            .scratch = tensor_nan(backend, (size_t)rows * c->out)};
}

static void buffers_free(struct backend *backend, struct buffers *b) {
    tensor_free(&b->scratch);
    tensor_free(&b->out);
    tensor_free(&b->x);
    backend->ops->linear_destroy(backend, b->linear);
}

static struct cuda_linear_task task_of(const struct fused_case *c, const struct buffers *b,
                                       uint32_t rows) {
    return (struct cuda_linear_task){.linear = cuda_linear_view_of(b->linear),
                                     .x = b->x.dev,
                                     .out = b->out.dev,
                                     .scratch = b->scratch.dev,
                                     .rows = rows,
                                     .is_gated = c->is_gated,
                                     .is_added = c->has_residual};
}

// The way's results for the first rows. NULL: the way does not support them.
static float *way_on(struct backend *backend, const struct fused_case *c,
                     const struct fused_inputs *v, uint32_t rows, const struct gemm_way *way) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    struct buffers b = buffers_make(backend, c, v, rows);
    const struct cuda_linear_task task = task_of(c, &b, rows);
    float *values = NULL;
    if (gemm_run_way(cuda->gemm, &task, way, cuda->stream)) values = tensor_read(&b.out);
    buffers_free(backend, &b);
    return values;
}

// Returns how many cases and row counts the way supported.
static int check_way(const struct device_pair *pair, const struct gemm_way *way, const char *what) {
    static const uint32_t counts[] = {1, 17, 64, 65, 128, 129, 193, 256, 257, 600};
    const uint32_t most = counts[ARRAY_LEN(counts) - 1];
    int num_taken = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fused_inputs v = fused_inputs_make(&cases[i], 300 + i, most);
        for (size_t n = 0; n < ARRAY_LEN(counts); n++) {
            float *got = way_on(pair->device, &cases[i], &v, counts[n], way);
            if (!got) continue;
            bool is_twice = cases[i].is_gated && way->kind == KERNEL_CUBLAS;
            fused_check(&cases[i], v.want, got, counts[n],
                        is_twice ? GATED_TWICE_NMSE : LINEAR_NMSE, what);
            num_taken++;
            free(got);
        }
        fused_inputs_free(&v);
    }
    return num_taken;
}

static bool is_hopper(const struct device_pair *pair) {
    return cuda_backend_of(pair->device)->info.encode_tensor_map != NULL;
}

static void test_cublas(void **state) {
    const struct gemm_way way = {.kind = KERNEL_CUBLAS};
    assert_int_equal(check_way(*state, &way, "cuBLASLt"), 70);
}

static void test_batch(void **state) {
    // Up to 128 rows, and at least one stage of inputs per block.
    static const struct {
        uint32_t split;
        int num_taken;
    } ways[] = {{1, 35}, {2, 25}, {3, 25}, {4, 20}, {8, 20}};
    if (!is_hopper(*state)) skip();
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        const struct gemm_way way = {.kind = KERNEL_BATCH, .split = ways[i].split};
        char what[64];
        snprintf(what, sizeof what, "inputs shared by %u", ways[i].split);
        assert_int_equal(check_way(*state, &way, what), ways[i].num_taken);
    }
}

static void test_gated(void **state) {
    const struct gemm_way way = {.kind = KERNEL_GATED};
    if (!is_hopper(*state)) skip();
    assert_int_equal(check_way(*state, &way, "gated"), 30);
}

// With four multiprocessors every block has many tiles, and the ring continues from one to the
// next. There are six steps, which is no multiple of its stages, and more lines of tiles than one
// band holds.
static void test_gated_tile_after_tile(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        struct fused_case c;
        uint32_t rows;
    } long_ways[] = {{{1040, 328, false, true, false, true}, 600},
                     {{16, 72, false, true, false, false}, 2305}};
    if (!is_hopper(pair)) skip();
    struct cuda_backend *cuda = cuda_backend_of(pair->device);
    struct cuda_device_info few = cuda->info;
    few.num_sms = 4;
    for (size_t i = 0; i < ARRAY_LEN(long_ways); i++) {
        const struct fused_case *c = &long_ways[i].c;
        uint32_t rows = long_ways[i].rows;
        struct fused_inputs v = fused_inputs_make(c, 400 + i, rows);
        struct buffers b = buffers_make(pair->device, c, &v, rows);
        const struct cuda_linear_task task = task_of(c, &b, rows);
        assert_true(cuda_linear_gated_launch(&task, &few, cuda->stream));
        float *got = tensor_read(&b.out);
        fused_check(c, v.want, got, rows, LINEAR_NMSE, "tile after tile");
        free(got);
        buffers_free(pair->device, &b);
        fused_inputs_free(&v);
    }
}

// Of large matrices 5 to 8 rows go to linear/few_rows.cu, of huge ones none.
static void test_fused_of_large_matrices(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        struct fused_case c;
        uint32_t few_rows;
    } large[] = {{{6144, 2736, true, true, false, false}, 4},
                 {{4096, 4160, false, false, true, false}, 4},
                 {{6144, 8200, true, true, false, false}, 0}};
    static const uint32_t counts[] = {4, 5, 8, 9, 16};
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        size_t num_counts = large[i].few_rows ? ARRAY_LEN(counts) : 3;
        uint32_t few_rows = fused_check_ops(pair->device, &large[i].c, 300 + i, counts, num_counts);
        assert_int_equal(few_rows, large[i].few_rows);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cublas),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_gated_tile_after_tile),
        cmocka_unit_test(test_fused_of_large_matrices),
    };
    return device_pair_run(argc, argv, "cuda linear ways", tests, ARRAY_LEN(tests));
}
