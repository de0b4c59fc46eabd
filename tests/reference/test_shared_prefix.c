/* Decodes that share a prefix, in a whole model: the same logits up to rounding as with each
 * sequence reading the prefix by itself, and the steps do find it. The bundled model has heads of
 * 64, a made-up one has heads of 128.
 *
 *   test_shared_prefix [fake | NAME]     fake: on a device that has no kernel for it and reads each
 *                                        sequence by itself; NAME: only tests whose names match
 * 77, which ctest counts as skipped, where there is no device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/executor/executor_internal.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

enum { REQUESTS = 24, SHARED = 700, OWN_MAX = 40, NEW = 40, LONER = 5, SKIPPED = 77 };
static const char *device; // as mini_gpus says
static bool is_fake;

// Rounding, relative to the largest logit; two orders of the same sums in bf16.
static const double bound = 0.03;

static const char heads_of_128[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\","
    " \"torch_dtype\": \"bfloat16\", \"vocab_size\": 4096, \"hidden_size\": 512,"
    " \"intermediate_size\": 1024, \"num_hidden_layers\": 3, \"num_attention_heads\": 16,"
    " \"num_key_value_heads\": 4, \"head_dim\": 128, \"hidden_act\": \"silu\","
    " \"rms_norm_eps\": 1e-6, \"attention_bias\": false, \"tie_word_embeddings\": false,"
    " \"max_position_embeddings\": 4096, \"rope_theta\": 1000000}";

// What the requests saw.
struct run {
    struct mini_request requests[REQUESTS];
    int32_t prompts[REQUESTS][SHARED + OWN_MAX];
    float *logits; // [REQUESTS][NEW][vocab]
    size_t num_floats;
    uint32_t num_shared_seqs; // in the step with the most
    uint64_t num_replays;
};

// All but one begin with the same tokens. `forced`: the tokens that another run generated, so that
// one that rounding changed does not change what follows.
static void make_requests(struct run *run, uint32_t vocab, const struct run *forced) {
    run->num_floats = (size_t)REQUESTS * NEW * vocab;
    run->logits = malloc(run->num_floats * sizeof *run->logits);
    assert_non_null(run->logits);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t num_prompt = SHARED + 1 + i * 7 % OWN_MAX;
        run->requests[i] = (struct mini_request){
            .prompt = run->prompts[i],
            .num_prompt = num_prompt,
            .max_new = NEW,
            .forced = forced ? forced->requests[i].tokens : NULL,
            .logits = run->logits + (size_t)i * NEW * vocab,
        };
        for (uint32_t t = 0; t < num_prompt; t++) {
            uint32_t own = t < SHARED && i != LONER ? 0 : (i + 1) * 977;
            run->prompts[i][t] = (int32_t)((own + t * 131 + 7) % vocab);
        }
    }
}

// The first request runs before the others, so that these find its prompt's blocks.
static struct run *run_all(const struct nvllm_engine_options *options, bool shares,
                           const struct run *forced) {
    struct run *run = calloc(1, sizeof *run);
    struct mini_engine engine;
    assert_non_null(run);
    mini_open(&engine, options);
    make_requests(run, engine.plan.config.vocab_size, forced);
    engine.batch.shares_prefixes = shares;
    engine.batch.finder.limits = (struct shared_prefix_limits){2, 16, 1};
    mini_warm_up(&engine);
    mini_run(&engine, run->requests, 1);
    mini_run(&engine, run->requests + 1, REQUESTS - 1);
    run->num_shared_seqs = engine.most_shared_seqs;
    run->num_replays = model_runner_num_replays(engine.executor->runner);
    mini_close(&engine);
    return run;
}

static void run_free(struct run *run) {
    free(run->logits);
    free(run);
}

static bool shares_prefixes(const struct nvllm_engine_options *options) {
    struct mini_engine engine;
    mini_open(&engine, options);
    bool shares = engine.batch.shares_prefixes;
    mini_close(&engine);
    return shares;
}

static void check(const struct nvllm_engine_options *options) {
    if (!is_fake && !shares_prefixes(options)) skip();
    struct run *plain = run_all(options, false, NULL), *shared = run_all(options, true, plain);
    assert_int_equal(plain->num_shared_seqs, 0);
    assert_int_equal(shared->num_shared_seqs, REQUESTS - 2); // not the first, not the loner
    assert_true(shared->num_replays < plain->num_replays); // a recorded step would not share
    size_t vocab = shared->num_floats / REQUESTS / NEW;
    for (uint32_t i = 0; i < REQUESTS * NEW; i++) {
        const float *a = plain->logits + i * vocab, *b = shared->logits + i * vocab;
        double largest = 0, apart = 0;
        for (size_t v = 0; v < vocab; v++) {
            largest = fmax(largest, fabs((double)a[v]));
            apart = fmax(apart, fabs((double)a[v] - (double)b[v]));
        }
        if (!(apart <= bound * largest)) {
            fail_msg("token %u of request %u: a logit is %g apart, the largest is %g", i % NEW,
                     i / NEW, apart, largest);
        }
    }
    run_free(shared);
    run_free(plain);
}

static struct nvllm_engine_options options_of(const char *model) {
    struct nvllm_engine_options options = mini_options(model);
    options.device = device;
    options.max_num_seqs = 32;
    // Prompts are cut, and their parts beside decodes.
    options.max_num_batched_tokens = 96;
    options.max_model_len = 1024;
    return options;
}

static void test_bundled_model(void **state) {
    (void)state;
    const struct nvllm_engine_options options = options_of("models/tiny-qwen3");
    check(&options);
}

static const char with_windows[] =
    "{\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\","
    " \"torch_dtype\": \"bfloat16\", \"vocab_size\": 1024, \"hidden_size\": 256,"
    " \"intermediate_size\": 256, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
    " \"num_key_value_heads\": 2, \"head_dim\": 128, \"hidden_act\": \"silu\","
    " \"rms_norm_eps\": 1e-6, \"sliding_window\": 512, \"tie_word_embeddings\": false,"
    " \"max_position_embeddings\": 4096, \"rope_theta\": 10000}";

// A model of these options and a configuration, with random weights.
static void with_config(const char *config,
                        void (*check_one)(const struct nvllm_engine_options *)) {
    struct temp_folder model;
    temp_folder_create(&model);
    temp_folder_write_text(&model, "config.json", config);
    struct nvllm_engine_options options = options_of(model.path);
    options.load_format = "dummy";
    check_one(&options);
    temp_folder_remove(&model);
}

static void test_heads_of_128(void **state) {
    (void)state;
    with_config(heads_of_128, check);
}

static void check_refused(const struct nvllm_engine_options *options) {
    assert_false(shares_prefixes(options));
}

// There is no kernel for a cache of codes, nor for windows.
static void test_what_is_not_shared(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of("models/tiny-qwen3");
    options.kv_cache_dtype = "int8";
    check_refused(&options);
    with_config(with_windows, check_refused);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundled_model),
        cmocka_unit_test(test_heads_of_128),
        cmocka_unit_test(test_what_is_not_shared),
    };
    const struct CMUnitTest fake[] = {cmocka_unit_test(test_bundled_model)};
    device = mini_gpus();
    if (!device) return SKIPPED;
    is_fake = argc == 2 && strcmp(argv[1], "fake") == 0;
    if (is_fake) {
        return cmocka_run_group_tests(fake, NULL, NULL);
    }
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
