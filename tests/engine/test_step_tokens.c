/* Steps that bring several tokens of an output. The results that a model would give are written by
 * hand: the tokens of TEXT. Taken k at a time they must tell the caller what they tell one by one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/os/clock.h"
#include "engine/data_parallel/engine_group.h"
#include "engine/llm_engine_internal.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

// Characters of several tokens, a stop string over token borders, EOS, and tokens behind it.
#define TEXT "37 + 58 = 95. Grüße, \U0001F642 世界! to stop here, and<|im_end|> never seen"

enum { TOKENS_MAX = 128, NUM_TOP = 2, LIST_BYTES = 4096 };

static const int32_t PROMPT[] = {300, 301, 302};
static const uint32_t WIDTHS[] = {2, 3, 5, LLM_ENGINE_STEP_TOKENS_MAX};

struct script {
    struct sample_result results[TOKENS_MAX]; // [num_results]
    uint32_t num_results;
    uint32_t width; // results a step
    uint32_t next; // that the next step brings
    struct llm_engine *engine;
};

// What a caller learns of an output.
struct told {
    int32_t token_ids[TOKENS_MAX];
    char *pieces[TOKENS_MAX]; // text of each token
    struct nvllm_logprob logprobs[TOKENS_MAX * (1 + NUM_TOP)];
    size_t num_logprobs;
    uint32_t num_tokens, num_events, num_ends, widest;
    char text[LIST_BYTES], echo[64], stop_string[16], error[128];
    enum nvllm_finish_reason reason;
    int32_t stop_token_id;
    struct script *aborts; // from the first event; NULL: not
};

static void take_pieces(struct told *told, const struct nvllm_event *event) {
    size_t at = 0;
    for (uint32_t i = 0; i < event->num_tokens; i++) {
        size_t end = event->text_ends[i];
        assert_true(at <= end && end <= event->text_len);
        told->pieces[told->num_tokens + i] = strndup(event->text + at, end - at);
        at = end;
    }
    if (event->num_tokens) assert_int_equal(at, event->text_len);
}

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct told *told = user_data;
    assert_int_equal(told->num_ends, 0);
    bool is_echo = !event->num_tokens && !event->finish_reason;
    assert_int_equal(event->text[event->text_len], '\0');
    strcat(is_echo ? told->echo : told->text, event->text);
    if (event->text_ends) take_pieces(told, event);
    for (uint32_t i = 0; i < event->num_tokens; i++) {
        told->token_ids[told->num_tokens++] = event->token_ids[i];
    }
    assert_int_equal(event->num_generated_tokens, told->num_tokens);
    assert_memory_equal(event->generated_token_ids, told->token_ids,
                        told->num_tokens * sizeof *told->token_ids);
    size_t count = event->logprobs ? event->num_tokens * (1 + event->num_top) : 0;
    if (count) {
        memcpy(told->logprobs + told->num_logprobs, event->logprobs,
               count * sizeof *event->logprobs);
    }
    told->num_logprobs += count;
    told->num_events++;
    if (event->num_tokens > told->widest) told->widest = event->num_tokens;
    told->num_ends += event->finish_reason != NVLLM_FINISH_NONE;
    told->reason = event->finish_reason;
    told->stop_token_id = event->stop_token_id;
    if (event->stop_string) strcpy(told->stop_string, event->stop_string);
    if (event->error) strcpy(told->error, event->error);
    if (told->aborts) llm_engine_abort(told->aborts->engine, event->request_id);
}

static void free_told(struct told *told) {
    for (uint32_t i = 0; i < told->num_tokens; i++) free(told->pieces[i]);
    *told = (struct told){0};
}

static struct llm_engine *engine_of(struct nvllm_engine *engine) {
    return (struct llm_engine *)(uintptr_t)engine_group_first((struct engine_group *)engine);
}

static struct script make_script(struct nvllm_engine *engine, uint32_t width) {
    struct script script = {.width = width, .engine = engine_of(engine)};
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(nvllm_tokenizer_encode(nvllm_engine_tokenizer(engine), TEXT, strlen(TEXT), 0,
                                            NULL, &ids, &count, NULL),
                     NVLLM_OK);
    assert_true(count > 24 && count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct sample_result *result = &script.results[i];
        *result = (struct sample_result){.token_id = ids[i], .logprob = -0.5f * (float)i};
        for (int32_t k = 0; k < NUM_TOP; k++) {
            result->top_id[k] = (int32_t)i + 100 * k;
            result->top_logprob[k] = -0.25f * (float)(k + 1) * (float)i;
        }
    }
    script.num_results = (uint32_t)count;
    nvllm_free(ids);
    return script;
}

// One step of the only request, without a model: its results are the script's.
static void play_step(struct script *script) {
    struct llm_engine *engine = script->engine;
    struct schedule *schedule = &engine->inflight_steps[0].schedule;
    scheduler_schedule(engine->scheduler, schedule);
    assert_int_equal(schedule->num_items, 1);
    struct sequence *seq = schedule->items[0].seq;
    assert_true(schedule->items[0].needs_token);
    scheduler_advance(engine->scheduler);
    scheduler_append_pending(engine->scheduler, seq, 0);
    uint32_t count = script->num_results - script->next;
    if (count > script->width) count = script->width;
    assert_true(count > 0);
    llm_engine_take_tokens(engine, seq->user, script->results + script->next, count,
                           clock_seconds());
    script->next += count;
}

// Runs the engine's requests to their end.
static int play(void *user_data) {
    struct script *script = user_data;
    do {
        assert_int_equal(llm_engine_wait(script->engine, 0, NULL), OK);
        if (scheduler_first(script->engine->scheduler)) play_step(script);
    } while (llm_engine_num_unfinished(script->engine));
    return 0;
}

static struct told run(struct nvllm_engine *engine, struct nvllm_request request,
                       struct script *script, bool aborts) {
    struct told told = {.aborts = aborts ? script : NULL};
    struct nvllm_stats before = NVLLM_STATS_INIT, after = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &before);
    request.on_event = on_event;
    request.user_data = &told;
    assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, NULL), NVLLM_OK);
    play(script);
    assert_int_equal(nvllm_engine_wait(engine, 0, NULL), NVLLM_OK); // brings the statistics
    nvllm_engine_stats(engine, &after);
    assert_int_equal(told.num_ends, 1);
    assert_int_equal(after.num_generated_tokens - before.num_generated_tokens, told.num_tokens);
    return told;
}

static void check_equal(const struct told *wide, const struct told *narrow) {
    assert_int_equal(wide->num_tokens, narrow->num_tokens);
    assert_memory_equal(wide->token_ids, narrow->token_ids, sizeof wide->token_ids);
    for (uint32_t i = 0; i < wide->num_tokens; i++) {
        if (narrow->pieces[i]) assert_string_equal(wide->pieces[i], narrow->pieces[i]);
    }
    assert_int_equal(wide->num_logprobs, narrow->num_logprobs);
    assert_memory_equal(wide->logprobs, narrow->logprobs,
                        narrow->num_logprobs * sizeof *wide->logprobs);
    assert_string_equal(wide->text, narrow->text);
    assert_string_equal(wide->echo, narrow->echo);
    assert_string_equal(wide->stop_string, narrow->stop_string);
    assert_int_equal(wide->reason, narrow->reason);
    assert_int_equal(wide->stop_token_id, narrow->stop_token_id);
}

// Takes the script one by one, then wide. Returns what it told one by one (free_told).
static struct told check_widths(struct nvllm_engine *engine, const struct nvllm_request *request) {
    struct script narrow = make_script(engine, 1);
    struct told told = run(engine, *request, &narrow, false);
    for (size_t i = 0; i < ARRAY_LEN(WIDTHS); i++) {
        struct script wide = make_script(engine, WIDTHS[i]);
        struct told again = run(engine, *request, &wide, false);
        check_equal(&again, &told);
        if (!request->finish_event_only) {
            assert_int_equal(again.widest, WIDTHS[i]);
            assert_true(again.num_events < told.num_events);
        }
        free_told(&again);
    }
    return told;
}

static struct nvllm_sampling_params script_params(void) {
    struct nvllm_sampling_params params = greedy_params(100);
    params.logprobs = NUM_TOP;
    return params;
}

static void test_eos_ends_the_list(void **state) {
    struct nvllm_sampling_params params = script_params();
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    struct told told = check_widths(*state, &request);
    assert_string_equal(told.text, "37 + 58 = 95. Grüße, \U0001F642 世界! to stop here, and");
    assert_int_equal(told.reason, NVLLM_FINISH_STOP);
    assert_int_equal(told.stop_token_id, told.token_ids[told.num_tokens - 1]);
    assert_int_equal(told.num_logprobs, told.num_tokens * (1 + NUM_TOP));
    assert_true(told.logprobs[3 * (1 + NUM_TOP)].logprob == -1.5f); // of the token at 3
    uint32_t num_tokens = told.num_tokens;
    free_told(&told);
    request.keep_stop_token = 1;
    params.skip_special_tokens = 0;
    told = check_widths(*state, &request);
    assert_non_null(strstr(told.text, "and<|im_end|>"));
    assert_int_equal(told.num_tokens, num_tokens);
    free_told(&told);
}

static void test_nothing_behind_a_stop_string_is_seen(void **state) {
    static const char *const stops[] = {"unused", "op her"};
    struct nvllm_sampling_params params = script_params();
    params.stop = stops;
    params.num_stop = ARRAY_LEN(stops);
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    struct told told = check_widths(*state, &request);
    assert_string_equal(told.text, "37 + 58 = 95. Grüße, \U0001F642 世界! to st");
    assert_string_equal(told.stop_string, "op her");
    assert_int_equal(told.reason, NVLLM_FINISH_STOP);
    free_told(&told);
    params.include_stop_str_in_output = 1;
    told = check_widths(*state, &request);
    assert_string_equal(told.text, "37 + 58 = 95. Grüße, \U0001F642 世界! to stop her");
    free_told(&told);
}

static void test_a_stop_token_and_min_tokens(void **state) {
    const struct script script = make_script(*state, 1);
    static const char *const stops[] = {"5"}; // only from min_tokens on
    struct nvllm_sampling_params params = script_params();
    params.stop_token_ids = &script.results[script.num_results - 6].token_id;
    params.num_stop_token_ids = 1;
    params.stop = stops;
    params.num_stop = 1;
    params.min_tokens = 11;
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    struct told told = check_widths(*state, &request);
    assert_int_equal(told.reason, NVLLM_FINISH_STOP);
    assert_true(told.num_tokens > 11);
    free_told(&told);
}

static void test_max_tokens_cuts_the_list(void **state) {
    for (int32_t max_tokens = 5; max_tokens < 12; max_tokens++) {
        struct nvllm_sampling_params params = script_params();
        params.max_tokens = max_tokens;
        struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
        struct script narrow = make_script(*state, 1), wide = make_script(*state, 4);
        struct told told = run(*state, request, &narrow, false);
        struct told again = run(*state, request, &wide, false);
        check_equal(&again, &told);
        assert_int_equal(again.num_tokens, max_tokens);
        assert_int_equal(again.reason, NVLLM_FINISH_LENGTH);
        free_told(&told);
        free_told(&again);
    }
}

static void test_echo_and_finish_event_only(void **state) {
    struct nvllm_sampling_params params = script_params();
    params.echo = 1;
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    struct told told = check_widths(*state, &request);
    assert_true(strlen(told.echo) > 0);
    uint32_t num_tokens = told.num_tokens;
    free_told(&told);
    params.echo = 0;
    request.finish_event_only = 1;
    told = check_widths(*state, &request);
    assert_int_equal(told.num_events, 1);
    assert_int_equal(told.num_tokens, num_tokens);
    assert_int_equal(told.num_logprobs, 0);
    free_told(&told);
}

// The tokens before it are delivered.
static void test_a_result_without_a_token_ends_the_request(void **state) {
    struct nvllm_sampling_params params = script_params();
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    for (uint32_t width = 1; width <= 4; width++) {
        struct script script = make_script(*state, width);
        script.results[6].token_id = -1;
        struct told told = run(*state, request, &script, false);
        assert_int_equal(told.num_tokens, 6);
        assert_int_equal(told.reason, NVLLM_FINISH_ERROR);
        assert_non_null(strstr(told.error, "no token can be chosen"));
        free_told(&told);
    }
}

static void test_an_event_of_several_may_abort(void **state) {
    struct nvllm_sampling_params params = script_params();
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    struct script script = make_script(*state, 3);
    struct told told = run(*state, request, &script, true);
    assert_int_equal(told.num_tokens, 3);
    assert_int_equal(told.num_events, 2);
    assert_int_equal(told.reason, NVLLM_FINISH_ABORT);
    free_told(&told);
}

// nvllm_engine_generate asks its interrupt between steps: there the script is played.
static void test_results_of_generate(void **state) {
    struct nvllm_sampling_params params = script_params();
    struct nvllm_request request = ids_request(PROMPT, ARRAY_LEN(PROMPT), &params);
    struct script narrow = make_script(*state, 1), wide = make_script(*state, 5);
    struct told told = run(*state, request, &narrow, false);
    const struct nvllm_interrupt interrupt = {.is_wanted = play, .user_data = &wide};
    struct nvllm_result *result = NULL;
    assert_int_equal(nvllm_engine_generate(*state, &request, 1, &result, &interrupt, NULL),
                     NVLLM_OK);
    assert_int_equal(result->num_tokens, told.num_tokens);
    assert_memory_equal(result->token_ids, told.token_ids, told.num_tokens * sizeof(int32_t));
    assert_string_equal(result->text, told.text);
    assert_int_equal(result->num_top, NUM_TOP);
    assert_memory_equal(result->logprobs, told.logprobs, told.num_logprobs * sizeof *told.logprobs);
    assert_int_equal(result->finish_reason, told.reason);
    assert_int_equal(result->stop_token_id, told.stop_token_id);
    nvllm_results_free(result, 1);
    free_told(&told);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eos_ends_the_list),
        cmocka_unit_test(test_nothing_behind_a_stop_string_is_seen),
        cmocka_unit_test(test_a_stop_token_and_min_tokens),
        cmocka_unit_test(test_max_tokens_cuts_the_list),
        cmocka_unit_test(test_echo_and_finish_event_only),
        cmocka_unit_test(test_a_result_without_a_token_ends_the_request),
        cmocka_unit_test(test_an_event_of_several_may_abort),
        cmocka_unit_test(test_results_of_generate),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
