/* Recorded steps against eager ones: the same ids, and logits of the same bits. Both are padded
 * alike and take what was timed as the fastest from one file, so nothing may differ.
 *
 * Requests of many lengths end one after the other: steps shrink, and most are padded. One model
 * has small matrices, the other's are as large as Qwen3-8B's, so that both go every way that a
 * device has for them: the ways for few rows and for many, and all layers as one kernel.
 *
 *   test_recorded [small | NAME]     small: not the large matrices, which take a GPU;
 *                                    NAME: only tests whose names match
 * 77, which ctest counts as skipped, where there is no device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/executor/executor_internal.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

enum { REQUESTS_MAX = 24, PROMPT_MAX = 320, NEW_MIN = 3, NEW_KINDS = 6, SKIPPED = 77 };
static const char *device; // as mini_gpus says

// Two layers of Qwen3-8B's widths; lm_head counts as one of the largest matrices.
static const char large_config[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\","
    " \"torch_dtype\": \"bfloat16\", \"vocab_size\": 16384, \"hidden_size\": 4096,"
    " \"intermediate_size\": 12288, \"num_hidden_layers\": 2, \"num_attention_heads\": 32,"
    " \"num_key_value_heads\": 8, \"head_dim\": 128, \"hidden_act\": \"silu\","
    " \"rms_norm_eps\": 1e-6, \"attention_bias\": false, \"tie_word_embeddings\": false,"
    " \"max_position_embeddings\": 4096, \"rope_theta\": 1000000}";

// What the requests saw.
struct run {
    struct mini_request requests[REQUESTS_MAX];
    int32_t prompts[REQUESTS_MAX][PROMPT_MAX];
    float *logits; // [num_floats]: one request's behind the other's
    size_t num_floats;
    uint64_t num_replays;
};

// Different lengths, prompts of at most `prompt_max` tokens, and numbers of tokens to generate.
static void make_requests(struct run *run, uint32_t num_requests, uint32_t prompt_max,
                          uint32_t vocab) {
    for (uint32_t i = 0; i < num_requests; i++) {
        struct mini_request *r = &run->requests[i];
        *r = (struct mini_request){.prompt = run->prompts[i],
                                   .num_prompt = 1 + i * 41 % prompt_max,
                                   .max_new = NEW_MIN + i % NEW_KINDS};
        for (uint32_t t = 0; t < r->num_prompt; t++) {
            run->prompts[i][t] = (int32_t)((i * 977 + t * 131 + 7) % vocab);
        }
        run->num_floats += (size_t)r->max_new * vocab;
    }
    run->logits = malloc(run->num_floats * sizeof *run->logits);
    assert_non_null(run->logits);
    size_t at = 0;
    for (uint32_t i = 0; i < num_requests; i++) {
        run->requests[i].logits = run->logits + at;
        at += (size_t)run->requests[i].max_new * vocab;
    }
}

static struct run *run_all(const struct nvllm_engine_options *options, uint32_t num_requests,
                           uint32_t prompt_max) {
    struct run *run = calloc(1, sizeof *run);
    struct mini_engine engine;
    assert_non_null(run);
    mini_open(&engine, options);
    make_requests(run, num_requests, prompt_max, engine.plan.config.vocab_size);
    mini_warm_up(&engine);
    mini_run(&engine, run->requests, num_requests);
    run->num_replays = model_runner_num_replays(engine.executor->runner);
    mini_close(&engine);
    return run;
}

static void run_free(struct run *run) {
    free(run->logits);
    free(run);
}

static void expect_same(const struct run *recorded, const struct run *eager,
                        uint32_t num_requests) {
    for (uint32_t i = 0; i < num_requests; i++) {
        const struct mini_request *a = &recorded->requests[i], *b = &eager->requests[i];
        assert_int_equal(a->num_tokens, a->max_new);
        for (uint32_t t = 0; t < a->max_new; t++) {
            if (a->tokens[t] == b->tokens[t]) continue;
            fail_msg("%u requests: token %u of request %u is %d recorded, %d eager", num_requests,
                     t, i, a->tokens[t], b->tokens[t]);
        }
    }
    for (size_t i = 0; i < recorded->num_floats; i++) {
        if (memcmp(&recorded->logits[i], &eager->logits[i], sizeof *eager->logits) == 0) continue;
        fail_msg("%u requests: logit %zu is %.9g recorded, %.9g eager", num_requests, i,
                 (double)recorded->logits[i], (double)eager->logits[i]);
    }
}

// `options` with a folder for timings, which the recorded run fills and the eager one reads.
static void check(struct nvllm_engine_options options, uint32_t num_requests) {
    options.enforce_eager = 0;
    struct run *recorded = run_all(&options, num_requests, PROMPT_MAX);
    options.enforce_eager = 1;
    struct run *eager = run_all(&options, num_requests, PROMPT_MAX);
    assert_true(recorded->num_replays > 0);
    assert_int_equal(eager->num_replays, 0);
    expect_same(recorded, eager, num_requests);
    run_free(recorded);
    run_free(eager);
}

static void check_counts(const struct nvllm_engine_options *options) {
    static const uint32_t counts[] = {1, 3, 5, 8, 13, REQUESTS_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) check(*options, counts[i]);
}

static struct nvllm_engine_options options_of(const char *model, const struct temp_folder *cache) {
    struct nvllm_engine_options options = mini_options(model);
    options.device = device;
    options.cache_dir = cache->path;
    // Few, so that few row counts are timed. Prompts are cut, and their parts beside decodes.
    options.max_num_seqs = 32;
    options.max_num_batched_tokens = 96;
    options.max_model_len = 512;
    return options;
}

static void test_small_matrices(void **state) {
    (void)state;
    struct temp_folder cache;
    temp_folder_create(&cache);
    const struct nvllm_engine_options options = options_of("models/tiny-qwen3", &cache);
    check_counts(&options);
    temp_folder_remove(&cache);
}

// Steps are recorded with a small cache, and then with the one that fills the device's share.
static void test_recorded_again(void **state) {
    (void)state;
    struct temp_folder cache;
    temp_folder_create(&cache);
    struct nvllm_engine_options options = options_of("models/tiny-qwen3", &cache);
    options.num_kvcache_blocks = 0;
    options.gpu_memory_utilization = 0.1;
    check(options, 13);
    temp_folder_remove(&cache);
}

// A size that is recorded when it occurs for the second time: the step before that was eager. Short
// prompts, so that 17 to 24 requests decode at a time.
static void test_recorded_later(void **state) {
    (void)state;
    struct temp_folder cache;
    temp_folder_create(&cache);
    struct nvllm_engine_options options = options_of("models/tiny-qwen3", &cache);
    options.max_num_seqs = 64; // so the size of 32 is not the largest
    options.full_warm_up = 1;
    struct run *before = run_all(&options, REQUESTS_MAX, 8);
    options.full_warm_up = 0;
    struct run *later = run_all(&options, REQUESTS_MAX, 8);
    // Several ranks record all sizes at the start.
    uint64_t num_later = options.tensor_parallel_size > 1 ? 0 : 1;
    assert_int_equal(later->num_replays, before->num_replays - num_later);
    expect_same(later, before, REQUESTS_MAX);
    run_free(before);
    run_free(later);
    temp_folder_remove(&cache);
}

static void check_large(const char *kv_cache_dtype) {
    struct temp_folder model, cache;
    temp_folder_create(&model);
    temp_folder_create(&cache);
    temp_folder_write_text(&model, "config.json", large_config);
    struct nvllm_engine_options options = options_of(model.path, &cache);
    options.load_format = "dummy";
    options.kv_cache_dtype = kv_cache_dtype;
    check_counts(&options);
    temp_folder_remove(&cache);
    temp_folder_remove(&model);
}

static void test_large_matrices(void **state) {
    (void)state;
    check_large("auto");
}

static void test_large_matrices_and_a_cache_of_codes(void **state) {
    (void)state;
    check_large("fp8");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_matrices),
        cmocka_unit_test(test_recorded_again),
        cmocka_unit_test(test_recorded_later),
        cmocka_unit_test(test_large_matrices),
        cmocka_unit_test(test_large_matrices_and_a_cache_of_codes),
    };
    const struct CMUnitTest small[] = {cmocka_unit_test(test_small_matrices),
                                       cmocka_unit_test(test_recorded_again),
                                       cmocka_unit_test(test_recorded_later)};
    device = mini_gpus();
    if (!device) return SKIPPED;
    if (argc == 2 && strcmp(argv[1], "small") == 0) {
        return cmocka_run_group_tests(small, NULL, NULL);
    }
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
