#include "support/tokenizer_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "support/cmocka_all.h"
#include "text/tokenizer/detokenizer.h"
#include "text/unicode/unicode.h"

struct tokenizer *fixture_open(const char *path) {
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    if (tokenizer_open_file(&tokenizer, path, &err)) fail_msg("%s", err.message);
    return tokenizer;
}

struct tokenizer *fixture_open_published(const char *path) {
    if (!file_exists(path)) {
        print_message("skipped: %s is not there\n", path);
        skip();
    }
    return fixture_open(path);
}

json_t *fixture_json(const char *path) {
    json_error_t fault;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &fault); // recorded texts may hold NUL
    if (!root) fail_msg("%s: %s", path, fault.text);
    return root;
}

static bool contains(const char *text, const json_t *letters) {
    for (size_t i = 0; i < json_array_size(letters); i++) {
        if (strstr(text, json_string_value(json_array_get(letters, i)))) return true;
    }
    return false;
}

// A merge is a string or a pair of strings.
static bool merge_contains(const json_t *merge, const json_t *letters) {
    if (json_is_string(merge)) return contains(json_string_value(merge), letters);
    return contains(json_string_value(json_array_get(merge, 0)), letters) ||
           contains(json_string_value(json_array_get(merge, 1)), letters);
}

static void drop_tokens(json_t *model, const json_t *letters) {
    json_t *vocab = json_object();
    json_t *merges = json_array();
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(json_object_get(model, "vocab"), key, value) {
        if (!contains(key, letters)) json_object_set(vocab, key, value);
    }
    json_array_foreach(json_object_get(model, "merges"), i, value) {
        if (!merge_contains(value, letters)) json_array_append(merges, value);
    }
    json_object_set_new(model, "vocab", vocab);
    json_object_set_new(model, "merges", merges);
}

static void add_merges(json_t *model, const json_t *pairs) {
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const char *left = json_string_value(json_array_get(json_array_get(pairs, i), 0));
        const char *right = json_string_value(json_array_get(json_array_get(pairs, i), 1));
        char token[64];
        snprintf(token, sizeof token, "%s%s", left, right);
        if (!json_object_get(vocab, token)) {
            json_object_set_new(vocab, token, json_integer((json_int_t)json_object_size(vocab)));
        }
        bool strings = json_is_string(json_array_get(merges, 0));
        json_array_insert_new(merges, 0,
                              strings ? json_sprintf("%s %s", left, right)
                                      : json_pack("[ss]", left, right));
    }
}

json_t *fixture_changed_file(const char *path, const json_t *change) {
    json_t *root = fixture_json(path);
    json_t *model = json_object_get(root, "model");
    if (json_object_get(change, "drop")) drop_tokens(model, json_object_get(change, "drop"));
    add_merges(model, json_object_get(change, "add_merges"));
    json_t *own = json_incref(model);
    json_object_update(root, (json_t *)(uintptr_t)change);
    json_object_update(own, json_object_get(change, "model"));
    json_object_set_new(root, "model", own);
    return root;
}

json_t *fixture_changed(const json_t *change) {
    return fixture_changed_file(TINY_TOKENIZER, change);
}

struct tokenizer *fixture_parse(const json_t *root) {
    struct err err = {0};
    struct tokenizer *tokenizer = NULL;
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    if (tokenizer_parse(&tokenizer, text, strlen(text), "changed", &err)) {
        fail_msg("%s", err.message);
    }
    free(text);
    return tokenizer;
}

void fixture_check_ids(const struct tokenizer *tokenizer, const json_t *string, bool special,
                       const json_t *expected, const char *name) {
    const char *text = json_string_value(string);
    struct err err = {0};
    struct token_list ids = {0};
    if (tokenizer_encode(tokenizer, text, json_string_length(string), special, NULL, &ids, &err)) {
        fail_msg("%s: %s", name, err.message);
    }
    size_t n = json_array_size(expected);
    for (size_t i = 0; i < n && i < ids.len; i++) {
        json_int_t want = json_integer_value(json_array_get(expected, i));
        if (ids.ids[i] != want) {
            fail_msg("%s: \"%s\": id %zu is %d, want %lld", name, text, i, ids.ids[i],
                     (long long)want);
        }
    }
    if (ids.len != n) fail_msg("%s: \"%s\" has %zu ids, want %zu", name, text, ids.len, n);
    token_list_fini(&ids);
}

static void check_text(const struct buf *text, const json_t *expected, const char *how,
                       const char *name) {
    const char *want = json_string_value(expected);
    size_t len = json_string_length(expected);
    if (text->len == len && (!len || memcmp(text->data, want, len) == 0)) return;
    fail_msg("%s: %s is \"%s\", want \"%s\"", name, how, text->data ? text->data : "", want);
}

void fixture_check_whole(const struct tokenizer *tokenizer, const json_t *ids, bool skip_special,
                         const json_t *expected, const char *name) {
    struct err err = {0};
    struct buf whole = {0};
    size_t n = json_array_size(ids);
    int32_t *list = calloc(n + 1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < n; i++) {
        list[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    }
    if (tokenizer_decode(tokenizer, list, n, skip_special, &whole, &err)) {
        fail_msg("%s: %s", name, err.message);
    }
    check_text(&whole, expected, "the decoding", name);
    free(list);
    buf_fini(&whole);
}

void fixture_check_streamed(const struct tokenizer *tokenizer, const json_t *ids, bool skip_special,
                            const json_t *expected, const char *name) {
    struct buf pieces = {0};
    struct detokenizer detokenizer = {0};
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
        size_t before = pieces.len;
        assert_int_equal(detokenizer_push(&detokenizer, tokenizer, id, skip_special, &pieces, NULL),
                         OK);
        size_t len = pieces.len - before;
        assert_true(len <= 3 * (tokenizer_max_token_bytes(tokenizer) + 4));
        if (len) assert_int_equal(utf8_valid_prefix(pieces.data + before, len), len);
    }
    assert_int_equal(detokenizer_flush(&detokenizer, &pieces, NULL), OK);
    check_text(&pieces, expected, "the stream", name);
    buf_fini(&pieces);
}

void fixture_check_decoded(const struct tokenizer *tokenizer, const json_t *ids, bool skip_special,
                           const json_t *expected, const char *name) {
    fixture_check_whole(tokenizer, ids, skip_special, expected, name);
    fixture_check_streamed(tokenizer, ids, skip_special, expected, name);
}

size_t fixture_random_text(uint64_t *state, size_t max_pieces, struct buf *out) {
    static const char *const words[] = {"the",          " ",
                                        "  ",           "\n",
                                        "\r\n",         "\t",
                                        "I'm",          "you'RE",
                                        "'s",           "'",
                                        "123",          "7",
                                        "Hello",        " world",
                                        "<|im_start|>", "<think>",
                                        "<|im",         "!?",
                                        "...",          "\xc3\xa9",
                                        "e\xcc\x81",    "\xe4\xb8\xad\xe6\x96\x87",
                                        "aaaa",         "\xe3\x80\x80",
                                        "\xc2\xa0",     "\xf0\x9f\x99\x82",
                                        "'\xc5\xbf",    "\xe1\xa0\x8e"};
    static const struct {
        uint32_t first, count;
    } ranges[] = {{0x21, 0x5e},     {0xa1, 0x15f},    {0x370, 0x100},  {0x590, 0x100},
                  {0x900, 0x100},   {0x2000, 0x70},   {0x2150, 0x40},  {0x3040, 0xc0},
                  {0x4e00, 0x5000}, {0xac00, 0x2ba4}, {0x1f600, 0x50}, {0x300, 0x70}};
    buf_clear(out);
    for (size_t n = fixture_random(state) % (max_pieces + 1); n > 0; n--) {
        if (fixture_random(state) % 2) {
            const char *word = words[fixture_random(state) % ARRAY_LEN(words)];
            assert_int_equal(buf_append_str(out, word, NULL), OK);
            continue;
        }
        size_t range = fixture_random(state) % ARRAY_LEN(ranges);
        for (size_t k = 1 + fixture_random(state) % 4; k > 0; k--) {
            char bytes[4];
            uint32_t c = ranges[range].first + fixture_random(state) % ranges[range].count;
            assert_int_equal(buf_append(out, bytes, utf8_write(c, bytes), NULL), OK);
        }
    }
    return out->len;
}
