/* Models whose layers differ in KV heads and head_dim (support/kv_shape_families.c) on device cuda,
 * and the forms of Gemma 4 that are more than that.
 * Their weights are random. Logits are compared with the CPU's along the CPU's tokens, on every way
 * that a request may run. Needs a GPU: exits with 77, which ctest counts as skipped, if there is
 * none. An argument: another device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

enum { SKIPPED = 77, VOCAB = 256, REQUESTS = 6, PROMPT_MAX = 300, NEW = 20 };
static const float bound = 3e-2f, int8_bound = 6e-2f, fp8_bound = 0.2f; // of the largest logit
static const char *device;

// Every second layer has one KV head and a larger head_dim, the last two of five a window of 48.
static const char shapes[] =
    "\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"vocab_size\": 256,"
    " \"hidden_size\": 128, \"intermediate_size\": 192, \"num_hidden_layers\": 5,"
    " \"num_attention_heads\": 8, \"num_key_value_heads\": 2,"
    " \"max_position_embeddings\": 2048, \"tie_word_embeddings\": true, \"bos_token_id\": 0,"
    " \"eos_token_id\": 1}";
// Experts beside a dense MLP. All are chosen, so that no rounding chooses.
static const char experts[] =
    "\"architectures\": [\"Gemma4ForCausalLM\"], \"model_type\": \"gemma4_text\","
    " \"vocab_size\": 256, \"hidden_size\": 128, \"intermediate_size\": 96,"
    " \"rms_norm_eps\": 0.2, \"num_hidden_layers\": 4, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 2,"
    " \"global_head_dim\": 128, \"num_global_key_value_heads\": 1,"
    " \"hidden_size_per_layer_input\": 0, \"vocab_size_per_layer_input\": 256,"
    " \"attention_k_eq_v\": true, \"enable_moe_block\": true, \"num_experts\": 3,"
    " \"top_k_experts\": 3, \"moe_intermediate_size\": 64, \"sliding_window\": 48,"
    " \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\","
    " \"full_attention\"], \"hidden_activation\": \"gelu_pytorch_tanh\","
    " \"max_position_embeddings\": 2048, \"tie_word_embeddings\": true, \"bos_token_id\": 0,"
    " \"eos_token_id\": 1}";
// As E2B: inputs of layers, and layers that read the keys and values of others.
static const char inputs[] =
    "\"architectures\": [\"Gemma4ForCausalLM\"], \"model_type\": \"gemma4_text\","
    " \"vocab_size\": 256, \"hidden_size\": 128, \"intermediate_size\": 96,"
    " \"rms_norm_eps\": 0.2, \"num_hidden_layers\": 6, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 1,"
    " \"global_head_dim\": 512, \"num_kv_shared_layers\": 3,"
    " \"use_double_wide_mlp\": true, \"hidden_size_per_layer_input\": 32,"
    " \"vocab_size_per_layer_input\": 256, \"final_logit_softcapping\": 30.0,"
    " \"sliding_window\": 48, \"layer_types\": [\"sliding_attention\", \"full_attention\","
    " \"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"],"
    " \"hidden_activation\": \"gelu_pytorch_tanh\", \"max_position_embeddings\": 2048,"
    " \"tie_word_embeddings\": true, \"bos_token_id\": 0, \"eos_token_id\": 1}";

// The keys but head_dim. With heads of 64 and 96; as Gemma 4 of 256 and 512; of 64 and 128; of 256
// and 512.
static const struct model {
    const char *name, *others;
    uint32_t head_dim;
} models[] = {{"shapes of 64", shapes, 64},
              {"shapes of 256", shapes, 256},
              {"experts", experts, 64},
              {"inputs of layers", inputs, 256}};

// A model, some prompts, and what the CPU makes of them.
struct wanted {
    const char *name;
    struct temp_folder folder;
    int32_t prompts[REQUESTS][PROMPT_MAX], tokens[REQUESTS][NEW];
    float logits[REQUESTS][NEW][VOCAB], got[REQUESTS][NEW][VOCAB];
    struct mini_request requests[REQUESTS];
};

static struct nvllm_engine_options options_of(const struct wanted *w, const char *of_device) {
    struct nvllm_engine_options options = mini_options(w->folder.path);
    options.device = of_device;
    options.load_format = "dummy";
    options.enable_prefix_caching = 0;
    return options;
}

static void run(const struct nvllm_engine_options *options, struct wanted *w, uint32_t at_once) {
    struct mini_engine engine;
    mini_open(&engine, options);
    mini_warm_up(&engine);
    for (uint32_t i = 0; i < REQUESTS; i += at_once) mini_run(&engine, &w->requests[i], at_once);
    mini_close(&engine);
}

static struct wanted *wanted_make(const struct model *model) {
    static const uint32_t lengths[REQUESTS] = {PROMPT_MAX, 17, 64, 5, 130, 33};
    struct wanted *w = calloc(1, sizeof *w);
    assert_non_null(w);
    char text[2048];
    snprintf(text, sizeof text, "{\"head_dim\": %u, %s", model->head_dim, model->others);
    w->name = model->name;
    temp_folder_create(&w->folder);
    temp_folder_write_text(&w->folder, "config.json", text);
    uint32_t state = 7;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        for (uint32_t t = 0; t < PROMPT_MAX; t++) {
            state = state * 1664525u + 1013904223u;
            w->prompts[i][t] = (int32_t)(2 + (state >> 16) % (VOCAB - 2));
        }
        w->requests[i] = (struct mini_request){.prompt = w->prompts[i],
                                               .num_prompt = lengths[i],
                                               .max_new = NEW,
                                               .logits = &w->logits[i][0][0]};
    }
    const struct nvllm_engine_options options = options_of(w, "cpu");
    run(&options, w, 1);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        memcpy(w->tokens[i], w->requests[i].tokens, sizeof w->tokens[i]);
        w->requests[i].forced = w->tokens[i];
        w->requests[i].logits = &w->got[i][0][0];
    }
    return w;
}

static void wanted_free(struct wanted *w) {
    temp_folder_remove(&w->folder);
    free(w);
}

// How far `got` is off at most, as a share of the largest logit.
static float share_off(const struct wanted *w, uint32_t request) {
    const float *want = &w->logits[request][0][0], *got = &w->got[request][0][0];
    float worst = 0, largest = 0;
    for (size_t i = 0; i < (size_t)NEW * VOCAB; i++) {
        if (!isfinite(got[i])) return INFINITY;
        largest = fmaxf(largest, fabsf(want[i]));
        worst = fmaxf(worst, fabsf(got[i] - want[i]));
    }
    return worst / largest;
}

static void check(struct wanted *w, const char *what, float allowed) {
    float worst = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) worst = fmaxf(worst, share_off(w, i));
    print_message("%s, %s: off by %.4f of the largest\n", w->name, what, (double)worst);
    if (!(worst <= allowed)) fail_msg("%s, %s: allowed is %g", w->name, what, (double)allowed);
    memset(w->got, 0xff, sizeof w->got);
}

static void test_on_every_way(void **state) {
    (void)state;
    static const struct {
        const char *what;
        uint32_t at_once;
        int32_t step_tokens, eager, block_size;
    } ways[] = {
        {"alone", 1, 512, 0, 16},           {"alone, eager, blocks of 64", 1, 512, 1, 64},
        {"together", REQUESTS, 512, 0, 16}, {"together, in chunks of 40", REQUESTS, 40, 0, 16},
        {"token by token", 1, 1, 0, 16},
    };
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct wanted *w = wanted_make(&models[m]);
        for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
            struct nvllm_engine_options options = options_of(w, device);
            options.max_num_batched_tokens = ways[i].step_tokens;
            options.enforce_eager = ways[i].eager;
            options.block_size = ways[i].block_size;
            run(&options, w, ways[i].at_once);
            check(w, ways[i].what, bound);
        }
        wanted_free(w);
    }
}

// The prompts' blocks come from the cache the second time.
static void check_cached_prompts(const struct model *model) {
    struct wanted *w = wanted_make(model);
    struct nvllm_engine_options options = options_of(w, device);
    options.enable_prefix_caching = 1;
    struct mini_engine engine;
    mini_open(&engine, &options);
    mini_warm_up(&engine);
    mini_run(&engine, w->requests, REQUESTS);
    memset(w->got, 0xff, sizeof w->got);
    assert_int_equal(scheduler_num_cached_tokens(engine.scheduler), 0);
    mini_run(&engine, w->requests, REQUESTS);
    assert_true(scheduler_num_cached_tokens(engine.scheduler) >= PROMPT_MAX / 16 * 16);
    mini_close(&engine);
    check(w, "cached", bound);
    wanted_free(w);
}

static void test_cached_prompts(void **state) {
    (void)state;
    for (size_t m = 1; m < ARRAY_LEN(models); m++) check_cached_prompts(&models[m]);
}

// Six equal requests of four blocks in each of five KV groups, which outgrow the cache together.
static void test_preempted(void **state) {
    (void)state;
    enum { EQUAL = 2, BLOCKS = 5 * 25 };
    struct wanted *w = wanted_make(&models[1]);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        w->requests[i] = w->requests[EQUAL];
        w->requests[i].logits = &w->got[i][0][0];
        if (i != EQUAL) memcpy(w->logits[i], w->logits[EQUAL], sizeof w->logits[i]);
    }
    struct nvllm_engine_options options = options_of(w, device);
    options.max_model_len = PROMPT_MAX + NEW;
    options.num_kvcache_blocks = BLOCKS;
    struct mini_engine engine;
    mini_open(&engine, &options);
    mini_warm_up(&engine);
    mini_run(&engine, w->requests, REQUESTS);
    assert_true(scheduler_num_preemptions(engine.scheduler) > 0);
    mini_close(&engine);
    check(w, "preempted", bound);
    wanted_free(w);
}

static void test_caches_of_codes(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++) {
        struct wanted *w = wanted_make(&models[m]);
        for (int is_fp8 = 0; is_fp8 < 2; is_fp8++) {
            struct nvllm_engine_options options = options_of(w, device);
            options.kv_cache_dtype = is_fp8 ? "fp8" : "int8";
            run(&options, w, REQUESTS);
            check(w, options.kv_cache_dtype, is_fp8 ? fp8_bound : int8_bound);
        }
        wanted_free(w);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_every_way),
        cmocka_unit_test(test_cached_prompts),
        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_caches_of_codes),
    };
    device = argc > 1 ? argv[1] : mini_gpus();
    if (!device) return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
