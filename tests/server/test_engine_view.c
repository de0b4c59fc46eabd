/* Whoever follows the changes has the engine's own picture, with the tokens of every block. The
 * engine is driven here, on one thread: what a server's loop does between two steps is done between
 * them. */
#include <stdlib.h>
#include <string.h>

#include "server/observe/engine_view.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

enum { BLOCKS = 20, BLOCK = 16, REQUESTS = 24, TOKENS_MAX = 256, STEPS_MAX = 2000 };

struct request_text {
    int32_t tokens[TOKENS_MAX]; // the prompt, then what was generated
    uint32_t num_prompt;
};

struct scene {
    struct nvllm_engine *engine;
    struct engine_view *view;
    struct request_text texts[REQUESTS + 1]; // by request id, from 1
    uint32_t num_added;
    bool is_async; // what is launched counts as computed, and its tokens are not told yet
    uint32_t random;
    struct view_block blocks[BLOCKS]; // the picture, from the changes alone
    uint32_t num_shared_seen, num_waiting_seen, num_partly_known;
};

static uint32_t draw(struct scene *scene, uint32_t below) {
    scene->random = scene->random * 1664525u + 1013904223u;
    return (scene->random >> 8) % below;
}

static void open_scene(struct scene *scene, uint32_t seed, bool is_async) {
    struct nvllm_engine_options options = small_options();
    options.device = "cpu";
    options.num_kvcache_blocks = BLOCKS;
    options.block_size = BLOCK;
    if (is_async) options.async_scheduling = "on";
    *scene = (struct scene){.engine = open_engine(&options), .random = seed, .is_async = is_async};
    scene->view = engine_view_create(scene->engine);
    assert_non_null(scene->view);
    assert_int_equal(engine_view_num_blocks(scene->view), BLOCKS);
    assert_int_equal(engine_view_block_size(scene->view), BLOCK);
}

static void close_scene(struct scene *scene) {
    engine_view_destroy(scene->view);
    nvllm_engine_destroy(scene->engine);
    free(scene);
}

static void on_event(const struct nvllm_event *event, void *user_data) {
    struct request_text *text = user_data;
    memcpy(text->tokens + text->num_prompt, event->generated_token_ids,
           event->num_generated_tokens * sizeof(int32_t));
}

// Prompts begin alike, so that blocks are shared; together they need more blocks than there are.
static void add(struct scene *scene, int32_t max_tokens) {
    struct request_text *text = &scene->texts[++scene->num_added];
    text->num_prompt = 8 + draw(scene, 90);
    for (uint32_t i = 0; i < text->num_prompt; i++) {
        text->tokens[i] = (int32_t)(i < 40 ? 300 + i : 300 + draw(scene, 400));
    }
    struct nvllm_sampling_params params = greedy_params(max_tokens);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(text->tokens, text->num_prompt, &params);
    request.on_event = on_event;
    request.user_data = text;
    uint64_t id;
    assert_int_equal(nvllm_engine_add_request(scene->engine, &request, &id, NULL), NVLLM_OK);
    assert_int_equal(id, scene->num_added);
}

static void step(struct scene *scene) {
    engine_view_attend(scene->view);
    assert_int_equal(nvllm_engine_step(scene->engine, NULL), NVLLM_OK);
}

static void apply(struct scene *scene, const struct view_news *news) {
    if (!news->is_new) return;
    if (news->is_whole) {
        for (uint32_t id = 0; id < BLOCKS; id++) scene->blocks[id] = (struct view_block){.id = id};
    }
    for (uint32_t i = 0; i < news->num_changed; i++) {
        scene->blocks[news->blocks[i].id] = news->blocks[i];
    }
}

static void expect_tokens(struct scene *scene, const struct nvllm_sequence *seq) {
    const struct request_text *text = &scene->texts[seq->request_id];
    for (uint32_t i = 0; i < seq->num_blocks; i++) {
        struct view_block block;
        int32_t tokens[BLOCK];
        uint32_t first = i * BLOCK;
        assert_true(engine_view_block(scene->view, seq->block_table[i], &block, tokens));
        uint32_t count = seq->num_computed_tokens - first;
        if (count > BLOCK) count = BLOCK;
        if (scene->is_async) {
            assert_in_range(block.num_tokens, 0, count);
            count = block.num_tokens;
        }
        assert_int_equal(block.num_tokens, count);
        assert_true(block.num_holders > 0);
        for (uint32_t k = 0; k < count; k++) {
            if (tokens[k] < 0) {
                scene->num_partly_known++; // from before anybody watched
            } else {
                assert_int_equal(tokens[k], text->tokens[first + k]);
            }
        }
    }
}

// By field: what lies between the fields is nobody's.
static void expect_same_block(const struct view_block *a, const struct view_block *b) {
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->num_holders, b->num_holders);
    assert_int_equal(a->num_tokens, b->num_tokens);
}

// The picture from changes is the whole one, and both are what the engine has.
static void expect_picture(struct scene *scene) {
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(scene->engine, &stats);
    const struct view_news *news = engine_view_take(scene->view, false);
    if (scene->is_async && !news->is_new) return; // a step was launched, and none was told
    apply(scene, news);
    struct view_block before[BLOCKS];
    memcpy(before, scene->blocks, sizeof before);
    news = engine_view_take(scene->view, true);
    apply(scene, news);
    for (uint32_t id = 0; id < BLOCKS; id++) expect_same_block(&before[id], &scene->blocks[id]);
    uint32_t num_used = 0;
    for (uint32_t id = 0; id < BLOCKS; id++) {
        num_used += scene->blocks[id].num_holders > 0;
        scene->num_shared_seen += scene->blocks[id].state == VIEW_SHARED;
    }
    assert_int_equal(num_used, stats.num_kv_blocks_used);
    assert_int_equal(news->num_sequences, news->num_running + news->num_waiting);
    scene->num_waiting_seen += news->num_waiting;
    for (uint32_t i = 0; i < news->num_sequences; i++) {
        const struct nvllm_sequence *seq = &news->sequences[i].seq;
        assert_int_equal(seq->is_running, i < news->num_running);
        expect_tokens(scene, seq);
    }
}

static void run(struct scene *scene, uint32_t num_steps) {
    for (uint32_t i = 0; i < num_steps && nvllm_engine_has_unfinished(scene->engine); i++) {
        if (scene->num_added < REQUESTS && draw(scene, 3) == 0)
            add(scene, (int32_t)(1 + draw(scene, 120)));
        step(scene);
        // Like a loop that has its own rate.
        uint32_t what = draw(scene, 3);
        if (what == 0) apply(scene, engine_view_take(scene->view, false));
        if (what == 1) expect_picture(scene);
    }
}

static void test_changes_make_the_whole_picture(void **state) {
    struct scene *scene = malloc(sizeof *scene);
    assert_non_null(scene);
    open_scene(scene, 1, *state != NULL);
    assert_int_equal(engine_view_watch(scene->view, NULL), OK);
    for (int i = 0; i < 8; i++) add(scene, (int32_t)(1 + draw(scene, 120)));
    run(scene, STEPS_MAX);
    expect_picture(scene);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(scene->engine, &stats);
    assert_int_equal(scene->num_added, REQUESTS);
    assert_int_equal(stats.num_requests_finished, REQUESTS);
    // What this is about did happen.
    assert_true(stats.num_preemptions > 0);
    assert_true(scene->num_shared_seen > 0);
    assert_true(scene->num_waiting_seen > 0);
    assert_int_equal(scene->num_partly_known, 0);
    close_scene(scene);
}

static void test_watching_begins_and_ends_at_any_time(void **state) {
    (void)state;
    struct scene *scene = malloc(sizeof *scene);
    assert_non_null(scene);
    open_scene(scene, 2, false);
    for (int i = 0; i < 8; i++) add(scene, (int32_t)(1 + draw(scene, 120)));
    for (int i = 0; i < 10; i++) step(scene);
    struct view_block block;
    int32_t tokens[BLOCK];
    assert_false(engine_view_block(scene->view, 0, &block, tokens)); // nobody ever watched
    for (int round = 0; round < 3; round++) {
        assert_int_equal(engine_view_watch(scene->view, NULL), OK);
        step(scene);
        const struct view_news *news = engine_view_take(scene->view, false);
        assert_true(news->is_whole); // without being asked: the picture is a new one
        apply(scene, news);
        uint32_t num_used = 0;
        for (uint32_t id = 0; id < BLOCKS; id++) num_used += scene->blocks[id].num_holders > 0;
        struct nvllm_stats stats = NVLLM_STATS_INIT;
        nvllm_engine_stats(scene->engine, &stats);
        assert_int_equal(num_used, stats.num_kv_blocks_used);
        run(scene, 10);
        engine_view_unwatch(scene->view);
        for (int i = 0; i < 5; i++) step(scene);
        assert_false(engine_view_take(scene->view, false)->num_steps > 10);
    }
    assert_false(engine_view_block(scene->view, BLOCKS, &block, tokens));
    close_scene(scene);
}

static void test_steps_and_their_shares(void **state) {
    (void)state;
    struct scene *scene = malloc(sizeof *scene);
    assert_non_null(scene);
    open_scene(scene, 3, false);
    assert_int_equal(engine_view_watch(scene->view, NULL), OK);
    add(scene, 100);
    uint32_t num_prompt = scene->texts[1].num_prompt;
    step(scene);
    const struct view_news *news = engine_view_take(scene->view, false);
    assert_int_equal(news->num_steps, 1);
    assert_int_equal(news->steps[0].num_prefill_tokens, num_prompt);
    assert_int_equal(news->steps[0].num_decode_tokens, 0);
    assert_true(news->steps[0].schedule_ms >= 0 && news->steps[0].model_ms > 0);
    assert_int_equal(news->sequences[0].num_step_tokens, num_prompt);
    assert_true(news->sequences[0].is_prefill);
    apply(scene, news);
    assert_false(engine_view_take(scene->view, false)->is_new);
    for (int i = 0; i < VIEW_STEPS_MAX + 5; i++) step(scene); // that nobody takes
    news = engine_view_take(scene->view, false);
    assert_int_equal(news->num_steps, VIEW_STEPS_MAX); // the newest
    for (uint32_t i = 1; i < VIEW_STEPS_MAX; i++) {
        assert_int_equal(news->steps[i].number, news->steps[i - 1].number + 1);
    }
    close_scene(scene);
}

// Several engines cannot be observed. That is asked once, and the picture stays as it is.
static void test_what_cannot_be_observed_is_left_alone(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.data_parallel_size = 2;
    struct nvllm_engine *engine = open_engine(&options);
    struct engine_view *view = engine_view_create(engine);
    assert_non_null(view);
    assert_int_equal(engine_view_watch(view, NULL), OK);
    engine_view_attend(view);
    assert_true(engine_view_take(view, true)->is_new);
    engine_view_attend(view);
    engine_view_look(view);
    assert_false(engine_view_take(view, false)->is_new);
    engine_view_unwatch(view);
    engine_view_attend(view);
    engine_view_destroy(view);
    nvllm_engine_destroy(engine);
}

int main(void) {
    static bool is_async = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_make_the_whole_picture),
        {"test_steps_that_overlap", test_changes_make_the_whole_picture, NULL, NULL, &is_async},
        cmocka_unit_test(test_watching_begins_and_ends_at_any_time),
        cmocka_unit_test(test_steps_and_their_shares),
        cmocka_unit_test(test_what_cannot_be_observed_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
