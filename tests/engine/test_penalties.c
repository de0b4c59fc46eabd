/* Requests with penalties, whose token counts are kept where sampling happens: the same ids and
 * log-probabilities to the bit alone, together, in chunks, preempted, with steps that overlap, and
 * on a device with recorded steps. Slots of the counts change hands on the way. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/data_parallel/engine_group.h"
#include "engine/llm_engine_internal.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/mixed_workload.h"
#include "support/ways.h"

// The usual requests, but none ends before it has a history.
static struct mixed_workload *create_long_workload(void) {
    struct mixed_workload *workload = mixed_workload_create();
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        struct nvllm_sampling_params *params = &workload->params[i];
        params->ignore_eos = 1;
        params->num_stop = 0;
        params->max_tokens = 20 + 13 * i % 40;
    }
    return workload;
}

static int make_expected(void **state) {
    struct mixed_workload_expected *expected = calloc(1, sizeof *expected);
    assert_non_null(expected);
    expected->workload = create_long_workload();
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        struct nvllm_sampling_params *params = &expected->workload->params[i];
        params->repetition_penalty = 1.05f + 0.2f * (float)(i % 3);
        params->presence_penalty = i % 2 ? 0.5f : 0;
        params->frequency_penalty = i % 4 ? 0.3f : -0.2f;
        params->logprobs = 3;
    }
    expected->results = way_run_alone(expected->workload, &expected->stats);
    *state = expected;
    return 0;
}

// Without this, the other tests could pass though no penalty did anything.
static void test_penalties_change_results(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct mixed_workload *plain = create_long_workload();
    struct nvllm_stats stats;
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        plain->params[i].repetition_penalty = 1;
        plain->params[i].presence_penalty = plain->params[i].frequency_penalty = 0;
    }
    struct nvllm_result *results = way_run_alone(plain, &stats);
    int num_changed = 0;
    for (int i = 0; i < WORKLOAD_REQUESTS; i++) {
        const struct nvllm_result *with = &expected->results[i], *without = &results[i];
        num_changed += with->num_tokens != without->num_tokens ||
                       memcmp(with->token_ids, without->token_ids,
                              with->num_tokens * sizeof *with->token_ids) != 0;
    }
    assert_true(num_changed > WORKLOAD_REQUESTS / 2);
    nvllm_results_free(results, WORKLOAD_REQUESTS);
    free(plain);
}

static void test_together(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 3},
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 14},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 14},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .max_num_tokens = 24},
    };
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

static void test_preempted(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 8, .num_blocks = 12},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 12},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 8, .num_blocks = 14},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 12},
    };
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

static void test_recorded(void **state) {
    static const struct way ways[] = {
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 5},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 14},
        {.device = "cuda", .async_scheduling = "off", .max_num_seqs = 14},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 14, .enforce_eager = 1},
    };
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

// While a step runs, the next one is launched: a step's results come with the call after its own.
static void test_steps_overlap(void **state) {
    static const char *const devices[] = {"cpu", "cuda"};
    const struct mixed_workload_expected *expected = *state;
    for (int d = 0; d < 2; d++) {
        fake_device_reset();
        struct nvllm_engine_options options = way_options(
            &(struct way){.device = devices[d], .async_scheduling = "on", .max_num_seqs = 4});
        struct nvllm_engine *engine = open_engine(&options);
        struct nvllm_error error = {0};
        for (int i = 0; i < 4; i++) {
            assert_int_equal(
                nvllm_engine_add_request(engine, &expected->workload->requests[i], NULL, &error),
                NVLLM_OK);
        }
        for (uint64_t i = 0; i < 12; i++) {
            assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
            struct nvllm_stats stats = NVLLM_STATS_INIT;
            nvllm_engine_stats(engine, &stats);
            assert_int_equal(stats.num_steps, i);
        }
        nvllm_engine_destroy(engine);
    }
}

enum { NUM_WATCHED = 4, IDS_MAX = 128 };

struct watched {
    uint64_t id;
    int num_prompt, num_new;
    int32_t priority;
    uint32_t counts_slot; // as last seen
    int num_lost, num_found_again;
    bool has_ended;
    size_t num_tokens;
    int32_t ids[IDS_MAX];
    float logprobs[IDS_MAX];
};

static void watch(const struct nvllm_event *event, void *user_data) {
    struct watched *w = user_data;
    for (uint32_t i = 0; i < event->num_tokens; i++) {
        assert_true(w->num_tokens < IDS_MAX);
        w->ids[w->num_tokens] = event->token_ids[i];
        w->logprobs[w->num_tokens++] = event->logprobs[i * (1 + event->num_top)].logprob;
    }
    w->has_ended |= event->finish_reason != NVLLM_FINISH_NONE;
}

static void add_watched(struct nvllm_engine *engine, struct watched *w, int seed) {
    int32_t prompt[IDS_MAX];
    for (int i = 0; i < w->num_prompt; i++) prompt[i] = (seed * 131 + i * 17 + 300) % 4000;
    struct nvllm_sampling_params params = greedy_params(w->num_new);
    params.ignore_eos = 1;
    params.logprobs = 0;
    params.temperature = seed % 2 ? 0.9f : 0;
    params.seed = seed;
    params.repetition_penalty = 1.2f;
    params.frequency_penalty = 0.4f;
    struct nvllm_request request = ids_request(prompt, (size_t)w->num_prompt, &params);
    request.on_event = watch;
    request.user_data = w;
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_add_request(engine, &request, &w->id, &error), NVLLM_OK);
}

static struct request *request_of(struct nvllm_engine *engine, const struct watched *w) {
    const struct llm_engine *first = engine_group_first((const struct engine_group *)engine);
    return request_table_find(&first->inbox.requests, w->id);
}

static void step(struct nvllm_engine *engine, struct watched *watched, int num_watched) {
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    for (int i = 0; i < num_watched; i++) {
        struct watched *w = &watched[i];
        const struct request *request = w->has_ended ? NULL : request_of(engine, w);
        if (!request) continue;
        w->num_lost += w->counts_slot && !request->counts_slot;
        w->num_found_again += w->num_lost && !w->counts_slot && request->counts_slot;
        w->counts_slot = request->counts_slot;
    }
}

static void expect_as_alone(const struct watched *w, int seed) {
    struct nvllm_engine_options options = way_options(&way_alone);
    struct nvllm_engine *engine = open_engine(&options);
    struct watched *want = calloc(1, sizeof *want);
    assert_non_null(want);
    want->num_prompt = w->num_prompt;
    want->num_new = w->num_new;
    add_watched(engine, want, seed);
    while (!want->has_ended) step(engine, want, 1);
    assert_int_equal(w->num_tokens, w->num_new);
    assert_memory_equal(w->ids, want->ids, w->num_tokens * sizeof *w->ids);
    assert_memory_equal(w->logprobs, want->logprobs, w->num_tokens * sizeof *w->logprobs);
    free(want);
    nvllm_engine_destroy(engine);
}

// Two run and have the only slots; when blocks run out, the second one is preempted. What waits is
// more important, so it is admitted first and takes the slot. The preempted one gets another slot
// when the first one has ended, and its counts are made anew.
static void check_slots_that_change_hands(const struct way *way) {
    fake_device_reset();
    struct nvllm_engine_options options = way_options(way);
    struct nvllm_engine *engine = open_engine(&options);
    struct watched watched[NUM_WATCHED] = {
        {.num_prompt = 20, .num_new = 80},
        {.num_prompt = 20, .num_new = 90},
        {.num_prompt = 5, .num_new = 60, .priority = -1},
        {.num_prompt = 9, .num_new = 40, .priority = 1},
    };
    for (int i = 0; i < NUM_WATCHED; i++) {
        add_watched(engine, &watched[i], i);
        // Nobody behind it in the queue yet, so the order stays right.
        request_of(engine, &watched[i])->seq->priority = watched[i].priority;
        step(engine, watched, i + 1);
    }
    while (nvllm_engine_has_unfinished(engine)) step(engine, watched, NUM_WATCHED);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    nvllm_engine_destroy(engine);
    assert_true(stats.num_preemptions > 0);
    assert_true(watched[1].num_lost > 0);
    assert_true(watched[1].num_found_again > 0);
    for (int i = 0; i < NUM_WATCHED; i++) expect_as_alone(&watched[i], i);
}

static void test_slots_change_hands(void **state) {
    (void)state;
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 2, .num_blocks = 10},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 2, .num_blocks = 10},
        {.device = "cuda", .async_scheduling = "off", .max_num_seqs = 2, .num_blocks = 10},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 2, .num_blocks = 10},
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        check_slots_that_change_hands(&ways[i]);
    }
}

// The step on its way counts one more token into a slot that is already another's.
static void test_the_slot_of_an_aborted_request(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu", "cuda"};
    for (int d = 0; d < 2; d++) {
        fake_device_reset();
        struct nvllm_engine_options options = way_options(
            &(struct way){.device = devices[d], .async_scheduling = "on", .max_num_seqs = 1});
        struct nvllm_engine *engine = open_engine(&options);
        struct watched gone = {.num_prompt = 7, .num_new = 50};
        struct watched next = {.num_prompt = 7, .num_new = 50};
        add_watched(engine, &gone, 0);
        for (int i = 0; i < 10; i++) step(engine, &gone, 1);
        assert_int_equal(nvllm_engine_abort(engine, gone.id), 1);
        add_watched(engine, &next, 0); // the same, so it would meet the same counts
        while (!next.has_ended) step(engine, &next, 1);
        nvllm_engine_destroy(engine);
        expect_as_alone(&next, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties_change_results),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_preempted),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_steps_overlap),
        cmocka_unit_test(test_slots_change_hands),
        cmocka_unit_test(test_the_slot_of_an_aborted_request),
    };
    return cmocka_run_group_tests(tests, make_expected, mixed_workload_expected_free);
}
