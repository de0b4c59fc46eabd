// The form of one output: where the model's reasoning begins and ends, and what it may do there.
#include <stdlib.h>
#include <string.h>

#include "engine/request/forms.h"
#include "engine/step/constraint.h"
#include "engine/step/token_mask.h"
#include "support/cmocka_all.h"
#include "support/tokenizer_fixture.h"

enum { VOCAB_SIZE = 4098, OPEN = 4096, CLOSE = 4097, NUM_WORDS = (VOCAB_SIZE + 31) / 32 };

// The bundled tokenizer with the two tokens of Gemma 4's channel.
static struct tokenizer *with_channel(void) {
    json_t *root = fixture_json(TINY_TOKENIZER);
    json_t *added = json_object_get(root, "added_tokens");
    static const char *const texts[] = {"<|channel>", "<channel|>"};
    for (int i = 0; i < 2; i++) {
        json_t *token = json_deep_copy(json_array_get(added, 0));
        json_object_set_new(token, "id", json_integer(OPEN + i));
        json_object_set_new(token, "content", json_string(texts[i]));
        json_array_append_new(added, token);
    }
    struct tokenizer *tokenizer = fixture_parse(root);
    json_decref(root);
    return tokenizer;
}

static uint32_t num_allowed(const struct constraint *constraint, uint32_t *words) {
    uint32_t count = 0;
    if (!constraint_restricts(constraint)) return VOCAB_SIZE;
    constraint_write(constraint, words, NUM_WORDS);
    for (uint32_t i = 0; i < NUM_WORDS; i++) count += (uint32_t)__builtin_popcount(words[i]);
    return count;
}

static bool has(const uint32_t *words, int32_t id) {
    return words[id / 32] >> (id % 32) & 1;
}

static int32_t id_of(const struct tokenizer *tokenizer, const char *text) {
    int32_t id;
    assert_true(tokenizer_find(tokenizer, text, strlen(text), &id));
    return id;
}

static void channel(void **state) {
    (void)state;
    struct tokenizer *tokenizer = with_channel();
    static const int32_t ending[] = {4091};
    const struct forms_options forms_options = {tokenizer, VOCAB_SIZE, ending, 1};
    static const char form[] = "{\"regex\": \"[ab]\"}";
    struct forms forms;
    struct automaton *automaton;
    struct constraint constraint;
    struct token_list rest = {0};
    uint32_t words[NUM_WORDS];
    assert_int_equal(forms_init(&forms, &forms_options, NULL), OK);
    assert_int_equal(forms_get(&forms, form, strlen(form), &automaton, NULL), OK);
    int32_t a = id_of(tokenizer, "a"), x = id_of(tokenizer, "x");
    const struct constraint_options options = {.tokenizer = tokenizer,
                                               .prompt = &x,
                                               .num_prompt = 1,
                                               .vocab_size = VOCAB_SIZE,
                                               .may_reason = true};
    assert_int_equal(constraint_init(&constraint, automaton, &options, NULL), OK);
    num_allowed(&constraint, words);
    assert_true(has(words, OPEN) && has(words, a) && !has(words, x) && !has(words, CLOSE));
    constraint_take(&constraint, OPEN);
    static const char text[] = "thought\n";
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, NULL, &rest, NULL), OK);
    assert_true(rest.len > 0);
    for (size_t i = 0; i < rest.len; i++) { // of the tag nothing else may follow
        assert_int_equal(num_allowed(&constraint, words), 1);
        assert_true(has(words, rest.ids[i]));
        constraint_take(&constraint, rest.ids[i]);
    }
    assert_int_equal(num_allowed(&constraint, words), VOCAB_SIZE);
    constraint_take(&constraint, x);
    assert_true(constraint_bans_ending(&constraint));
    constraint_take(&constraint, CLOSE); // from here on, in the same step
    num_allowed(&constraint, words);
    assert_true(has(words, a) && !has(words, x) && !has(words, OPEN));
    constraint_take(&constraint, a);
    assert_int_equal(num_allowed(&constraint, words), 1);
    assert_true(has(words, ending[0]));
    assert_int_equal(constraint.fault->status, OK);
    constraint_fini(&constraint);
    assert_int_equal(constraint_init(&constraint, automaton, &options, NULL), OK);
    constraint_take(&constraint, a); // without reasoning
    assert_int_equal(num_allowed(&constraint, words), 1);
    constraint_fini(&constraint);
    automaton_release(automaton);
    token_list_fini(&rest);
    forms_fini(&forms);
    tokenizer_close(tokenizer);
}

// A tag of which some token is banned is not offered; what is left may begin as it is.
static void banned_channel(void **state) {
    (void)state;
    struct tokenizer *tokenizer = with_channel();
    static const int32_t ending[] = {4091};
    const struct forms_options forms_options = {tokenizer, VOCAB_SIZE, ending, 1};
    static const char form[] = "{\"regex\": \"[ab]\"}", text[] = "thought\n";
    const struct model_config config = {.vocab_size = VOCAB_SIZE};
    struct forms forms;
    struct automaton *automaton;
    struct token_list rest = {0};
    uint32_t words[NUM_WORDS];
    assert_int_equal(forms_init(&forms, &forms_options, NULL), OK);
    assert_int_equal(forms_get(&forms, form, strlen(form), &automaton, NULL), OK);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), false, NULL, &rest, NULL), OK);
    int32_t a = id_of(tokenizer, "a"), x = id_of(tokenizer, "x");
    const int32_t allowed[] = {a, OPEN, CLOSE, ending[0]};
    static const char *const words_of[] = {"qqq", "thought\n"};
    const struct constraint_options options = {.tokenizer = tokenizer,
                                               .prompt = &x,
                                               .num_prompt = 1,
                                               .vocab_size = VOCAB_SIZE,
                                               .may_reason = true};
    for (int i = 0; i < 4; i++) {
        struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
        struct token_mask mask;
        if (i < 2) params.bad_words = &words_of[i], params.num_bad_words = 1;
        if (i == 2) params.allowed_token_ids = allowed, params.num_allowed_token_ids = 4;
        if (i == 3) params.min_tokens = 8;
        bool is_offered = i == 0 || i == 3;
        assert_int_equal(token_mask_init(&mask, &params, &config, tokenizer, NULL), OK);
        assert_int_equal(token_mask_constrain(&mask, automaton, &options, NULL), OK);
        token_mask_write(&mask, NULL, 0, words);
        assert_int_equal(has(words, OPEN), is_offered);
        assert_true(has(words, a) && !has(words, x));
        if (is_offered) {
            token_mask_take(&mask, OPEN);
            assert_int_equal(constraint_forced_token(mask.constraint), rest.ids[0]);
        }
        token_mask_fini(&mask);
    }
    automaton_release(automaton);
    token_list_fini(&rest);
    forms_fini(&forms);
    tokenizer_close(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(channel), cmocka_unit_test(banned_channel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
