/* The inbox alone, without a model: bounds, who ends a request, waits and wake-ups. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "engine/request/inbox.h"
#include "support/cmocka_all.h"

static void open_inbox(struct inbox *inbox, uint32_t max_num_waiting, uint64_t max_waiting_tokens) {
    const struct inbox_bounds bounds = {max_num_waiting, max_waiting_tokens};
    assert_int_equal(inbox_init(inbox, bounds, NULL, NULL), OK);
}

static struct request *make_request(uint32_t num_prompt_tokens) {
    struct request *request;
    int32_t *prompt = calloc(num_prompt_tokens, sizeof *prompt);
    assert_int_equal(request_create(&request, NULL), OK);
    assert_non_null(prompt);
    assert_int_equal(sequence_create(&request->seq, 0, prompt, num_prompt_tokens, 1, 16, 1, NULL),
                     OK);
    free(prompt);
    return request;
}

static uint64_t submit(struct inbox *inbox, uint32_t num_prompt_tokens) {
    struct err err = {0};
    uint64_t id = 0;
    if (inbox_submit(inbox, make_request(num_prompt_tokens), &id, &err)) {
        fail_msg("%s", err.message);
    }
    return id;
}

static void expect_no_room(struct inbox *inbox, uint32_t num_prompt_tokens, const char *message) {
    struct request *request = make_request(num_prompt_tokens);
    struct err err = {0};
    uint64_t id = 77;
    assert_int_equal(inbox_submit(inbox, request, &id, &err), ERR_CAPACITY);
    assert_string_equal(err.message, message);
    assert_int_equal(id, 77);
    request_destroy(request); // it stayed ours
}

// Ends and frees what is there; the number of them.
static int empty(struct inbox *inbox, bool was_waiting) {
    int count = 0;
    struct inbox_changes changes = inbox_take(inbox);
    for (struct request *request = changes.submitted, *next; request; request = next, count++) {
        next = request->next_submitted;
        if (!inbox_begin_end(inbox, request)) inbox_begin_abort(inbox, request);
        inbox_remove(inbox, request, was_waiting);
        request_destroy(request);
    }
    return count;
}

static void test_ids_are_in_order_of_submission_and_refused_ones_take_none(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 2, 0);
    assert_int_equal(submit(&inbox, 5), 1);
    assert_int_equal(submit(&inbox, 5), 2);
    expect_no_room(&inbox, 5,
                   "2 requests are waiting, as many as max_num_waiting allows: try again later");
    struct inbox_changes changes = inbox_take(&inbox);
    assert_int_equal(changes.submitted->seq->id, 1);
    assert_int_equal(changes.submitted->next_submitted->seq->id, 2);
    assert_null(changes.submitted->next_submitted->next_submitted);
    inbox_note_scheduled(&inbox, 1, 5); // there is room again, though none has ended
    assert_int_equal(submit(&inbox, 5), 3);
    inbox_remove(&inbox, changes.submitted->next_submitted, true);
    request_destroy(changes.submitted->next_submitted);
    inbox_remove(&inbox, changes.submitted, false);
    request_destroy(changes.submitted);
    assert_int_equal(empty(&inbox, true), 1);
    inbox_fini(&inbox);
}

static void test_waiting_tokens_are_bounded_but_for_a_single_request(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 10);
    submit(&inbox, 30); // longer than the bound: else it could never run
    expect_no_room(&inbox, 1,
                   "the waiting requests have 30 prompt tokens, and with 1 more they would exceed "
                   "max_waiting_tokens 10: try again later");
    assert_int_equal(inbox_check_open(&inbox, NULL), ERR_CAPACITY);
    assert_int_equal(empty(&inbox, true), 1);
    submit(&inbox, 6);
    submit(&inbox, 4);
    assert_int_equal(inbox_check_open(&inbox, NULL), OK); // full, not over
    expect_no_room(&inbox, 1,
                   "the waiting requests have 10 prompt tokens, and with 1 more they would exceed "
                   "max_waiting_tokens 10: try again later");
    assert_int_equal(empty(&inbox, true), 2);
    inbox_fini(&inbox);
}

static struct request *make_outputs(uint32_t num_outputs, uint32_t num_prompt_tokens) {
    struct request *first = make_request(num_prompt_tokens);
    for (uint32_t i = 1; i < num_outputs; i++) {
        struct request *request, *one = make_request(num_prompt_tokens);
        assert_int_equal(request_create_output(first, &request, NULL), OK);
        assert_int_equal(request->index, i);
        request->seq = one->seq;
        one->seq = NULL;
        request_destroy(one);
    }
    return first;
}

static void test_a_request_counts_by_its_outputs(void **state) {
    (void)state;
    struct inbox inbox;
    struct err err = {0};
    uint64_t id;
    open_inbox(&inbox, 4, 20);
    struct request *large = make_outputs(9, 3); // alone it may wait, however large
    assert_int_equal(inbox_submit(&inbox, large, &id, NULL), OK);
    for (struct request *output = large; output; output = output->next_output) {
        assert_int_equal(output->seq->id, 1);
    }
    expect_no_room(&inbox, 1,
                   "9 requests are waiting, as many as max_num_waiting allows: try again later");
    inbox_note_scheduled(&inbox, 7, 21);
    struct request *more = make_outputs(3, 2);
    assert_int_equal(inbox_submit(&inbox, more, &id, &err), ERR_CAPACITY);
    assert_string_equal(err.message, "2 requests are waiting, and with 3 more they would exceed "
                                     "max_num_waiting 4: try again later");
    request_destroy(more);
    more = make_outputs(2, 8);
    assert_int_equal(inbox_submit(&inbox, more, &id, &err), ERR_CAPACITY);
    assert_string_equal(err.message,
                        "the waiting requests have 6 prompt tokens, and with 16 more they would "
                        "exceed max_waiting_tokens 20: try again later");
    request_destroy(more);
    more = make_outputs(2, 7);
    assert_int_equal(inbox_submit(&inbox, more, &id, NULL), OK);
    assert_int_equal(id, 2);
    assert_int_equal(inbox_num_unfinished(&inbox), 2);
    struct nvllm_stats stats;
    inbox_read_stats(&inbox, &stats);
    assert_int_equal(stats.num_requests_added, 11);
    inbox_take(&inbox);
    // One output's end is not the request's.
    assert_true(inbox_begin_end(&inbox, more->next_output));
    assert_true(inbox_is_unfinished(&inbox, id));
    inbox_remove(&inbox, more->next_output, true);
    assert_int_equal(inbox_num_unfinished(&inbox), 2);
    assert_true(inbox_begin_end(&inbox, more));
    assert_false(inbox_is_unfinished(&inbox, id));
    assert_false(inbox_abort(&inbox, id));
    inbox_remove(&inbox, more, true);
    assert_int_equal(inbox_num_unfinished(&inbox), 1);
    request_destroy(more);
    // An abort ends all that have not.
    assert_true(inbox_abort(&inbox, 1));
    assert_ptr_equal(inbox_take(&inbox).aborted, large);
    int num_left = 9;
    for (struct request *output = large; output; output = output->next_output) {
        assert_false(inbox_begin_end(&inbox, output));
        assert_true(inbox_is_unfinished(&inbox, 1));
        inbox_begin_abort(&inbox, output);
        assert_int_equal(inbox_is_unfinished(&inbox, 1), --num_left > 0);
        inbox_remove(&inbox, output, num_left < 2);
    }
    assert_int_equal(inbox_num_unfinished(&inbox), 0);
    request_destroy(large);
    inbox_fini(&inbox);
}

static void test_no_bound_by_default(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 0);
    for (int i = 0; i < 500; i++) submit(&inbox, 1000);
    assert_int_equal(inbox_num_unfinished(&inbox), 500);
    assert_int_equal(empty(&inbox, true), 500);
    assert_int_equal(inbox_num_unfinished(&inbox), 0);
    inbox_fini(&inbox);
}

static void test_a_draining_inbox_takes_nothing(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 0);
    submit(&inbox, 1);
    inbox_drain(&inbox);
    static const char why[] =
        "the engine is draining: it finishes its requests and takes no others";
    expect_no_room(&inbox, 1, why);
    assert_int_equal(empty(&inbox, true), 1);
    expect_no_room(&inbox, 1, why);
    inbox_fini(&inbox);
}

static void test_a_failed_inbox_takes_nothing(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 0);
    inbox_fail(&inbox);
    struct request *request = make_request(1);
    uint64_t id;
    assert_int_equal(inbox_submit(&inbox, request, &id, NULL), ERR_DEVICE);
    request_destroy(request);
    inbox_fini(&inbox);
}

static void test_the_first_of_abort_and_end_wins(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 0);
    uint64_t ended = submit(&inbox, 1), aborted = submit(&inbox, 1);
    struct request *first = inbox_take(&inbox).submitted, *second = first->next_submitted;
    assert_true(inbox_is_unfinished(&inbox, ended));
    assert_true(inbox_begin_end(&inbox, first));
    assert_false(inbox_is_unfinished(&inbox, ended)); // its last event is being delivered
    assert_false(inbox_abort(&inbox, ended));

    assert_true(inbox_abort(&inbox, aborted));
    assert_false(inbox_abort(&inbox, aborted)); // once
    assert_false(inbox_begin_end(&inbox, second));
    assert_true(inbox_is_unfinished(&inbox, aborted));
    struct inbox_changes changes = inbox_take(&inbox);
    assert_null(changes.submitted);
    assert_ptr_equal(changes.aborted, second);
    assert_null(second->next_aborted);
    inbox_begin_abort(&inbox, second);
    assert_false(inbox_is_unfinished(&inbox, aborted));

    inbox_remove(&inbox, first, true);
    inbox_remove(&inbox, second, true);
    assert_false(inbox_abort(&inbox, aborted));
    assert_null(inbox_take(&inbox).aborted);
    request_destroy(first);
    request_destroy(second);
    inbox_fini(&inbox);
}

static void test_wait_ends_at_its_time_at_work_and_when_woken(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 0);
    double start = clock_seconds();
    inbox_wait(&inbox, 0);
    inbox_wait(&inbox, 0.02);
    assert_true(clock_seconds() - start >= 0.02);
    inbox_wake(&inbox);
    inbox_wait(&inbox, -1); // the wake-up came before
    inbox_wake(&inbox);
    inbox_wait(&inbox, 1e300);
    submit(&inbox, 1);
    inbox_wait(&inbox, -1);
    assert_int_equal(empty(&inbox, true), 1);
    inbox_fini(&inbox);
}

static void *submit_one(void *inbox) {
    submit(inbox, 1);
    return NULL;
}

static void *wake(void *inbox) {
    inbox_wake(inbox);
    return NULL;
}

static void test_another_thread_ends_a_wait(void **state) {
    (void)state;
    void *(*const functions[])(void *) = {submit_one, wake};
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        struct inbox inbox;
        open_inbox(&inbox, 0, 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, functions[i], &inbox), 0);
        inbox_wait(&inbox, -1);
        pthread_join(thread, NULL);
        assert_int_equal(empty(&inbox, true), i == 0);
        inbox_fini(&inbox);
    }
}

static void test_stats_belong_together(void **state) {
    (void)state;
    struct inbox inbox;
    open_inbox(&inbox, 0, 0);
    for (int i = 0; i < 5; i++) submit(&inbox, 1);
    // Of them 3 were running and 1 had finished when the last step ended.
    const struct nvllm_stats published = {.num_running = 3, .num_requests_finished = 1};
    inbox_publish(&inbox, &published);
    submit(&inbox, 1);
    struct nvllm_stats stats;
    inbox_read_stats(&inbox, &stats);
    assert_int_equal(stats.num_requests_added, 6);
    assert_int_equal(stats.num_requests_finished, 1);
    assert_int_equal(stats.num_running, 3);
    assert_int_equal(stats.num_waiting, 2);
    assert_int_equal(empty(&inbox, true), 6);
    inbox_fini(&inbox);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_are_in_order_of_submission_and_refused_ones_take_none),
        cmocka_unit_test(test_waiting_tokens_are_bounded_but_for_a_single_request),
        cmocka_unit_test(test_no_bound_by_default),
        cmocka_unit_test(test_a_request_counts_by_its_outputs),
        cmocka_unit_test(test_a_draining_inbox_takes_nothing),
        cmocka_unit_test(test_a_failed_inbox_takes_nothing),
        cmocka_unit_test(test_the_first_of_abort_and_end_wins),
        cmocka_unit_test(test_wait_ends_at_its_time_at_work_and_when_woken),
        cmocka_unit_test(test_another_thread_ends_a_wait),
        cmocka_unit_test(test_stats_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
