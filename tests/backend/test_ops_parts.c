// Linears that hand their outputs to a sink in parts, as fused layers use them. Every output comes
// once, with the bits of a plain linear, and parts begin where sinks rely on it: for any number of
// rows and threads, on every instruction set.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/ops.h"
#include "backend/ops_util.h"

enum { HEAD_BLOCKS = 5 };

static const struct shape {
    uint32_t out, in;
    uint32_t rows[8]; // 0 ends them
} shapes[] = {
    {2560, 48, {1, 2, 27, 33}},
    {1120, 48, {32, 33, 65, 130}},
    // With this depth few rows are cut into items of several sizes too.
    {2560, 400, {1, 2}},
    {1120, 400, {1}},
};

struct collected {
    uint32_t out;
    float *got; // [rows][out]
    atomic_int *times; // [rows][out] how often each output came
    uint32_t align; // parts begin at multiples of it
    uint32_t size; // and have this many outputs, 0: any number
    atomic_bool is_wrong;
};

static void take(struct collected *c, const struct linear_part *part, const float *sums,
                 uint32_t first_col) {
    if (part->col % c->align || (c->size && part->num_cols != c->size)) c->is_wrong = true;
    for (uint32_t row = 0; row < part->num_rows; row++) {
        size_t at = (size_t)(part->row + row) * c->out + first_col + part->col;
        memcpy(c->got + at, sums + row * part->stride, part->num_cols * sizeof *sums);
        for (uint32_t i = 0; i < part->num_cols; i++) atomic_fetch_add(&c->times[at + i], 1);
    }
}

static void take_plain(void *arg, const struct linear_part *part) {
    take(arg, part, part->sums, 0);
}

static void take_gated(void *arg, const struct linear_part *part) {
    struct collected *c = arg;
    take(c, part, part->sums, 0);
    take(c, part, part->gated, c->out / 2);
}

enum { OUT_MAX = 2560, IN_MAX = 400 };

// A matrix's first weights are those of every other.
static struct linear *make_linear(struct backend *backend, struct weight_format format,
                                  uint32_t out, uint32_t in) {
    static uint16_t weights[OUT_MAX * IN_MAX];
    if (!weights[0]) {
        struct ops_rng rng = ops_rng_of(5);
        for (size_t i = 0; i < ARRAY_LEN(weights); i++) {
            weights[i] = f32_to_bf16(ops_rng_float(&rng));
        }
    }
    struct matrix_slice part = {.source = {.data = weights},
                                .dtype = DTYPE_BF16,
                                .rows = out,
                                .cols = in,
                                .row_stride = in};
    struct linear *linear = NULL;
    struct linear_spec spec = {&part, NULL, 1, format};
    assert_int_equal(backend->ops->linear_create(backend, &spec, &linear, NULL), OK);
    return linear;
}

// `want`: what a plain linear makes of x.
static void check_run(struct cpu_backend *cpu, const struct linear *linear, const float *x,
                      const float *want, uint32_t rows, bool is_gated, uint32_t blocks_per_part) {
    uint32_t out = linear->out;
    size_t count = (size_t)rows * out;
    struct collected c = {.out = out,
                          .got = ops_guard_alloc(count),
                          .times = calloc(count, sizeof *c.times),
                          .align = is_gated          ? 32
                                   : blocks_per_part ? blocks_per_part * LANES
                                                     : LANES,
                          .size = blocks_per_part * LANES};
    struct linear_group group = {.linear = linear, .num_rows = rows};
    linear_run(cpu, &(struct linear_run){.groups = &group,
                                         .num_groups = 1,
                                         .x = x,
                                         .packed = cpu->linear_scratch,
                                         .x_scale = cpu->linear_x_scale,
                                         .is_gated = is_gated,
                                         .blocks_per_part = blocks_per_part,
                                         .sink = is_gated ? take_gated : take_plain,
                                         .sink_arg = &c});
    assert_false(c.is_wrong);
    for (size_t i = 0; i < count; i++) assert_int_equal(c.times[i], 1);
    ops_assert_same_bits(c.got, want, rows, out, "parts");
    ops_guard_free(c.got, count);
    free(c.times);
}

static void check_rows(struct backend *backend, const struct linear *linear, uint32_t rows) {
    size_t num_inputs = (size_t)rows * linear->in;
    float *x = malloc(num_inputs * sizeof *x);
    float *want = malloc((size_t)rows * linear->out * sizeof *want);
    struct ops_rng rng = ops_rng_of(rows);
    ops_rng_fill(&rng, x, num_inputs);
    backend->ops->linear(backend, &(struct linear_args){linear, x, want, rows, false});
    struct cpu_backend *cpu = cpu_backend_of(backend);
    check_run(cpu, linear, x, want, rows, true, 0);
    check_run(cpu, linear, x, want, rows, false, 0);
    check_run(cpu, linear, x, want, rows, false, HEAD_BLOCKS);
    free(x);
    free(want);
}

static void check_format(const char *isa, int threads, struct weight_format format) {
    struct backend *backend = ops_backend(isa, threads, DTYPE_BF16);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct linear *linear = make_linear(backend, format, shapes[i].out, shapes[i].in);
        bool is_narrow = linear_is_narrow(cpu_backend_of(backend), linear);
        for (const uint32_t *rows = shapes[i].rows; is_narrow && *rows; rows++) {
            check_rows(backend, linear, *rows);
        }
        backend->ops->linear_destroy(backend, linear);
    }
    backend_destroy(backend);
}

static void test_parts(void **state) {
    const char *isa = *state;
    for (int threads = 1; threads <= 3; threads += 2) {
        check_format(isa, threads, WEIGHTS_NATIVE);
        check_format(isa, threads, WEIGHTS_INT8);
        check_format(isa, threads, WEIGHTS_INT4);
    }
}

int main(void) {
    static const struct ops_case cases[] = {
        {"parts are whole, once, as plain linears", test_parts,
         ISA_ATTENTION | ISA_FLOAT_WEIGHTS | ISA_BYTE_WEIGHTS | ISA_ROWS}};
    return ops_run("parts", cases, ARRAY_LEN(cases));
}
