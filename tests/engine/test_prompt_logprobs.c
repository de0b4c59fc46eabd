// Log-probabilities of prompts: those that the same tokens have when they are generated, on every
// way of running. And the prompt's text before the output.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/data_parallel/engine_group.h"
#include "engine/llm_engine_internal.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/ways.h"

enum {
    NUM_PROMPT = 40,
    NUM_NEW = 60,
    NUM_ALL = NUM_PROMPT + NUM_NEW,
    NUM_TOP = 3,
    ROW = 1 + NUM_TOP
};

struct expected {
    int32_t ids[NUM_ALL]; // a prompt and what follows it
    struct nvllm_logprob generated[NUM_NEW][ROW]; // of what follows
    struct nvllm_logprob whole[NUM_ALL - 1][ROW]; // of all of it as a prompt
};

static struct nvllm_sampling_params params_of(int32_t max_tokens) {
    struct nvllm_sampling_params params = greedy_params(max_tokens);
    params.ignore_eos = 1;
    return params;
}

// All of `ids` as a prompt.
static struct nvllm_request scored(const struct expected *expected,
                                   struct nvllm_sampling_params *params) {
    params->prompt_logprobs = NUM_TOP;
    return ids_request(expected->ids, NUM_ALL, params);
}

static int make_expected(void **state) {
    struct expected *expected = calloc(1, sizeof *expected);
    assert_non_null(expected);
    for (int32_t i = 0; i < NUM_PROMPT; i++) expected->ids[i] = (i * 37 + 300) % 4000;
    struct nvllm_engine_options options = way_options(&way_alone);
    options.max_num_batched_tokens = 256;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = params_of(NUM_NEW);
    params.temperature = 1.2f; // tokens that are not the likeliest
    params.seed = 1;
    params.logprobs = NUM_TOP;
    struct nvllm_request request = ids_request(expected->ids, NUM_PROMPT, &params);
    struct nvllm_result *result = generate_one(engine, &request);
    memcpy(expected->ids + NUM_PROMPT, result->token_ids, NUM_NEW * sizeof(int32_t));
    memcpy(expected->generated, result->logprobs, sizeof expected->generated);
    nvllm_results_free(result, 1);
    params = params_of(1);
    request = scored(expected, &params);
    result = generate_one(engine, &request);
    assert_non_null(result->prompt_logprobs);
    memcpy(expected->whole, result->prompt_logprobs, sizeof expected->whole);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
    *state = expected;
    return 0;
}

static int free_expected(void **state) {
    free(*state);
    return 0;
}

static void test_a_prompt_has_the_logprobs_that_its_tokens_had(void **state) {
    const struct expected *expected = *state;
    assert_memory_equal(expected->whole + NUM_PROMPT - 1, expected->generated,
                        sizeof expected->generated);
    int num_unlikely = 0;
    for (int i = 0; i + 1 < NUM_ALL; i++) {
        const struct nvllm_logprob *row = expected->whole[i];
        assert_int_equal(row[0].token_id, expected->ids[i + 1]);
        assert_true(row[0].logprob <= row[1].logprob && row[1].logprob <= 0);
        assert_true(row[1].logprob >= row[2].logprob && row[2].logprob >= row[3].logprob);
        num_unlikely += row[0].logprob < row[3].logprob;
    }
    assert_true(num_unlikely > 10); // not only what greedy would have chosen
}

static void expect_whole(const struct nvllm_result *result, const struct expected *expected) {
    assert_int_equal(result->num_prompt_top, NUM_TOP);
    assert_memory_equal(result->prompt_logprobs, expected->whole, sizeof expected->whole);
}

// Others run beside it; few sequences make the rows go through lm_head a few at a time.
static void test_every_way_is_the_same(void **state) {
    const struct expected *expected = *state;
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 1, .max_num_tokens = 256},
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 3, .max_num_tokens = 7},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 5},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 5, .no_prefix_cache = 1},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 5},
        {.device = "cpu",
         .async_scheduling = "on",
         .max_num_seqs = 5,
         .max_num_tokens = 16,
         .num_blocks = 12},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 5, .max_num_tokens = 30},
        {.device = "cuda", .async_scheduling = "off", .max_num_seqs = 5, .enforce_eager = 1},
    };
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        fake_device_reset();
        struct nvllm_engine_options options = way_options(&ways[w]);
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params[4];
        struct nvllm_request requests[4];
        for (int i = 0; i < 4; i++) {
            params[i] = params_of(i % 2 ? 40 : 70);
            requests[i] = ids_request(expected->ids + 3 * i, 20, &params[i]);
            if (i % 2) requests[i] = scored(expected, &params[i]);
        }
        struct nvllm_result *results = NULL;
        assert_int_equal(nvllm_engine_generate(engine, requests, 4, &results, NULL, NULL),
                         NVLLM_OK);
        for (int i = 0; i < 4; i++) {
            if (i % 2) {
                expect_whole(&results[i], expected);
            } else {
                assert_int_equal(results[i].num_prompt_top, -1);
                assert_null(results[i].prompt_logprobs);
            }
        }
        nvllm_results_free(results, 4);
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(engine, &stats);
        if (ways[w].num_blocks) assert_true(stats.num_preemptions > 0);
        nvllm_engine_destroy(engine);
        if (strcmp(ways[w].device, "cuda") == 0) assert_int_equal(fake_device_counts().live, 0);
    }
}

static const struct request *request_of(struct nvllm_engine *engine, uint64_t id) {
    const struct llm_engine *first = engine_group_first((const struct engine_group *)engine);
    return request_table_find(&first->inbox.requests, id);
}

// Four that decode take the blocks that a long prompt was given: it is preempted before it is
// through, with rows that are there, and begins anew.
static void test_a_prompt_that_is_set_back(void **state) {
    (void)state;
    enum { LONG = 200 };
    int32_t ids[LONG];
    for (int32_t i = 0; i < LONG; i++) ids[i] = (i * 91 + 7) % 4000;
    struct nvllm_logprob want[LONG - 1];
    for (int is_full = 0; is_full < 2; is_full++) {
        struct nvllm_engine_options options = small_options();
        options.device = "cpu";
        options.async_scheduling = "off";
        if (is_full) {
            options.max_num_batched_tokens = 8;
            options.num_kvcache_blocks = 27;
        }
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params others = params_of(70), params = params_of(30);
        for (int i = 0; is_full && i < 4; i++) {
            const struct nvllm_request other = ids_request(ids + i, 20, &others);
            assert_int_equal(nvllm_engine_add_request(engine, &other, NULL, NULL), NVLLM_OK);
        }
        params.prompt_logprobs = 0;
        struct nvllm_request request = ids_request(ids, LONG, &params);
        uint64_t id;
        assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
        bool was_set_back = false, is_through = false;
        const struct request *r;
        while ((r = request_of(engine, id))) {
            if (r->num_rows_finished == r->num_prompt_rows && !is_through) {
                is_through = true;
                for (int i = 0; i < LONG - 1; i++) {
                    if (!is_full) want[i] = r->prompt_logprobs[i];
                }
                assert_memory_equal(r->prompt_logprobs, want, sizeof want);
            }
            assert_int_equal(r->seq->skips_cache, !is_through);
            was_set_back |= r->num_rows_finished > 0 && !is_through && !r->seq->num_computed_tokens;
            assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
        }
        assert_true(is_through);
        assert_int_equal(was_set_back, is_full);
        nvllm_engine_destroy(engine);
    }
}

// No bias lifts a logit that is no number: another token is chosen.
static void test_a_token_that_cannot_be_chosen(void **state) {
    (void)state;
    const int32_t ids[] = {4, 5, 6, 7};
    struct request *request;
    assert_int_equal(request_create(&request, NULL), OK);
    assert_int_equal(sequence_create(&request->seq, 0, ids, 4, 1, 16, 1, NULL), OK);
    request->num_prompt_rows = 3;
    request->prompt_logprobs = calloc(3, sizeof *request->prompt_logprobs);
    const struct scheduled item = {.start = 1, .num_tokens = 3, .num_prompt_rows = 2};
    const struct sample_result results[] = {{.token_id = 6, .logprob = -0.5f},
                                            {.token_id = 9, .logprob = -0.25f}};
    llm_engine_take_prompt(request, &item, results);
    assert_int_equal(request->prompt_logprobs[1].token_id, 6);
    assert_true(request->prompt_logprobs[1].logprob == -0.5f);
    assert_int_equal(request->prompt_logprobs[2].token_id, 7);
    assert_true(isinf(request->prompt_logprobs[2].logprob));
    assert_int_equal(request->num_rows_finished, 0); // the first is missing
    request_destroy(request);
}

static void test_the_cache_is_not_read_but_filled(void **state) {
    const struct expected *expected = *state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    for (int i = 0; i < 2; i++) {
        struct nvllm_sampling_params params = params_of(2);
        const struct nvllm_request request = scored(expected, &params);
        struct nvllm_result *result = generate_one(engine, &request);
        assert_int_equal(result->num_cached_tokens, 0);
        expect_whole(result, expected);
        nvllm_results_free(result, 1);
    }
    struct nvllm_sampling_params params = params_of(2);
    const struct nvllm_request request = ids_request(expected->ids, NUM_ALL, &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_int_equal(result->num_cached_tokens, NUM_ALL / 16 * 16);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

struct seen {
    int num_events, num_without, num_with;
    const struct nvllm_engine *engine;
};

// They are there from the first token on, in every event, also the only one.
static void see(const struct nvllm_event *event, void *user_data) {
    struct seen *seen = user_data;
    seen->num_events++;
    if (!event->prompt_logprobs) {
        seen->num_without++;
        return;
    }
    seen->num_with++;
    assert_int_equal(event->num_prompt_top, NUM_TOP);
    assert_int_equal(event->prompt_logprobs[0].token_id, event->prompt_token_ids[1]);
}

static void test_every_event_has_them(void **state) {
    const struct expected *expected = *state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    for (int only_end = 0; only_end < 2; only_end++) {
        struct seen seen = {0};
        struct nvllm_sampling_params params = params_of(4);
        params.n = 2;
        struct nvllm_request request = scored(expected, &params);
        request.on_event = see;
        request.user_data = &seen;
        request.finish_event_only = only_end;
        assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, NULL), NVLLM_OK);
        while (nvllm_engine_has_unfinished(engine)) {
            assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
        }
        assert_int_equal(seen.num_with, only_end ? 2 : 8);
        assert_int_equal(seen.num_without, 0);
    }
    // Aborted before the prompt is through: there are none.
    struct seen seen = {0};
    struct nvllm_sampling_params params = params_of(4);
    struct nvllm_request request = scored(expected, &params);
    request.on_event = see;
    request.user_data = &seen;
    uint64_t id;
    assert_int_equal(nvllm_engine_add_request(engine, &request, &id, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(engine, id), 1);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK);
    assert_int_equal(seen.num_without, 1);
    nvllm_engine_destroy(engine);
}

static void test_a_prompt_of_one_token_has_no_rows(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    const int32_t id = 300;
    struct nvllm_sampling_params params = params_of(2);
    params.prompt_logprobs = 0;
    const struct nvllm_request request = ids_request(&id, 1, &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_non_null(result->prompt_logprobs);
    assert_int_equal(result->num_prompt_top, 0);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

// ---- echo ----

struct told {
    struct nvllm_engine *engine;
    char text[2048];
    size_t len;
    int num_echoes, num_events;
    bool aborts;
    enum nvllm_finish_reason reason;
};

static void tell(const struct nvllm_event *event, void *user_data) {
    struct told *told = user_data;
    told->num_events++;
    told->reason = event->finish_reason;
    if (!event->num_tokens && !event->finish_reason) {
        told->num_echoes++;
        assert_int_equal(told->num_events, 1); // before everything else
        assert_int_equal(event->num_generated_tokens, 0);
        if (told->aborts) {
            assert_int_equal(nvllm_engine_abort(told->engine, event->request_id), 1);
        }
    }
    memcpy(told->text + told->len, event->text, event->text_len);
    told->len += event->text_len;
    told->text[told->len] = '\0';
}

static struct told run_told(struct nvllm_engine *engine, struct nvllm_request request,
                            bool aborts) {
    struct told told = {.engine = engine, .aborts = aborts};
    request.on_event = tell;
    request.user_data = &told;
    assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, NULL), NVLLM_OK);
    while (nvllm_engine_has_unfinished(engine)) {
        assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    }
    return told;
}

static void test_the_prompt_comes_before_the_output(void **state) {
    (void)state;
    static const char chat[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 37 + 58?\"}], "
        "\"chat_template_kwargs\": {\"enable_thinking\": false}}";
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(60);
    params.echo = 1;
    // A text and a chat as they are; ids as the text that they have.
    struct nvllm_request request = text_request(QUESTION, &params);
    struct told told = run_told(engine, request, false);
    assert_string_equal(told.text, QUESTION "37 + 58 = 95.");
    assert_int_equal(told.num_echoes, 1);
    request = (struct nvllm_request)NVLLM_REQUEST_INIT;
    request.chat = chat;
    request.chat_len = sizeof chat - 1;
    request.sampling = &params;
    told = run_told(engine, request, false);
    assert_string_equal(told.text, QUESTION "37 + 58 = 95.");
    int32_t *ids = NULL;
    size_t num_ids = 0;
    assert_int_equal(nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), QUESTION,
                                            strlen(QUESTION), 0, NULL, &ids, &num_ids, NULL),
                     NVLLM_OK);
    for (params.skip_special_tokens = 0; params.skip_special_tokens < 2;
         params.skip_special_tokens++) {
        told = run_told(engine, ids_request(ids, num_ids, &params), false);
        const char *plain =
            "user\nWhat is 37 + 58?\nassistant\n<think>\n\n</think>\n\n37 + 58 = 95.";
        assert_string_equal(told.text,
                            params.skip_special_tokens ? plain : QUESTION "37 + 58 = 95.");
    }
    params.skip_special_tokens = 1;
    nvllm_free(ids);
    // Stop strings are looked for in the output alone.
    const char *stops[] = {"37", "95"};
    params.stop = stops + 1;
    params.num_stop = 1;
    request = text_request(QUESTION, &params);
    struct nvllm_result *result = generate_one(engine, &request);
    assert_string_equal(result->text, QUESTION "37 + 58 = ");
    assert_int_equal(result->num_prompt_top, -1);
    nvllm_results_free(result, 1);
    params.num_stop = 0;
    params.n = 2; // each has it
    params.prompt_logprobs = 0; // one has these
    result = generate_one(engine, &request);
    assert_string_equal(result->text, QUESTION "37 + 58 = 95.");
    assert_string_equal(result->next->text, result->text);
    assert_non_null(result->prompt_logprobs);
    assert_null(result->next->prompt_logprobs);
    nvllm_results_free(result, 1);
    nvllm_engine_destroy(engine);
}

static void test_an_echo_is_utf8(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(1);
    params.echo = 1;
    struct nvllm_request request = text_request("a\xff\xe2\x82", &params);
    struct told told = run_told(engine, request, false);
    static const char want[] = "a\xef\xbf\xbd\xef\xbf\xbd";
    assert_memory_equal(told.text, want, sizeof want - 1);
    nvllm_engine_destroy(engine);
}

static void test_an_abort_from_the_echo_is_the_last_event(void **state) {
    (void)state;
    static const char *const overlaps[] = {"off", "on"};
    for (int i = 0; i < 2; i++) {
        struct nvllm_engine_options options = small_options();
        options.async_scheduling = overlaps[i];
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_sampling_params params = greedy_params(9);
        params.echo = 1;
        struct told told = run_told(engine, text_request(QUESTION, &params), true);
        assert_int_equal(told.num_events, 2);
        assert_int_equal(told.reason, NVLLM_FINISH_ABORT);
        assert_string_equal(told.text, QUESTION);
        nvllm_engine_destroy(engine);
    }
}

static void test_without_a_tokenizer_there_is_no_echo(void **state) {
    const struct expected *expected = *state;
    struct nvllm_engine_options options = small_options();
    options.skip_tokenizer_init = 1;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = params_of(2);
    params.echo = 1;
    struct told told = run_told(engine, ids_request(expected->ids, 4, &params), false);
    assert_int_equal(told.num_echoes, 0);
    assert_int_equal(told.num_events, 2);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_has_the_logprobs_that_its_tokens_had),
        cmocka_unit_test(test_every_way_is_the_same),
        cmocka_unit_test(test_a_prompt_that_is_set_back),
        cmocka_unit_test(test_a_token_that_cannot_be_chosen),
        cmocka_unit_test(test_the_cache_is_not_read_but_filled),
        cmocka_unit_test(test_every_event_has_them),
        cmocka_unit_test(test_a_prompt_of_one_token_has_no_rows),
        cmocka_unit_test(test_the_prompt_comes_before_the_output),
        cmocka_unit_test(test_an_echo_is_utf8),
        cmocka_unit_test(test_an_abort_from_the_echo_is_the_last_event),
        cmocka_unit_test(test_without_a_tokenizer_there_is_no_echo),
    };
    return cmocka_run_group_tests(tests, make_expected, free_expected);
}
