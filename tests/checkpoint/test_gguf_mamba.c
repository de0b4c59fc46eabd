/* Models with Mamba-2 in a GGUF file's metadata: which block each layer of Nemotron-H is, and what
 * is refused by its name. */
#include <stdio.h>
#include <string.h>

#include "base/json/json_out.h"
#include "checkpoint/gguf/file/gguf_files.h"
#include "checkpoint/gguf/gguf_model.h"
#include "checkpoint/gguf/weights/gguf_names.h"
#include "support/cmocka_all.h"
#include "support/gguf_builder.h"

enum { F32_TYPE = 0, VOCAB = 12, HIDDEN = 8, LAYERS = 4, DRAFT_LAYERS = 1 };

// What the lists of a file say of each of its layers; the last one drafts tokens.
struct lists {
    uint32_t kv_heads[LAYERS + DRAFT_LAYERS], widths[LAYERS + DRAFT_LAYERS];
};

static void put_list(struct buf *bytes, const char *key, const uint32_t *numbers, uint64_t count) {
    put_array(bytes, key, GGUF_I32, count);
    for (uint64_t i = 0; i < count; i++) put_u32(bytes, numbers[i]);
}

// Writes config.json of a small file into `out`; the caller frees it. `count`: of the lists.
static enum status write_config(const struct lists *lists, uint64_t count, uint32_t inner_size,
                                struct json_out *out, struct err *err) {
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"nemotron_h_moe.context_length", 64},
        {"nemotron_h_moe.embedding_length", HIDDEN},
        {"nemotron_h_moe.block_count", LAYERS + DRAFT_LAYERS},
        {"nemotron_h_moe.nextn_predict_layers", DRAFT_LAYERS},
        {"nemotron_h_moe.attention.head_count", 2},
        {"nemotron_h_moe.attention.key_length", 16},
        {"nemotron_h_moe.rope.dimension_count", 4}, // of heads that are not rotated
        {"nemotron_h_moe.expert_count", 4},
        {"nemotron_h_moe.expert_used_count", 2},
        {"nemotron_h_moe.expert_shared_count", 1},
        {"nemotron_h_moe.expert_feed_forward_length", 24},
        {"nemotron_h_moe.expert_shared_feed_forward_length", 40},
        {"nemotron_h_moe.ssm.conv_kernel", 4},
        {"nemotron_h_moe.ssm.state_size", 32},
        {"nemotron_h_moe.ssm.group_count", 2},
        {"nemotron_h_moe.ssm.time_step_rank", 4},
    };
    static const uint64_t embedding[] = {HIDDEN, VOCAB};
    struct buf bytes = {0};
    struct gguf *gguf = NULL;
    struct gguf_files files;
    put_start(&bytes, 1, ARRAY_LEN(sizes) + 5);
    put_string_value(&bytes, "general.architecture", "nemotron_h_moe");
    put_f32_value(&bytes, "nemotron_h_moe.attention.layer_norm_rms_epsilon", 1e-5f);
    put_u32_value(&bytes, "nemotron_h_moe.ssm.inner_size", inner_size);
    put_list(&bytes, "nemotron_h_moe.attention.head_count_kv", lists->kv_heads, count);
    put_list(&bytes, "nemotron_h_moe.feed_forward_length", lists->widths, count);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        put_u32_value(&bytes, sizes[i].key, sizes[i].value);
    }
    put_tensor(&bytes, "token_embd.weight", 2, embedding, F32_TYPE, 0);
    put_data(&bytes, 32, HIDDEN * VOCAB * 4);
    assert_int_equal(gguf_parse(&gguf, bytes.data, bytes.len, "m.gguf", err), OK);
    assert_int_equal(gguf_files_take(&files, gguf, err), OK);
    enum status status = gguf_write_config(&files, out, err);
    gguf_files_close(&files);
    buf_fini(&bytes);
    return status;
}

// Of Granite 4 without Mamba layers llama.cpp writes the sizes of such layers, 0 experts and a
// number of KV heads for each layer.
static void test_granite_without_mamba(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"granite.context_length", 64},      {"granite.embedding_length", HIDDEN},
        {"granite.block_count", 2},          {"granite.feed_forward_length", 24},
        {"granite.attention.head_count", 2}, {"granite.expert_count", 0},
        {"granite.expert_used_count", 0},    {"granite.expert_shared_feed_forward_length", 24},
        {"granite.ssm.conv_kernel", 4},      {"granite.ssm.state_size", 32},
        {"granite.ssm.group_count", 1},      {"granite.ssm.inner_size", 16},
        {"granite.ssm.time_step_rank", 4},
    };
    static const char *const reals[] = {"attention.layer_norm_rms_epsilon", "attention.scale",
                                        "embedding_scale", "residual_scale", "logit_scale"};
    static const char want[] = "\"num_key_value_heads\": 1";
    static const uint64_t embedding[] = {HIDDEN, VOCAB};
    struct buf bytes = {0};
    struct gguf *gguf = NULL;
    struct gguf_files files;
    struct json_out out = {0};
    struct err err = {0};
    put_start(&bytes, 1, ARRAY_LEN(sizes) + ARRAY_LEN(reals) + 3);
    put_string_value(&bytes, "general.architecture", "granite");
    put_bool_value(&bytes, "granite.rope.scaling.finetuned", true);
    put_list(&bytes, "granite.attention.head_count_kv", (const uint32_t[]){1, 1}, 2);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        put_u32_value(&bytes, sizes[i].key, sizes[i].value);
    }
    for (size_t i = 0; i < ARRAY_LEN(reals); i++) {
        char key[64];
        snprintf(key, sizeof key, "granite.%s", reals[i]);
        put_f32_value(&bytes, key, 0.5f);
    }
    put_tensor(&bytes, "token_embd.weight", 2, embedding, F32_TYPE, 0);
    put_data(&bytes, 32, HIDDEN * VOCAB * 4);
    assert_int_equal(gguf_parse(&gguf, bytes.data, bytes.len, "m.gguf", &err), OK);
    assert_int_equal(gguf_files_take(&files, gguf, &err), OK);
    if (gguf_write_config(&files, &out, &err)) fail_msg("%s", err.message);
    json_out_rawf(&out, "%c", '\0');
    if (!strstr(out.buf.data, want)) fail_msg("no %s in %s", want, out.buf.data);
    json_out_fini(&out);
    gguf_files_close(&files);
    buf_fini(&bytes);
}

static void test_blocks(void **state) {
    (void)state;
    static const char *const parts[] = {"\"hybrid_override_pattern\": \"MEM*\"",
                                        "\"num_hidden_layers\": 4",
                                        "\"mamba_head_dim\": 16",
                                        "\"num_key_value_heads\": 2",
                                        "\"moe_intermediate_size\": 24",
                                        "\"moe_shared_expert_intermediate_size\": 40",
                                        "\"num_nextn_predict_layers\": 1",
                                        "\"n_group\": 1"};
    const struct lists lists = {{0, 0, 0, 2, 2}, {0, 24, 0, 0, 24}};
    struct json_out out = {0};
    struct err err = {0};
    if (write_config(&lists, LAYERS + DRAFT_LAYERS, 64, &out, &err)) fail_msg("%s", err.message);
    json_out_rawf(&out, "%c", '\0');
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (!strstr(out.buf.data, parts[i])) fail_msg("no %s in %s", parts[i], out.buf.data);
    }
    json_out_fini(&out);
}

static void test_blocks_that_are_refused(void **state) {
    (void)state;
    static const struct {
        struct lists lists;
        uint64_t count;
        uint32_t inner_size;
        const char *sentence;
    } cases[] = {
        {{{0, 0, 0, 2, 2}, {0, 24, 0, 24, 24}}, 5, 64, "layer 3 has KV heads and an MLP"},
        {{{0, 1, 0, 2, 2}, {0, 0, 24, 0, 24}},
         5,
         64,
         "head_count_kv\" has another number than 0 and 1"},
        {{{0, 0, 0, 2, 2}, {0, 24, 0, 0, 24}}, 3, 64, "head_count_kv\" is not a list of a number"},
        {{{0, 0, 0, 2, 2}, {0, 24, 0, 0, 24}},
         5,
         66,
         "ssm.inner_size\" is 66, want a multiple of the 4"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct json_out out = {0};
        struct err err = {0};
        enum status status =
            write_config(&cases[i].lists, cases[i].count, cases[i].inner_size, &out, &err);
        if (status == OK || !strstr(err.message, cases[i].sentence)) {
            fail_msg("status %d, \"%s\", want \"%s\"", status, err.message, cases[i].sentence);
        }
        json_out_fini(&out);
    }
}

static void expect_name(const struct gguf_model *model, const char *name, const char *want) {
    struct gguf_place place;
    gguf_name_tensor(model, (struct gguf_string){name, strlen(name)}, &place);
    assert_string_equal(place.name, want);
}

// llama.cpp's converter leaves out ".weight" of one norm of Falcon-H1.
static void test_names_of_falcon(void **state) {
    (void)state;
    const struct gguf_model model = {.name = "falcon-h1",
                                     .mamba = "mamba",
                                     .is_hybrid = true,
                                     .final_norm = "model.final_layernorm"};
    expect_name(&model, "blk.7.ffn_norm", "model.layers.7.pre_ff_layernorm.weight");
    expect_name(&model, "blk.7.ffn_norm.weight", "model.layers.7.pre_ff_layernorm.weight");
    expect_name(&model, "blk.7.ffn_up.weight", "model.layers.7.feed_forward.up_proj.weight");
    expect_name(&model, "blk.7.ssm_out.weight", "model.layers.7.mamba.out_proj.weight");
    expect_name(&model, "output_norm.weight", "model.final_layernorm.weight");
    expect_name(&model, "output.weight", "lm_head.weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_granite_without_mamba),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_blocks_that_are_refused),
        cmocka_unit_test(test_names_of_falcon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
