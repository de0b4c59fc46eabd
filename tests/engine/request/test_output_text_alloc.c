// Output text allocates when it is made, reports it when that fails, and never again.
#include "engine/request/output_text.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const char *const stops[] = {"END", "a longer one"};
static const struct output_text_options options = {.stops = stops, .num_stops = 2};

static enum status make_and_use(void *context, struct err *err) {
    const struct tokenizer *tokenizer = context;
    struct output_text text;
    struct buf out = {0};
    enum status status = output_text_init(&text, tokenizer, &options, err);
    if (!status) status = buf_reserve(&out, output_text_max_bytes(&text, tokenizer, 1), err);
    if (!status) {
        output_text_push(&text, tokenizer, 5, &out);
        output_text_finish(&text, &out);
    }
    output_text_fini(&text);
    buf_fini(&out);
    return status;
}

static void test_failing_allocations(void **state) {
    assert_true(alloc_sweep_run(&(struct alloc_sweep){make_and_use, *state, 0, false}) > 0);
}

static void test_pushing_does_not_allocate(void **state) {
    const struct tokenizer *tokenizer = *state;
    struct output_text text;
    struct buf out = {0};
    assert_int_equal(output_text_init(&text, tokenizer, &options, NULL), OK);
    assert_int_equal(buf_reserve(&out, output_text_max_bytes(&text, tokenizer, 1), NULL), OK);
    alloc_hook_reset();
    for (int32_t id = 0; id < (int32_t)tokenizer_num_tokens(tokenizer); id++) {
        buf_clear(&out);
        output_text_push(&text, tokenizer, id, &out);
    }
    output_text_finish(&text, &out);
    assert_int_equal(alloc_hook_count(), 0);
    output_text_fini(&text);
    buf_fini(&out);
}

static int open_tokenizer(void **state) {
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    if (tokenizer_open_file(&tokenizer, "models/tiny-qwen3/tokenizer.json", &err) != OK) {
        print_message("%s\n", err.message);
        return -1;
    }
    *state = tokenizer;
    return 0;
}

static int close_tokenizer(void **state) {
    tokenizer_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_pushing_does_not_allocate),
    };
    return cmocka_run_group_tests_name("output_text_alloc", tests, open_tokenizer, close_tokenizer);
}
