// Vectors in place of text: they are the model's last hidden states, the same bits however the
// prompt is run.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/temp_folder.h"
#include "support/ways.h"

enum { NUM_IDS = 40, NUM_TEXTS = 3 };

static const struct nvllm_pooling plain_last = {sizeof plain_last, NVLLM_POOLING_LAST, 0, 0, NULL};
static const struct nvllm_pooling plain_mean = {sizeof plain_mean, NVLLM_POOLING_MEAN, 0, 0, NULL};

static int open_alone(void **state) {
    const struct nvllm_engine_options options = way_options(&way_alone);
    *state = open_engine(&options);
    return 0;
}

static void fill_ids(int32_t *ids, int which) {
    for (int32_t i = 0; i < NUM_IDS; i++) ids[i] = (i * 37 + which * 301 + 5) % 4000;
}

static struct nvllm_request pooled_request(const int32_t *ids, size_t count,
                                           const struct nvllm_pooling *pooling) {
    struct nvllm_request request = ids_request(ids, count, NULL);
    request.pooling = pooling;
    return request;
}

static struct nvllm_result *embed(struct nvllm_engine *engine, const int32_t *ids, size_t count,
                                  const struct nvllm_pooling *pooling) {
    const struct nvllm_request request = pooled_request(ids, count, pooling);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
    assert_int_equal(result->num_tokens, 0);
    assert_string_equal(result->text, "");
    assert_non_null(result->embedding);
    return result;
}

// The model's logits are lm_head times the last hidden states, so the vector gives the
// log-probabilities that the engine reports for the next token.
static void test_the_last_token_s_vector_gives_its_logits(void **state) {
    struct nvllm_engine *engine = *state;
    int32_t ids[NUM_IDS];
    fill_ids(ids, 0);
    struct nvllm_result *vector = embed(engine, ids, NUM_IDS, &plain_last);
    struct nvllm_sampling_params params = greedy_params(1);
    params.logprobs = 2;
    const struct nvllm_request next = ids_request(ids, NUM_IDS, &params);
    struct nvllm_result *token = generate_one(engine, &next);

    struct checkpoint *checkpoint;
    struct weights *weights;
    struct weight head;
    const uint64_t shape[2] = {4096, vector->num_dimensions};
    assert_int_equal(checkpoint_open(&checkpoint, small_options().model, NULL), OK);
    assert_int_equal(weights_open(&weights, checkpoint, NULL), OK);
    assert_int_equal(weights_take(weights, "model.embed_tokens.weight", 2, shape, &head, NULL), OK);
    assert_int_equal(head.dtype, DTYPE_BF16);
    size_t row_bytes = vector->num_dimensions * sizeof(uint16_t);
    double sum = 0, logits[3] = {0};
    uint16_t *row = malloc(row_bytes);
    assert_non_null(row);
    for (size_t id = 0; id < shape[0]; id++) {
        const char *bytes = byte_source_get(&head.source, id * row_bytes, row_bytes, row, NULL);
        double logit = 0;
        assert_non_null(bytes);
        memmove(row, bytes, row_bytes);
        for (size_t i = 0; i < vector->num_dimensions; i++) {
            logit += (double)bf16_to_f32(row[i]) * (double)vector->embedding[i];
        }
        sum += exp(logit);
        for (int k = 0; k < 3; k++) {
            if (token->logprobs[k].token_id == (int32_t)id) logits[k] = logit;
        }
    }
    for (int k = 0; k < 3; k++) {
        assert_float_equal((float)(logits[k] - log(sum)), token->logprobs[k].logprob, 0.02f);
    }
    free(row);
    weights_close(weights);
    checkpoint_close(checkpoint);
    nvllm_results_free(vector, 1);
    nvllm_results_free(token, 1);
}

// Attention sees no later token, so the hidden states of token i are those of the prompt that ends
// there.
static void test_the_mean_is_that_of_all_tokens(void **state) {
    struct nvllm_engine *engine = *state;
    int32_t ids[NUM_IDS];
    fill_ids(ids, 1);
    struct nvllm_result *mean = embed(engine, ids, NUM_IDS, &plain_mean);
    double *sum = calloc(mean->num_dimensions, sizeof *sum);
    assert_non_null(sum);
    for (size_t count = 1; count <= NUM_IDS; count++) {
        struct nvllm_result *last = embed(engine, ids, count, &plain_last);
        for (size_t i = 0; i < mean->num_dimensions; i++) sum[i] += (double)last->embedding[i];
        nvllm_results_free(last, 1);
    }
    for (size_t i = 0; i < mean->num_dimensions; i++) {
        assert_float_equal(mean->embedding[i], (float)(sum[i] / NUM_IDS), 1e-5f);
    }
    free(sum);
    nvllm_results_free(mean, 1);
}

static void test_a_vector_is_cut_then_scaled(void **state) {
    struct nvllm_engine *engine = *state;
    enum { CUT = 8 };
    const struct nvllm_pooling cut = {sizeof cut, NVLLM_POOLING_MODEL, -1, CUT, NULL};
    int32_t ids[NUM_IDS];
    fill_ids(ids, 2);
    struct nvllm_result *whole = embed(engine, ids, NUM_IDS, &plain_last);
    struct nvllm_result *part = embed(engine, ids, NUM_IDS, &cut);
    double squares = 0;
    assert_int_equal(part->num_dimensions, CUT);
    for (int i = 0; i < CUT; i++) {
        squares += (double)whole->embedding[i] * (double)whole->embedding[i];
    }
    for (int i = 0; i < CUT; i++) {
        float want = (float)((double)whole->embedding[i] / sqrt(squares));
        assert_float_equal(part->embedding[i], want, 1e-6f);
    }
    nvllm_results_free(whole, 1);
    nvllm_results_free(part, 1);
}

// Beside requests that generate, in chunks, preempted, from cached prefixes, and a step behind.
static void test_every_way_is_the_same(void **state) {
    struct nvllm_engine *alone = *state;
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 3, .max_num_tokens = 7},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 5},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 5, .no_prefix_cache = 1},
        {.device = "cpu",
         .async_scheduling = "on",
         .max_num_seqs = 5,
         .max_num_tokens = 16,
         .num_blocks = 12},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 5, .max_num_tokens = 30},
    };
    int32_t ids[NUM_TEXTS][NUM_IDS];
    for (int i = 0; i < NUM_TEXTS; i++) fill_ids(ids[i], i);
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        fake_device_reset();
        struct nvllm_engine_options options = way_options(&ways[w]);
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = greedy_params(70);
        params.ignore_eos = 1;
        struct nvllm_request requests[3 * NUM_TEXTS];
        for (int i = 0; i < NUM_TEXTS; i++) {
            requests[3 * i] = ids_request(ids[i], 20, &params);
            requests[3 * i + 1] = pooled_request(ids[i], NUM_IDS, &plain_last);
            requests[3 * i + 2] = pooled_request(ids[i], NUM_IDS, &plain_mean);
        }
        struct nvllm_result *got = NULL;
        assert_int_equal(nvllm_engine_generate(engine, requests, 3 * NUM_TEXTS, &got, NULL, NULL),
                         NVLLM_OK);
        for (int i = 0; i < 3 * NUM_TEXTS; i++) {
            if (i % 3 == 0) {
                assert_int_equal(got[i].num_tokens, 70);
                assert_null(got[i].embedding);
                continue;
            }
            struct nvllm_result *want =
                embed(alone, ids[i / 3], NUM_IDS, i % 3 == 1 ? &plain_last : &plain_mean);
            assert_memory_equal(got[i].embedding, want->embedding,
                                want->num_dimensions * sizeof(float));
            nvllm_results_free(want, 1);
        }
        nvllm_results_free(got, 3 * NUM_TEXTS);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        if (ways[w].num_blocks) assert_true(stats.num_preemptions > 0);
        nvllm_engine_destroy(engine);
        if (strcmp(ways[w].device, "cuda") == 0) assert_int_equal(fake_device_counts().live, 0);
    }
}

// If the launch waited for the vectors, the device would have nothing to do until the next launch.
static void test_steps_of_vectors_overlap(void **state) {
    (void)state;
    const struct way way = {
        .device = "cuda", .async_scheduling = "on", .max_num_seqs = 5, .max_num_tokens = NUM_IDS};
    fake_device_reset();
    struct nvllm_engine_options options = way_options(&way);
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[NUM_TEXTS][NUM_IDS];
    struct nvllm_request requests[NUM_TEXTS];
    for (int i = 0; i < NUM_TEXTS; i++) {
        fill_ids(ids[i], i);
        requests[i] = pooled_request(ids[i], NUM_IDS, &plain_last);
    }
    struct nvllm_result *got = NULL;
    uint32_t before = fake_device_counts().num_synchronized;
    assert_int_equal(nvllm_engine_generate(engine, requests, NUM_TEXTS, &got, NULL, NULL),
                     NVLLM_OK);
    assert_int_equal(fake_device_counts().num_synchronized, before);
    nvllm_results_free(got, NUM_TEXTS);
    nvllm_engine_destroy(engine);
}

// The first step has 10 tokens of the mean, which arrive with the results; the second has 299, more
// than a slot has room for. Its launch waits for them while the first step is not finished.
static void test_a_mean_adds_up_in_the_order_of_steps(void **state) {
    static const char *const devices[] = {"cpu", "cuda"};
    (void)state;
    for (size_t d = 0; d < ARRAY_LEN(devices); d++) {
        const struct way way = {.device = devices[d],
                                .async_scheduling = "on",
                                .max_num_seqs = 4,
                                .max_num_tokens = 300};
        fake_device_reset();
        struct nvllm_engine_options options = way_options(&way);
        options.max_model_len = 400;
        options.num_kvcache_blocks = 64;
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = greedy_params(20);
        params.ignore_eos = 1;
        int32_t ids[320];
        for (int32_t i = 0; i < 320; i++) ids[i] = (i * 37 + 5) % 4000;
        const struct nvllm_request requests[] = {ids_request(ids, 290, &params),
                                                 pooled_request(ids + 1, 319, &plain_mean)};
        struct nvllm_result *got = NULL;
        assert_int_equal(nvllm_engine_generate(engine, requests, 2, &got, NULL, NULL), NVLLM_OK);
        struct nvllm_result *want = embed(engine, ids + 1, 319, &plain_mean);
        assert_memory_equal(got[1].embedding, want->embedding,
                            want->num_dimensions * sizeof(float));
        nvllm_results_free(want, 1);
        nvllm_results_free(got, 2);
        nvllm_engine_destroy(engine);
    }
}

static void test_a_cached_prefix_is_read_for_the_last_token_alone(void **state) {
    struct nvllm_engine *engine = *state;
    int32_t ids[NUM_IDS];
    fill_ids(ids, 7);
    nvllm_results_free(embed(engine, ids, NUM_IDS, &plain_last), 1);
    struct nvllm_result *last = embed(engine, ids, NUM_IDS, &plain_last);
    struct nvllm_result *mean = embed(engine, ids, NUM_IDS, &plain_mean);
    assert_int_equal(last->num_cached_tokens, NUM_IDS / 16 * 16);
    assert_int_equal(mean->num_cached_tokens, 0);
    nvllm_results_free(last, 1);
    nvllm_results_free(mean, 1);
}

static void test_a_prompt_may_fill_the_context(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_model_len = NUM_IDS;
    struct nvllm_engine *engine = open_engine(&options);
    int32_t ids[NUM_IDS + 1] = {0};
    nvllm_results_free(embed(engine, ids, NUM_IDS, &plain_last), 1);
    struct nvllm_request request = pooled_request(ids, NUM_IDS + 1, &plain_last);
    expect_refused(engine, &request, "the prompt has 41 tokens; max_model_len 40 is shorter");
    request.pooling = NULL;
    request.num_prompt_token_ids = NUM_IDS;
    expect_refused(engine, &request, "leaves no room for an answer");
    nvllm_engine_destroy(engine);
}

static void test_what_is_of_text_is_refused(void **state) {
    struct nvllm_engine *engine = *state;
    const int32_t ids[] = {1, 2, 3};
    struct nvllm_pooling pooling = plain_last;
    struct nvllm_request request = pooled_request(ids, 3, &pooling);
    struct nvllm_sampling_params params = greedy_params(1);
    request.sampling = &params;
    params.n = 2;
    expect_refused(engine, &request, "n is of generated text, but a vector is asked for");
    params = greedy_params(1);
    params.prompt_logprobs = 0;
    expect_refused(engine, &request, "prompt_logprobs is of generated text");
    request.sampling = NULL;
    pooling.dimensions = 100000;
    expect_refused(engine, &request, "dimensions is 100000, but the model's vectors have");
    pooling = plain_last;
    pooling.prompt_name = "query";
    expect_refused(engine, &request, "has no prompt named query");
    pooling.struct_size = 1;
    expect_refused(engine, &request, "nvllm_pooling: struct_size");
}

// ---- what a model of embeddings publishes ----

// Files of sentence-transformers beside the bundled model's.
struct described {
    struct temp_folder folder;
    char pooling_folder[200];
};

static void link_file(const struct described *d, const char *name) {
    char path[PATH_MAX], link[300];
    char from[300];
    snprintf(from, sizeof from, "%s/%s", small_options().model, name);
    snprintf(link, sizeof link, "%s/%s", d->folder.path, name);
    assert_non_null(realpath(from, path));
    assert_int_equal(symlink(path, link), 0);
}

// `config`: NULL: the bundled model's.
static void describe(struct described *d, const char *modules, const char *pooling,
                     const char *config) {
    static const char *const names[] = {
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"};
    temp_folder_create(&d->folder);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) link_file(d, names[i]);
    snprintf(d->pooling_folder, sizeof d->pooling_folder, "%s/1_Pooling", d->folder.path);
    assert_int_equal(mkdir(d->pooling_folder, 0700), 0);
    temp_folder_write_text(&d->folder, "1_Pooling/config.json", pooling);
    temp_folder_write_text(&d->folder, "modules.json", modules);
    temp_folder_write_text(&d->folder, "config_sentence_transformers.json",
                           "{\"prompts\": {\"query\": \"Ask: \", \"document\": \"\"}}");
    if (config) {
        temp_folder_write_text(&d->folder, "config.json", config);
    } else {
        link_file(d, "config.json");
    }
}

static void forget(struct described *d) {
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", d->pooling_folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(d->pooling_folder), 0);
    temp_folder_remove(&d->folder);
}

static struct nvllm_engine *open_described(const struct described *d) {
    struct nvllm_engine_options options = small_options();
    options.model = d->folder.path;
    return open_engine(&options);
}

#define MODULE(name) "{\"idx\": 0, \"type\": \"sentence_transformers.models." name "\"}"
static const struct nvllm_pooling as_published = NVLLM_POOLING_INIT;

static void test_the_model_says_how_it_is_pooled(void **state) {
    struct nvllm_engine *plain = *state;
    struct described d;
    describe(&d, "[" MODULE("Transformer") ", " MODULE("Pooling") "]",
             "{\"pooling_mode_cls_token\": false, \"pooling_mode_mean_tokens\": true}", NULL);
    struct nvllm_engine *engine = open_described(&d);
    int32_t ids[NUM_IDS];
    fill_ids(ids, 3);
    struct nvllm_result *got = embed(engine, ids, NUM_IDS, &as_published);
    struct nvllm_result *want = embed(plain, ids, NUM_IDS, &plain_mean); // not scaled
    assert_memory_equal(got->embedding, want->embedding, want->num_dimensions * sizeof(float));
    nvllm_results_free(got, 1);
    nvllm_results_free(want, 1);
    nvllm_engine_destroy(engine);
    forget(&d);
}

static void test_a_named_prompt_goes_before_the_text(void **state) {
    struct nvllm_engine *plain = *state;
    struct described d;
    describe(&d, "[" MODULE("Transformer") ", " MODULE("Pooling") ", " MODULE("Normalize") "]",
             "{\"pooling_mode_lasttoken\": true}", NULL);
    struct nvllm_engine *engine = open_described(&d);
    struct nvllm_pooling pooling = NVLLM_POOLING_INIT;
    pooling.prompt_name = "query";
    struct nvllm_request request = text_request("two and two", NULL);
    request.pooling = &pooling;
    struct nvllm_result *got = generate_one(engine, &request);
    request = text_request("Ask: two and two", NULL);
    request.pooling = &as_published;
    struct nvllm_result *want = generate_one(plain, &request);
    assert_int_equal(got->num_prompt_tokens, want->num_prompt_tokens);
    assert_memory_equal(got->embedding, want->embedding, want->num_dimensions * sizeof(float));
    nvllm_results_free(got, 1);
    nvllm_results_free(want, 1);
    nvllm_engine_destroy(engine);
    forget(&d);
}

static void test_steps_that_are_not_known_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *modules, *pooling, *message;
    } cases[] = {
        {"[" MODULE("Transformer") ", " MODULE("Dense") "]", "{\"pooling_mode_lasttoken\": true}",
         "the module Dense is not supported"},
        {"[]", "{\"pooling_mode_cls_token\": true}", "pooling by cls_token is not supported"},
        {"[]", "{\"pooling_mode\": \"max\"}", "pooling by max is not supported"},
        {"[]", "{\"pooling_mode_mean_tokens\": true, \"include_prompt\": false}",
         "a mean without the prompt's tokens is not supported"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct described d;
        describe(&d, cases[i].modules, cases[i].pooling, NULL);
        struct nvllm_engine *engine = open_described(&d);
        const int32_t ids[] = {1, 2, 3};
        struct nvllm_request request = pooled_request(ids, 3, &as_published);
        expect_refused(engine, &request, cases[i].message);
        nvllm_engine_destroy(engine);
        forget(&d);
    }
}

// Qwen3-Embedding-8B is not tied and has no lm_head.
static void test_a_model_without_lm_head(void **state) {
    struct nvllm_engine *plain = *state;
    char path[300], config[4096];
    snprintf(path, sizeof path, "%s/config.json", small_options().model);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t len = fread(config, 1, sizeof config - 1, file);
    fclose(file);
    config[len] = '\0';
    char *tied = strstr(config, "\"tie_word_embeddings\": true");
    assert_non_null(tied);
    memcpy(tied, "\"tie_word_embeddings\":false", strlen("\"tie_word_embeddings\": true"));
    struct described d;
    describe(&d, "[" MODULE("Transformer") "]", "{\"pooling_mode_lasttoken\": true}", config);
    struct nvllm_engine *engine = open_described(&d);
    int32_t ids[NUM_IDS];
    fill_ids(ids, 4);
    struct nvllm_result *got = embed(engine, ids, NUM_IDS, &plain_last);
    struct nvllm_result *want = embed(plain, ids, NUM_IDS, &plain_last);
    assert_memory_equal(got->embedding, want->embedding, want->num_dimensions * sizeof(float));
    struct nvllm_request request = ids_request(ids, NUM_IDS, NULL);
    expect_refused(engine, &request, "the model has no lm_head: it gives embeddings, not text");
    nvllm_results_free(got, 1);
    nvllm_results_free(want, 1);
    nvllm_engine_destroy(engine);
    forget(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_token_s_vector_gives_its_logits),
        cmocka_unit_test(test_the_mean_is_that_of_all_tokens),
        cmocka_unit_test(test_a_vector_is_cut_then_scaled),
        cmocka_unit_test(test_every_way_is_the_same),
        cmocka_unit_test(test_steps_of_vectors_overlap),
        cmocka_unit_test(test_a_mean_adds_up_in_the_order_of_steps),
        cmocka_unit_test(test_a_cached_prefix_is_read_for_the_last_token_alone),
        cmocka_unit_test(test_a_prompt_may_fill_the_context),
        cmocka_unit_test(test_what_is_of_text_is_refused),
        cmocka_unit_test(test_the_model_says_how_it_is_pooled),
        cmocka_unit_test(test_a_named_prompt_goes_before_the_text),
        cmocka_unit_test(test_steps_that_are_not_known_are_refused),
        cmocka_unit_test(test_a_model_without_lm_head),
    };
    return cmocka_run_group_tests(tests, open_alone, close_shared_engine);
}
