/* What a GGUF file's metadata becomes: config.json, the tokenizer's documents, chat templates; and
 * what is refused by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf/weights/gguf_names.h"
#include "checkpoint/model_config.h"
#include "support/cmocka_all.h"
#include "support/gguf_builder.h"
#include "support/temp_folder.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

enum { F32_TYPE = 0, VALUES_MAX = 40, HIDDEN = 8, VOCAB = 12, BLOCKS = 2 };

// A file that is being put together; values first, then write_file adds the tensors.
struct file_text {
    struct buf values;
    uint64_t num_values;
};

static struct temp_folder folder;
static char path[256];

static int make_folder(void **state) {
    (void)state;
    temp_folder_create(&folder);
    return file_join(path, sizeof path, folder.path, "m.gguf", NULL) != OK;
}

static int remove_folder(void **state) {
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

static void put_int(struct file_text *file, const char *key, uint32_t value) {
    put_u32_value(&file->values, key, value);
    file->num_values++;
}

static void put_real(struct file_text *file, const char *key, float value) {
    put_f32_value(&file->values, key, value);
    file->num_values++;
}

static void put_text(struct file_text *file, const char *key, const char *value) {
    put_string_value(&file->values, key, value);
    file->num_values++;
}

static void put_flag(struct file_text *file, const char *key, bool value) {
    put_bool_value(&file->values, key, value);
    file->num_values++;
}

static void put_strings(struct file_text *file, const char *key, const char *const *texts,
                        uint64_t count) {
    put_array(&file->values, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++) put_string(&file->values, texts[i]);
    file->num_values++;
}

static void put_types(struct file_text *file, const uint32_t *types, uint64_t count) {
    put_array(&file->values, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint64_t i = 0; i < count; i++) put_u32(&file->values, types[i]);
    file->num_values++;
}

// The sizes of a model of two heads of four elements.
static void put_sizes(struct file_text *file, const char *architecture) {
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"context_length", 64},      {"embedding_length", HIDDEN},
                 {"block_count", BLOCKS},     {"feed_forward_length", 16},
                 {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
    char key[128];
    put_text(file, "general.architecture", architecture);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i].key);
        put_int(file, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    put_real(file, key, 1e-5f);
}

// Writes the file with an embedding and, if any, rope_freqs.weight [2]; frees the values.
static void write_file(struct file_text *file, const float freqs[2]) {
    static const uint64_t embedding[] = {HIDDEN, VOCAB}, two[] = {2};
    struct buf bytes = {0};
    put_start(&bytes, freqs ? 2 : 1, file->num_values);
    put_bytes(&bytes, file->values.data, file->values.len);
    put_tensor(&bytes, "token_embd.weight", 2, embedding, F32_TYPE, 0);
    if (freqs) put_tensor(&bytes, "rope_freqs.weight", 1, two, F32_TYPE, HIDDEN * VOCAB * 4);
    put_data(&bytes, 32, HIDDEN * VOCAB * 4);
    if (freqs) put_bytes(&bytes, freqs, 2 * sizeof *freqs);
    temp_folder_write(&folder, "m.gguf", bytes.data, bytes.len);
    buf_fini(&bytes);
    buf_fini(&file->values);
    *file = (struct file_text){0};
}

static enum status load(struct model_config *config, struct generation_config *generation,
                        struct err *err) {
    struct checkpoint *checkpoint = NULL;
    enum status status = checkpoint_open(&checkpoint, path, err);
    if (!status) status = model_config_load(config, generation, checkpoint, err);
    checkpoint_close(checkpoint);
    return status;
}

static void refuse(struct file_text *file, enum status status, const char *sentence) {
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    write_file(file, NULL);
    enum status got = load(&config, &generation, &err);
    if (got == status && strstr(err.message, sentence)) return;
    fail_msg("status %d, \"%s\", want %d and \"%s\"", got, err.message, status, sentence);
}

static void test_a_configuration(void **state) {
    (void)state;
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    put_sizes(&file, "llama");
    put_real(&file, "llama.rope.freq_base", 500000);
    put_text(&file, "llama.rope.scaling.type", "linear");
    put_real(&file, "llama.rope.scaling.factor", 4);
    put_real(&file, "general.sampling.temp", 0.25f);
    put_int(&file, "general.sampling.top_k", 17);
    write_file(&file, NULL);
    if (load(&config, &generation, &err)) fail_msg("%s", err.message);
    assert_string_equal(config.architecture, "LlamaForCausalLM");
    assert_int_equal(config.vocab_size, VOCAB);
    assert_int_equal(config.hidden_size, HIDDEN);
    assert_int_equal(config.head_dim, 4);
    assert_int_equal(config.num_kv_heads, 1);
    assert_true(config.tie_word_embeddings); // there is no output.weight
    assert_true(config.rms_norm_eps == 1e-5f);
    assert_int_equal(config.rope.type, ROPE_LINEAR);
    assert_true(config.rope.theta == 500000 && config.rope.factor == 4);
    assert_true(generation.has_temperature && generation.temperature == 0.25f);
    assert_true(generation.has_top_k && generation.top_k == 17);
    model_config_fini(&config);
}

static void test_experts(void **state) {
    (void)state;
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    put_sizes(&file, "llama");
    put_int(&file, "llama.expert_count", 4);
    put_int(&file, "llama.expert_used_count", 2);
    write_file(&file, NULL);
    assert_int_equal(load(&config, &generation, NULL), OK);
    assert_string_equal(config.architecture, "MixtralForCausalLM");
    assert_int_equal(config.moe.num_experts, 4);
    assert_int_equal(config.moe.num_experts_per_tok, 2);
    assert_int_equal(config.moe.intermediate_size, 16);
    model_config_fini(&config);
    put_sizes(&file, "qwen3");
    put_int(&file, "qwen3.expert_count", 4);
    refuse(&file, ERR_UNSUPPORTED, "\"qwen3.expert_count\" is 4, which is not supported of qwen3");
}

// The last of the blocks drafts tokens, and experts are chosen by sigmoids.
static void test_experts_of_glm(void **state) {
    (void)state;
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    for (int function = 2; function >= 1; function--) {
        put_sizes(&file, "glm4moe");
        put_int(&file, "glm4moe.expert_count", 4);
        put_int(&file, "glm4moe.expert_used_count", 2);
        put_int(&file, "glm4moe.expert_feed_forward_length", 12);
        put_int(&file, "glm4moe.expert_shared_count", 2);
        put_int(&file, "glm4moe.leading_dense_block_count", 0);
        put_int(&file, "glm4moe.nextn_predict_layers", 1);
        put_int(&file, "glm4moe.expert_gating_func", (uint32_t)function);
        put_real(&file, "glm4moe.expert_weights_scale", 2.5f);
        if (function == 1) {
            refuse(&file, ERR_UNSUPPORTED, "\"glm4moe.expert_gating_func\" is 1, want 2");
            continue;
        }
        write_file(&file, NULL);
        assert_int_equal(load(&config, &generation, NULL), OK);
        assert_int_equal(config.num_layers, BLOCKS - 1);
        assert_int_equal(config.num_draft_layers, 1);
        assert_true(config.rope.partial == 1); // the file's; the class has another default
        assert_int_equal(config.moe.shared_intermediate_size, 24);
        assert_true(config.moe.weights_factor == 2.5f && config.moe.is_sparse[0]);
        model_config_fini(&config);
    }
}

static void put_flags(struct file_text *file, const char *key, const bool *flags, uint64_t count) {
    put_array(&file->values, key, GGUF_BOOL, count);
    put_bytes(&file->values, flags, count);
    file->num_values++;
}

// Layers with a window are said by a number, by a list, or by the architecture alone.
static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *architecture, *want;
        uint32_t window, pattern;
        bool has_list, list[BLOCKS];
    } cases[] = {
        {"gemma3", "Gemma3ForCausalLM", 32, 0, false, {false}},
        {"gemma3", "Gemma3ForCausalLM", 0, 0, false, {false}},
        {"gemma3", "Gemma3ForCausalLM", 32, 1, false, {false}}, // each first layer has none
        {"gemma3", "Gemma3ForCausalLM", 32, 0, true, {false}},
        {"olmo2", "Olmo3ForCausalLM", 32, 0, true, {true}},
        {"olmo2", "Olmo2ForCausalLM", 0, 0, false, {false}},
        {"phi3", "Phi3ForCausalLM", 32, 0, false, {false}},
        {"phi3", "Phi3ForCausalLM", 0, 0, false, {false}},
    };
    static const uint32_t windows[] = {32, 0, 0, 0, 32, 0, 32, 0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct file_text file = {0};
        struct model_config config;
        struct generation_config generation;
        struct err err = {0};
        char key[128];
        put_sizes(&file, cases[i].architecture);
        snprintf(key, sizeof key, "%s.attention.sliding_window", cases[i].architecture);
        if (cases[i].window) put_int(&file, key, cases[i].window);
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", cases[i].architecture);
        if (cases[i].pattern) put_int(&file, key, cases[i].pattern);
        if (cases[i].has_list) put_flags(&file, key, cases[i].list, BLOCKS);
        write_file(&file, NULL);
        if (load(&config, &generation, &err)) fail_msg("%zu: %s", i, err.message);
        assert_string_equal(config.architecture, cases[i].want);
        if (config.sliding_window != windows[i]) fail_msg("%zu: %u", i, config.sliding_window);
        model_config_fini(&config);
    }
    struct file_text file = {0};
    put_sizes(&file, "gemma3");
    put_int(&file, "gemma3.attention.sliding_window", 32);
    put_flags(&file, "gemma3.attention.sliding_window_pattern", (bool[1]){true}, 1);
    refuse(&file, ERR_FORMAT, "sliding_window_pattern\" is not a list of true and false");
}

static void put_delta(struct file_text *file, uint32_t inner_size) {
    put_sizes(file, "qwen35");
    put_int(file, "qwen35.ssm.conv_kernel", 4);
    put_int(file, "qwen35.ssm.state_size", 16);
    put_int(file, "qwen35.ssm.group_count", 2);
    put_int(file, "qwen35.ssm.time_step_rank", 4);
    put_int(file, "qwen35.ssm.inner_size", inner_size);
}

// Of gated delta nets: the heads' sizes, and which layers they are. The last block drafts.
static void test_gated_delta_nets(void **state) {
    (void)state;
    static const struct delta_config want = {2, 4, 16, 32};
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    put_delta(&file, 128);
    put_int(&file, "qwen35.nextn_predict_layers", 1);
    put_flags(&file, "qwen35.attention.recurrent_layers", (bool[BLOCKS]){true}, BLOCKS);
    write_file(&file, NULL);
    if (load(&config, &generation, &err)) fail_msg("%s", err.message);
    assert_memory_equal(&config.own.delta, &want, sizeof want);
    assert_int_equal(config.num_layers + config.num_draft_layers, BLOCKS);
    assert_true(config.num_draft_layers == 1 && config.own.is_linear[0]);
    model_config_fini(&config);
    put_delta(&file, 66);
    refuse(&file, ERR_FORMAT, "\"qwen35.ssm.inner_size\" is 66, want a multiple");
    put_delta(&file, 64);
    put_flags(&file, "qwen35.attention.recurrent_layers", (bool[1]){true}, 1);
    refuse(&file, ERR_FORMAT, "\"qwen35.attention.recurrent_layers\" has 1 entries");
}

static void test_keys_of_one_architecture(void **state) {
    (void)state;
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    put_sizes(&file, "granite");
    put_real(&file, "granite.attention.scale", 0.5f);
    put_real(&file, "granite.embedding_scale", 12);
    put_real(&file, "granite.residual_scale", 0.25f);
    refuse(&file, ERR_FORMAT, "\"granite.logit_scale\"");
    put_sizes(&file, "llama");
    put_real(&file, "llama.attention.scale", 0.5f);
    refuse(&file, ERR_UNSUPPORTED, "\"llama.attention.scale\" is not known");
    put_sizes(&file, "llama");
    put_int(&file, "llama.attention.sliding_window", 32);
    refuse(&file, ERR_UNSUPPORTED, "\"llama.attention.sliding_window\"");
    put_sizes(&file, "qwen3");
    put_int(&file, "qwen3.rope.dimension_sections", 1);
    refuse(&file, ERR_UNSUPPORTED, "\"qwen3.rope.dimension_sections\"");
    put_sizes(&file, "phi3");
    put_int(&file, "phi3.rope.dimension_count", 2);
    put_real(&file, "phi3.rope.scaling.attn_factor", 1.5f);
    write_file(&file, NULL);
    if (load(&config, &generation, &err)) fail_msg("%s", err.message);
    assert_true(config.rope.partial == 0.5);
    model_config_fini(&config);
    put_sizes(&file, "llama");
    put_int(&file, "llama.rope.dimension_count", 2);
    refuse(&file, ERR_UNSUPPORTED, "is 2 of 4 dimensions");
    put_sizes(&file, "llama");
    put_real(&file, "llama.rope.scaling.attn_factor", 1.5f);
    refuse(&file, ERR_UNSUPPORTED, "\"llama.rope.scaling.attn_factor\"");
}

// The parameters of Llama 3's scaling come back from the divisors, whatever they are.
static void test_divisors_of_frequencies(void **state) {
    (void)state;
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    static const float divisors[2] = {1, 8}, wrong[2] = {3, 2};
    put_sizes(&file, "llama");
    write_file(&file, divisors);
    if (load(&config, &generation, &err)) fail_msg("%s", err.message);
    assert_int_equal(config.rope.type, ROPE_LLAMA3);
    assert_true(config.rope.factor == 8);
    model_config_fini(&config);
    put_sizes(&file, "llama");
    write_file(&file, wrong);
    assert_int_equal(load(&config, &generation, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "does not have the scaling of Llama 3"));
}

static void test_what_is_no_model(void **state) {
    (void)state;
    struct file_text file = {0};
    put_text(&file, "general.type", "adapter");
    put_sizes(&file, "llama");
    refuse(&file, ERR_UNSUPPORTED, "m.gguf is a LoRA adapter");
    put_text(&file, "general.type", "mmproj");
    put_text(&file, "general.architecture", "clip");
    refuse(&file, ERR_UNSUPPORTED, "(mmproj): give the file of the language model");
    put_text(&file, "general.architecture", "nobody");
    refuse(&file, ERR_UNSUPPORTED,
           "\"general.architecture\" is \"nobody\", which is not supported; doc/gguf.md ");
    put_text(&file, "general.name", "nothing");
    refuse(&file, ERR_FORMAT, "has no \"general.architecture\"");
    put_text(&file, "general.architecture", "llama");
    refuse(&file, ERR_FORMAT, "has no \"llama.block_count\"");
}

static void test_keys_that_change_the_computation(void **state) {
    (void)state;
    static const struct {
        const char *key, *text; // `text`, or else `number`
        float number;
        const char *sentence;
    } cases[] = {
        {"llama.attention.sliding_window", NULL, 32,
         "\"llama.attention.sliding_window\" is set to"},
        {"llama.logit_scale", NULL, 2, "\"llama.logit_scale\" is set to a value that is not"},
        {"llama.new_key", NULL, 1, "\"llama.new_key\" is not known"},
        {"llama.rope.scaling.type", "longrope", 0, "is \"longrope\", which is not supported"},
        {"llama.rope.scaling.alpha", NULL, 2, "\"llama.rope.scaling.alpha\" is not supported"},
        {"llama.rope.scaling.attn_factor", NULL, 2, "\"llama.rope.scaling.attn_factor\" is not"},
        {"llama.attention.layer_norm_rms_epsilonX", NULL, 2, "epsilonX\" is not known"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct file_text file = {0};
        put_sizes(&file, "llama");
        if (cases[i].text) {
            put_text(&file, cases[i].key, cases[i].text);
        } else {
            put_real(&file, cases[i].key, cases[i].number);
        }
        refuse(&file, ERR_UNSUPPORTED, cases[i].sentence);
    }
    struct file_text file = {0};
    put_sizes(&file, "llama");
    put_int(&file, "llama.rope.dimension_count", 2);
    refuse(&file, ERR_UNSUPPORTED, "is 2 of 4 dimensions, only all are supported");
    put_sizes(&file, "llama");
    put_int(&file, "llama.attention.value_length", 8);
    refuse(&file, ERR_UNSUPPORTED, "is 8, but keys have 4 dimensions");
}

static void check_name(const struct gguf_model *model, const char *name, const char *want) {
    struct gguf_place place;
    gguf_name_tensor(model, (struct gguf_string){name, strlen(name)}, &place);
    assert_string_equal(place.name, want);
}

static void test_names_of_tensors(void **state) {
    (void)state;
    const struct gguf_model dense = {.name = "llama"};
    const struct gguf_model sparse = {.router = "block_sparse_moe.gate",
                                      .experts = "block_sparse_moe.experts",
                                      .gate = "w1",
                                      .up = "w3",
                                      .down = "w2"};
    static const char *const own[] = {"blk.03.attn_q.weight", "blk.3.attn_q",
                                      "blk..attn_q.weight",   "blk.3.attn_q.scale",
                                      "output.bias",          "blk.3.attn_x.weight"};
    check_name(&dense, "output.weight", "lm_head.weight");
    check_name(&dense, "blk.13.attn_k.bias", "model.layers.13.self_attn.k_proj.bias");
    check_name(&dense, "blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight");
    check_name(&dense, "blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp.weight");
    check_name(&sparse, "blk.2.ffn_gate_inp.weight", "model.layers.2.block_sparse_moe.gate.weight");
    // Old files have the experts one by one.
    check_name(&sparse, "blk.2.ffn_up.7.weight",
               "model.layers.2.block_sparse_moe.experts.7.w3.weight");
    for (size_t i = 0; i < ARRAY_LEN(own); i++) check_name(&dense, own[i], own[i]);
    struct gguf_place place;
    static const char name[] = "blk.2.ffn_down_exps.weight";
    gguf_name_tensor(&sparse, (struct gguf_string){name, sizeof name - 1}, &place);
    assert_string_equal(place.name, "model.layers.2.block_sparse_moe.experts");
    assert_string_equal(place.expert_part, "w2");
}

static void put_bpe(struct file_text *file, const char *rule) {
    static const char *const tokens[] = {"a",
                                         "b",
                                         "ab",
                                         "\xc4\xa0",
                                         ("\xc4\xa0"
                                          "ab"),
                                         "<|im_end|>",
                                         "<|endoftext|>",
                                         "<x>",
                                         "",
                                         "[PAD9]"};
    static const uint32_t types[] = {1, 1, 1, 1, 1, 3, 3, 4, 1, 5};
    static const char *const merges[] = {"a b", "\xc4\xa0 ab"};
    put_sizes(file, "qwen3");
    put_text(file, "tokenizer.ggml.model", "gpt2");
    if (rule) put_text(file, "tokenizer.ggml.pre", rule);
    put_strings(file, "tokenizer.ggml.tokens", tokens, ARRAY_LEN(tokens));
    put_types(file, types, ARRAY_LEN(types));
    put_strings(file, "tokenizer.ggml.merges", merges, ARRAY_LEN(merges));
    put_int(file, "tokenizer.ggml.bos_token_id", 6);
    put_int(file, "tokenizer.ggml.eos_token_id", 6);
}

static enum status open_tokenizer(struct tokenizer **out, struct err *err) {
    struct checkpoint *checkpoint = NULL;
    *out = NULL;
    enum status status = checkpoint_open(&checkpoint, path, err);
    if (!status) status = tokenizer_open(out, checkpoint, err);
    checkpoint_close(checkpoint);
    return status;
}

// Encodes a text with special tokens, and compares the ids.
static void check_ids(const char *text, const int32_t *want, size_t count) {
    struct tokenizer *tokenizer;
    struct token_list ids = {0};
    struct err err = {0};
    if (open_tokenizer(&tokenizer, &err)) fail_msg("%s", err.message);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true, NULL, &ids, &err), OK);
    assert_int_equal(ids.len, count);
    assert_memory_equal(ids.ids, want, count * sizeof *want);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
}

static void test_byte_level_tokens(void **state) {
    (void)state;
    static const int32_t plain[] = {2, 4, 5, 0, 7}, with_bos[] = {6, 2};
    struct file_text file = {0};
    put_bpe(&file, "qwen2");
    write_file(&file, NULL);
    check_ids("ab ab<|im_end|>a<x>", plain, ARRAY_LEN(plain));
    put_bpe(&file, "llama-bpe"); // adds bos unless the file says otherwise
    write_file(&file, NULL);
    check_ids("ab", with_bos, ARRAY_LEN(with_bos));
    put_bpe(&file, "llama-bpe");
    put_flag(&file, "tokenizer.ggml.add_bos_token", false);
    write_file(&file, NULL);
    check_ids("ab", with_bos + 1, 1);
}

// Two control tokens end an answer though the file names one.
static void test_ends_of_an_answer(void **state) {
    (void)state;
    struct file_text file = {0};
    struct model_config config;
    struct generation_config generation;
    put_bpe(&file, "qwen2");
    write_file(&file, NULL);
    assert_int_equal(load(&config, &generation, NULL), OK);
    assert_int_equal(config.num_eos_token_ids, 2);
    assert_int_equal(config.eos_token_ids[0], 6);
    assert_int_equal(config.eos_token_ids[1], 5);
    model_config_fini(&config);
}

static void test_tokenizers_that_are_refused(void **state) {
    (void)state;
    struct file_text file = {0};
    struct tokenizer *tokenizer;
    struct err err = {0};
    put_bpe(&file, "a-new-rule");
    write_file(&file, NULL);
    assert_int_equal(open_tokenizer(&tokenizer, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\"tokenizer.ggml.pre\" is \"a-new-rule\", which is not"));
    put_sizes(&file, "qwen3");
    put_text(&file, "tokenizer.ggml.model", "t5");
    static const char *const tokens[] = {"a"};
    put_strings(&file, "tokenizer.ggml.tokens", tokens, 1);
    write_file(&file, NULL);
    assert_int_equal(open_tokenizer(&tokenizer, &err), ERR_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "\"tokenizer.ggml.model\" is \"t5\", want gpt2, llama or gemma4"));
    static const char *const many[VOCAB + 1] = {"0", "1", "2", "3", "4", "5", "6",
                                                "7", "8", "9", "a", "b", "c"};
    put_sizes(&file, "qwen3");
    put_text(&file, "tokenizer.ggml.model", "gpt2");
    put_strings(&file, "tokenizer.ggml.tokens", many, VOCAB + 1);
    refuse(&file, ERR_FORMAT, "has 13 tokens, but the embedding has 12 rows");
}

// Of "abc" the pair with the higher score is joined first, wherever it is.
static void test_tokens_by_score(void **state) {
    (void)state;
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81", "a",
                                         "b",     "c",   "ab",   "bc",           "<0x64>"};
    static const uint32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6};
    static const float first[] = {0, 0, 0, -9, -9, -9, -9, -2, -1, 0};
    static const float second[] = {0, 0, 0, -9, -9, -9, -9, -1, -2, 0};
    static const int32_t right[] = {1, 3, 4, 8}, left[] = {1, 3, 7, 6};
    for (int i = 0; i < 2; i++) {
        struct file_text file = {0};
        put_sizes(&file, "llama");
        put_text(&file, "tokenizer.ggml.model", "llama");
        put_strings(&file, "tokenizer.ggml.tokens", tokens, ARRAY_LEN(tokens));
        put_types(&file, types, ARRAY_LEN(types));
        put_array(&file.values, "tokenizer.ggml.scores", GGUF_F32, ARRAY_LEN(first));
        put_bytes(&file.values, i ? second : first, sizeof first);
        file.num_values++;
        write_file(&file, NULL);
        check_ids("abc", i ? left : right, 4);
    }
}

static void test_chat_templates(void **state) {
    (void)state;
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}";
    struct file_text file = {0};
    struct checkpoint *checkpoint = NULL;
    struct chat_template *chat_template = NULL;
    struct buf names = {0}, out = {0};
    struct err err = {0};
    put_bpe(&file, "qwen2");
    put_text(&file, "tokenizer.chat_template", "{{ messages[0].content }}{{ eos_token }}");
    put_text(&file, "tokenizer.chat_template.tool_use", "tools");
    write_file(&file, NULL);
    if (checkpoint_open(&checkpoint, path, &err)) fail_msg("%s", err.message);
    assert_int_equal(checkpoint_list(checkpoint, "additional_chat_templates", &names, &err), OK);
    assert_int_equal(names.len, sizeof "tool_use.jinja");
    assert_string_equal(names.data, "tool_use.jinja");
    if (chat_template_open(&chat_template, checkpoint, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(chat_template_render(chat_template, chat, sizeof chat - 1, NULL, &out, &err),
                     OK);
    assert_string_equal(out.data, "hi<|endoftext|>");
    chat_template_close(chat_template);
    checkpoint_close(checkpoint);
    buf_fini(&names);
    buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_configuration),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_experts_of_glm),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_gated_delta_nets),
        cmocka_unit_test(test_keys_of_one_architecture),
        cmocka_unit_test(test_divisors_of_frequencies),
        cmocka_unit_test(test_what_is_no_model),
        cmocka_unit_test(test_keys_that_change_the_computation),
        cmocka_unit_test(test_names_of_tensors),
        cmocka_unit_test(test_byte_level_tokens),
        cmocka_unit_test(test_ends_of_an_answer),
        cmocka_unit_test(test_tokenizers_that_are_refused),
        cmocka_unit_test(test_tokens_by_score),
        cmocka_unit_test(test_chat_templates),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
