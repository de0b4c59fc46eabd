// Text handed out token by token: what waits is exactly what could become a stop string, what is
// handed out never has to be taken back, and a stop string is found wherever tokens cut it.
#include "engine/request/output_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { NONE = -1, TEXT_MAX = 4096 };

static struct tokenizer *tokenizer;

static uint64_t random_state;

static uint32_t random_below(uint32_t bound) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static int32_t token_of(const char *bytes, size_t len) {
    for (uint32_t id = 0; id < tokenizer_num_tokens(tokenizer); id++) {
        size_t token_len;
        const char *token = tokenizer_token_bytes(tokenizer, (int32_t)id, &token_len);
        if (token && token_len == len && memcmp(token, bytes, len) == 0) return (int32_t)id;
    }
    fail_msg("no token for \"%.*s\"", (int)len, bytes);
    return NONE;
}

static void open_with(struct output_text *text, struct buf *out,
                      const struct output_text_options *options) {
    struct err err = {0};
    if (output_text_init(text, tokenizer, options, &err) != OK) fail_msg("%s", err.message);
    *out = (struct buf){0};
    assert_int_equal(buf_reserve(out, output_text_max_bytes(text, tokenizer, 1), NULL), OK);
}

static void open_text(struct output_text *text, struct buf *out, const char *const *stops,
                      size_t num_stops) {
    open_with(text, out,
              &(struct output_text_options){
                  .stops = stops, .num_stops = num_stops, .skip_special = true});
}

static void close_text(struct output_text *text, struct buf *out) {
    output_text_fini(text);
    buf_fini(out);
}

// Pushes one token and expects exactly this piece and this stop string.
static void push(struct output_text *text, struct buf *out, const char *token, const char *piece,
                 int stop) {
    buf_clear(out);
    assert_int_equal(output_text_push(text, tokenizer, token_of(token, strlen(token)), out), stop);
    assert_string_equal(out->data, piece);
}

static void finish(struct output_text *text, struct buf *out, const char *piece) {
    buf_clear(out);
    output_text_finish(text, out);
    assert_string_equal(out->data, piece);
}

static void test_without_stop_strings_nothing_waits(void **state) {
    (void)state;
    struct output_text text;
    struct buf out;
    open_text(&text, &out, NULL, 0);
    push(&text, &out, "a", "a", NONE);
    push(&text, &out, " the", " the", NONE);
    finish(&text, &out, "");
    close_text(&text, &out);
    output_text_fini(&text);
    output_text_fini(NULL);
}

static void test_half_characters_wait(void **state) {
    (void)state;
    struct output_text text;
    struct buf out;
    open_text(&text, &out, NULL, 0);
    push(&text, &out, "\xe2", "", NONE); // EURO SIGN in three tokens
    push(&text, &out, "\x82", "", NONE);
    push(&text, &out, "\xac", "\xe2\x82\xac", NONE);
    push(&text, &out, "\xc3", "", NONE);
    finish(&text, &out, "\xef\xbf\xbd"); // an end without its second half
    close_text(&text, &out);
}

static void test_a_possible_start_waits(void **state) {
    (void)state;
    static const char *const stops[] = {"abc"};
    struct output_text text;
    struct buf out;
    open_text(&text, &out, stops, 1);
    push(&text, &out, "x", "x", NONE);
    push(&text, &out, "a", "", NONE);
    push(&text, &out, "b", "", NONE);
    push(&text, &out, "a", "ab", NONE); // the last a may begin it anew
    push(&text, &out, "b", "", NONE);
    push(&text, &out, "c", "", 0);
    close_text(&text, &out);

    open_text(&text, &out, stops, 1);
    push(&text, &out, "a", "", NONE);
    push(&text, &out, "b", "", NONE);
    finish(&text, &out, "ab"); // it never came
    close_text(&text, &out);
}

static void test_a_stop_string_inside_a_token(void **state) {
    (void)state;
    static const char *const stops[] = {"h"};
    struct output_text text;
    struct buf out;
    open_text(&text, &out, stops, 1);
    push(&text, &out, " the", " t", 0); // the rest of the token is dropped
    finish(&text, &out, "");
    close_text(&text, &out);
}

static void test_the_first_to_begin_wins_within_a_token(void **state) {
    (void)state;
    static const char *const stops[] = {"e", "he", "h", "the"};
    struct output_text text;
    struct buf out;
    open_text(&text, &out, stops, 4);
    push(&text, &out, " the", " ", 3);
    close_text(&text, &out);
    open_text(&text, &out, stops, 3); // "he" and "h" begin at the same place: the longer one
    push(&text, &out, " the", " t", 1);
    close_text(&text, &out);
}

static void test_an_earlier_token_decides(void **state) {
    (void)state;
    static const char *const stops[] = {"abcd", "c"};
    struct output_text text;
    struct buf out;
    open_text(&text, &out, stops, 2);
    push(&text, &out, "a", "", NONE);
    push(&text, &out, "b", "", NONE);
    push(&text, &out, "c", "ab", 1); // before abcd could be complete
    close_text(&text, &out);
}

static void test_the_first_tokens_end_nothing(void **state) {
    (void)state;
    static const char *const stops[] = {"aa"};
    struct output_text text;
    struct buf out;
    open_with(&text, &out,
              &(struct output_text_options){.stops = stops, .num_stops = 1, .min_tokens = 3});
    push(&text, &out, "a", "", NONE);
    push(&text, &out, "a", "a", NONE); // passed over
    push(&text, &out, "b", "ab", NONE);
    push(&text, &out, "a", "", NONE);
    push(&text, &out, "a", "", 0);
    close_text(&text, &out);
    // One that begins among them and ends behind them counts.
    open_with(&text, &out,
              &(struct output_text_options){.stops = stops, .num_stops = 1, .min_tokens = 1});
    push(&text, &out, "a", "", NONE);
    push(&text, &out, "a", "", 0);
    close_text(&text, &out);
}

static void test_a_stop_string_may_be_handed_out(void **state) {
    (void)state;
    static const char *const stops[] = {"the", "ea"};
    struct output_text text;
    struct buf out;
    const struct output_text_options options = {
        .stops = stops, .num_stops = 2, .include_stop = true};
    open_with(&text, &out, &options);
    push(&text, &out, "t", "t", NONE); // nothing waits
    push(&text, &out, "h", "h", NONE);
    push(&text, &out, "e", "e", 0);
    close_text(&text, &out);
    open_with(&text, &out, &options);
    push(&text, &out, " the", " the", 0);
    close_text(&text, &out);
    open_with(&text, &out, &options);
    push(&text, &out, "e", "e", NONE);
    push(&text, &out, "and", "a", 1); // what follows it is not handed out
    close_text(&text, &out);
}

static void test_stop_strings_of_characters(void **state) {
    (void)state;
    static const char *const stops[] = {"\xe2\x82\xac!"};
    struct output_text text;
    struct buf out;
    open_text(&text, &out, stops, 1);
    push(&text, &out, "\xe2", "", NONE);
    push(&text, &out, "\x82", "", NONE);
    push(&text, &out, "\xac", "", NONE);
    push(&text, &out, "\xe2", "", NONE); // half a character decides nothing
    push(&text, &out, "\x82", "", NONE);
    push(&text, &out, "\xac", "\xe2\x82\xac", NONE);
    push(&text, &out, "!", "", 0);
    close_text(&text, &out);
}

static void test_special_tokens_add_no_text(void **state) {
    (void)state;
    static const char *const stops[] = {"<|im_end|>"};
    struct output_text text;
    struct buf out;
    open_text(&text, &out, stops, 1);
    int32_t id;
    assert_true(tokenizer_find(tokenizer, "<|im_end|>", 10, &id));
    assert_true(tokenizer_token_is_special(tokenizer, id));
    assert_int_equal(output_text_push(&text, tokenizer, id, &out), NONE);
    assert_string_equal(out.data, "");
    close_text(&text, &out);
}

static void test_without_a_tokenizer_there_is_no_text(void **state) {
    (void)state;
    static const char *const stops[] = {"a"};
    struct output_text text;
    struct buf out = {0};
    struct err err = {0};
    const struct output_text_options one = {.stops = stops, .num_stops = 1}, none = {0};
    assert_int_equal(output_text_init(&text, NULL, &one, &err), ERR_INVALID);
    assert_string_equal(err.message, "stop strings need a tokenizer, and there is none");
    assert_int_equal(output_text_init(&text, NULL, &none, &err), OK);
    assert_int_equal(output_text_push(&text, NULL, 5, &out), NONE);
    output_text_finish(&text, &out);
    assert_int_equal(out.len, 0);
    close_text(&text, &out);
    static const char *const empty[] = {"a", ""};
    const struct output_text_options two = {.stops = empty, .num_stops = 2};
    assert_int_equal(output_text_init(&text, tokenizer, &two, &err), ERR_INVALID);
    assert_string_equal(err.message, "a stop string is empty");
}

// What a push must have found and kept back, by trying everything.
struct model {
    char text[TEXT_MAX]; // [len] all decoded text
    size_t len;
};

static int model_stop(const struct model *model, size_t old_len, const char *const *stops,
                      size_t num_stops, size_t *begin) {
    int found = NONE;
    for (size_t i = 0; i < num_stops; i++) {
        size_t len = strlen(stops[i]);
        for (size_t at = 0; at + len <= model->len; at++) {
            if (at + len <= old_len || memcmp(model->text + at, stops[i], len) != 0) continue;
            if (found == NONE || at < *begin || (at == *begin && len > strlen(stops[found]))) {
                found = (int)i;
                *begin = at;
            }
        }
    }
    return found;
}

static size_t model_held(const struct model *model, const char *const *stops, size_t num_stops) {
    size_t held = 0;
    for (size_t i = 0; i < num_stops; i++) {
        for (size_t len = 1; len < strlen(stops[i]) && len <= model->len; len++) {
            if (len > held && memcmp(model->text + model->len - len, stops[i], len) == 0)
                held = len;
        }
    }
    return held;
}

static void run_random_case(const int32_t *tokens, size_t num_tokens) {
    char stop_text[4][8];
    const char *stops[4];
    size_t num_stops = 1 + random_below(4);
    for (size_t i = 0; i < num_stops; i++) {
        size_t len = 1 + random_below(6);
        for (size_t j = 0; j < len; j++) stop_text[i][j] = (char)('a' + random_below(2));
        stop_text[i][len] = '\0';
        stops[i] = stop_text[i];
    }
    struct output_text text;
    struct buf piece;
    struct model model = {.len = 0};
    char got[TEXT_MAX];
    size_t got_len = 0;
    const struct output_text_options options = {
        .stops = stops,
        .num_stops = num_stops,
        .min_tokens = random_below(2) ? random_below(20) : 0,
        .skip_special = true,
        .include_stop = random_below(2),
    };
    open_with(&text, &piece, &options);
    char *reserved = piece.data;
    int found = NONE;
    for (int i = 0; i < 60 && found == NONE; i++) {
        int32_t token = tokens[random_below((uint32_t)num_tokens)];
        size_t len, begin = 0, old_len = model.len;
        const char *bytes = tokenizer_token_bytes(tokenizer, token, &len);
        memcpy(model.text + model.len, bytes, len);
        model.len += len;
        buf_clear(&piece);
        found = output_text_push(&text, tokenizer, token, &piece);
        assert_ptr_equal(piece.data, reserved); // never grows
        memcpy(got + got_len, piece.data, piece.len);
        got_len += piece.len;
        bool may_stop = (uint32_t)i >= options.min_tokens;
        assert_int_equal(found,
                         may_stop ? model_stop(&model, old_len, stops, num_stops, &begin) : NONE);
        size_t want_len = found == NONE ? model.len - model_held(&model, stops, num_stops) : begin;
        if (options.include_stop) {
            want_len = found == NONE ? model.len : begin + strlen(stops[found]);
        }
        assert_int_equal(got_len, want_len);
        assert_memory_equal(got, model.text, got_len);
    }
    if (found == NONE) {
        buf_clear(&piece);
        output_text_finish(&text, &piece);
        assert_int_equal(got_len + piece.len, model.len);
        assert_memory_equal(model.text + got_len, piece.data, piece.len);
    }
    close_text(&text, &piece);
}

static void test_random_texts_follow_the_model(void **state) {
    (void)state;
    // Every token made of a, b and c; c, which no stop string has, comes too.
    int32_t tokens[200];
    size_t num_tokens = 0;
    for (uint32_t id = 0; id < tokenizer_num_tokens(tokenizer) && num_tokens < 200; id++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, (int32_t)id, &len);
        if (!bytes || !len || tokenizer_token_is_special(tokenizer, (int32_t)id)) continue;
        size_t i = 0;
        while (i < len && bytes[i] >= 'a' && bytes[i] <= 'c') i++;
        if (i == len) tokens[num_tokens++] = (int32_t)id;
    }
    assert_true(num_tokens >= 3);
    for (int i = 0; i < 3000; i++) {
        random_state = (uint64_t)i;
        run_random_case(tokens, num_tokens);
    }
}

static int open_tokenizer(void **state) {
    (void)state;
    struct err err = {0};
    if (tokenizer_open_file(&tokenizer, "models/tiny-qwen3/tokenizer.json", &err) == OK) return 0;
    print_message("%s\n", err.message);
    return -1;
}

static int close_tokenizer(void **state) {
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_stop_strings_nothing_waits),
        cmocka_unit_test(test_half_characters_wait),
        cmocka_unit_test(test_a_possible_start_waits),
        cmocka_unit_test(test_a_stop_string_inside_a_token),
        cmocka_unit_test(test_the_first_to_begin_wins_within_a_token),
        cmocka_unit_test(test_an_earlier_token_decides),
        cmocka_unit_test(test_the_first_tokens_end_nothing),
        cmocka_unit_test(test_a_stop_string_may_be_handed_out),
        cmocka_unit_test(test_stop_strings_of_characters),
        cmocka_unit_test(test_special_tokens_add_no_text),
        cmocka_unit_test(test_without_a_tokenizer_there_is_no_text),
        cmocka_unit_test(test_random_texts_follow_the_model),
    };
    return cmocka_run_group_tests_name("output_text", tests, open_tokenizer, close_tokenizer);
}
