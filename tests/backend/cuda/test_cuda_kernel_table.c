// Which kernel the table gives a job: linears by rows and sizes, attention, experts. Host
// arithmetic only, for an H200 and other devices.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/e4m3.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { NONE = -1 };

static char driver_function; // only compared with NULL
static const struct cuda_device_info h200 = {.num_sms = 132,
                                             .major = 9,
                                             .shared_bytes_max = 227 << 10,
                                             .encode_tensor_map = &driver_function,
                                             .max_clusters = {528, 264, 128, 60}};
static const struct cuda_device_info ampere = {
    .num_sms = 108, .major = 8, .shared_bytes_max = 163 << 10};

enum { PLAIN = 0, NORMED = FEATURE_NORM, GATED = FEATURE_NORM | FEATURE_GATED };

static struct kernel_job linear_of(uint32_t rows, uint32_t out, uint32_t in, uint32_t features) {
    return (struct kernel_job){
        .op = OP_LINEAR, .rows = rows, .out = out, .in = in, .features = features, .split = 1};
}

static int kernel_for(const struct kernel_job *job, const struct cuda_device_info *info) {
    const struct kernel_row *row = kernel_table_next(NULL, job, info);
    return row ? (int)row->kernel : NONE;
}

static int linear_kernel(uint32_t rows, uint32_t out, uint32_t in, uint32_t features) {
    const struct kernel_job job = linear_of(rows, out, in, features);
    return kernel_for(&job, &h200);
}

// Whether linear/few_rows_sm90.cu gets it.
static bool takes(const struct cuda_device_info *info, uint32_t out, uint32_t in,
                  uint32_t features) {
    const struct kernel_job job = linear_of(CUDA_FEW_ROWS, out, in, features);
    return kernel_for(&job, info) == KERNEL_FEW_ROWS_SM90;
}

// Each size is the largest that is taken: with 8 outputs or 64 inputs more it is not.
static void test_sizes_up_to_which_few_rows_sm90_takes(void **state) {
    (void)state;
    static const struct {
        uint32_t features, out, in, unit; // unit: the next larger number of outputs
    } largest[] = {{NORMED, 132 * 32, 1024, 8},
                   {GATED, 2 * 132 * 24, 1024, 16},
                   {PLAIN, 132 * 8, 3072, 8},
                   {FEATURE_ADDED, 132 * 8, 3072, 8}};
    for (size_t i = 0; i < ARRAY_LEN(largest); i++) {
        uint32_t out = largest[i].out, in = largest[i].in, features = largest[i].features;
        for (uint32_t less = 64; less <= in; less += 64) {
            assert_true(takes(&h200, out, less, features));
        }
        for (uint32_t less = largest[i].unit; less <= out; less += largest[i].unit) {
            assert_true(takes(&h200, less, in, features));
        }
        assert_false(takes(&h200, out + largest[i].unit, in, features));
        assert_false(takes(&h200, out, in + 64, features));
    }
}

// linear/few_rows.cu has them all.
static void test_what_few_rows_sm90_leaves(void **state) {
    (void)state;
    static const struct kernel_job left[] = {
        {.rows = 1, .out = 1024, .in = 1000}, // no whole lines
        {.rows = 1, .out = 1020, .in = 1024}, // no whole tiles
        {.rows = 1, .out = 0, .in = 1024},
        {.rows = 1, .out = 1024, .in = 1024, .features = FEATURE_GATED},
        {.rows = 1, .out = 1024, .in = 1024, .features = GATED | FEATURE_BIAS},
        {.rows = 1, .out = 1024, .in = 1024, .features = NORMED | FEATURE_ADDED},
    };
    for (size_t i = 0; i < ARRAY_LEN(left); i++) {
        struct kernel_job job = left[i];
        job.op = OP_LINEAR;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_FEW_ROWS);
    }
    assert_true(takes(&h200, 1024, 1024, NORMED | FEATURE_BIAS));
}

// The smallest kernel that is large enough: it has the fewest missing tiles.
static void test_the_smallest_few_rows_sm90_kernel(void **state) {
    (void)state;
    static const struct {
        uint32_t features, out, in, number;
    } cases[] = {{NORMED, 132 * 16, 1024, 0}, {NORMED, 132 * 16 + 8, 1024, 1},
                 {GATED, 132 * 32, 1024, 2},  {GATED, 132 * 32 + 16, 1024, 3},
                 {PLAIN, 1024, 1024, 4},      {PLAIN, 1024, 1088, 5},
                 {PLAIN, 1024, 2112, 6}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct kernel_job job = linear_of(1, cases[i].out, cases[i].in, cases[i].features);
        const struct kernel_row *row = kernel_table_next(NULL, &job, &h200);
        assert_non_null(row);
        assert_int_equal(row->kernel, KERNEL_FEW_ROWS_SM90);
        assert_int_equal(row->number, cases[i].number);
    }
}

static void test_devices(void **state) {
    (void)state;
    struct cuda_device_info older = h200, small = h200, fewer = h200;
    older.major = 8;
    small.shared_bytes_max = 99 << 10;
    fewer.num_sms = 114;
    assert_false(takes(&older, 1024, 1024, PLAIN));
    assert_true(takes(&small, 1024, 3072, PLAIN));
    assert_false(takes(&small, 6144, 1024, GATED));
    assert_true(takes(&fewer, 114 * 32, 1024, NORMED));
    assert_false(takes(&fewer, 4096, 1024, NORMED));
}

// From 8 MiB of weights and 2,048 inputs on, 1 to 4 rows go to linear/few_rows_ring.cu.
static void test_what_few_rows_ring_takes(void **state) {
    (void)state;
    enum { ALL = NORMED | GATED | FEATURE_ADDED | FEATURE_BIAS | FEATURE_ACTIVATION };
    for (uint32_t rows = 1; rows <= CUDA_RING_ROWS; rows++) {
        assert_int_equal(linear_kernel(rows, 1024, 4096, PLAIN), KERNEL_FEW_ROWS_RING);
        assert_int_equal(linear_kernel(rows, 1016, 4096, PLAIN), KERNEL_FEW_ROWS);
        assert_int_equal(linear_kernel(rows, 2048, 2048, ALL), KERNEL_FEW_ROWS_RING);
        assert_int_equal(linear_kernel(rows, 4096, 1984, PLAIN), KERNEL_FEW_ROWS);
        assert_int_equal(linear_kernel(rows, 151936, 4096, FEATURE_FLOAT_OUT), KERNEL_CUBLAS);
    }
    assert_int_equal(linear_kernel(CUDA_RING_ROWS + 1, 1024, 4096, PLAIN), KERNEL_FEW_ROWS);
    const struct kernel_job job = linear_of(1, 1024, 4096, PLAIN);
    assert_int_equal(kernel_for(&job, &ampere), KERNEL_FEW_ROWS);
    // x of four rows leaves no room for two stages.
    assert_int_equal(linear_kernel(1, 1024, 24576, PLAIN), KERNEL_FEW_ROWS_RING);
    assert_int_equal(linear_kernel(4, 1024, 24576, PLAIN), KERNEL_BATCH);
}

// 16 MiB of weights with 1 to 4 rows, 96 MiB with 5 to 8, and 2,048 inputs are where other matrices
// go to the kernels for many rows.
static void test_few_rows_of_large_matrices(void **state) {
    (void)state;
    enum { IN = 4104 }; // no whole lines
    for (uint32_t rows = 1; rows <= 9; rows++) {
        uint32_t less = ((rows <= 4 ? 16u : 96u) << 20) / 2 / IN / 8 * 8, large = less + 8;
        int few = rows <= 8 ? KERNEL_FEW_ROWS : KERNEL_BATCH;
        assert_int_equal(linear_kernel(rows, less, IN, PLAIN), few);
        assert_int_equal(linear_kernel(rows, 151936, 2040, PLAIN), few);
        assert_int_equal(linear_kernel(rows, 151936, 1024, FEATURE_FLOAT_OUT),
                         rows <= 8 ? KERNEL_FEW_ROWS : KERNEL_CUBLAS);
        assert_int_equal(linear_kernel(rows, large, IN, PLAIN), KERNEL_BATCH);
        assert_int_equal(linear_kernel(rows, large, IN, FEATURE_ADDED), KERNEL_BATCH);
        assert_int_equal(linear_kernel(rows, large, IN, FEATURE_FLOAT_OUT), KERNEL_CUBLAS);
        assert_int_equal(linear_kernel(rows, large, IN, GATED), NONE);
    }
}

// No kernel for many rows has a norm: the caller does it, and asks again without.
static void test_many_rows_have_no_norm(void **state) {
    (void)state;
    assert_int_equal(linear_kernel(8, 4096, 4096, GATED), KERNEL_FEW_ROWS);
    assert_int_equal(linear_kernel(9, 4096, 4096, GATED), NONE);
    assert_int_equal(linear_kernel(9, 4096, 4096, FEATURE_GATED), KERNEL_BATCH);
}

// The kernels of a contest in the table's order, as letters.
static const char *contest(const struct kernel_job *job, const struct cuda_device_info *info) {
    static char text[8];
    const struct kernel_row *row = NULL;
    size_t length = 0;
    while ((row = kernel_table_next(row, job, info))) {
        assert_int_equal(row->chosen, BY_CONTEST);
        assert_true(length + 1 < sizeof text);
        text[length++] = "cbg"[row->kernel];
    }
    text[length] = '\0';
    return text;
}

static void test_contests(void **state) {
    (void)state;
    static const struct {
        uint32_t rows, out, in, features;
        const char *kernels;
    } cases[] = {
        {9, 4096, 4096, FEATURE_BIAS, "bc"},
        {128, 4096, 4096, FEATURE_ADDED, "bc"},
        {129, 4096, 4096, FEATURE_ADDED, "c"},
        {128, 8192, 4096, FEATURE_GATED, "bgc"},
        {9000, 8192, 4096, FEATURE_GATED, "gc"},
        {64, 151936, 4096, FEATURE_FLOAT_OUT, "c"},
        {64, 4100, 4096, PLAIN, "c"}, // outputs, then inputs, that are no multiple of 8
        {64, 4096, 4100, PLAIN, "c"},
        {64, 4096, 4096, FEATURE_GATED | FEATURE_ADDED, "c"},
    };
    struct cuda_device_info later = h200; // as large, but another architecture
    later.major = 10;
    later.encode_tensor_map = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct kernel_job job =
            linear_of(cases[i].rows, cases[i].out, cases[i].in, cases[i].features);
        assert_string_equal(contest(&job, &h200), cases[i].kernels);
        assert_string_equal(contest(&job, &ampere), "c");
        assert_string_equal(contest(&job, &later), "c");
    }
}

static void test_blocks_that_divide_the_inputs(void **state) {
    (void)state;
    struct kernel_job job = linear_of(64, 1024, 1024, PLAIN);
    static const struct {
        uint32_t split;
        bool has;
    } cases[] = {{0, false}, {1, true}, {3, true}, {8, true}, {9, false}, {1u << 26, false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        job.split = cases[i].split;
        assert_int_equal(kernel_table_has(KERNEL_BATCH, &job, &h200), cases[i].has);
    }
    job.split = 4;
    job.in = 4 * 64; // a step of the ring for each
    assert_true(kernel_table_has(KERNEL_BATCH, &job, &h200));
    job.in -= 8;
    assert_false(kernel_table_has(KERNEL_BATCH, &job, &h200));
}

static int attention_kernel(const struct cuda_device_info *info, enum kernel_op op,
                            uint32_t num_seqs, uint32_t head_dim, uint32_t features) {
    const struct kernel_job job = {.op = op,
                                   .rows = num_seqs,
                                   .features = features,
                                   .num_heads = 16,
                                   .num_kv_heads = 8,
                                   .head_dim = head_dim};
    return kernel_for(&job, info);
}

static void test_attention_of_decodes(void **state) {
    (void)state;
    uint32_t windowed = FEATURE_WINDOW | FEATURE_CHUNKS | FEATURE_KV_GROUP;
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 66, 128, 0), KERNEL_DECODE_CLUSTER);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 67, 128, 0), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 128, windowed), KERNEL_DECODE_CLUSTER);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 128, FEATURE_SOFTCAP), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 128, windowed | FEATURE_SINKS),
                     KERNEL_DECODE_CLUSTER);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 128, FEATURE_MIXED), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 66, 256, 0), KERNEL_DECODE_CLUSTER);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 67, 256, 0), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 512, 0), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 128, FEATURE_SHARED), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&ampere, OP_DECODE, 1, 128, 0), KERNEL_DECODE);
}

static bool has_shared_kernel(const struct cuda_device_info *info, uint32_t head_dim,
                              uint32_t features) {
    const struct kernel_job job = {
        .op = OP_SHARED, .rows = 1, .features = features, .head_dim = head_dim};
    return kernel_table_next(NULL, &job, info) != NULL;
}

static void test_attention_of_shared_prefixes(void **state) {
    (void)state;
    assert_true(has_shared_kernel(&h200, 64, 0));
    assert_true(has_shared_kernel(&h200, 128, 0));
    assert_false(has_shared_kernel(&h200, 96, 0));
    assert_false(has_shared_kernel(&h200, 256, 0));
    assert_false(has_shared_kernel(&h200, 128, FEATURE_KV_CODES));
    assert_false(has_shared_kernel(&h200, 128, FEATURE_KV_SHAPES));
    assert_false(has_shared_kernel(&ampere, 128, 0));
}

static void test_attention_of_prompts(void **state) {
    (void)state;
    uint32_t windowed = FEATURE_WINDOW | FEATURE_CHUNKS | FEATURE_KV_GROUP;
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 64, windowed), KERNEL_PREFILL_SM90);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 128, 0), KERNEL_PREFILL_SM90);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 96, 0), KERNEL_PREFILL);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 128, FEATURE_SOFTCAP), KERNEL_PREFILL);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 128, FEATURE_SINKS), KERNEL_PREFILL);
    assert_int_equal(attention_kernel(&ampere, OP_PREFILL, 1, 128, 0), KERNEL_PREFILL);
}

// A cache of 8-bit codes.
static void test_attention_over_codes(void **state) {
    (void)state;
    uint32_t codes = FEATURE_KV_CODES, capped = codes | FEATURE_SOFTCAP | FEATURE_SINKS;
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 66, 128, codes), KERNEL_DECODE_CLUSTER);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 67, 128, codes), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 256, capped), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 128, codes), KERNEL_PREFILL_SM90);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 96, codes), KERNEL_PREFILL);
    assert_int_equal(attention_kernel(&ampere, OP_PREFILL, 1, 256, capped), KERNEL_PREFILL);
}

// A cache whose layers have different shapes.
static void test_attention_among_shapes(void **state) {
    (void)state;
    uint32_t among = FEATURE_KV_SHAPES, all = among | FEATURE_KV_CODES | FEATURE_SINKS;
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 128, among), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 256, all), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, 512, all), KERNEL_DECODE);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 128, among), KERNEL_PREFILL);
    assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, 512, all), KERNEL_PREFILL);
}

// Their kernels take more shared memory than some devices have.
static void test_heads_of_512(void **state) {
    (void)state;
    struct cuda_device_info small = h200;
    for (int op = OP_DECODE; op <= OP_PREFILL; op++) {
        small.shared_bytes_max = CUDA_WIDE_HEADS_BYTES;
        assert_int_not_equal(attention_kernel(&small, op, 1, 512, 0), NONE);
        small.shared_bytes_max--;
        assert_int_equal(attention_kernel(&small, op, 1, 512, 0), NONE);
        assert_int_not_equal(attention_kernel(&small, op, 1, 256, 0), NONE);
    }
}

static void test_head_dims(void **state) {
    (void)state;
    static const uint32_t has[] = {32, 64, 80, 96, 128, 160, 256};
    static const uint32_t lacks[] = {0, 16, 48, 84, 112, 192, 224, 288, 480, 1024};
    for (size_t i = 0; i < ARRAY_LEN(has); i++) {
        assert_int_not_equal(attention_kernel(&ampere, OP_DECODE, 1, has[i], 0), NONE);
        assert_int_not_equal(attention_kernel(&ampere, OP_PREFILL, 1, has[i], 0), NONE);
    }
    for (size_t i = 0; i < ARRAY_LEN(lacks); i++) {
        assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, lacks[i], 0), NONE);
        assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, lacks[i], 0), NONE);
    }
}

// Heads of 80 and of 160 are in the kernels for any heads. A row of 80 codes has an odd number of
// chunks.
static void test_heads_of_80_and_160(void **state) {
    (void)state;
    uint32_t all = FEATURE_WINDOW | FEATURE_CHUNKS | FEATURE_SOFTCAP | FEATURE_SINKS;
    for (uint32_t head_dim = 80; head_dim <= 160; head_dim += 80) {
        bool has_codes = head_dim == 160;
        assert_int_equal(attention_kernel(&h200, OP_DECODE, 1, head_dim, all), KERNEL_DECODE);
        assert_int_equal(attention_kernel(&h200, OP_PREFILL, 1, head_dim, all), KERNEL_PREFILL);
        for (int op = OP_DECODE; op <= OP_PREFILL; op++) {
            int kernel = attention_kernel(&h200, op, 1, head_dim, FEATURE_KV_CODES);
            assert_int_equal(kernel != NONE, has_codes);
        }
    }
}

static bool has_norm_route(const struct cuda_device_info *info, uint32_t rows, uint32_t experts,
                           uint32_t in, struct weight_format format) {
    const struct kernel_job job = {.op = OP_NORM_ROUTE,
                                   .rows = rows,
                                   .features = FEATURE_BIAS,
                                   .format = format,
                                   .out = experts,
                                   .in = in};
    return kernel_table_has(KERNEL_NORM_ROUTE, &job, info);
}

static void test_norm_route(void **state) {
    (void)state;
    const struct weight_format packed = {.code = WEIGHT_CODE_INT8, .bits = 8, .group = 32};
    assert_true(has_norm_route(&h200, 4, 256, 3072, WEIGHTS_NATIVE));
    assert_true(has_norm_route(&h200, 1, 5, 8, WEIGHTS_NATIVE));
    assert_false(has_norm_route(&h200, 5, 256, 3072, WEIGHTS_NATIVE));
    assert_false(has_norm_route(&h200, 1, 257, 3072, WEIGHTS_NATIVE));
    assert_false(has_norm_route(&h200, 1, 256, 3080, WEIGHTS_NATIVE));
    assert_false(has_norm_route(&h200, 1, 256, 3072, packed));
    assert_false(has_norm_route(&ampere, 1, 256, 3072, WEIGHTS_NATIVE));
}

static void test_experts(void **state) {
    (void)state;
    for (uint32_t rows = 1; rows <= 6; rows++) {
        const struct kernel_job job = {
            .op = OP_EXPERTS, .rows = rows, .top_k = 1, .num_experts = 8};
        assert_int_equal(kernel_for(&job, &ampere), rows <= 4 ? KERNEL_FEW_TOKENS : KERNEL_SORTED);
    }
}

static int packed_experts_kernel(uint32_t rows, uint32_t top_k, uint32_t inputs,
                                 const struct cuda_device_info *info) {
    const struct kernel_job job = {.op = OP_EXPERTS,
                                   .rows = rows,
                                   .format = {4, 32, 0, WEIGHT_CODE_E2M1, false},
                                   .top_k = top_k,
                                   .inputs = {inputs, inputs}};
    return kernel_for(&job, info);
}

static void test_packed_experts(void **state) {
    (void)state;
    assert_int_equal(packed_experts_kernel(4, 8, 2944, &h200), KERNEL_PACKED_FEW_TOKENS);
    assert_int_equal(packed_experts_kernel(5, 8, 2944, &h200), KERNEL_PACKED_SORTED);
    assert_int_equal(packed_experts_kernel(4, 9, 2944, &h200), KERNEL_PACKED_SORTED);
    // The activated values of eight experts do not fit in shared memory.
    assert_int_equal(packed_experts_kernel(1, 8, 14464, &h200), KERNEL_PACKED_SORTED);
    assert_int_equal(packed_experts_kernel(1, 2, 14336, &h200), KERNEL_PACKED_FEW_TOKENS);
    assert_int_equal(packed_experts_kernel(5, 2, 2944, &ampere), NONE);
}

// The plan counts codes and scales: gpt-oss-120b's experts take 62 GB in MXFP4, and 229 in bf16.
static void test_bytes_of_experts(void **state) {
    (void)state;
    enum { LAYERS = 36 };
    const struct experts_shape shape = {128, 2880, 2880, true, false};
    const struct weight_format mxfp4 = {.bits = 4, .group = 32, .code = WEIGHT_CODE_E2M1};
    const struct cuda_backend on_h200 = {.info = h200}, on_ampere = {.info = ampere};
    size_t outputs = 128 * 3 * 2880ull, biases = outputs * sizeof(uint16_t);
    size_t packed = cuda_experts_bytes(&on_h200.base, &shape, mxfp4);
    assert_int_equal(packed, outputs * 2944 / 32 * 17 + biases);
    assert_in_range(packed * LAYERS / 1000000000, 62, 63);
    size_t floats = outputs * 2880 * sizeof(uint16_t) + biases;
    assert_int_equal(cuda_experts_bytes(&on_ampere.base, &shape, mxfp4), floats);
    assert_int_equal(cuda_experts_bytes(&on_h200.base, &shape, WEIGHTS_NATIVE), floats);
}

// All batches of more than 4 tokens have the same kernel, so they have the same bits.
static void test_sorted_experts(void **state) {
    (void)state;
    struct kernel_job job = {.op = OP_EXPERTS, .rows = 5, .top_k = 8, .num_experts = 128};
    assert_int_equal(kernel_for(&job, &h200), KERNEL_SORTED_SM90);
    assert_int_equal(kernel_for(&job, &ampere), KERNEL_SORTED);
    job.rows = 8192;
    assert_int_equal(kernel_for(&job, &h200), KERNEL_SORTED_SM90);
    job.rows = 4;
    assert_int_equal(kernel_for(&job, &h200), KERNEL_FEW_TOKENS);
}

static void test_formats(void **state) {
    (void)state;
    struct kernel_job job = linear_of(1, 1024, 1024, PLAIN);
    job.format = WEIGHTS_INT8;
    assert_int_equal(kernel_for(&job, &h200), NONE);
    assert_int_equal(kernel_format_bits(WEIGHTS_NATIVE), FORMAT_BF16);
    assert_int_equal(kernel_format_bits(WEIGHTS_INT8), 0);
}

static const struct weight_format e4m3_128 = {.bits = 8, .group = 128, .code = WEIGHT_CODE_E4M3};
static const struct weight_format e4m3_rows = {.bits = 8, .code = WEIGHT_CODE_E4M3};
static const struct weight_format int4_128 = {
    .bits = 4, .group = 128, .code = WEIGHT_CODE_INT4, .has_offsets = true};
static const struct weight_format int8_rows = {.bits = 8, .code = WEIGHT_CODE_INT8};
static const struct weight_format int4_32 = {.bits = 4, .group = 32, .code = WEIGHT_CODE_INT4};

static int packed_kernel(struct weight_format format, uint32_t rows, uint32_t features,
                         const struct cuda_device_info *info) {
    struct kernel_job job = linear_of(rows, 4096, 4096, features);
    job.format = format;
    return kernel_for(&job, info);
}

static void test_packed_formats(void **state) {
    (void)state;
    struct weight_format other = e4m3_128;
    for (uint32_t group = 16; group <= 128; group *= 2) {
        for (int code = WEIGHT_CODE_INT4; code < WEIGHT_CODE_COUNT; code++) {
            if (code == WEIGHT_CODE_E4M3) continue;
            other = (struct weight_format){
                .bits = weight_code_bits(code), .group = group, .code = code};
            assert_int_equal(kernel_format_bits(other), FORMAT_PACKED);
            other.has_offsets = true;
            assert_int_equal(kernel_format_bits(other),
                             code == WEIGHT_CODE_E2M1 ? 0 : FORMAT_PACKED);
        }
    }
    assert_int_equal(kernel_format_bits(e4m3_128), FORMAT_PACKED);
    assert_int_equal(kernel_format_bits(e4m3_rows), FORMAT_PACKED);
    assert_int_equal(kernel_format_bits(int8_rows), FORMAT_PACKED);
    other = e4m3_128;
    other.group = 64;
    assert_int_equal(kernel_format_bits(other), 0);
    other = int4_32;
    other.group = 8;
    assert_int_equal(kernel_format_bits(other), 0);
}

// Many rows are multiplied as bf16, sooner where groups are small, and always on other devices.
static void test_rows_of_packed_formats(void **state) {
    (void)state;
    static const struct {
        struct weight_format format;
        uint32_t batch_max;
    } cases[] = {
        {e4m3_128, 768}, {e4m3_rows, 768}, {int8_rows, 768}, {int4_128, 768}, {int4_32, 448}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct weight_format format = cases[i].format;
        uint32_t max = cases[i].batch_max;
        assert_int_equal(packed_kernel(format, 1, GATED, &h200), KERNEL_PACKED_FEW_ROWS);
        assert_int_equal(packed_kernel(format, 8, GATED, &h200), KERNEL_PACKED_FEW_ROWS);
        assert_int_equal(packed_kernel(format, 8, GATED | FEATURE_ACTIVATION, &h200),
                         KERNEL_PACKED_FEW_ROWS);
        assert_int_equal(packed_kernel(format, 8, PLAIN, &ampere), KERNEL_PACKED_FEW_ROWS);
        assert_int_equal(packed_kernel(format, 9, GATED, &h200), NONE);
        assert_int_equal(packed_kernel(format, 9, FEATURE_GATED, &h200), KERNEL_PACKED_BATCH);
        assert_int_equal(packed_kernel(format, 9, FEATURE_FLOAT_OUT, &h200), KERNEL_PACKED_BATCH);
        assert_int_equal(packed_kernel(format, 9, PLAIN, &ampere), KERNEL_UNPACKED);
        assert_int_equal(packed_kernel(format, max, FEATURE_ADDED, &h200), KERNEL_PACKED_BATCH);
        assert_int_equal(packed_kernel(format, max + 1, FEATURE_ADDED, &h200), KERNEL_UNPACKED);
    }
}

// Where the checkpoint rounds inputs, codes are multiplied by codes: of more rows by cuBLASLt. All
// want 16 outputs at a time, and scales of whole outputs or blocks. For few rows it takes too long
// to write the codes as plain rows first.
static void test_rounded_inputs(void **state) {
    (void)state;
    for (uint32_t group = 0; group <= 128; group += 128) {
        uint32_t most = group ? CUDA_E4M3_BATCH_ROWS_OF_BLOCKS : CUDA_E4M3_BATCH_ROWS;
        struct kernel_job job = linear_of(CUDA_FEW_ROWS + 1, 4096, 4096, FEATURE_NORM);
        job.format = (struct weight_format){
            .bits = 8, .group = group, .code = WEIGHT_CODE_E4M3, .rounds_inputs = true};
        job.has_plain = true;
        job.has_block_scales = group != 0;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3_BATCH);
        job.features = GATED;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3_BATCH);
        // Its gating is SiLU alone.
        job.features = FEATURE_GATED | FEATURE_ACTIVATION;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_BATCH);
        job.features = FEATURE_ADDED | FEATURE_BIAS;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3_BATCH);
        assert_int_equal(kernel_for(&job, &ampere), KERNEL_UNPACKED);
        job.rows = CUDA_FEW_ROWS;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_FEW_ROWS);
        job.rows = most;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3_BATCH);
        job.rows++;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3);
        job.has_plain = false;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_BATCH);
        job.rows = CUDA_E4M3_ROWS_NOT_PLAIN - 1;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_BATCH);
        job.rows++;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3);
        job.has_plain = true, job.rows = 2048;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_E4M3);
        job.features = FEATURE_FLOAT_OUT;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_UNPACKED);
        // No room for 16 rows beside the plain codes.
        job.features = 0, job.has_plain = false, job.out = 16;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_UNPACKED);
        job.out = 4096, job.has_block_scales = false;
        assert_int_equal(kernel_for(&job, &h200), group ? KERNEL_UNPACKED : KERNEL_E4M3);
        job.has_plain = true, job.has_block_scales = group != 0;
        job.format.rounds_inputs = false;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_UNPACKED);
        job.format.rounds_inputs = true;
        job.out = 4104;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_UNPACKED);
        job.rows = most;
        assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_BATCH);
    }
}

// x of few rows is in shared memory.
static void test_inputs_of_packed_few_rows(void **state) {
    (void)state;
    struct kernel_job job = linear_of(8, 4096, 12288, PLAIN);
    job.format = e4m3_128;
    assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_FEW_ROWS);
    job.in = 16384;
    assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_BATCH);
    job.rows = 4;
    assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_FEW_ROWS);
    job.in = 256;
    job.out = 24; // halves are no whole tiles
    assert_int_equal(kernel_for(&job, &h200), KERNEL_PACKED_FEW_ROWS);
    job.features = FEATURE_GATED;
    assert_int_equal(kernel_for(&job, &h200), KERNEL_UNPACKED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_up_to_which_few_rows_sm90_takes),
        cmocka_unit_test(test_what_few_rows_sm90_leaves),
        cmocka_unit_test(test_the_smallest_few_rows_sm90_kernel),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_what_few_rows_ring_takes),
        cmocka_unit_test(test_few_rows_of_large_matrices),
        cmocka_unit_test(test_many_rows_have_no_norm),
        cmocka_unit_test(test_contests),
        cmocka_unit_test(test_blocks_that_divide_the_inputs),
        cmocka_unit_test(test_attention_of_decodes),
        cmocka_unit_test(test_attention_of_shared_prefixes),
        cmocka_unit_test(test_attention_of_prompts),
        cmocka_unit_test(test_attention_over_codes),
        cmocka_unit_test(test_attention_among_shapes),
        cmocka_unit_test(test_heads_of_512),
        cmocka_unit_test(test_head_dims),
        cmocka_unit_test(test_heads_of_80_and_160),
        cmocka_unit_test(test_norm_route),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_packed_experts),
        cmocka_unit_test(test_bytes_of_experts),
        cmocka_unit_test(test_sorted_experts),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_packed_formats),
        cmocka_unit_test(test_rows_of_packed_formats),
        cmocka_unit_test(test_rounded_inputs),
        cmocka_unit_test(test_inputs_of_packed_few_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
