// Tensors as MLX has them: those of all experts of a layer in one, and convolutions.
#include <stdio.h>
#include <string.h>

#include "checkpoint/weights.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

// Opens a file with this header and 12 bytes: 0, 1, 2 and so on.
static struct weights *open_file(const struct temp_folder *folder, const char *header) {
    unsigned char bytes[512] = {0};
    struct weights *weights = NULL;
    struct err err = {0};
    size_t len = strlen(header);
    bytes[0] = (unsigned char)len;
    memcpy(bytes + 8, header, len);
    for (unsigned char k = 0; k < 12; k++) bytes[8 + len + k] = k;
    temp_folder_write(folder, "model.safetensors", bytes, 8 + len + 12);
    if (folder_model_weights(&weights, folder->path, &err)) fail_msg("%s", err.message);
    return weights;
}

// Takes a matrix, and wants this byte as its first one.
static void take_ok(struct weights *weights, const char *name, uint64_t rows, uint64_t cols,
                    char first) {
    struct err err = {0};
    struct weight weight;
    char byte;
    if (weights_take(weights, name, 2, (const uint64_t[]){rows, cols}, &weight, &err)) {
        fail_msg("%s", err.message);
    }
    assert_non_null(byte_source_get(&weight.source, 0, 1, &byte, NULL));
    assert_int_equal(byte, first);
}

// Without the prefix that wrappers have, no dot is in front of "switch_mlp".
static void test_experts_behind_a_prefix_alone(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    struct weights *weights =
        open_file(&folder, "{\"language_model.switch_mlp.up_proj.weight\":{\"dtype\":\"BF16\","
                           "\"shape\":[2,1,3],\"data_offsets\":[0,12]}}");
    assert_int_equal(weights_finish(weights, NULL), ERR_FORMAT);
    weights_close(weights);
    temp_folder_remove(&folder);
}

static void test_experts_in_one_tensor(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"mlp.switch_mlp.up_proj.scales", "mlp.experts.%d.up_proj.scales"},
        {"block_sparse_moe.switch_mlp.up_proj.weight", "block_sparse_moe.experts.%d.w3.weight"},
        {"feed_forward.switch_mlp.down_proj.weight", "feed_forward.experts.%d.w2.weight"},
        {"block_sparse_moe.switch_mlp.gate_proj.weight", "block_sparse_moe.experts.%d.w1.weight"},
    };
    struct temp_folder folder;
    temp_folder_create(&folder);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char header[256], form[128], name[128];
        snprintf(header, sizeof header,
                 "{\"language_model.model.layers.0.%s\":{\"dtype\":\"BF16\",\"shape\":[2,1,3],"
                 "\"data_offsets\":[0,12]}}",
                 names[i][0]);
        struct weights *weights = open_file(&folder, header);
        for (int expert = 0; expert < 2; expert++) {
            assert_int_equal(weights_finish(weights, NULL), ERR_FORMAT); // one is left
            snprintf(form, sizeof form, "model.layers.0.%s", names[i][1]);
            char *number = strstr(form, "%d");
            snprintf(name, sizeof name, "%.*s%d%s", (int)(number - form), form, expert, number + 2);
            take_ok(weights, name, 1, 3, (char)(6 * expert));
        }
        assert_int_equal(weights_finish(weights, NULL), OK);
        weights_close(weights);
    }
    temp_folder_remove(&folder);
}

// Channels, width and 1 are the same bytes as channels, 1 and width.
static void test_convolution(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    struct weights *weights = open_file(
        &folder, "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3,1],\"data_offsets\":[0,12]}}");
    struct weight weight;
    const uint64_t turned[2] = {3, 2};
    assert_int_equal(weights_take(weights, "a", 2, turned, &weight, NULL), ERR_FORMAT);
    take_ok(weights, "a", 2, 3, 0);
    weights_close(weights);
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_in_one_tensor),
        cmocka_unit_test(test_experts_behind_a_prefix_alone),
        cmocka_unit_test(test_convolution),
    };
    return cmocka_run_group_tests_name("tensor_table", tests, NULL, NULL);
}
