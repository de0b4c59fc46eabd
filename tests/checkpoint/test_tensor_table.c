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
        {"block_sparse_moe.switch_mlp.gate_proj.weight", "block_sparse_moe.%d.gate_proj.weight"},
        {"mixer.switch_mlp.fc1.weight", "mixer.experts.%d.up_proj.weight"},
        {"mixer.switch_mlp.fc2.weight", "mixer.experts.%d.down_proj.weight"},
        {"experts.switch_glu.gate_proj.weight", "experts.%d.gate_proj.weight"},
        {"mlp.experts.gate_proj.weight", "mlp.experts.%d.gate_proj.weight"},
        {"feed_forward.experts.up_proj.scales", "feed_forward.experts.%d.up_proj.scales"},
        {"mlp.experts.down_proj.weight", "mlp.experts.%d.down_proj.weight"},
        {"self_attn.embed_q.weight", "self_attn.kv_b_heads.%d.key.weight"},
        {"self_attn.unembed_out.biases", "self_attn.kv_b_heads.%d.value.biases"},
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

// Takes a vector, and wants this byte as its first one.
static void take_vector(struct weights *weights, const char *name, uint64_t count, char first) {
    struct err err = {0};
    struct weight weight;
    char byte;
    if (weights_take(weights, name, 1, &count, &weight, &err)) fail_msg("%s", err.message);
    assert_non_null(byte_source_get(&weight.source, 0, 1, &byte, NULL));
    assert_int_equal(byte, first);
}

static void test_vectors_of_experts_in_one_tensor(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    struct weights *weights =
        open_file(&folder, "{\"a.experts.up_proj.bias\":{\"dtype\":\"BF16\",\"shape\":[2,2],"
                           "\"data_offsets\":[0,8]},"
                           "\"a.switch_mlp.up_proj.global_scale\":{\"dtype\":\"BF16\","
                           "\"shape\":[2],\"data_offsets\":[8,12]}}");
    take_vector(weights, "a.experts.0.up_proj.bias", 2, 0);
    take_vector(weights, "a.experts.1.up_proj.bias", 2, 4);
    take_vector(weights, "a.experts.0.up_proj.global_scale", 1, 8);
    take_vector(weights, "a.experts.1.up_proj.global_scale", 1, 10);
    assert_int_equal(weights_finish(weights, NULL), OK);
    weights_close(weights);
    temp_folder_remove(&folder);
}

// MLX's names for tensors that the model asks for by those of published checkpoints.
static void test_other_names(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"feed_forward.gate_proj.weight", "feed_forward.w1.weight"},
        {"feed_forward.down_proj.weight", "feed_forward.w2.weight"},
        {"feed_forward.up_proj.weight", "feed_forward.w3.weight"},
        {"mlp.up_proj.weight", "shared_mlp.up_proj.weight"},
        {"mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"},
    };
    struct temp_folder folder;
    temp_folder_create(&folder);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char header[256], name[128];
        snprintf(header, sizeof header,
                 "{\"model.layers.0.%s\":{\"dtype\":\"BF16\",\"shape\":[2,3],"
                 "\"data_offsets\":[0,12]}}",
                 names[i][0]);
        struct weights *weights = open_file(&folder, header);
        snprintf(name, sizeof name, "model.layers.0.%s", names[i][1]);
        assert_true(weights_has(weights, name));
        take_ok(weights, name, 2, 3, 0);
        snprintf(name, sizeof name, "model.layers.1.%s", names[i][1]);
        assert_false(weights_has(weights, name));
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

static void test_form_of_convolutions(void **state) {
    (void)state;
    static const struct {
        const char *name, *shape;
        bool is_mlx;
    } cases[] = {{"a.conv1d.weight", "[2,3,1]", true},
                 {"a.conv1d.weight", "[2,1,3]", false},
                 {"a.conv1d.weight", "[6,1,1]", false}, // of one token: either
                 {"a.conv1d.bias", "[2,3,1]", false},
                 {"a.up_proj.weight", "[2,3,1]", false},
                 {"language_model.conv1d.weight", "[2,3,1]", true},
                 {"vision_tower.conv1d.weight", "[2,3,1]", false}}; // not of the text model
    struct temp_folder folder;
    temp_folder_create(&folder);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char header[256];
        snprintf(header, sizeof header,
                 "{\"%s\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[0,12]}}",
                 cases[i].name, cases[i].shape);
        struct weights *weights = open_file(&folder, header);
        assert_int_equal(weights_has_mlx_convs(weights), cases[i].is_mlx);
        weights_close(weights);
    }
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_in_one_tensor),
        cmocka_unit_test(test_experts_behind_a_prefix_alone),
        cmocka_unit_test(test_vectors_of_experts_in_one_tensor),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_form_of_convolutions),
    };
    return cmocka_run_group_tests_name("tensor_table", tests, NULL, NULL);
}
