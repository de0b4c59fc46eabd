/* The plan before loading: options resolved against model and machine, the memory plan, and
 * refusals. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/device_list.h"
#include "engine/params/params.h"
#include "engine/plan/engine_plan.h"
#include "nanovllm.h"
#include "support/config_text.h"
#include "support/temp_folder.h"

static struct nvllm_engine_options bundled(void) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "models/tiny-qwen3";
    return options;
}

static json_t *inspect(const struct nvllm_engine_options *options) {
    char *text = NULL;
    struct nvllm_error error = {0};
    if (nvllm_inspect(options, &text, &error)) fail_msg("%s", error.message);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    nvllm_free(text);
    return root;
}

static json_int_t plan_number(const struct nvllm_engine_options *options, const char *name) {
    json_t *root = inspect(options);
    json_int_t value = json_integer_value(json_object_get(json_object_get(root, "plan"), name));
    json_decref(root);
    return value;
}

static void expect_error(const struct nvllm_engine_options *options, enum nvllm_status want,
                         const char *part) {
    char *text = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_inspect(options, &text, &error), want);
    assert_null(text);
    if (!strstr(error.message, part)) {
        fail_msg("\"%s\" does not mention \"%s\"", error.message, part);
    }
}

static void test_describes_the_bundled_model(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    json_t *root = inspect(&options);
    assert_string_equal(json_string_value(json_object_get(root, "architecture")),
                        "Qwen3ForCausalLM");
    assert_int_equal(json_integer_value(json_object_get(root, "num_parameters")), 6950912);
    assert_int_equal(json_integer_value(json_object_get(root, "max_model_len")), 4096);
    assert_int_equal(json_array_size(json_object_get(root, "eos_token_ids")), 2);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(root, "sampling_defaults"), "top_k")),
        20);
    json_decref(root);
}

// The sentence of a plan for which only 1 MiB is free.
static void expect_less(const struct nvllm_engine_options *options, const char *part) {
    struct engine_plan plan;
    struct err err = {0};
    assert_int_equal(engine_plan_make(&plan, options, 0, 0, &err), OK);
    plan.memory_available_bytes = 1 << 20;
    assert_int_equal(engine_plan_check_memory(&plan, &err), ERR_NOMEM);
    if (!strstr(err.message, part)) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
    engine_plan_fini(&plan);
}

static void test_float32_is_not_quantized(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    struct engine_plan plan;
    struct err err = {0};
    options.device = "cpu";
    options.dtype = "float32";
    options.quantization = "int8";
    assert_int_equal(engine_plan_make(&plan, &options, 0, 0, &err), ERR_INVALID);
    assert_string_equal(err.message, "weights cannot be quantized and kept as float32 too");
}

// Second forms of weights take nothing of what the KV cache and the rest of the plan need.
static void test_spare_memory_is_what_the_plan_leaves(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    struct engine_plan plan;
    struct err err = {0};
    options.device = "cpu";
    options.num_kvcache_blocks = 16;
    assert_int_equal(engine_plan_make(&plan, &options, 0, 0, &err), OK);
    size_t needed = plan.weights_bytes + plan.workspace_bytes + 16 * plan.kv_block_bytes;
    assert_int_equal(plan.runner.decoder.spare_bytes, plan.memory_available_bytes - needed);
    engine_plan_fini(&plan);
    options.num_kvcache_blocks = 1 << 30;
    assert_int_equal(engine_plan_make(&plan, &options, 0, 0, &err), OK);
    assert_int_equal(plan.runner.decoder.spare_bytes, 0);
    engine_plan_fini(&plan);
}

static void test_too_little_memory_says_what_needs_less(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.device = "cpu";
    options.kv_cache_gib = 4;
    expect_less(&options, "are free; a smaller kv_cache_gib, num_kvcache_blocks or max_model_len");
    options.kv_cache_gib = 0;
    options.max_model_len = 16;
    options.num_kvcache_blocks = 1;
    options.max_num_batched_tokens = 1 << 16;
    expect_less(&options, "are free; a smaller max_num_batched_tokens or max_num_seqs needs less");
    options.max_num_batched_tokens = 64;
    options.max_num_seqs = 1;
    options.model = "bench/configs/qwen3-8b";
    expect_less(&options, "are free; quantization int8 or int4 makes the weights smaller");
    options.quantization = "int8";
    expect_less(&options, "are free; quantization int4 makes the weights smaller");
    options.quantization = "int4";
    expect_less(&options, "are free; only a smaller model needs less");
}

static void test_default_cache_holds_one_longest_sequence_b20(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    json_int_t tokens = plan_number(&options, "kv_cache_tokens");
    assert_true(tokens >= 4096);
    // Sized by what is free to this process, and never more than every active sequence can use.
    assert_true(plan_number(&options, "total_bytes") <=
                plan_number(&options, "memory_available_bytes"));
    options.max_num_seqs = 2;
    options.enable_prefix_caching = 0; // then nothing else could use more
    assert_int_equal(plan_number(&options, "kv_cache_tokens"), 2 * 4096);
}

static void test_given_blocks_are_taken(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.num_kvcache_blocks = 7;
    options.block_size = 32;
    assert_int_equal(plan_number(&options, "num_kv_blocks"), 7);
    assert_int_equal(plan_number(&options, "kv_cache_tokens"), 7 * 32);
}

static void test_given_gib_are_filled_and_not_exceeded(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.kv_cache_gib = 0.5;
    json_int_t bytes = plan_number(&options, "kv_cache_bytes");
    json_int_t block = plan_number(&options, "kv_block_bytes");
    assert_true(bytes <= (1 << 29) && bytes + block > (1 << 29));
}

static void test_float_keys_and_values_take_twice_the_bytes(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.device = "cpu";
    json_int_t narrow = plan_number(&options, "kv_block_bytes");
    options.kv_cache_dtype = "bfloat16";
    assert_int_equal(plan_number(&options, "kv_block_bytes"), narrow);
    options.kv_cache_dtype = "float32";
    assert_int_equal(plan_number(&options, "kv_block_bytes"), 2 * narrow);
    json_t *root = inspect(&options);
    assert_string_equal(json_string_value(json_object_get(root, "kv_cache_dtype")), "F32");
    json_decref(root);
    options.kv_cache_dtype = "int4";
    expect_error(&options, NVLLM_ERR_INVALID, "want auto, bfloat16, float32, int8 or fp8");
}

static void test_keys_and_values_of_8_bits_take_a_byte_and_their_scales(void **state) {
    (void)state;
    static const char *const kinds[][2] = {{"int8", "INT8"}, {"fp8", "FP8"}};
    struct nvllm_engine_options options = bundled();
    options.device = "cpu";
    json_t *root = inspect(&options);
    json_int_t head_dim = json_integer_value(json_object_get(root, "head_dim"));
    json_decref(root);
    json_int_t narrow = plan_number(&options, "kv_block_bytes");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        options.kv_cache_dtype = kinds[i][0];
        assert_int_equal(plan_number(&options, "kv_block_bytes") * 2 * head_dim,
                         narrow * (head_dim + (json_int_t)sizeof(float)));
        root = inspect(&options);
        assert_string_equal(json_string_value(json_object_get(root, "kv_cache_dtype")),
                            kinds[i][1]);
        json_decref(root);
    }
}

// Each rank shares two parts of a sum and its logits, and has memory to sample as many rows as
// there are.
static void test_memory_that_ranks_share_is_planned(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.device = "cpu";
    json_int_t hidden = 256, vocab = 4096, rows = options.max_num_seqs;
    json_int_t sums = 2 * options.max_num_batched_tokens * hidden * (json_int_t)sizeof(float);
    json_int_t logits = rows * (vocab / 2 + vocab) * (json_int_t)sizeof(float);
    json_int_t alone = plan_number(&options, "workspace_bytes");
    options.tensor_parallel_size = 2;
    json_int_t shared = plan_number(&options, "workspace_bytes");
    // A rank's own activations are smaller than those of the whole model, but not by half.
    assert_true(shared > alone / 2 + sums + logits);
}

static void test_cache_smaller_than_a_sequence_is_refused(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.kv_cache_gib = 0.001;
    expect_error(&options, NVLLM_ERR_INVALID, "fewer than max_model_len 4096");
}

static void test_what_does_not_fit_says_what_it_takes(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.num_kvcache_blocks = 100000000; // 18 TiB
    assert_true(plan_number(&options, "total_bytes") >
                plan_number(&options, "memory_available_bytes"));
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_NOMEM);
    assert_non_null(strstr(error.message, "needs"));
    assert_null(engine);
}

static void test_max_model_len_beyond_the_model_is_refused_b3(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.max_model_len = 4097;
    expect_error(&options, NVLLM_ERR_INVALID, "the model's maximum is 4096");
    options.max_model_len = 1;
    expect_error(&options, NVLLM_ERR_INVALID, "at least 2");
}

static void test_unsupported_architecture_is_named_b14(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    char *text =
        make_config((const struct field[CHANGES_MAX]){{"architectures", "[\"GPT2LMHeadModel\"]"}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    struct nvllm_engine_options options = bundled();
    options.model = folder.path;
    expect_error(&options, NVLLM_ERR_UNSUPPORTED,
                 "GPT2LMHeadModel is not supported; doc/models.md lists the models that run");
    temp_folder_remove(&folder);
}

static void test_describes_a_mixture_of_experts(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.model = "bench/configs/qwen3-30b-a3b";
    options.num_kvcache_blocks = 512;
    json_t *root = inspect(&options);
    assert_string_equal(json_string_value(json_object_get(root, "family")), "Qwen3 MoE");
    static const struct {
        const char *key;
        json_int_t want;
    } numbers[] = {{"num_parameters", 30532122624},
                   {"num_active_parameters", 3353032704},
                   {"num_experts", 128},
                   {"num_experts_per_tok", 8},
                   {"moe_intermediate_size", 768},
                   {"num_sparse_layers", 48}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(json_integer_value(json_object_get(root, numbers[i].key)),
                         numbers[i].want);
    }
    json_decref(root);
    // 16 bits a parameter, and float32 norms and biases that do not show
    double gb = (double)plan_number(&options, "weights_bytes") / 1e9;
    assert_true(gb > 61 && gb < 62);
    options = bundled();
    root = inspect(&options);
    assert_null(json_object_get(root, "num_experts"));
    json_decref(root);
}

// The option's text (nanovllm.h) names every device of the list.
static void test_the_option_takes_every_device(void **state) {
    (void)state;
    for (uint32_t i = 0; i < device_list_count(); i++) {
        const struct device_kind *kind = device_list_get(i);
        struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
        struct err err = {0};
        char numbered[64];
        snprintf(numbered, sizeof numbered, "%s:0", kind->name);
        if (params_set_engine_option(&options, "device", kind->name, &err)) {
            fail_msg("%s", err.message);
        }
        if (kind->has_numbers && params_set_engine_option(&options, "device", numbered, &err)) {
            fail_msg("%s", err.message);
        }
    }
}

// Mistral's window bounds what a sequence holds, and max_model_len may be beyond it. A window as
// long as max_model_len is none.
static void test_windows_bound_the_blocks_of_a_sequence(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    char *text = make_config((const struct field[CHANGES_MAX]){
        {"architectures", "[\"MistralForCausalLM\"]"}, {"sliding_window", "256"}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    struct nvllm_engine_options options = bundled();
    options.model = folder.path;
    options.max_model_len = 2048;
    options.max_num_batched_tokens = 64;
    options.block_size = 16;
    options.num_kvcache_blocks = 100;
    // 255 tokens before a step's 64, the first of which is anywhere in its block.
    assert_int_equal(plan_number(&options, "kv_blocks_per_sequence"), (255 + 64 + 14) / 16 + 1);
    assert_int_equal(plan_number(&options, "layers_per_kv_group"), 3);
    options.max_model_len = 256;
    json_t *info = inspect(&options);
    assert_null(json_object_get(json_object_get(info, "plan"), "kv_group_windows"));
    // A longer one has windows: then 21 blocks hold any sequence, and the cache has 100.
    assert_int_equal(plan_number(&options, "longest_model_len"),
                     json_integer_value(json_object_get(info, "max_position_embeddings")));
    options.num_kvcache_blocks = 20;
    assert_int_equal(plan_number(&options, "longest_model_len"), 20 * 16);
    json_decref(info);
    info = inspect(&options);
    json_decref(info);
    temp_folder_remove(&folder);
}

// The flat batch holds a mask of the vocabulary and for the longest logit_bias of every
// sequence, and for a sampling row of every token of a prompt, but for nobody's history: that is in
// the token counts.
static void test_the_flat_batch_of_many_sequences_stays_small(void **state) {
    (void)state;
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "bench/configs/qwen3-0.6b";
    options.device = "cpu";
    options.num_kvcache_blocks = 16;
    options.max_num_seqs = 4096;
    options.max_num_batched_tokens = 8192; // what bounds max_num_seqs too
    struct engine_plan plan;
    struct err err = {0};
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    const struct step_limits *limits = &plan.runner.decoder.limits;
    assert_int_equal(plan.config.vocab_size, 151936);
    assert_int_equal(limits->max_num_seqs, 4096);
    size_t mask = plan.config.vocab_size / 8;
    size_t num_biases = PARAMS_MAX_logit_bias + PARAMS_MAX_logprob_token_ids + DRAFT_TOKENS_MAX;
    size_t biases = num_biases * sizeof(struct sample_bias);
    size_t block_table = limits->max_blocks_per_seq * sizeof(int32_t), rest = 128;
    size_t prompt_row = sizeof(struct sample_row) + sizeof(int32_t) + sizeof(struct sample_bias);
    size_t tokens = limits->max_num_tokens * (3 * sizeof(int32_t) + prompt_row);
    size_t most = tokens + 4096 * (mask + biases + block_table + rest);
    assert_true(plan.runner.batch_bytes <= most);
    assert_true(most < 144 << 20);
    engine_plan_fini(&plan);
}

// 65,536 tables of 65,536 blocks are 2^32 entries.
static void test_too_many_long_sequences_are_refused(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    char *text =
        make_config((const struct field[CHANGES_MAX]){{"max_position_embeddings", "1048576"}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    struct nvllm_engine_options options = bundled();
    options.model = folder.path;
    options.max_model_len = 1048576;
    options.max_num_seqs = options.max_num_batched_tokens = 65536;
    options.num_kvcache_blocks = 16;
    expect_error(&options, NVLLM_ERR_INVALID, "make a batch of more than 4 GiB");
    temp_folder_remove(&folder);
}

// Their counts would take 2.5 GB: memory that nobody used is not there.
static void test_an_engine_of_many_sequences_starts(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    char *text = make_config((const struct field[CHANGES_MAX]){
        {"num_hidden_layers", "1"}, {"vocab_size", "151936"}, {"tie_word_embeddings", "true"}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    struct nvllm_engine_options options = bundled();
    options.model = folder.path;
    options.device = "cpu";
    options.load_format = "dummy";
    options.skip_tokenizer_init = 1;
    options.num_kvcache_blocks = 16;
    options.max_num_seqs = 4096;
    options.max_num_batched_tokens = 8192; // what bounds max_num_seqs too
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_create(&engine, &options, &error)) fail_msg("%s", error.message);
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    params.repetition_penalty = 1.05f;
    params.max_tokens = 3;
    params.ignore_eos = 1;
    const int32_t ids[] = {1, 151935};
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.prompt_token_ids = ids;
    request.num_prompt_token_ids = 2;
    request.sampling = &params;
    struct nvllm_result *result = NULL;
    if (nvllm_engine_generate(engine, &request, 1, &result, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(result->num_tokens, 3);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
    temp_folder_remove(&folder);
}

static void test_bad_options_are_named(void **state) {
    (void)state;
    struct nvllm_engine_options options = bundled();
    options.block_size = 17;
    expect_error(&options, NVLLM_ERR_INVALID, "block_size");
    options = bundled();
    options.device = "tpu";
    expect_error(&options, NVLLM_ERR_INVALID, "device");
    options = bundled();
    options.model = "no/such/folder";
    expect_error(&options, NVLLM_ERR_IO, "no/such/folder");
    options.model = NULL;
    expect_error(&options, NVLLM_ERR_INVALID, "model");
}

// What the model's configuration asks for is refused with the name of the file that asks.
static void test_unsupported_configurations_name_their_file(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
        const char *says;
    } cases[] = {
        {"architectures", "[\"NopeForCausalLM\"]", "architecture NopeForCausalLM is not supported"},
        {"mlp_bias", "true", "Qwen3ForCausalLM with mlp_bias is not supported"},
    };
    struct temp_folder folder;
    temp_folder_create(&folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = make_config((const struct field[CHANGES_MAX]){{cases[i].key, cases[i].value}});
        temp_folder_write_text(&folder, "config.json", text);
        free(text);
        struct nvllm_engine_options options = bundled();
        options.model = folder.path;
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s/config.json: %s", folder.path, cases[i].says);
        expect_error(&options, NVLLM_ERR_UNSUPPORTED, sentence);
    }
    temp_folder_remove(&folder);
}

// Only a tokenizer.json that is absent is missing.
static void test_tokenizer_that_is_no_file(void **state) {
    (void)state;
    static const struct {
        const char *link_to; // NULL: nothing has the name
        const char *says;
    } cases[] = {
        {NULL, "/tokenizer.json is missing: it is one of the files"},
        {"nowhere", "/tokenizer.json is a dangling link"},
        {"/", "/tokenizer.json is not a regular file but a folder"},
        {"/dev/null", "/tokenizer.json is not a regular file"},
    };
    struct temp_folder folder;
    temp_folder_create(&folder);
    char *text = make_config((const struct field[CHANGES_MAX]){{"num_hidden_layers", "1"}});
    temp_folder_write_text(&folder, "config.json", text);
    free(text);
    char path[256];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder.path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].link_to) assert_int_equal(symlink(cases[i].link_to, path), 0);
        struct nvllm_engine_options options = bundled();
        options.model = folder.path;
        options.load_format = "dummy";
        struct nvllm_engine *engine = NULL;
        struct nvllm_error error = {0};
        assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_IO);
        assert_null(engine);
        if (!strstr(error.message, cases[i].says)) fail_msg("%s", error.message);
        if (cases[i].link_to) assert_int_equal(remove(path), 0);
    }
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describes_the_bundled_model),
        cmocka_unit_test(test_float32_is_not_quantized),
        cmocka_unit_test(test_spare_memory_is_what_the_plan_leaves),
        cmocka_unit_test(test_too_little_memory_says_what_needs_less),
        cmocka_unit_test(test_default_cache_holds_one_longest_sequence_b20),
        cmocka_unit_test(test_given_blocks_are_taken),
        cmocka_unit_test(test_given_gib_are_filled_and_not_exceeded),
        cmocka_unit_test(test_float_keys_and_values_take_twice_the_bytes),
        cmocka_unit_test(test_keys_and_values_of_8_bits_take_a_byte_and_their_scales),
        cmocka_unit_test(test_memory_that_ranks_share_is_planned),
        cmocka_unit_test(test_cache_smaller_than_a_sequence_is_refused),
        cmocka_unit_test(test_what_does_not_fit_says_what_it_takes),
        cmocka_unit_test(test_max_model_len_beyond_the_model_is_refused_b3),
        cmocka_unit_test(test_unsupported_architecture_is_named_b14),
        cmocka_unit_test(test_describes_a_mixture_of_experts),
        cmocka_unit_test(test_the_option_takes_every_device),
        cmocka_unit_test(test_windows_bound_the_blocks_of_a_sequence),
        cmocka_unit_test(test_unsupported_configurations_name_their_file),
        cmocka_unit_test(test_tokenizer_that_is_no_file),
        cmocka_unit_test(test_the_flat_batch_of_many_sequences_stays_small),
        cmocka_unit_test(test_too_many_long_sequences_are_refused),
        cmocka_unit_test(test_an_engine_of_many_sequences_starts),
        cmocka_unit_test(test_bad_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
