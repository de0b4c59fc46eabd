/* The start of a device: what its warm-up says, and how many KV blocks it gets, which is what is
 * left once all else has its memory, recorded steps too. Two of these are recorded with a small
 * cache first, and all of them with the one that fills the rest. Of many sizes some are recorded
 * later, beside the requests. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/plan/engine_plan.h"
#include "support/captured.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"
#include "support/mixed_workload.h"
#include "support/temp_folder.h"

// SIZES: of the steps that are recorded, for 1, 2, 4, 8, 16 and 24 sequences. LATER: left for what
// is loaded later. PIECE: left for each step, beside what the largest one took. PARTS: graphs of a
// recorded step, the forward pass and the sampling.
enum {
    MEMORY = 96 << 20,
    SIZES = 6,
    LATER = 16 << 20,
    PIECE = 2 << 20,
    TRIALS = 2,
    PARTS = 2,
};

static struct nvllm_engine_options filling_options(void) {
    struct nvllm_engine_options options = small_options();
    options.device = "cuda";
    options.max_num_batched_tokens = 64;
    options.max_num_seqs = 24;
    options.num_kvcache_blocks = 0;
    options.async_scheduling = "off"; // with overlap, steps with certain tokens are recorded too
    return options;
}

// `step_bytes`: what a recorded step takes.
static void reset(size_t memory, size_t step_bytes) {
    fake_device_reset();
    fake_device_set_memory(memory);
    fake_device_set_graph_bytes(step_bytes / PARTS);
}

struct filled {
    struct nvllm_stats stats;
    size_t taken_bytes; // of the device
};

static struct filled fill(size_t step_bytes, const struct nvllm_engine_options *options) {
    struct filled f = {.stats = NVLLM_STATS_INIT};
    reset(MEMORY, step_bytes);
    struct nvllm_engine *engine = open_engine(options);
    nvllm_engine_stats(engine, &f.stats);
    f.taken_bytes = fake_device_counts().taken_bytes;
    assert_true(f.stats.warm_up_seconds > 0 && f.stats.warm_up_seconds < f.stats.load_seconds);
    nvllm_engine_destroy(engine);
    assert_int_equal(fake_device_counts().live, 0);
    assert_int_equal(fake_device_counts().num_given_back_early, 0);
    return f;
}

static void test_the_share_is_filled_and_not_exceeded(void **state) {
    (void)state;
    static const double shares[] = {0.6, 0.9, 1.0};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct nvllm_engine_options options = filling_options();
        options.gpu_memory_utilization = shares[i];
        struct filled f = fill(1 << 20, &options);
        size_t share = (size_t)(shares[i] * MEMORY);
        size_t block = f.stats.kv_cache_bytes / f.stats.num_kv_blocks;
        // The two steps that were recorded first are counted twice.
        size_t beside = LATER + SIZES * PIECE + TRIALS * (1 << 20);
        assert_true(f.taken_bytes + beside <= share);
        assert_true(f.taken_bytes + beside + block > share);
    }
}

static void test_recorded_steps_are_measured(void **state) {
    (void)state;
    const struct nvllm_engine_options options = filling_options();
    struct filled without = fill(0, &options);
    assert_int_equal(fake_device_counts().num_graphs, PARTS * (TRIALS + SIZES));
    struct filled with = fill(3 << 20, &options);
    assert_int_equal(fake_device_counts().num_graphs, PARTS * (TRIALS + SIZES));
    size_t block = with.stats.kv_cache_bytes / with.stats.num_kv_blocks;
    size_t fewer = without.stats.kv_cache_bytes - with.stats.kv_cache_bytes;
    size_t counted = (TRIALS + SIZES) * (3 << 20);
    assert_true(fewer > counted - block && fewer < counted + block);
}

// A device loads a kernel when it first runs, for which a recording is no place.
static void test_nothing_is_recorded_before_it_has_run(void **state) {
    (void)state;
    const struct nvllm_engine_options options = filling_options();
    (void)fill(0, &options);
    assert_int_equal(fake_device_counts().num_recorded_cold, 0);
}

// Steps that take more than the two that were recorded first: the cache is made again.
static void test_a_low_estimate_is_put_right(void **state) {
    (void)state;
    const struct nvllm_engine_options options = filling_options();
    size_t share = (size_t)(options.gpu_memory_utilization * MEMORY);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    reset(MEMORY, 0);
    fake_device_set_later_graph_bytes(PARTS * TRIALS + 1, (5 << 20) / PARTS);
    struct nvllm_engine *engine = open_engine(&options);
    nvllm_engine_stats(engine, &stats);
    struct fake_device_counts counts = fake_device_counts();
    nvllm_engine_destroy(engine);
    size_t block = stats.kv_cache_bytes / stats.num_kv_blocks;
    assert_int_equal(counts.num_graphs, PARTS * (TRIALS + 2 * SIZES));
    assert_true(counts.taken_bytes + LATER <= share);
    assert_true(counts.taken_bytes + LATER + block > share);
    assert_int_equal(fake_device_counts().live, 0);
}

// What the options say is not measured, and nothing is recorded twice.
static void test_a_number_of_blocks_is_taken_as_it_is(void **state) {
    (void)state;
    struct nvllm_engine_options options = filling_options();
    options.num_kvcache_blocks = 64;
    assert_int_equal(fill(3 << 20, &options).stats.num_kv_blocks, 64);
    assert_int_equal(fake_device_counts().num_graphs, PARTS * SIZES);
}

static enum status check_shared(const char *device, int32_t num_blocks, struct err *err) {
    struct nvllm_engine_options options = filling_options();
    struct engine_plan plan;
    reset(MEMORY, 0);
    options.device = device;
    options.data_parallel_size = 2;
    options.num_kvcache_blocks = num_blocks;
    enum status status = engine_plan_make(&plan, &options, 1, 0, err);
    if (!status) status = engine_plan_check_memory(&plan, err);
    engine_plan_fini(&plan);
    return status;
}

// Each would take what is left.
static void test_ranks_that_share_a_device_need_a_number_of_blocks(void **state) {
    (void)state;
    struct err err = {0};
    assert_int_equal(check_shared("cuda:0,0", 0, &err), ERR_INVALID);
    assert_non_null(strstr(err.message, "2 ranks share a GPU"));
    assert_non_null(strstr(err.message, "num_kvcache_blocks"));
    assert_int_equal(check_shared("cuda:0,0", 64, &err), OK);
    assert_int_equal(check_shared("cuda:0,1", 0, &err), OK);
}

static void test_eager_steps_leave_more(void **state) {
    (void)state;
    struct nvllm_engine_options options = filling_options();
    struct filled recorded = fill(3 << 20, &options);
    options.enforce_eager = 1;
    struct filled eager = fill(3 << 20, &options);
    assert_true(eager.stats.num_kv_blocks > recorded.stats.num_kv_blocks);
}

static struct fake_device_counts expect_results(const struct mixed_workload_expected *expected) {
    const struct nvllm_engine_options options = filling_options();
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    struct nvllm_result *got = mixed_workload_run(expected->workload, &options, &stats);
    mixed_workload_expect_same(got, expected->results);
    nvllm_results_free(got, WORKLOAD_REQUESTS);
    assert_int_equal(fake_device_counts().live, 0);
    assert_int_equal(fake_device_counts().num_given_back_early, 0);
    return fake_device_counts();
}

static void test_steps_recorded_again_have_the_new_cache(void **state) {
    reset(MEMORY, 1 << 20);
    struct fake_device_counts counts = expect_results(*state);
    assert_int_equal(counts.num_graphs, PARTS * (TRIALS + SIZES));
    assert_true(counts.num_graph_launches > 0);
    reset(MEMORY, 0);
    fake_device_set_later_graph_bytes(PARTS * TRIALS + 1, (5 << 20) / PARTS);
    counts = expect_results(*state);
    assert_int_equal(counts.num_graphs, PARTS * (TRIALS + 2 * SIZES));
    assert_true(counts.num_graph_launches > 0);
}

// Those that cannot be recorded, and all larger ones, run eagerly. One warning says so.
static void test_recording_may_fail(void **state) {
    static const enum fake_fault faults[] = {FAKE_FAULT_GRAPH_BEGIN, FAKE_FAULT_GRAPH_END};
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t n = 1; n <= PARTS * (TRIALS + SIZES); n++) {
            // Without the first trial, of the smallest step, no other is recorded. Without the
            // second one, of the largest step, all others are.
            bool is_second_trial = n > PARTS && n <= PARTS * TRIALS;
            uint32_t num_later = is_second_trial ? PARTS * (SIZES - 1) : 0;
            struct captured said;
            reset(MEMORY, 1 << 20);
            fake_device_fail_at(faults[i], n);
            captured_begin(&said, false);
            struct fake_device_counts counts = expect_results(*state);
            captured_end(&said);
            assert_true(fake_device_has_failed());
            assert_int_equal(counts.num_graphs, n - 1 + num_later);
            assert_non_null(strstr(said.text, "are not recorded, they run slower: fake: no "));
            assert_int_equal(strcspn(said.text, "\n") + 1, strlen(said.text));
        }
    }
}

static void test_no_room_for_one_sequence_is_an_error(void **state) {
    (void)state;
    const struct nvllm_engine_options options = filling_options();
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    reset(MEMORY, MEMORY / SIZES); // recorded steps take it all
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_NOMEM);
    assert_non_null(strstr(error.message, "KV cache of max_model_len 256"));
    assert_null(engine);
    assert_int_equal(fake_device_counts().live, 0);
}

// MANY_SIZES: of 1, 2, 4, 8, 16, 32, 48 and 64 sequences. All but 32 and 48 are recorded at the
// start.
enum { MANY_SEQS = 64, MANY_SIZES = 8, FIRST_SIZES = 6, MANY_REQUESTS = 40, MANY_TOKENS_MAX = 24 };

static struct nvllm_engine_options many_options(void) {
    struct nvllm_engine_options options = filling_options();
    options.max_num_seqs = MANY_SEQS;
    return options;
}

struct many_tokens {
    int32_t ids[MANY_REQUESTS][MANY_TOKENS_MAX];
};

static void run_many(struct many_tokens *tokens, struct nvllm_engine *engine) {
    struct nvllm_sampling_params params[MANY_REQUESTS];
    struct nvllm_request requests[MANY_REQUESTS];
    int32_t prompts[MANY_REQUESTS][2];
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    for (int i = 0; i < MANY_REQUESTS; i++) {
        prompts[i][0] = 300 + i;
        prompts[i][1] = 400 + 7 * i;
        params[i] = greedy_params(MANY_TOKENS_MAX - i % 20); // two end at a time
        params[i].ignore_eos = 1;
        requests[i] = ids_request(prompts[i], 2, &params[i]);
    }
    if (nvllm_engine_generate(engine, requests, MANY_REQUESTS, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    memset(tokens, 0, sizeof *tokens);
    for (int i = 0; i < MANY_REQUESTS; i++) {
        memcpy(tokens->ids[i], results[i].token_ids, results[i].num_tokens * sizeof(int32_t));
    }
    nvllm_results_free(results, MANY_REQUESTS);
}

static struct many_tokens *run_many_on_cpu(void) {
    struct nvllm_engine_options options = many_options();
    struct many_tokens *tokens = malloc(sizeof *tokens);
    assert_non_null(tokens);
    options.device = "cpu";
    options.num_kvcache_blocks = 256;
    struct nvllm_engine *engine = open_engine(&options);
    run_many(tokens, engine);
    nvllm_engine_destroy(engine);
    return tokens;
}

// The second step of such a size is recorded, whatever runs meanwhile, and nothing else changes.
static void test_steps_recorded_later(void **state) {
    (void)state;
    struct many_tokens *want = run_many_on_cpu(), got;
    for (int full = 0; full < 2; full++) {
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            struct nvllm_engine_options options = many_options();
            options.full_warm_up = full;
            options.async_scheduling = overlaps ? "on" : "off";
            reset(MEMORY, 1 << 20);
            struct nvllm_engine *engine = open_engine(&options);
            uint32_t num_first = fake_device_counts().num_graphs;
            uint32_t num_later = full ? 0 : PARTS * (MANY_SIZES - FIRST_SIZES);
            for (int i = 0; i < 2; i++) {
                run_many(&got, engine);
                assert_memory_equal(&got, want, sizeof got);
                assert_int_equal(fake_device_counts().num_graphs, num_first + num_later);
            }
            nvllm_engine_destroy(engine);
            assert_int_equal(fake_device_counts().num_recorded_cold, 0);
            assert_int_equal(fake_device_counts().num_given_back_early, 0);
            assert_int_equal(fake_device_counts().live, 0);
        }
    }
    free(want);
}

static void test_steps_recorded_later_have_their_memory(void **state) {
    (void)state;
    struct nvllm_engine_options options = many_options();
    struct filled some = fill(1 << 20, &options);
    options.full_warm_up = 1;
    struct filled all = fill(1 << 20, &options);
    assert_int_equal(some.stats.num_kv_blocks, all.stats.num_kv_blocks);
    assert_int_equal(all.taken_bytes - some.taken_bytes, (MANY_SIZES - FIRST_SIZES) << 20);
}

// A warning says so, and such steps and larger ones run eagerly.
static void test_a_later_recording_may_fail(void **state) {
    (void)state;
    struct many_tokens *want = run_many_on_cpu(), got;
    for (uint32_t n = 1; n <= PARTS; n++) {
        struct nvllm_engine_options options = many_options();
        options.async_scheduling = "on"; // a larger step runs meanwhile
        struct captured said;
        reset(MEMORY, 0);
        struct nvllm_engine *engine = open_engine(&options);
        fake_device_fail_at(FAKE_FAULT_GRAPH_END, n);
        captured_begin(&said, false);
        run_many(&got, engine);
        captured_end(&said);
        assert_memory_equal(&got, want, sizeof got);
        assert_true(fake_device_has_failed());
        assert_non_null(strstr(said.text, "steps of 48 sequences and more are not recorded"));
        nvllm_engine_destroy(engine);
        assert_int_equal(fake_device_counts().num_given_back_early, 0);
        assert_int_equal(fake_device_counts().live, 0);
    }
    free(want);
}

static struct captured start_captured(bool times, bool is_terminal) {
    const struct nvllm_engine_options options = filling_options();
    struct captured said;
    reset(MEMORY, 0);
    if (times) fake_device_set_timing();
    captured_begin(&said, is_terminal);
    struct nvllm_engine *engine = open_engine(&options);
    captured_end(&said);
    nvllm_engine_destroy(engine);
    return said;
}

static bool ends_with(const char *text, const char *end) {
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

// A start that times its matrix products says so, in one line.
static void test_a_first_start_says_what_it_does(void **state) {
    (void)state;
    assert_string_equal(start_captured(false, false).text, "");
    assert_string_equal(start_captured(false, true).text, "");
    struct captured said = start_captured(true, false);
    assert_ptr_equal(strstr(said.text, "nanovllm: first start of this model on "), said.text);
    assert_true(ends_with(said.text, ": timing matrix products\n"));
    assert_int_equal(strcspn(said.text, "\n") + 1, strlen(said.text));
    said = start_captured(true, true);
    assert_true(ends_with(said.text, ": timing matrix products: 100 %\033[K\r\n"));
    assert_int_equal(strcspn(said.text, "\n") + 1, strlen(said.text));
}

// Waits in one of its calls until the tokenizer's thread has ended.
struct waiting_progress {
    bool waits_at_end; // else in the first call
    uint32_t num_threads; // of the process before the engine was created
    uint64_t num_loaded; // when it was last called
};

static uint32_t count_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    uint32_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(folder))) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void wait_for_tokenizer(uint64_t num_loaded, uint64_t num_parameters, void *user_data) {
    struct waiting_progress *progress = user_data;
    bool waits = num_loaded == (progress->waits_at_end ? num_parameters : 0);
    progress->num_loaded = num_loaded;
    // Bounded, as a sanitizer may have started a thread of its own that does not end.
    const uint32_t turns_max = waits ? 10000 : 0;
    for (uint32_t i = 0; i < turns_max && count_threads() > progress->num_threads; i++) {
        usleep(1000);
    }
}

// The bundled model with half of its tokenizer.json.
static void write_half_tokenizer(struct temp_folder *folder) {
    static char text[32 << 10];
    temp_folder_create(folder);
    FILE *from = fopen("models/tiny-qwen3/tokenizer.json", "r");
    assert_non_null(from);
    assert_int_equal(fread(text, 1, sizeof text, from), sizeof text);
    fclose(from);
    temp_folder_write(folder, "tokenizer.json", text, sizeof text);
    char here[256], to_here[512], link[512];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(to_here, sizeof to_here, "%s/models/tiny-qwen3/config.json", here);
    snprintf(link, sizeof link, "%s/config.json", folder->path);
    assert_int_equal(symlink(to_here, link), 0);
}

static struct waiting_progress start_without_tokenizer(bool waits_at_end) {
    struct temp_folder folder;
    struct waiting_progress waiting = {.waits_at_end = waits_at_end,
                                       .num_threads = count_threads()};
    const struct nvllm_load_progress progress = {wait_for_tokenizer, &waiting};
    struct nvllm_engine_options options = filling_options();
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    write_half_tokenizer(&folder);
    reset(MEMORY, 0);
    options.model = folder.path;
    options.load_format = "dummy";
    options.load_progress = &progress;
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_FORMAT);
    assert_non_null(strstr(error.message, "tokenizer.json"));
    assert_int_equal(fake_device_counts().num_graphs, 0);
    temp_folder_remove(&folder);
    return waiting;
}

static void test_a_broken_tokenizer_ends_the_load(void **state) {
    (void)state;
    assert_int_equal(start_without_tokenizer(false).num_loaded, 0);
}

static void test_a_broken_tokenizer_leaves_no_warm_up(void **state) {
    (void)state;
    (void)start_without_tokenizer(true);
}

static void test_memory_that_is_not_to_be_had(void **state) {
    (void)state;
    const struct nvllm_engine_options options = filling_options();
    for (uint32_t n = 1;; n++) {
        reset(MEMORY, 0);
        fake_device_fail_at(FAKE_FAULT_CREATE, n);
        struct nvllm_engine *engine = NULL;
        struct nvllm_error error = {0};
        enum nvllm_status status = nvllm_engine_create(&engine, &options, &error);
        nvllm_engine_destroy(engine);
        assert_int_equal(fake_device_counts().live, 0);
        assert_int_equal(status, fake_device_has_failed() ? NVLLM_ERR_NOMEM : NVLLM_OK);
        if (!status) return;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_share_is_filled_and_not_exceeded),
        cmocka_unit_test(test_recorded_steps_are_measured),
        cmocka_unit_test(test_nothing_is_recorded_before_it_has_run),
        cmocka_unit_test(test_a_low_estimate_is_put_right),
        cmocka_unit_test(test_a_number_of_blocks_is_taken_as_it_is),
        cmocka_unit_test(test_ranks_that_share_a_device_need_a_number_of_blocks),
        cmocka_unit_test(test_eager_steps_leave_more),
        cmocka_unit_test(test_steps_recorded_again_have_the_new_cache),
        cmocka_unit_test(test_recording_may_fail),
        cmocka_unit_test(test_no_room_for_one_sequence_is_an_error),
        cmocka_unit_test(test_steps_recorded_later),
        cmocka_unit_test(test_steps_recorded_later_have_their_memory),
        cmocka_unit_test(test_a_later_recording_may_fail),
        cmocka_unit_test(test_a_first_start_says_what_it_does),
        cmocka_unit_test(test_a_broken_tokenizer_ends_the_load),
        cmocka_unit_test(test_a_broken_tokenizer_leaves_no_warm_up),
        cmocka_unit_test(test_memory_that_is_not_to_be_had),
    };
    return cmocka_run_group_tests(tests, mixed_workload_expected_make,
                                  mixed_workload_expected_free);
}
