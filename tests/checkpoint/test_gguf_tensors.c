/* Tensors of a GGUF file that store heads in another order. The order follows from the metadata, so
 * a tensor of another size must be refused before one of its elements is read. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/gguf/file/gguf_files.h"
#include "checkpoint/gguf/weights/gguf_tensors.h"
#include "checkpoint/tensor.h"
#include "support/cmocka_all.h"
#include "support/gguf_builder.h"

enum { F32_TYPE = 0, KEYS = 2, HEADS = 4, KEY_DIM = 2, VALUE_DIM = 3, INNER = HEADS * VALUE_DIM };
enum { QKV = 2 * KEYS * KEY_DIM + INNER };

struct size {
    const char *key;
    uint32_t value;
};

static const struct size delta_sizes[] = {
    {"qwen35.block_count", 1},
    {"qwen35.embedding_length", 8},
    {"qwen35.attention.head_count", 2},
    {"qwen35.ssm.group_count", KEYS},
    {"qwen35.ssm.time_step_rank", HEADS},
    {"qwen35.ssm.state_size", KEY_DIM},
    {"qwen35.ssm.inner_size", INNER},
};

// Opens a file of one tensor, whose elements are 0, 1, 2 ..., and copies the first ones to `out`,
// if it is a vector. The innermost size is the first.
static enum status open_one(const char *architecture, const struct size *sizes, size_t num_sizes,
                            const char *name, uint32_t rank, const uint64_t *shape,
                            float out[HEADS], struct err *err) {
    struct buf text = {0};
    struct gguf *gguf = NULL;
    struct gguf_files files;
    struct tensor_set *set = NULL;
    uint64_t count = rank == 1 ? shape[0] : shape[0] * shape[1];
    put_start(&text, 1, num_sizes + 1);
    put_string_value(&text, "general.architecture", architecture);
    for (size_t i = 0; i < num_sizes; i++) put_u32_value(&text, sizes[i].key, sizes[i].value);
    put_tensor(&text, name, rank, shape, F32_TYPE, 0);
    put_data(&text, 32, 0);
    for (uint64_t i = 0; i < count; i++) {
        float value = (float)i;
        put_bytes(&text, &value, sizeof value);
    }
    char *bytes = malloc(text.len); // so that sanitizers see what lies beyond
    assert_non_null(bytes);
    memcpy(bytes, text.data, text.len);
    assert_int_equal(gguf_parse(&gguf, bytes, text.len, "m.gguf", err), OK);
    assert_int_equal(gguf_files_take(&files, gguf, err), OK);
    enum status status = gguf_tensors_take(&files, &set, err);
    if (!status) {
        assert_int_equal(set->count, 1);
        if (out) memcpy(out, set->tensors[0]->source.data, HEADS * sizeof *out);
        set->close(set);
    }
    free(bytes);
    buf_fini(&text);
    return status;
}

// The first head of each key head, then the second of each: stored, and read in another order.
static void test_heads_in_another_order(void **state) {
    (void)state;
    static const float want[HEADS] = {0, 2, 1, 3};
    static const uint64_t heads[] = {HEADS}, matrix[] = {4, QKV}, columns[] = {INNER, 8};
    static const size_t num = ARRAY_LEN(delta_sizes);
    float got[HEADS] = {0};
    struct err err = {0};
    if (open_one("qwen35", delta_sizes, num, "blk.0.ssm_dt.bias", 1, heads, got, &err)) {
        fail_msg("%s", err.message);
    }
    assert_memory_equal(got, want, sizeof want);
    if (open_one("qwen35", delta_sizes, num, "blk.0.ssm_conv1d.weight", 2, matrix, NULL, &err) ||
        open_one("qwen35", delta_sizes, num, "blk.0.ssm_out.weight", 2, columns, NULL, &err)) {
        fail_msg("%s", err.message);
    }
}

static void test_other_sizes_than_the_heads(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t rank;
        uint64_t shape[2]; // the innermost size first
        const char *sentence;
    } cases[] = {
        {"blk.0.ssm_dt.bias", 1, {HEADS / KEYS}, "has 2 rows of 1, want the model's heads"},
        {"blk.0.ssm_dt.bias", 1, {2 * HEADS}, "has 8 rows of 1, want the model's heads"},
        {"blk.0.attn_gate.weight", 2, {8, INNER / KEYS}, "has 6 rows of 8, want the model's"},
        {"blk.0.attn_qkv.weight", 2, {8, QKV - INNER / KEYS}, "has 14 rows of 8, want the"},
        {"blk.0.attn_qkv.weight", 2, {8, KEYS}, "has 2 rows of 8, want the model's heads"},
        {"blk.0.ssm_out.weight", 2, {INNER / KEYS, 8}, "has 8 rows of 6, want the model's heads"},
        {"blk.0.ssm_conv1d.weight", 1, {QKV}, "conv1d.weight\" is a vector, want a matrix"},
        {"blk.0.ssm_conv1d.weight", 1, {QKV - INNER / KEYS}, "has 14 rows of 1, want the"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        enum status status = open_one("qwen35", delta_sizes, ARRAY_LEN(delta_sizes), cases[i].name,
                                      cases[i].rank, cases[i].shape, NULL, &err);
        if (status == ERR_FORMAT && strstr(err.message, cases[i].sentence)) continue;
        fail_msg("%zu: status %d, \"%s\", want \"%s\"", i, status, err.message, cases[i].sentence);
    }
}

// Opens a file with two experts' matrices of a block each, and `num_factors` factors of them. Reads
// the first element of the second expert, and its scale.
static enum status open_factors(uint64_t num_factors, float *value, float *scale, struct err *err) {
    enum { NVFP4_TYPE = 40, EXPERTS = 2, BLOCK_BYTES = 36, ELEMENTS = 64 };
    static const uint64_t shape[] = {ELEMENTS, 1, EXPERTS};
    static const float factors[] = {3, 0.625f, 5};
    struct buf text = {0};
    struct gguf *gguf = NULL;
    struct gguf_files files;
    struct tensor_set *set = NULL;
    put_start(&text, 3, 5);
    put_string_value(&text, "general.architecture", "qwen3moe");
    put_u32_value(&text, "qwen3moe.embedding_length", ELEMENTS);
    put_u32_value(&text, "qwen3moe.attention.head_count", 2);
    put_u32_value(&text, "qwen3moe.block_count", 1);
    put_u32_value(&text, "qwen3moe.expert_count", EXPERTS);
    put_tensor(&text, "blk.0.ffn_up_exps.weight", 3, shape, NVFP4_TYPE, 0);
    put_tensor(&text, "blk.0.ffn_up_exps.scale", 1, &num_factors, F32_TYPE, 96);
    put_tensor(&text, "blk.0.ffn_up_exps.input_scale", 1, &num_factors, F32_TYPE, 128);
    put_data(&text, 32, 0);
    for (int i = 0; i < EXPERTS * BLOCK_BYTES; i++) {
        put_bytes(&text, &(uint8_t){i % BLOCK_BYTES < 4 ? 0x40 : 0x33}, 1); // 2; 1.5 and 1.5
    }
    put_data(&text, 32, 0);
    put_bytes(&text, factors, num_factors * sizeof *factors);
    put_data(&text, 32, 0);
    put_bytes(&text, factors, num_factors * sizeof *factors);
    assert_int_equal(gguf_parse(&gguf, text.data, text.len, "m.gguf", err), OK);
    assert_int_equal(gguf_files_take(&files, gguf, err), OK);
    enum status status = gguf_tensors_take(&files, &set, err);
    if (!status) {
        uint8_t codes[ELEMENTS];
        float scales[ELEMENTS / 16];
        const struct matrix_codes out = {.codes = codes, .scales = scales, .offsets = NULL};
        assert_int_equal(set->count, EXPERTS); // the factors are no tensors of the model
        const struct matrix_reader *reader = set->tensors[1]->reader;
        assert_int_equal(reader->read(reader, 0, 0, 1, value, NULL), OK);
        assert_int_equal(reader->read_codes(reader, 0, 16, 16, 16, &out, NULL), OK);
        *scale = scales[0];
        assert_int_equal(reader->read_code_rows(reader, 0, 1, 0, ELEMENTS, 16, &out, NULL), OK);
        assert_true(scales[0] == *scale && scales[3] == *scale);
        set->close(set);
    }
    buf_fini(&text);
    return status;
}

static void test_factors_of_experts(void **state) {
    (void)state;
    struct err err = {0};
    float value = 0, scale = 0;
    if (open_factors(2, &value, &scale, &err)) fail_msg("%s", err.message);
    assert_true(scale == 1.25f && value == 1.875f);
    for (uint64_t count = 1; count <= 3; count += 2) {
        assert_int_equal(open_factors(count, &value, &scale, &err), ERR_FORMAT);
        assert_string_equal(err.message,
                            "m.gguf: tensor \"blk.0.ffn_up_exps.scale\" is not 2 numbers in F32");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_in_another_order),
        cmocka_unit_test(test_other_sizes_than_the_heads),
        cmocka_unit_test(test_factors_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
