// Every way that a linear of many rows can be computed (gemm_trial.h), not only the one that is the
// fastest here: outputs that do not fill a block, inputs that do not fill a stage or are shared by a
// cluster, row counts on both sides of each kernel's.
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm_trial.h"
#include "base/compiler.h"
#include "ops/cuda_linear_util.h"

static const struct fused_case cases[] = {
    {1024, 1024, false, false, false, false}, {264, 200, false, false, false, true},
    {520, 640, false, false, true, false},    {136, 72, false, false, true, true},
    {1040, 512, false, true, false, true},    {528, 1096, false, true, false, false},
    {16, 8, false, true, false, false},
};

// What the way makes of the first rows; NULL: it does not take them.
static float *way_on(struct backend *backend, const struct fused_case *c,
                     const struct fused_inputs *v, uint32_t rows, const struct gemm_way *way) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    size_t num_results = (size_t)rows * fused_columns(c);
    const struct matrix_slice part = {v->weight, DTYPE_F32, c->out, c->in, c->in};
    const struct matrix_slice bias = {v->bias, DTYPE_F32, 1, c->out, c->out};
    const struct linear_spec spec = {&part, c->has_bias ? &bias : NULL, 1};
    struct linear *linear = linear_of(backend, &spec);
    struct tensor x = tensor_of(backend, v->x, (size_t)rows * c->in);
    struct tensor out = c->has_residual ? tensor_of(backend, v->residual, num_results)
                                        : tensor_nan(backend, num_results);
    struct tensor scratch = tensor_nan(backend, (size_t)rows * c->out);
    const struct cuda_linear_task task = {.linear = cuda_linear_view_of(linear),
                                          .x = x.dev,
                                          .out = out.dev,
                                          .scratch = scratch.dev,
                                          .rows = rows,
                                          .is_gated = c->is_gated,
                                          .is_added = c->has_residual};
    float *values = NULL;
    if (gemm_run_way(cuda->gemm, &task, way, cuda->stream)) values = tensor_read(&out);
    tensor_free(&scratch);
    tensor_free(&out);
    tensor_free(&x);
    backend->ops->linear_destroy(backend, linear);
    return values;
}

// Returns how many of the cases and row counts the way took.
static int check_way(const struct device_pair *pair, const struct gemm_way *way, const char *what) {
    static const uint32_t counts[] = {1, 17, 64, 65, 128, 129, 193, 256, 257, 600};
    const uint32_t most = counts[ARRAY_LEN(counts) - 1];
    int num_taken = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fused_inputs v = fused_inputs_make(&cases[i], 300 + i, most);
        for (size_t n = 0; n < ARRAY_LEN(counts); n++) {
            float *got = way_on(pair->device, &cases[i], &v, counts[n], way);
            if (!got) continue;
            fused_check(&cases[i], &v, got, counts[n], what);
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
    const struct gemm_way way = {.kind = GEMM_CUBLAS};
    assert_int_equal(check_way(*state, &way, "cuBLASLt"), 70);
}

static void test_batch(void **state) {
    // Up to 128 rows, and a stage of inputs at least for each block.
    static const struct {
        uint32_t split;
        int num_taken;
    } ways[] = {{1, 35}, {2, 25}, {3, 25}, {4, 20}, {8, 20}};
    if (!is_hopper(*state)) skip();
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        const struct gemm_way way = {.kind = GEMM_BATCH, .split = ways[i].split};
        char what[64];
        snprintf(what, sizeof what, "inputs shared by %u", ways[i].split);
        assert_int_equal(check_way(*state, &way, what), ways[i].num_taken);
    }
}

static void test_gated(void **state) {
    const struct gemm_way way = {.kind = GEMM_GATED};
    if (!is_hopper(*state)) skip();
    assert_int_equal(check_way(*state, &way, "gated"), 30);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cublas),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_gated),
    };
    return device_pair_run(argc, argv, "cuda linear ways", tests, ARRAY_LEN(tests));
}
