/* The trace file: steps that are made up here, and the JSON that becomes of them. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"
#include "nanovllm.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

struct fixture {
    struct temp_folder folder;
    char path[256]; // of a file in it
};

static int make_fixture(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    temp_folder_create(&f->folder);
    snprintf(f->path, sizeof f->path, "%s/trace.json", f->folder.path);
    *state = f;
    return 0;
}

static int remove_fixture(void **state) {
    struct fixture *f = *state;
    temp_folder_remove(&f->folder);
    free(f);
    return 0;
}

static struct nvllm_trace_file *open_file(const char *path) {
    struct nvllm_trace_file *file = NULL;
    struct nvllm_error error = {0};
    if (nvllm_trace_file_open(&file, path, &error)) fail_msg("%s", error.message);
    return file;
}

// Times in milliseconds.
static struct nvllm_step_trace step_at(uint64_t step, int launch, int results) {
    double begin = launch * 1e-3, end = results * 1e-3;
    return (struct nvllm_step_trace){
        .step = step,
        .times = {begin - 1e-3, begin, begin + 1e-3, begin + 2e-3, end - 1e-3, end, end + 0.5e-3},
        .num_kv_blocks = 8,
        .block_size = 16,
    };
}

static void put_step(struct nvllm_trace_file *file, struct nvllm_step_trace trace) {
    nvllm_trace_file_step(&trace, file);
}

static json_t *load(const char *path) {
    json_error_t error;
    json_t *trace = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!trace) fail_msg("%s, line %d", error.text, error.line);
    return trace;
}

static json_t *close_and_load(struct nvllm_trace_file *file, const char *path) {
    struct nvllm_error error = {0};
    if (nvllm_trace_file_close(file, &error)) fail_msg("%s", error.message);
    return load(path);
}

// The n-th event of that name, from 0; NULL: there is none.
static const json_t *event_named(const json_t *trace, const char *name, size_t n) {
    size_t i;
    json_t *event;
    json_array_foreach(trace, i, event) {
        if (strcmp(json_string_value(json_object_get(event, "name")), name) == 0 && n-- == 0) {
            return event;
        }
    }
    return NULL;
}

static long long number(const json_t *event, const char *key) {
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const char *arg(const json_t *event, const char *key) {
    return json_string_value(json_object_get(json_object_get(event, "args"), key));
}

// Steps 1 and 2 overlap, step 3 follows.
static void test_overlap_is_visible_and_no_track_overlaps(void **state) {
    const char *path = ((struct fixture *)*state)->path;
    struct nvllm_trace_file *file = open_file(path);
    const int32_t ids[] = {5, 6, -1};
    const int32_t outputs[] = {9, 8};
    const uint32_t blocks[] = {3, 1, NVLLM_NO_BLOCK, 5};
    struct nvllm_step_item item = {.request_id = 7,
                                   .sequence_id = 7,
                                   .is_prefill = 1,
                                   .first_position = 16,
                                   .num_tokens = 3,
                                   .token_ids = ids,
                                   .block_table = blocks,
                                   .num_blocks = 2,
                                   .num_kv_groups = 2,
                                   .block_table_stride = 2,
                                   .output_token_ids = outputs,
                                   .num_output_tokens = 2};
    static const int launches[] = {10, 14, 40}, results[] = {20, 30, 50};
    for (uint64_t i = 0; i < 3; i++) {
        struct nvllm_step_trace trace = step_at(i + 1, launches[i], results[i]);
        trace.items = &item;
        trace.num_items = 1;
        put_step(file, trace);
    }
    json_t *trace = close_and_load(file, path);
    static const char *const names[] = {"step 1", "step 2", "step 3"};
    static const int tracks[] = {3, 4, 3}, begins[] = {10, 20, 40};
    for (size_t i = 0; i < 3; i++) {
        const json_t *step = event_named(trace, names[i], 0);
        assert_int_equal(number(step, "ts"), launches[i] * 1000);
        assert_int_equal(number(step, "dur"), (results[i] - launches[i]) * 1000);
        assert_int_equal(number(step, "tid"), tracks[i]);
        // On the sequence's own track a step begins when the one before is over.
        const json_t *slice = event_named(trace, "prefill 16..18", i);
        assert_int_equal(number(slice, "tid"), 1000007);
        assert_int_equal(number(json_object_get(slice, "args"), "request"), 7);
        assert_int_equal(number(slice, "ts"), begins[i] * 1000);
        assert_int_equal(number(slice, "dur"), (results[i] - begins[i]) * 1000);
        assert_string_equal(arg(slice, "tokens"), "5 6 -1");
        assert_string_equal(arg(slice, "output"), "9 8");
        assert_string_equal(arg(slice, "block_table"), "3 1 | - 5");
    }
    assert_non_null(event_named(trace, "schedule", 2));
    assert_int_equal(number(event_named(trace, "sample", 0), "ts"), 11000);
    json_decref(trace);
}

static void test_what_happens_to_blocks(void **state) {
    const char *path = ((struct fixture *)*state)->path;
    struct nvllm_trace_file *file = open_file(path);
    const uint64_t preempted[] = {4, 2};
    const struct nvllm_step_block blocks[] = {
        {.block_id = 3, .changes = NVLLM_BLOCK_TAKEN | NVLLM_BLOCK_LEFT, .num_holders = 1},
        {.block_id = 0, .changes = NVLLM_BLOCK_HIT, .num_holders = 2},
        {.block_id = 5, .changes = NVLLM_BLOCK_TAKEN | NVLLM_BLOCK_CACHED, .num_holders = 1},
        {.block_id = 6, .changes = NVLLM_BLOCK_SHARED, .num_holders = 2},
    };
    struct nvllm_step_trace trace = step_at(1, 10, 20);
    trace.blocks = blocks;
    trace.num_blocks = ARRAY_LEN(blocks);
    trace.preempted = preempted;
    trace.num_preempted = 2;
    trace.num_kv_blocks_used = 4;
    trace.num_kv_blocks_cached = 1;
    trace.num_kv_blocks_free = 3;
    put_step(file, trace);
    struct nvllm_step_trace ends = step_at(0, 30, 30); // requests ended without a step
    ends.blocks = blocks;
    ends.num_blocks = 1;
    ends.num_blocks_freed = 1;
    put_step(file, ends);
    json_t *json = close_and_load(file, path);
    const json_t *event = event_named(json, "blocks", 0);
    assert_string_equal(arg(event, "taken"), "3 5");
    assert_string_equal(arg(event, "hit"), "0");
    assert_string_equal(arg(event, "shared"), "6");
    assert_string_equal(arg(event, "cached"), "5");
    assert_string_equal(arg(event, "left"), "3");
    assert_int_equal(number(event_named(json, "preempted", 0), "tid"), 1000004);
    assert_int_equal(number(event_named(json, "preempted", 1), "tid"), 1000002);
    const json_t *counter = json_object_get(event_named(json, "KV blocks", 0), "args");
    assert_int_equal(number(counter, "used"), 4);
    assert_int_equal(number(counter, "cached"), 1);
    assert_int_equal(number(counter, "free"), 3);
    event = json_object_get(event_named(json, "blocks", 1), "args");
    assert_int_equal(number(event, "num_freed"), 1);
    assert_null(event_named(json, "schedule", 1));
    json_decref(json);
}

static void test_old_content_goes_when_the_run_is_there(void **state) {
    const char *path = ((struct fixture *)*state)->path;
    const struct fixture *f = *state;
    temp_folder_write_text(&f->folder, "trace.json", "[{\"name\": \"old\"}]");
    nvllm_trace_file_abandon(open_file(path)); // the model did not load
    json_t *json = load(path);
    assert_non_null(event_named(json, "old", 0));
    json_decref(json);
    json = close_and_load(open_file(path), path); // a run without a step
    assert_null(event_named(json, "old", 0));
    assert_non_null(event_named(json, "thread_name", 0));
    json_decref(json);
    nvllm_trace_file_abandon(NULL);
    assert_int_equal(nvllm_trace_file_close(NULL, NULL), NVLLM_OK);
}

static void test_memory_does_not_grow(void **state) {
    const char *path = ((struct fixture *)*state)->path;
    struct nvllm_trace_file *file = open_file(path);
    struct nvllm_step_trace trace = step_at(1, 10, 20);
    put_step(file, trace);
    long live = alloc_hook_live();
    alloc_hook_reset();
    for (trace.step = 2; trace.step <= 20000; trace.step++) put_step(file, trace);
    assert_int_equal(alloc_hook_count(), 0);
    assert_int_equal(alloc_hook_live(), live);
    json_t *json = close_and_load(file, path);
    assert_non_null(event_named(json, "step 20000", 0));
    json_decref(json);
}

static void test_a_full_disk_is_reported_at_close(void **state) {
    (void)state;
    if (access("/dev/full", W_OK)) skip();
    struct nvllm_trace_file *file = open_file("/dev/full");
    for (uint64_t i = 1; i <= 1000; i++) put_step(file, step_at(i, 10, 20));
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_trace_file_close(file, &error), NVLLM_ERR_IO);
    assert_string_equal(error.message, "cannot write /dev/full: No space left on device");
    assert_int_equal(nvllm_trace_file_open(&file, "/nonexistent/x", &error), NVLLM_ERR_IO);
    assert_null(file);
}

// Whole steps only, and the end is there.
static void test_a_limited_file_is_json(void **state) {
    const char *path = ((struct fixture *)*state)->path;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 200 << 10;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct nvllm_trace_file *file = open_file(path);
    for (uint64_t i = 1; i <= 1000; i++) put_step(file, step_at(i, 10, 20));
    struct nvllm_error error = {0};
    enum nvllm_status status = nvllm_trace_file_close(file, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, NVLLM_ERR_IO);
    json_t *json = load(path);
    assert_non_null(event_named(json, "step 20", 0));
    assert_null(event_named(json, "step 1000", 0));
    json_decref(json);
}

enum { MANY = 60000 };

// Of a step whose text does not fit the memory that is there at first.
static int32_t *many_ids(void) {
    int32_t *ids = calloc(MANY, sizeof *ids);
    assert_non_null(ids);
    for (int32_t i = 0; i < MANY; i++) ids[i] = i;
    return ids;
}

static enum status write_much(void *context, struct err *err) {
    struct nvllm_error error = {0};
    struct nvllm_trace_file *file = NULL;
    enum nvllm_status status = nvllm_trace_file_open(&file, "/dev/null", &error);
    if (!status) {
        struct nvllm_step_item item = {.num_tokens = MANY, .token_ids = context};
        struct nvllm_step_trace trace = step_at(1, 10, 20);
        trace.items = &item;
        trace.num_items = 1;
        put_step(file, trace);
        status = nvllm_trace_file_close(file, &error);
    }
    return status ? err_set(err, (enum status)status, "%s", error.message) : OK;
}

static void test_allocations_may_fail(void **state) {
    (void)state;
    int32_t *ids = many_ids();
    const struct alloc_sweep sweep = {.work = write_much, .context = ids};
    assert_true(alloc_sweep_run(&sweep) > 2);
    free(ids);
}

// The step that found no memory is left out whole, and so are those after it.
static void test_a_step_without_memory_leaves_json(void **state) {
    const char *path = ((struct fixture *)*state)->path;
    struct nvllm_trace_file *file = open_file(path);
    put_step(file, step_at(1, 10, 20));
    int32_t *ids = many_ids();
    struct nvllm_step_item item = {.num_tokens = MANY, .token_ids = ids};
    struct nvllm_step_trace trace = step_at(2, 30, 40);
    trace.items = &item;
    trace.num_items = 1;
    alloc_hook_fail_at(1, false);
    put_step(file, trace);
    alloc_hook_disarm();
    put_step(file, step_at(3, 50, 60));
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_trace_file_close(file, &error), NVLLM_ERR_NOMEM);
    json_t *json = load(path);
    assert_non_null(event_named(json, "step 1", 0));
    assert_null(event_named(json, "step 2", 0));
    assert_null(event_named(json, "step 3", 0));
    json_decref(json);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap_is_visible_and_no_track_overlaps),
        cmocka_unit_test(test_what_happens_to_blocks),
        cmocka_unit_test(test_old_content_goes_when_the_run_is_there),
        cmocka_unit_test(test_memory_does_not_grow),
        cmocka_unit_test(test_a_full_disk_is_reported_at_close),
        cmocka_unit_test(test_a_limited_file_is_json),
        cmocka_unit_test(test_allocations_may_fail),
        cmocka_unit_test(test_a_step_without_memory_leaves_json),
    };
    return cmocka_run_group_tests(tests, make_fixture, remove_fixture);
}
