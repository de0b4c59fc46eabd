// Allocations that fail while an answer is split: reported, nothing leaks, and with text that was
// refused nothing happened.
#include <string.h>

#include "server/chat/chat_split.h"
#include "server/chat/reasoning.h"
#include "server/chat/tool_calls.h"
#include "server/chat/tool_form.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const char answer[] =
    "Well.\n<tool_call>\n{\"name\": \"a_function\", \"arguments\": {\"text\": \"some text that is "
    "longer than a small buffer, so that the buffer grows while the call is decided\"}}\n"
    "</tool_call>\n<tool_call>{\"arguments\": {\"text\": \"and here the arguments, which are also "
    "longer than that, stand before the name and are held until it comes\"}, \"name\": \"g\"}";

static enum status collect(void *user_data, const struct tool_event *event, struct err *err) {
    return event->len ? buf_append(user_data, event->text, event->len, err) : OK;
}

static enum status find_calls(void *context, struct err *err) {
    (void)context;
    struct buf out = {0};
    struct tool_calls calls;
    const struct tool_calls_options options = {
        .format = tool_format_find("hermes"), .seed = 1, .emit = collect, .user_data = &out};
    tool_calls_init(&calls, &options);
    enum status status = OK;
    for (size_t at = 0; at < sizeof answer - 1 && !status; at += 10) {
        size_t left = sizeof answer - 1 - at;
        status = tool_calls_push(&calls, answer + at, left < 10 ? left : 10, err);
    }
    if (!status) status = tool_calls_finish(&calls, err);
    tool_calls_fini(&calls);
    buf_fini(&out);
    return status;
}

static enum status split_reasoning(void *context, struct err *err) {
    (void)context;
    struct buf thought = {0}, content = {0};
    const struct reasoning_delta out = {&thought, &content};
    struct reasoning reasoning;
    reasoning_begin(&reasoning, true, "<think>", 7);
    enum status status = reasoning_push(&reasoning, answer, sizeof answer - 1, &out, err);
    if (!status) status = reasoning_push(&reasoning, "</think>", 8, &out, err);
    if (!status) status = reasoning_push(&reasoning, answer, sizeof answer - 1, &out, err);
    if (!status) status = reasoning_finish(&reasoning, &out, err);
    buf_fini(&thought);
    buf_fini(&content);
    return status;
}

static enum status make_form(void *context, struct err *err) {
    static const struct tool_form_function functions[] = {{.name = "get_time"}, {.name = "add"}};
    (void)context;
    enum status status = OK;
    for (size_t i = 0; tool_format_name(i) && !status; i++) {
        const struct tool_form_options options = {.format = tool_format_find(tool_format_name(i)),
                                                  .functions = functions,
                                                  .num_functions = 2,
                                                  .mark_is_token = true};
        json_t *form = tool_form_make(&options);
        if (!form) status = err_nomem(err, "form");
        json_decref(form);
    }
    return status;
}

static enum status divide_answer(void *context, struct err *err) {
    (void)context;
    const struct chat_split_options options = {.splits_reasoning = true,
                                               .format = tool_format_find("hermes")};
    struct chat_blocks blocks = {0};
    struct chat_split *split = chat_split_create(&options, "<think>", 7);
    enum status status = split ? OK : err_nomem(err, "answer");
    if (!status) status = chat_split_push(split, "so</think>", 10, chat_blocks_add, &blocks, err);
    for (size_t at = 0; at < sizeof answer - 1 && !status; at += 50) {
        size_t left = sizeof answer - 1 - at;
        status = chat_split_push(split, answer + at, left < 50 ? left : 50, chat_blocks_add,
                                 &blocks, err);
    }
    if (!status) status = chat_split_finish(split, chat_blocks_add, &blocks, err);
    chat_split_destroy(split);
    chat_blocks_fini(&blocks);
    return status;
}

static void test_divided_answer(void **state) {
    (void)state;
    assert_true(alloc_sweep_run(&(struct alloc_sweep){divide_answer, NULL, 0, false}) > 8);
}

static void test_tool_calls(void **state) {
    (void)state;
    assert_true(alloc_sweep_run(&(struct alloc_sweep){find_calls, NULL, 0, false}) > 4);
}

static void test_reasoning(void **state) {
    (void)state;
    assert_true(alloc_sweep_run(&(struct alloc_sweep){split_reasoning, NULL, 0, false}) > 1);
}

static void test_tool_form(void **state) {
    (void)state;
    assert_true(alloc_sweep_run(&(struct alloc_sweep){make_form, NULL, 0, false}) > 50);
}

// A push whose own memory fails can be made again.
static void test_push_again(void **state) {
    (void)state;
    for (size_t n = 1; n <= 2; n++) {
        struct buf out = {0}, wanted = {0};
        assert_int_equal(buf_reserve(&out, sizeof answer, NULL), OK);
        struct tool_calls calls;
        struct tool_calls_options options = {
            .format = tool_format_find("hermes"), .seed = 1, .emit = collect, .user_data = &out};
        tool_calls_init(&calls, &options);
        alloc_hook_fail_at(n, false);
        assert_int_equal(tool_calls_push(&calls, answer, sizeof answer - 1, NULL), ERR_NOMEM);
        alloc_hook_disarm();
        assert_int_equal(out.len, 0);
        assert_int_equal(tool_calls_push(&calls, answer, sizeof answer - 1, NULL), OK);
        tool_calls_fini(&calls);
        options.user_data = &wanted;
        tool_calls_init(&calls, &options);
        assert_int_equal(tool_calls_push(&calls, answer, sizeof answer - 1, NULL), OK);
        tool_calls_fini(&calls);
        assert_string_equal(out.data, wanted.data);
        buf_fini(&out);
        buf_fini(&wanted);
    }
}

static enum status refuse(void *user_data, const struct tool_event *event, struct err *err) {
    (void)event;
    ++*(int *)user_data;
    return err_set(err, ERR_CAPACITY, "the reader is slow");
}

static void test_fault_of_the_callback_ends_it(void **state) {
    (void)state;
    int num_events = 0;
    struct err err = {0};
    struct tool_calls calls;
    const struct tool_calls_options options = {
        .format = tool_format_find("hermes"), .seed = 1, .emit = refuse, .user_data = &num_events};
    tool_calls_init(&calls, &options);
    assert_int_equal(tool_calls_push(&calls, answer, sizeof answer - 1, &err), ERR_CAPACITY);
    assert_string_equal(err.message, "the reader is slow");
    assert_int_equal(tool_calls_push(&calls, answer, sizeof answer - 1, NULL), ERR_CAPACITY);
    assert_int_equal(tool_calls_finish(&calls, NULL), ERR_CAPACITY);
    assert_int_equal(num_events, 1);
    tool_calls_fini(&calls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tool_calls), cmocka_unit_test(test_divided_answer),
        cmocka_unit_test(test_reasoning),  cmocka_unit_test(test_tool_form),
        cmocka_unit_test(test_push_again), cmocka_unit_test(test_fault_of_the_callback_ends_it),
    };
    return cmocka_run_group_tests_name("server_text_faults", tests, NULL, NULL);
}
