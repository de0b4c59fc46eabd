// Forced calls, token by token: which tokens may come, where the object ends, and that the end of
// the output is banned until then. The tokenizer is the bundled one, with one token more.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/step/forced_call.h"
#include "support/cmocka_all.h"

enum { WRONG_BRACES = 4096, VOCAB = 4128, WORDS = VOCAB / 32 };

static const char *const prefixes[] = {
    "<tool_call>\n{\"name\": \"add\", \"arguments\":",
    "<tool_call>\n{\"name\": \"get_time\", \"arguments\":",
    "<tool_call>\n{\"name\": \"add\", \"arguments\":", // twice
    "<tool_call>\n{\"name\": \"get\", \"arguments\":",
};

struct fixture {
    struct tokenizer *tokenizer;
    struct forced_call call;
    struct forced_state state;
};

static struct token_list encode(const struct fixture *f, const char *text) {
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(f->tokenizer, text, strlen(text), false, NULL, &ids, NULL),
                     OK);
    return ids;
}

static void open_tokenizer(struct fixture *f) {
    json_t *root = json_load_file("models/tiny-qwen3/tokenizer.json", 0, NULL);
    json_t *added = json_object_get(root, "added_tokens");
    json_t *token = json_deep_copy(json_array_get(added, 0));
    json_object_set_new(token, "id", json_integer(WRONG_BRACES));
    json_object_set_new(token, "content", json_string("{{"));
    json_array_append_new(added, token);
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    assert_int_equal(tokenizer_parse(&f->tokenizer, text, strlen(text), "a test", NULL), OK);
    free(text);
    json_decref(root);
}

static void begin(struct fixture *f, const char *prompt) {
    *f = (struct fixture){0};
    open_tokenizer(f);
    struct token_list ids = encode(f, prompt);
    assert_int_equal(forced_call_init(&f->call, &f->state,
                                      &(struct forced_call_options){prefixes, ARRAY_LEN(prefixes),
                                                                    ids.ids, (uint32_t)ids.len},
                                      f->tokenizer, VOCAB, NULL),
                     OK);
    token_list_fini(&ids);
}

static void end(struct fixture *f) {
    forced_call_fini(&f->call);
    tokenizer_close(f->tokenizer);
}

static bool is_allowed(struct fixture *f, int32_t id) {
    uint32_t words[WORDS];
    memset(words, 0xff, sizeof words);
    if (forced_call_restricts(&f->state)) forced_call_restrict(&f->call, &f->state, words);
    return words[id / 32] >> (id % 32) & 1;
}

static uint32_t num_allowed(struct fixture *f) {
    uint32_t count = 0;
    for (int32_t id = 0; id < VOCAB; id++) count += is_allowed(f, id);
    return count;
}

static int32_t first_id(const struct fixture *f, const char *text) {
    struct token_list ids = encode(f, text);
    int32_t id = ids.ids[0];
    token_list_fini(&ids);
    return id;
}

// All tokens of the text, each of which must be allowed where it comes.
static void take(struct fixture *f, const char *text) {
    struct token_list ids = encode(f, text);
    for (size_t i = 0; i < ids.len; i++) {
        assert_true(is_allowed(f, ids.ids[i]));
        forced_call_take(&f->call, &f->state, ids.ids[i]);
    }
    token_list_fini(&ids);
}

static void test_a_call(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "<think>\n\n</think>\n\n");
    assert_int_equal(f.state.phase, FORCED_PREFIX);
    assert_int_equal(num_allowed(&f), 1); // the mark
    take(&f, "<tool_call>\n{\"name\": \"");
    assert_int_equal(num_allowed(&f), 2); // add, get
    take(&f, "get");
    assert_int_equal(num_allowed(&f), 2); // _time, or the name's end
    take(&f, "_time");
    assert_int_equal(num_allowed(&f), 1);
    take(&f, "\", \"arguments\":");
    assert_int_equal(f.state.phase, FORCED_BRACE);
    assert_false(is_allowed(&f, first_id(&f, "[")));
    assert_false(is_allowed(&f, WRONG_BRACES));
    assert_true(is_allowed(&f, first_id(&f, "\n")));
    take(&f, " ");
    assert_false(is_allowed(&f, first_id(&f, "\n"))); // white space once
    assert_true(is_allowed(&f, first_id(&f, "{\"")));
    take(&f, "{\"a\": [1, {\"b\": \"}\\\"}]\"}], \"c\": 2");
    assert_int_equal(f.state.phase, FORCED_OBJECT);
    assert_true(forced_call_bans_ending(&f.state));
    assert_int_equal(num_allowed(&f), VOCAB);
    take(&f, "}");
    assert_int_equal(f.state.phase, FORCED_DONE);
    assert_false(forced_call_bans_ending(&f.state));
    end(&f);
}

static void test_empty_object(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "</think>");
    take(&f, "<tool_call>\n{\"name\": \"get\", \"arguments\": {}");
    assert_int_equal(f.state.phase, FORCED_DONE);
    end(&f);
}

static void test_reasoning_of_the_output(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "<|im_start|>assistant\n");
    assert_int_equal(f.state.phase, FORCED_START);
    assert_int_equal(num_allowed(&f), 2); // reasoning, or the mark
    take(&f, "<think>\nI could <tool_call> or not.\n");
    assert_int_equal(f.state.phase, FORCED_REASONING);
    assert_true(forced_call_bans_ending(&f.state));
    assert_int_equal(num_allowed(&f), VOCAB);
    take(&f, "</think>");
    assert_true(is_allowed(&f, first_id(&f, "\n\n")));
    assert_true(is_allowed(&f, first_id(&f, "<tool_call>")));
    assert_false(is_allowed(&f, first_id(&f, "So")));
    take(&f, "\n\n");
    assert_int_equal(num_allowed(&f), 1);
    take(&f, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}");
    assert_int_equal(f.state.phase, FORCED_DONE);
    end(&f);
}

static void test_reasoning_that_is_not_opened(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "<|im_start|>assistant\n");
    take(&f, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}");
    assert_int_equal(f.state.phase, FORCED_DONE);
    end(&f);
}

static void test_reasoning_that_the_prompt_opened(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "<|im_start|>assistant\n<think>\n");
    assert_int_equal(f.state.phase, FORCED_REASONING);
    take(&f, "Hm.\n</think><tool_call>\n{\"name\": \"add\", \"arguments\": {}");
    assert_int_equal(f.state.phase, FORCED_DONE);
    end(&f);
}

// What other masks ban stays banned.
static void test_other_bans(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "</think>");
    uint32_t words[WORDS] = {0};
    forced_call_restrict(&f.call, &f.state, words);
    for (size_t i = 0; i < WORDS; i++) assert_int_equal(words[i], 0);
    end(&f);
}

static void test_none(void **state) {
    (void)state;
    struct forced_call call;
    struct forced_state none;
    assert_int_equal(forced_call_init(&call, &none, &(struct forced_call_options){NULL, 0, NULL, 0},
                                      NULL, VOCAB, NULL),
                     OK);
    assert_false(forced_call_restricts(&none) || forced_call_bans_ending(&none));
    forced_call_take(&call, &none, 5);
    forced_call_fini(&call);
}

static void test_refused(void **state) {
    (void)state;
    struct fixture f;
    begin(&f, "");
    static char long_text[FORCED_CALL_PREFIX_BYTES_MAX + 2];
    memset(long_text, 'a', sizeof long_text - 1);
    const char *const bad[] = {"", long_text};
    struct err err = {0};
    struct forced_call call;
    struct forced_state none;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(forced_call_init(&call, &none,
                                          &(struct forced_call_options){&bad[i], 1, NULL, 0},
                                          f.tokenizer, VOCAB, &err),
                         ERR_INVALID);
    }
    assert_int_equal(forced_call_init(&call, &none,
                                      &(struct forced_call_options){
                                          prefixes, FORCED_CALL_PREFIXES_MAX + 1, NULL, 0},
                                      f.tokenizer, VOCAB, &err),
                     ERR_INVALID);
    assert_int_equal(forced_call_init(&call, &none,
                                      &(struct forced_call_options){prefixes, 1, NULL, 0}, NULL,
                                      VOCAB, &err),
                     ERR_INVALID);
    assert_int_equal( // a model without these tokens
        forced_call_init(&call, &none, &(struct forced_call_options){prefixes, 1, NULL, 0},
                         f.tokenizer, 64, &err),
        ERR_INVALID);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call),
        cmocka_unit_test(test_empty_object),
        cmocka_unit_test(test_reasoning_of_the_output),
        cmocka_unit_test(test_reasoning_that_is_not_opened),
        cmocka_unit_test(test_reasoning_that_the_prompt_opened),
        cmocka_unit_test(test_other_bans),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("forced_call", tests, NULL, NULL);
}
