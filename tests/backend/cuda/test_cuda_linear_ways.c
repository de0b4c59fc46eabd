// Tests every way to compute a linear of many rows (gemm/gemm_trial.h), not only the fastest on
// this device. Outputs do not fill a block, inputs do not fill a stage or are shared by a cluster,
// row counts lie on both sides of each kernel's limits. Also tests which way project_in takes.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_linear_util.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm/gemm_trial.h"
#include "backend/cuda/linear/e4m3.h"
#include "base/compiler.h"

// A linear's inputs and output on the device.
struct buffers {
    struct linear *linear;
    struct tensor x, out, scratch;
};

static const struct fused_case cases[] = {
    {1024, 1024, false, false, false, false, ACTIVATION_SILU},
    {264, 200, false, false, false, true, ACTIVATION_SILU},
    {520, 640, false, false, true, false, ACTIVATION_SILU},
    {136, 72, false, false, true, true, ACTIVATION_SILU},
    {1040, 512, false, true, false, true, ACTIVATION_SILU},
    {528, 1096, false, true, false, false, ACTIVATION_SILU},
    {16, 8, false, true, false, false, ACTIVATION_SILU},
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
    } long_ways[] = {{{1040, 328, false, true, false, true, ACTIVATION_SILU}, 600},
                     {{16, 72, false, true, false, false, ACTIVATION_SILU}, 2305}};
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

// The results of linear/few_rows_ring.cu for `rows` rows from row `first` on. `num_sms`: as if the
// device had so many multiprocessors.
static float *ring_on(struct backend *backend, const struct fused_case *c,
                      const struct fused_inputs *v, uint32_t first, uint32_t rows, int num_sms) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    struct cuda_device_info info = cuda->info;
    struct fused_inputs part = *v;
    part.x += (size_t)first * c->in;
    part.residual += (size_t)first * fused_columns(c);
    struct buffers b = buffers_make(backend, c, &part, rows);
    struct tensor norm = tensor_raw(backend, v->norm, c->in * sizeof *v->norm);
    info.num_sms = num_sms;
    assert_true(cuda_linear_few_rows_ring_fits(rows, c->out, c->in, c->is_gated, &info));
    const struct cuda_few_rows_linear args = {.linear = cuda_linear_view_of(b.linear),
                                              .x = b.x.dev,
                                              .norm = c->has_norm ? norm.dev : NULL,
                                              .residual = c->has_residual ? b.out.dev : NULL,
                                              .out = c->has_residual ? NULL : b.out.dev,
                                              .rows = rows,
                                              .is_gated = c->is_gated,
                                              .activation = c->activation,
                                              .eps = FUSED_EPS};
    cuda_linear_few_rows_ring_launch(&args, &info, cuda->stream);
    float *values = tensor_read(&b.out);
    tensor_free(&norm);
    buffers_free(backend, &b);
    return values;
}

// With few multiprocessors, blocks have several bands. There are bands of 1 to 6 tiles, or 1 to 3
// of gates and ups; bands that the matrix's end cuts; chunks of 1 to 4 lines, of which the last may
// lack some; fewer chunks than warps; and inputs that leave no room for two blocks on a
// multiprocessor. A row's bits do not depend on the others.
static void test_few_rows_ring(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        struct fused_case c;
        int num_sms;
    } rings[] = {{{64, 64, true, false, false, false, ACTIVATION_SILU}, 132},
                 {{160, 576, true, false, false, true, ACTIVATION_SILU}, 4},
                 {{192, 2048, false, false, false, true, ACTIVATION_SILU}, 4},
                 {{104, 1024, false, false, true, false, ACTIVATION_SILU}, 4},
                 {{72, 2880, true, false, false, true, ACTIVATION_SILU}, 4},
                 {{64, 1344, false, false, true, true, ACTIVATION_SILU}, 4},
                 {{2000, 512, false, false, true, true, ACTIVATION_SILU}, 4},
                 {{1560, 4096, true, false, false, false, ACTIVATION_SILU}, 17},
                 {{480, 640, true, true, false, true, ACTIVATION_SILU}, 4},
                 {{192, 2560, false, true, false, false, ACTIVATION_GELU_TANH}, 4},
                 {{1040, 512, true, true, false, true, ACTIVATION_GELU_TANH}, 4},
                 {{264, 12288, false, false, true, false, ACTIVATION_SILU}, 132},
                 {{8, 4160, true, false, false, false, ACTIVATION_SILU}, 132}};
    if (!is_hopper(pair)) skip();
    for (size_t i = 0; i < ARRAY_LEN(rings); i++) {
        const struct fused_case *c = &rings[i].c;
        struct fused_inputs v = fused_inputs_make(c, 500 + i, CUDA_RING_ROWS);
        float *alone[CUDA_RING_ROWS];
        for (uint32_t r = 0; r < CUDA_RING_ROWS; r++) {
            alone[r] = ring_on(pair->device, c, &v, r, 1, rings[i].num_sms);
        }
        for (uint32_t rows = 1; rows <= CUDA_RING_ROWS; rows++) {
            float *got = ring_on(pair->device, c, &v, 0, rows, rings[i].num_sms);
            fused_check(c, v.want, got, rows, LINEAR_NMSE, "by the ring");
            for (uint32_t r = 0; r < rows; r++) {
                ops_assert_same_bits(got + (size_t)r * fused_columns(c), alone[r], 1,
                                     fused_columns(c), "a row alone");
            }
            free(got);
        }
        for (uint32_t r = 0; r < CUDA_RING_ROWS; r++) free(alone[r]);
        fused_inputs_free(&v);
    }
}

// 1 to 4 rows go to linear/few_rows_ring.cu if the inputs are whole lines. Of large matrices 5 to 8
// rows go to linear/few_rows.cu, of huge ones none.
static void test_fused_of_large_matrices(void **state) {
    const struct device_pair *pair = *state;
    static const struct {
        struct fused_case c;
        uint32_t few_rows;
    } large[] = {{{6144, 2736, true, true, false, false, ACTIVATION_SILU}, 4},
                 {{6144, 2752, true, true, false, false, ACTIVATION_SILU}, 8},
                 {{4096, 4160, false, false, true, false, ACTIVATION_SILU}, 8},
                 {{6144, 8200, true, true, false, false, ACTIVATION_SILU}, 0},
                 {{6144, 8256, true, true, false, false, ACTIVATION_SILU}, 4}};
    static const uint32_t counts[] = {4, 5, 8, 9, 16};
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        size_t num_counts = large[i].few_rows ? ARRAY_LEN(counts) : 3;
        uint32_t few_rows = fused_check_ops(pair->device, &large[i].c, 300 + i, counts, num_counts);
        assert_int_equal(few_rows, large[i].few_rows);
    }
}

enum { ROUND_GROUP = 128 }; // inputs that share a scale

// Rounds rows behind a norm, `turn` rows at a time. Codes, then scales.
static void round_in_turns(struct backend *backend, const struct tensor *x,
                           const struct tensor *norm, uint32_t rows, uint32_t in, bool has_groups,
                           uint32_t turn, struct tensor to[2]) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    for (uint32_t first = 0; first < rows; first += turn) {
        const struct cuda_rounded_rows part = {
            .codes = (char *)to[0].dev + (size_t)first * in,
            .scales = (float *)to[1].dev + first,
            .scales_stride = has_groups ? rows : 0,
        };
        const struct cuda_few_rows_linear args = {
            .linear = {.in = in},
            .x = (const uint16_t *)x->dev + (size_t)first * in,
            .norm = norm->dev,
            .rows = rows - first < turn ? rows - first : turn,
            .eps = 1e-5f,
        };
        cuda_round_rows_launch(&part, &args, NULL, &cuda->info, cuda->stream);
    }
}

// Code times scale. Codes of e4m3: 4 bits of exponent, 3 of mantissa.
static float *rounded_values(const struct tensor to[2], uint32_t rows, uint32_t in,
                             bool has_groups) {
    float *values = test_alloc((size_t)rows * in * sizeof *values);
    uint8_t *codes = test_alloc(to[0].bytes);
    float *scales = test_alloc(to[1].bytes);
    tensor_read_raw(&to[0], codes);
    tensor_read_raw(&to[1], scales);
    for (size_t i = 0; i < (size_t)rows * in; i++) {
        int exponent = codes[i] >> 3 & 15, mantissa = codes[i] & 7;
        float code =
            ldexpf((float)(exponent ? 8 + mantissa : mantissa), (exponent ? exponent : 1) - 10);
        if ((codes[i] & 127) == 127) code = NAN;
        size_t group = has_groups ? i % in / ROUND_GROUP : 0;
        values[i] = (codes[i] & 128 ? -code : code) * scales[group * rows + i / in];
    }
    free(codes);
    free(scales);
    return values;
}

// The two ways sum squares in another order. So a norm, and then a code, may be the next one.
static void check_near_rows(const float *got, const float *want, uint32_t rows, uint32_t in) {
    double error = 0;
    for (uint32_t row = 0; row < rows; row++) {
        const float *a = got + (size_t)row * in, *b = want + (size_t)row * in;
        double difference = 0, square = 0;
        for (uint32_t i = 0; i < in; i++) {
            assert_int_equal(!!isnan(a[i]), !!isnan(b[i]));
            if (isnan(b[i])) continue;
            double x = (double)a[i], y = (double)b[i];
            difference += (x - y) * (x - y);
            square += y * y;
        }
        double of_row = square > 0 ? difference / square : difference;
        if (!(of_row <= 2e-3)) fail_msg("row %u of %u inputs: nmse %g", row, in, of_row);
        error += of_row;
    }
    if (!(error / rows <= 2e-6)) fail_msg("%u inputs: nmse %g", in, error / rows);
}

static void check_rounded(const struct device_pair *pair, uint32_t rows, uint32_t in,
                          bool has_groups) {
    enum { FEW = 1000 };
    struct ops_rng rng = ops_rng_of(rows + in);
    size_t count = (size_t)rows * in,
           num_scales = rows * (size_t)(has_groups ? in / ROUND_GROUP : 1);
    float *values = bf16_values(&rng, count, 3), *weights = bf16_values(&rng, in, 1);
    memset(values + in, 0, in * sizeof *values); // a row of zeros, then some that are not finite
    values[2 * in + 5] = INFINITY;
    values[3 * in + in - 1] = NAN;
    values[4 * in + 7] = ldexpf(1, 127); // its square is not finite
    struct tensor x = tensor_of(pair->device, values, count);
    struct tensor norm = tensor_raw(pair->device, weights, in * sizeof *weights);
    float *rounded[2];
    for (int i = 0; i < 2; i++) {
        struct tensor to[2] = {tensor_nan(pair->device, count / 2),
                               tensor_nan(pair->device, num_scales * 2)};
        assert_true(to[0].bytes == count && to[1].bytes == num_scales * sizeof(float));
        round_in_turns(pair->device, &x, &norm, rows, in, has_groups, i ? FEW : rows, to);
        rounded[i] = rounded_values(to, rows, in, has_groups);
        tensor_free(&to[0]);
        tensor_free(&to[1]);
    }
    check_near_rows(rounded[0], rounded[1], rows, in);
    free(rounded[0]);
    free(rounded[1]);
    free(values);
    free(weights);
    tensor_free(&norm);
    tensor_free(&x);
}

// Blocks that take several rows round them as blocks of one row do. test_cuda_packed
// checks those against numbers in double.
static void test_many_rounded_rows(void **state) {
    static const uint32_t inputs[] = {128, 2048, 2560, 4096, CUDA_E4M3_MANY_INPUTS};
    if (!cuda_backend_of(((const struct device_pair *)*state)->device)->info.encode_tensor_map) {
        skip();
    }
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
        uint32_t rows = inputs[i] == 128 ? 6000 : CUDA_E4M3_MANY_ROWS + 13;
        check_rounded(*state, rows, inputs[i], true);
        check_rounded(*state, rows, inputs[i], false);
    }
    check_rounded(*state, CUDA_E4M3_MANY_ROWS, 1040, false); // no multiple of 128
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cublas),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_gated_tile_after_tile),
        cmocka_unit_test(test_few_rows_ring),
        cmocka_unit_test(test_fused_of_large_matrices),
        cmocka_unit_test(test_many_rounded_rows),
    };
    return device_pair_run(argc, argv, "cuda linear ways", tests, ARRAY_LEN(tests));
}
