/* Events, aborts and the life of engines through the public API on the bundled model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/engine_fixture.h"

struct record {
    struct nvllm_engine *engine;
    uint64_t abort_id; // abort this request from the first event; 0: none
    int abort_answer;
    enum nvllm_status nested_step, nested_wait, nested_generate;
    const struct nvllm_request *to_add; // from the first event; NULL: none
    struct record *added; // its record
    int destroys; // destroy the engine from every event
    char text[1024];
    size_t text_len;
    int num_events, num_tokens, num_ends;
    uint32_t num_generated; // by the last event
    int has_logprobs, only_last; // of the events of the request
    enum nvllm_finish_reason reason;
};

static uint64_t add(struct nvllm_engine *engine, struct nvllm_request request, struct record *r);

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct record *r = user_data;
    assert_int_equal(r->num_ends, 0); // nothing after the end
    r->num_events++;
    r->num_generated = event->num_generated_tokens;
    if (event->logprobs) r->has_logprobs = 1;
    assert_true(r->text_len + event->text_len < sizeof r->text);
    memcpy(r->text + r->text_len, event->text, event->text_len);
    r->text_len += event->text_len;
    r->text[r->text_len] = '\0';
    for (uint32_t i = 0; i < event->num_tokens; i++) {
        assert_int_equal(event->generated_token_ids[r->num_tokens++], event->token_ids[i]);
    }
    assert_int_equal(event->num_generated_tokens, r->num_tokens);
    if (event->finish_reason) r->num_ends++;
    r->reason = event->finish_reason;
    assert_int_equal(nvllm_engine_is_unfinished(r->engine, event->request_id), !r->reason);
    if (r->destroys) nvllm_engine_destroy(r->engine);
    if (r->to_add) add(r->engine, *r->to_add, r->added);
    r->to_add = NULL;
    if (!r->abort_id) return;
    r->abort_answer = nvllm_engine_abort(r->engine, r->abort_id);
    r->nested_step = nvllm_engine_step(r->engine, NULL);
    r->nested_wait = nvllm_engine_wait(r->engine, -1, NULL);
    struct nvllm_result *results = NULL;
    r->nested_generate = nvllm_engine_generate(r->engine, NULL, 0, &results, NULL, NULL);
    r->abort_id = 0;
}

static uint64_t add(struct nvllm_engine *engine, struct nvllm_request request, struct record *r) {
    struct nvllm_error error = {0};
    uint64_t id = 0;
    r->engine = engine;
    request.on_event = on_event;
    request.user_data = r;
    if (nvllm_engine_add_request(engine, &request, &id, &error)) fail_msg("%s", error.message);
    return id;
}

static void run(struct nvllm_engine *engine) {
    struct nvllm_error error = {0};
    for (int i = 0; nvllm_engine_has_unfinished(engine); i++) {
        assert_true(i < 10000);
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
}

static void test_streamed_text_is_the_result(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r = {0};
    add(*state, text_request(QUESTION, &params), &r);
    run(*state);
    assert_string_equal(r.text, "37 + 58 = 95.");
    assert_int_equal(r.num_ends, 1);
    assert_int_equal(r.reason, NVLLM_FINISH_STOP);
}

static void test_abort_between_steps_delivers_one_event(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r = {0};
    uint64_t id = add(*state, text_request(QUESTION, &params), &r);
    assert_int_equal(nvllm_engine_step(*state, NULL), NVLLM_OK);
    assert_int_equal(nvllm_engine_abort(*state, id), 1);
    assert_int_equal(nvllm_engine_abort(*state, id), 0);
    assert_int_equal(r.num_ends, 0);
    assert_true(nvllm_engine_has_unfinished(*state));
    assert_int_equal(nvllm_engine_wait(*state, 0, NULL), NVLLM_OK);
    assert_int_equal(r.num_ends, 1);
    assert_int_equal(r.num_generated, 1);
    assert_int_equal(r.reason, NVLLM_FINISH_ABORT);
    assert_int_equal(nvllm_engine_abort(*state, id), 0);
    assert_int_equal(nvllm_engine_abort(*state, 987654), 0);
    assert_false(nvllm_engine_has_unfinished(*state));
}

static void test_request_may_abort_itself_in_its_event(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r = {0};
    r.abort_id = add(*state, text_request(QUESTION, &params), &r);
    run(*state);
    assert_int_equal(r.abort_answer, 1);
    assert_int_equal(r.nested_step, NVLLM_ERR_INVALID);
    assert_int_equal(r.nested_wait, NVLLM_ERR_INVALID);
    assert_int_equal(r.nested_generate, NVLLM_ERR_INVALID);
    assert_int_equal(r.num_tokens, 1);
    assert_int_equal(r.reason, NVLLM_FINISH_ABORT);
}

static void test_event_may_abort_a_request_further_on_in_the_step(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record first = {0}, second = {0}, third = {0};
    add(*state, text_request(QUESTION, &params), &first);
    assert_int_equal(nvllm_engine_has_unfinished(*state), 1);
    first.abort_id = add(*state, text_request(QUESTION, &params), &second);
    add(*state, text_request("hello", &params), &third);
    assert_int_equal(nvllm_engine_has_unfinished(*state), 3);
    run(*state);
    assert_int_equal(second.reason, NVLLM_FINISH_ABORT);
    assert_string_equal(first.text, "37 + 58 = 95.");
    assert_int_equal(third.num_ends, 1);
}

static void test_an_event_may_add_a_request(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    const struct nvllm_request request = text_request(QUESTION, &params);
    struct record second = {0}, first = {.to_add = &request, .added = &second};
    add(*state, request, &first);
    run(*state);
    assert_string_equal(first.text, "37 + 58 = 95.");
    assert_string_equal(second.text, "37 + 58 = 95.");
}

// Also while the engine ends its requests: the one that is added ends as well.
static void test_an_event_of_destroy_may_add_a_request(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    for (int is_aborted = 0; is_aborted < 2; is_aborted++) {
        struct nvllm_engine *engine = open_engine(&options);
        const struct nvllm_request request = text_request(QUESTION, NULL);
        struct record second = {0}, first = {.to_add = &request, .added = &second};
        uint64_t id = add(engine, request, &first);
        if (is_aborted) assert_int_equal(nvllm_engine_abort(engine, id), 1);
        nvllm_engine_destroy(engine);
        assert_int_equal(first.reason, NVLLM_FINISH_ABORT);
        assert_int_equal(second.reason, NVLLM_FINISH_ABORT);
    }
}

struct timed {
    struct nvllm_times last;
    int num_events;
};

static void check_times(const struct nvllm_event *event, void *user_data) {
    struct timed *timed = user_data;
    const struct nvllm_times *now = &event->times, *last = &timed->last;
    assert_int_equal(event->num_prompt_tokens, 3);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(event->prompt_token_ids[i], 300 + i);
    assert_true(now->arrival > 0 && now->arrival <= now->first_scheduled);
    assert_true(now->first_scheduled <= now->first_token);
    if (timed->num_events++) {
        assert_true(now->first_token <= now->last_token && last->last_token <= now->last_token);
        assert_memory_equal(&now->first_token, &last->first_token, sizeof now->first_token);
    } else {
        assert_memory_equal(&now->first_token, &now->last_token, sizeof now->first_token);
    }
    timed->last = *now;
}

static void test_events_have_the_prompt_and_its_times(void **state) {
    const int32_t ids[] = {300, 301, 302};
    struct nvllm_sampling_params params = greedy_params(5);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(ids, 3, &params);
    struct timed timed = {0};
    request.on_event = check_times;
    request.user_data = &timed;
    struct nvllm_result *result = generate_one(*state, &request);
    assert_int_equal(timed.num_events, 5);
    assert_memory_equal(&result->times, &timed.last, sizeof timed.last);
    assert_int_equal(result->num_prompt_tokens, 3);
    assert_memory_equal(result->prompt_token_ids, ids, sizeof ids);
    nvllm_results_free(result, 1);
}

static void test_destroy_ends_unfinished_requests(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct record running = {0}, waiting = {0};
    add(engine, text_request(QUESTION, NULL), &running);
    assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    add(engine, text_request("later", NULL), &waiting);
    nvllm_engine_destroy(engine);
    assert_int_equal(running.reason, NVLLM_FINISH_ABORT);
    assert_int_equal(waiting.reason, NVLLM_FINISH_ABORT);
    nvllm_engine_destroy(NULL);
}

static void test_destroy_in_an_event_does_nothing(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(60);
    struct record done = {.destroys = 1}, aborted = {.destroys = 1};
    add(engine, text_request(QUESTION, &params), &done);
    run(engine);
    assert_string_equal(done.text, "37 + 58 = 95.");
    add(engine, text_request(QUESTION, &params), &aborted);
    nvllm_engine_destroy(engine); // and the event of its abort destroys again
    assert_int_equal(aborted.num_ends, 1);
    assert_int_equal(aborted.reason, NVLLM_FINISH_ABORT);
}

static void test_a_request_is_unfinished_until_its_last_event(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r = {0}; // on_event checks it too
    assert_int_equal(nvllm_engine_is_unfinished(*state, 987654), 0);
    uint64_t id = add(*state, text_request(QUESTION, &params), &r);
    assert_int_equal(nvllm_engine_is_unfinished(*state, id), 1);
    run(*state);
    assert_int_equal(r.num_ends, 1);
    assert_int_equal(nvllm_engine_is_unfinished(*state, id), 0);
}

static void test_two_engines_in_one_process_b11_b23(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    struct nvllm_engine *engines[2];
    for (int i = 0; i < 2; i++) {
        options.block_size = i ? 64 : 16; // B10: a block size belongs to its engine
        engines[i] = open_engine(&options);
    }
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r[2] = {0};
    for (int i = 0; i < 2; i++) add(engines[i], text_request(QUESTION, &params), &r[i]);
    while (nvllm_engine_has_unfinished(engines[0]) || nvllm_engine_has_unfinished(engines[1])) {
        for (int i = 0; i < 2; i++) assert_int_equal(nvllm_engine_step(engines[i], NULL), NVLLM_OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_string_equal(r[i].text, "37 + 58 = 95.");
        nvllm_engine_destroy(engines[i]);
    }
}

static void test_step_with_nothing_to_do_is_fine(void **state) {
    assert_int_equal(nvllm_engine_step(*state, NULL), NVLLM_OK);
}

static void test_max_num_seqs_caps_active_requests_b4(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.max_num_seqs = 2;
    options.data_parallel_size = 1; // the bound is each engine's
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(20);
    struct record r[6] = {0};
    for (int i = 0; i < 6; i++) add(engine, text_request(QUESTION, &params), &r[i]);
    while (nvllm_engine_has_unfinished(engine)) {
        assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
        struct nvllm_stats stats;
        stats.struct_size = sizeof stats;
        nvllm_engine_stats(engine, &stats);
        assert_true(stats.num_running <= 2);
    }
    for (int i = 0; i < 6; i++) assert_string_equal(r[i].text, "37 + 58 = 95.");
    nvllm_engine_destroy(engine);
}

static void test_unknown_struct_sizes_are_refused(void **state) {
    struct nvllm_sampling_params params = greedy_params(3);
    struct nvllm_request request = text_request(QUESTION, &params);
    const size_t sizes[] = {0, 12, sizeof params - 8, sizeof params + 8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        params.struct_size = sizes[i];
        expect_refused(*state, &request, "struct_size");
        assert_int_equal(nvllm_sampling_params_set(&params, "top_k", "1", NULL), NVLLM_ERR_INVALID);
    }
    params.struct_size = sizeof params;
    request.struct_size = 0;
    expect_refused(*state, &request, "struct_size");
}

// What the string options change in an engine.
struct manner {
    char device[64], weight_dtype[16]; // as nvllm_inspect says
    char text[sizeof((struct record){0}.text)]; // of QUESTION's answer
    uint64_t num_steps; // that have finished after the first
    uint64_t num_decodes; // of those that rode along with another request's prompt
};

static void copy_member(char *out, size_t size, const char *json, const char *key) {
    const char *start = strstr(json, key);
    assert_non_null(start);
    start = strchr(start + strlen(key), ':');
    snprintf(out, size, "%.*s", (int)strcspn(start, "\n"), start);
}

static struct manner manner_of(const struct nvllm_engine_options *options) {
    struct manner m = {0};
    char *json = NULL;
    struct nvllm_error error = {0};
    if (nvllm_inspect(options, &json, &error)) fail_msg("%s", error.message);
    copy_member(m.device, sizeof m.device, json, "\"device\"");
    copy_member(m.weight_dtype, sizeof m.weight_dtype, json, "\"weight_dtype\"");
    nvllm_free(json);

    struct nvllm_engine *engine = open_engine(options);
    struct nvllm_sampling_params params = greedy_params(12);
    struct record first = {0}, second = {0};
    struct nvllm_stats before = NVLLM_STATS_INIT, after = NVLLM_STATS_INIT;
    add(engine, text_request(QUESTION, &params), &first);
    assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
    nvllm_engine_stats(engine, &before);
    m.num_steps = before.num_steps;
    add(engine, text_request("later", &params), &second);
    do { // until the step of the second prompt has finished
        nvllm_engine_stats(engine, &before);
        assert_int_equal(nvllm_engine_step(engine, NULL), NVLLM_OK);
        nvllm_engine_stats(engine, &after);
    } while (second.num_tokens == 0);
    m.num_decodes = after.num_decode_tokens - before.num_decode_tokens;
    run(engine);
    memcpy(m.text, first.text, sizeof m.text);
    nvllm_engine_destroy(engine);
    return m;
}

static bool is_same(const struct manner *a, const struct manner *b) {
    return strcmp(a->device, b->device) == 0 && strcmp(a->weight_dtype, b->weight_dtype) == 0 &&
           strcmp(a->text, b->text) == 0 && a->num_steps == b->num_steps &&
           a->num_decodes == b->num_decodes;
}

static void test_null_strings_mean_their_defaults(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.device = options.cpu_isa = "auto";
    options.data_parallel_size = 1; // whose steps can be counted
    struct manner defaults = manner_of(&options), m;
    const struct {
        const char **option;
        const char *other; // than the default, and the engine's manner is another; NULL: none
    } cases[] = {
        {&options.device, strstr(defaults.device, "cuda") ? "cpu" : NULL},
        {&options.dtype, "float32"},
        {&options.load_format, "dummy"},
        {&options.schedule, "prefill-first"},
        {&options.cpu_isa,
         strstr(defaults.device, "cpu ") && !strstr(defaults.device, "scalar") ? "scalar" : NULL},
        {&options.async_scheduling, defaults.num_steps ? "on" : "off"},
        {&options.chat_template, NULL},
        {&options.cache_dir, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *before = *cases[i].option;
        if (cases[i].other) {
            *cases[i].option = cases[i].other;
            m = manner_of(&options);
            assert_false(is_same(&m, &defaults));
        }
        *cases[i].option = NULL;
        m = manner_of(&options);
        assert_true(is_same(&m, &defaults));
        *cases[i].option = before;
    }
}

static void test_generate_without_tokenizer_refuses_text_alone(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.skip_tokenizer_init = 1;
    struct nvllm_engine *engine = open_engine(&options);
    const int32_t ids[] = {1, 2, 3};
    struct nvllm_sampling_params params = greedy_params(2);
    params.ignore_eos = 1;
    struct nvllm_request requests[4] = {text_request("hello", &params),
                                        ids_request(ids, 3, &params), text_request("both", &params),
                                        ids_request(ids, 3, &params)};
    requests[2].prompt_token_ids = ids;
    requests[2].num_prompt_token_ids = 3;
    requests[3].num_prompt_token_ids = ((size_t)1 << 62) + 1; // must not be believed
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(engine, requests, 4, &results, NULL, NULL), NVLLM_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(results[i].finish_reason,
                         i == 1 ? NVLLM_FINISH_LENGTH : NVLLM_FINISH_ERROR);
        if (i != 1) assert_true(results[i].error.message[0] != 0);
    }
    assert_int_equal(results[1].num_tokens, 2);
    nvllm_results_free(results, 4);
    nvllm_engine_destroy(engine);
}

static void test_only_the_last_event_on_demand(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    params.logprobs = 2;
    struct record all = {0}, last = {.only_last = 1};
    struct nvllm_request request = text_request(QUESTION, &params);
    add(*state, request, &all);
    request.finish_event_only = 1;
    add(*state, request, &last);
    run(*state);
    assert_int_equal(last.num_events, 1);
    assert_int_equal(last.num_ends, 1);
    assert_int_equal(last.reason, NVLLM_FINISH_STOP);
    assert_int_equal(last.text_len, 0);
    assert_int_equal(last.num_generated, all.num_tokens);
    assert_false(last.has_logprobs);
    assert_true(all.has_logprobs);
}

static void test_stop_strings_end_a_request_that_wants_the_last_event(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    const char *stops[] = {" = 9"};
    params.stop = stops;
    params.num_stop = 1;
    struct record r = {.only_last = 1};
    struct nvllm_request request = text_request(QUESTION, &params);
    request.finish_event_only = 1;
    add(*state, request, &r);
    run(*state);
    assert_int_equal(r.num_events, 1);
    assert_int_equal(r.reason, NVLLM_FINISH_STOP);
    assert_true(r.num_generated < 12); // "37 + 58 = 95." and its end have as many
}

static void test_only_the_last_event_of_an_aborted_request(void **state) {
    struct nvllm_request request = text_request(QUESTION, NULL);
    request.finish_event_only = 1;
    struct record r = {0};
    uint64_t id = add(*state, request, &r);
    assert_int_equal(nvllm_engine_step(*state, NULL), NVLLM_OK);
    assert_int_equal(r.num_events, 0);
    assert_int_equal(nvllm_engine_abort(*state, id), 1);
    assert_int_equal(nvllm_engine_wait(*state, 0, NULL), NVLLM_OK);
    assert_int_equal(r.num_events, 1);
    assert_int_equal(r.reason, NVLLM_FINISH_ABORT);
}

static void test_generate_collects_all_and_forwards_the_last_event(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r = {.engine = *state, .only_last = 1};
    struct nvllm_request request = text_request(QUESTION, &params);
    request.on_event = on_event;
    request.user_data = &r;
    request.finish_event_only = 1;
    struct nvllm_result *result = generate_one(*state, &request);
    assert_string_equal(result->text, "37 + 58 = 95.");
    assert_int_equal(r.num_events, 1);
    assert_int_equal(r.num_generated, result->num_tokens);
    assert_int_equal(r.text_len, 0);
    nvllm_results_free(result, 1);
}

static void test_special_tokens_are_kept_on_demand(void **state) {
    struct nvllm_sampling_params params = greedy_params(60);
    struct record r = {0};
    struct nvllm_request request = text_request(QUESTION, &params);
    params.skip_special_tokens = 0;
    request.keep_stop_token = 1;
    add(*state, request, &r);
    run(*state);
    assert_string_equal(r.text, "37 + 58 = 95.<|im_end|>");
    // What a stop string cuts off is cut off of them too, whole or in part, and it is what ended
    // it.
    const struct {
        const char *stop, *text;
    } cases[] = {
        {"im_end", "37 + 58 = 95.<|"},
        {"<|im_end|>", "37 + 58 = 95."},
        {" 95.<|im", "37 + 58 ="},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *stops[] = {cases[i].stop};
        params.stop = stops;
        params.num_stop = 1;
        struct nvllm_result *result = generate_one(*state, &request);
        assert_string_equal(result->text, cases[i].text);
        assert_int_equal(result->finish_reason, NVLLM_FINISH_STOP);
        assert_string_equal(result->stop_string, cases[i].stop);
        assert_int_equal(result->stop_token_id, -1);
        nvllm_results_free(result, 1);
    }
}

static void test_decoding_leaves_unknown_ids_out_on_demand(void **state) {
    const struct nvllm_tokenizer *tokenizer = nvllm_engine_tokenizer(*state);
    int32_t *ids = NULL;
    size_t num_ids = 0;
    assert_int_equal(
        nvllm_tokenizer_encode(tokenizer, "a<|im_end|>b", 12, 0, NULL, &ids, &num_ids, NULL),
        NVLLM_OK);
    assert_int_equal(num_ids, 3);
    const int32_t mixed[] = {1 << 30, ids[0], -1, ids[1], ids[2]};
    nvllm_free(ids);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(nvllm_tokenizer_decode(tokenizer, mixed, 5, 0, &text, &len, NULL),
                     NVLLM_ERR_INVALID);
    assert_null(text);
    const struct {
        int flags;
        const char *text;
    } cases[] = {
        {NVLLM_DECODE_SKIP_UNKNOWN, "a<|im_end|>b"},
        {NVLLM_DECODE_SKIP_UNKNOWN | NVLLM_DECODE_SKIP_SPECIAL, "ab"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            nvllm_tokenizer_decode(tokenizer, mixed, 5, cases[i].flags, &text, &len, NULL),
            NVLLM_OK);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(len, strlen(cases[i].text));
        nvllm_free(text);
    }
}

static void test_struct_sizes_are_told_by_name(void **state) {
    (void)state;
    assert_int_equal(nvllm_struct_size("nvllm_event"), sizeof(struct nvllm_event));
    assert_int_equal(nvllm_struct_size("nvllm_request"), sizeof(struct nvllm_request));
    assert_int_equal(nvllm_struct_size("nvllm_stats"), sizeof(struct nvllm_stats));
    assert_int_equal(nvllm_struct_size("nvllm_download"), sizeof(struct nvllm_download));
    assert_int_equal(nvllm_struct_size("nvllm_download_progress"),
                     sizeof(struct nvllm_download_progress));
    assert_int_equal(nvllm_struct_size("event"), 0);
    assert_int_equal(nvllm_struct_size(NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streamed_text_is_the_result),
        cmocka_unit_test(test_abort_between_steps_delivers_one_event),
        cmocka_unit_test(test_request_may_abort_itself_in_its_event),
        cmocka_unit_test(test_event_may_abort_a_request_further_on_in_the_step),
        cmocka_unit_test(test_an_event_may_add_a_request),
        cmocka_unit_test(test_an_event_of_destroy_may_add_a_request),
        cmocka_unit_test(test_events_have_the_prompt_and_its_times),
        cmocka_unit_test(test_destroy_ends_unfinished_requests),
        cmocka_unit_test(test_destroy_in_an_event_does_nothing),
        cmocka_unit_test(test_a_request_is_unfinished_until_its_last_event),
        cmocka_unit_test(test_two_engines_in_one_process_b11_b23),
        cmocka_unit_test(test_step_with_nothing_to_do_is_fine),
        cmocka_unit_test(test_max_num_seqs_caps_active_requests_b4),
        cmocka_unit_test(test_unknown_struct_sizes_are_refused),
        cmocka_unit_test(test_null_strings_mean_their_defaults),
        cmocka_unit_test(test_generate_without_tokenizer_refuses_text_alone),
        cmocka_unit_test(test_only_the_last_event_on_demand),
        cmocka_unit_test(test_stop_strings_end_a_request_that_wants_the_last_event),
        cmocka_unit_test(test_only_the_last_event_of_an_aborted_request),
        cmocka_unit_test(test_generate_collects_all_and_forwards_the_last_event),
        cmocka_unit_test(test_special_tokens_are_kept_on_demand),
        cmocka_unit_test(test_decoding_leaves_unknown_ids_out_on_demand),
        cmocka_unit_test(test_struct_sizes_are_told_by_name),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
