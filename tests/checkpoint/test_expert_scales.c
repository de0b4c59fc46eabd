// FP8 as transformers 5 writes it: each expert's codes are a tensor, but the scales of all are one.
#include <stdio.h>
#include <string.h>

#include "checkpoint/expert_stack.h"
#include "checkpoint/weights.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

enum { EXPERTS = 2, ROWS = 4, COLS = 6, BLOCK_ROWS = 2, BLOCK_COLS = 3 };
enum { CODES = ROWS * COLS, SCALES = EXPERTS * 4 * 2 }; // gate and up have 2 x 2 blocks each

static const char *const matrices[] = {"m.experts.0.gate_proj", "m.experts.0.up_proj",
                                       "m.experts.1.gate_proj", "m.experts.1.up_proj"};

// All codes are 1, and scale number i is i.
static void write_model(const struct temp_folder *folder) {
    unsigned char bytes[2048] = {0};
    char *header = (char *)bytes + 8;
    int len = 0;
    for (int i = 0; i < 4; i++) {
        len += snprintf(header + len, 1500 - (size_t)len,
                        "%s\"%s.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d],"
                        "\"data_offsets\":[%d,%d]}",
                        i ? "," : "{", matrices[i], ROWS, COLS, i * CODES, (i + 1) * CODES);
    }
    len += snprintf(header + len, 1500 - (size_t)len,
                    ",\"m.experts.gate_up_proj_scale_inv\":{\"dtype\":\"F32\",\"shape\":[%d,4,2],"
                    "\"data_offsets\":[%d,%d]}}",
                    EXPERTS, 4 * CODES, 4 * CODES + 4 * SCALES);
    bytes[0] = (unsigned char)len;
    bytes[1] = (unsigned char)(len >> 8);
    unsigned char *data = bytes + 8 + len;
    memset(data, 0x38, 4 * CODES);
    for (int i = 0; i < SCALES; i++) {
        float scale = (float)i;
        memcpy(data + 4 * CODES + 4 * i, &scale, sizeof scale);
    }
    temp_folder_write(folder, "model.safetensors", bytes, 8 + (size_t)len + 4 * CODES + 4 * SCALES);
}

static void test_each_matrix_has_its_own(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    write_model(&folder);
    struct weights *weights = NULL;
    struct err err = {0};
    if (folder_model_weights(&weights, folder.path, &err)) fail_msg("%s", err.message);
    const struct quantization_config config = {
        .method = QUANTIZED_FP8, .bits = 8, .block_rows = BLOCK_ROWS, .block_cols = BLOCK_COLS};
    weights_set_quantization(weights, &config);
    weights_set_experts(weights, EXPERTS_APART, EXPERTS);
    for (int i = 0; i < 4; i++) {
        char name[64];
        struct matrix_form form;
        struct weight weight;
        snprintf(name, sizeof name, "%s.weight", matrices[i]);
        if (weights_form(weights, name, ROWS, COLS, &form, &err)) fail_msg("%s", err.message);
        assert_int_equal(form.code, WEIGHT_CODE_E4M3);
        if (weights_take(weights, name, 2, (const uint64_t[]){ROWS, COLS}, &weight, &err)) {
            fail_msg("%s", err.message);
        }
        for (int row = 0; row < ROWS; row++) {
            float values[COLS];
            assert_int_equal(
                weight.reader->read(weight.reader, (uint64_t)row, 0, COLS, values, NULL), OK);
            for (int col = 0; col < COLS; col++) {
                int scale = 4 * i + row / BLOCK_ROWS * 2 + col / BLOCK_COLS;
                assert_true(values[col] == (float)scale);
            }
        }
    }
    if (weights_finish(weights, &err)) fail_msg("%s", err.message);
    weights_close(weights);
    temp_folder_remove(&folder);
}

static enum status take(struct tensor *out, const char *name, uint32_t num_experts, uint32_t rank,
                        uint64_t rows, uint32_t block_rows, struct err *err) {
    static const char zeros[4 * 64];
    const struct tensor of_all = {.name = "scales",
                                  .path = "file",
                                  .dtype = DTYPE_F32,
                                  .rank = rank,
                                  .shape = {EXPERTS, 4, 2},
                                  .size_bytes = 4 * SCALES,
                                  .source = {.data = zeros}};
    struct expert_place place;
    assert_true(expert_place_parse(&place, name));
    place.num_experts = num_experts;
    enum status status = expert_stack_scales(out, &place, &of_all, rows, block_rows, err);
    if (!status)
        assert_true((const char *)out->source.data + out->size_bytes <= zeros + 4 * SCALES);
    return status;
}

static void test_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t num_experts, rank, block_rows;
        uint64_t rows;
        enum status status;
    } cases[] = {
        {"a.experts.1.up_proj.weight", EXPERTS, 3, 128, 256, OK},
        {"a.experts.1.w3.weight", EXPERTS, 3, 128, 256, OK}, // Mixtral's names
        {"a.experts.1.w2.weight", EXPERTS, 3, 128, 400, OK}, // down: the last block is smaller
        {"a.experts.1.w1.weight", EXPERTS, 3, 128, 200, ERR_UNSUPPORTED}, // a block of gate and up
        {"a.experts.1.w1.weight", EXPERTS, 3, 128, 128, ERR_FORMAT},
        {"a.experts.1.w1.weight", EXPERTS, 2, 128, 256, ERR_FORMAT},
        {"a.experts.2.w1.weight", EXPERTS, 3, 128, 256, ERR_FORMAT},
        {"a.experts.0.w1.weight", 3, 3, 128, 256, ERR_FORMAT},
        {"a.experts.0.w1.weight", EXPERTS, 3, 0, 256, ERR_FORMAT}, // want one for each expert
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor out;
        struct err err = {0};
        enum status status = take(&out, cases[i].name, cases[i].num_experts, cases[i].rank,
                                  cases[i].rows, cases[i].block_rows, &err);
        if (status != cases[i].status) fail_msg("case %zu: %s", i, err.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_matrix_has_its_own),
        cmocka_unit_test(test_shapes),
    };
    return cmocka_run_group_tests_name("expert_scales", tests, NULL, NULL);
}
