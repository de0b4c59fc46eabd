// Every allocation of the base module failing in turn: ERR_NOMEM with a sentence, nothing leaked.
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/os/file.h"
#include "base/os/map.h"
#include "base/text/buf.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static enum status grow_buf(void *context, struct err *err) {
    (void)context;
    struct buf buf = {0};
    enum status status = buf_reserve(&buf, 10, err);
    for (int i = 0; i < 200 && !status; i++) {
        status = buf_append_str(&buf, "a few bytes more, ", err);
        if (!status) status = buf_appendf(&buf, err, "%d and formatted ones, ", i);
    }
    buf_fini(&buf);
    return status;
}

static enum status grow_strmap(void *context, struct err *err) {
    (void)context;
    static char keys[300][8];
    struct strmap map = {0};
    enum status status = strmap_reserve(&map, 5, err);
    for (uint32_t i = 0; i < 300 && !status; i++) {
        int len = snprintf(keys[i], sizeof keys[i], "key%u", i);
        status = strmap_put(&map, keys[i], (size_t)len, i, NULL, err);
    }
    uint32_t value = 0;
    if (!status && (!strmap_get(&map, "key299", 6, &value) || value != 299)) status = ERR_INVALID;
    strmap_fini(&map);
    return status;
}

static enum status fill_u64map(void *context, struct err *err) {
    (void)context;
    struct u64map map = {0};
    enum status status = u64map_init(&map, 100, err);
    for (uint32_t i = 0; i < 100 && !status; i++) u64map_put(&map, i * 0x9e3779b97f4a7c15u, i);
    u64map_fini(&map);
    return status;
}

static enum status fill_arena(void *context, struct err *err) {
    (void)context;
    struct arena arena = {0};
    enum status status = OK;
    for (int i = 0; i < 20 && !status; i++) {
        if (!arena_strndup(&arena, "text", 4)) status = err_nomem(err, "arena");
        if (!status && !arena_alloc(&arena, 40000)) status = err_nomem(err, "arena");
    }
    arena_fini(&arena);
    return status;
}

static enum status read_json_text(void *context, struct err *err) {
    (void)context;
    static const char text[] =
        "{\"a\": [1, 2.5, \"text\", {\"deep\": null}], \"name\": \"\\u00e9\","
        " \"flag\": true, \"n\": 12}";
    json_t *root = NULL;
    enum status status = jread_text(&root, text, sizeof text - 1, "the text", err);
    int64_t n = 0;
    if (!status) status = jread_int(root, "n", 0, 100, &n, "the text", err);
    const char *name = NULL;
    if (!status) status = jread_string(root, "name", &name, "the text", err);
    json_decref(root);
    return status;
}

// A string of the length in *context. Over all lengths, each character of a token is once the one
// at which jansson's buffer grows.
static enum status read_json_string(void *context, struct err *err) {
    const int *len = context;
    char text[160];
    int used = snprintf(text, sizeof text, "[\"%.*s\"]", *len,
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    json_t *root = NULL;
    enum status status = jread_text(&root, text, (size_t)used, "the text", err);
    if (!status) assert_int_equal(json_string_length(json_array_get(root, 0)), *len);
    json_decref(root);
    return status;
}

static enum status read_json_file(void *context, struct err *err) {
    json_t *root = NULL;
    enum status status = jread_file(&root, context, err);
    json_decref(root);
    return status;
}

// Keys and values that make a growing buffer grow in the middle of each.
static enum status write_json(void *context, struct err *err) {
    json_t *value = context;
    static const char wanted[] =
        "before {\"a\":[1,2.5,null,true],\"a key that is longer\":\"and a value that is\",\"b\":"
        "{\"12345678\":1,\"23456789\":2,\"34567890\":3,\"45678901\":4,\"56789012\":5}}";
    struct buf out = {0};
    enum status status = buf_append_str(&out, "before ", err);
    if (!status) {
        status = jwrite(&out, value, JSON_COMPACT, "a value", err);
        assert_string_equal(out.data, status ? "before " : wanted);
    }
    buf_fini(&out);
    return status;
}

static enum status read_file(void *context, struct err *err) {
    struct buf text = {0};
    enum status status = file_read(&text, context, err);
    buf_fini(&text);
    return status;
}

static void sweep(alloc_sweep_fn work, void *context) {
    size_t num_allocations = alloc_sweep_run(&(struct alloc_sweep){work, context, 0, false});
    assert_true(num_allocations > 0); // the hook is in place and the work allocates
}

static void test_buf(void **state) {
    (void)state;
    sweep(grow_buf, NULL);
}

static void test_strmap(void **state) {
    (void)state;
    sweep(grow_strmap, NULL);
}

static void test_u64map(void **state) {
    (void)state;
    sweep(fill_u64map, NULL);
}

static void test_arena(void **state) {
    (void)state;
    sweep(fill_arena, NULL);
}

static void test_json_text(void **state) {
    (void)state;
    sweep(read_json_text, NULL);
}

static void test_json_strings_of_every_length(void **state) {
    (void)state;
    for (int len = 0; len < 128; len++) {
        alloc_sweep_run(&(struct alloc_sweep){read_json_string, &len, 0, false});
    }
}

static void test_json_file(void **state) {
    (void)state;
    sweep(read_json_file, (void *)(uintptr_t) "models/tiny-qwen3/config.json");
}

static void test_json_writing(void **state) {
    (void)state;
    static const char text[] =
        "{\"a\": [1, 2.5, null, true], \"a key that is longer\": \"and a value that is\", \"b\": "
        "{\"12345678\": 1, \"23456789\": 2, \"34567890\": 3, \"45678901\": 4, \"56789012\": 5}}";
    struct err err = {0};
    json_t *value = NULL;
    assert_int_equal(jread_text(&value, text, sizeof text - 1, "a value", &err), OK);
    sweep(write_json, value);
    json_decref(value);
}

static void test_file_read(void **state) {
    (void)state;
    sweep(read_file, (void *)(uintptr_t) "models/tiny-qwen3/config.json");
}

// A request's JSON that would become too large is refused before anything is allocated for it.
static void test_large_requests_allocate_nothing(void **state) {
    (void)state;
    enum { LISTS = 2 << 20 };
    static char text[3 * LISTS + 2];
    for (size_t i = 0; i < LISTS; i++) memcpy(text + 3 * i, ",{}", 3);
    text[0] = '[';
    text[3 * LISTS] = ']';
    json_t *json = NULL;
    struct err err = {0};
    alloc_hook_reset();
    assert_int_equal(jread_request(&json, text, 3 * LISTS + 1, "this", &err), ERR_UNSUPPORTED);
    assert_int_equal(alloc_hook_count(), 0);
    assert_non_null(strstr(err.message, "this has too many small values: 6291457 bytes of JSON"));
    assert_null(json);
    memset(text + 99, ' ', sizeof text - 99); // 33 values fit
    text[99] = ']';
    assert_int_equal(jread_request(&json, text, 3 * LISTS + 1, "this", &err), OK);
    json_decref(json);
    // Braces inside a string count as text.
    memset(text, '{', sizeof text);
    text[0] = text[3 * LISTS] = '"';
    assert_int_equal(jread_request(&json, text, 3 * LISTS + 1, "this", &err), OK);
    json_decref(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf),       cmocka_unit_test(test_strmap),
        cmocka_unit_test(test_u64map),    cmocka_unit_test(test_arena),
        cmocka_unit_test(test_json_text), cmocka_unit_test(test_json_strings_of_every_length),
        cmocka_unit_test(test_json_file), cmocka_unit_test(test_json_writing),
        cmocka_unit_test(test_file_read), cmocka_unit_test(test_large_requests_allocate_nothing),
    };
    return cmocka_run_group_tests_name("base_faults", tests, NULL, NULL);
}
