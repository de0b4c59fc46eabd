// Which engine of a data-parallel group a request goes to.
#include "engine/data_parallel/request_router.h"

#include <string.h>

#include "support/cmocka_all.h"

enum { BLOCK = 16, PROMPT = 6 * BLOCK + 1 };

struct fixture {
    struct request_router router;
    uint64_t loads[4];
    int32_t a[PROMPT], b[PROMPT]; // prompts without a common block
};

static void make(struct fixture *f, uint64_t num_blocks) {
    *f = (struct fixture){0};
    assert_int_equal(request_router_init(&f->router, 4, BLOCK, num_blocks, 1, NULL), OK);
    for (int32_t i = 0; i < PROMPT; i++) {
        f->a[i] = i;
        f->b[i] = 1000 + i;
    }
}

static uint32_t choose(const struct fixture *f, const int32_t *ids, uint32_t num_ids,
                       uint64_t salt) {
    return request_router_choose(&f->router, f->loads, ids, num_ids, salt);
}

static void set_loads(struct fixture *f, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint64_t loads[4] = {a, b, c, d};
    memcpy(f->loads, loads, sizeof loads);
}

static void test_the_least_loaded_engine_of_equals_the_first(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1000);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    set_loads(&f, 7, 5, 5, 9);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 1);
    set_loads(&f, 7, 5, 5, 0);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 3);
    request_router_fini(&f.router);
}

static void test_a_prompt_goes_where_its_beginning_is(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1000);
    request_router_note(&f.router, 2, f.a, PROMPT, 0);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 2);
    assert_int_equal(choose(&f, f.b, PROMPT, 0), 0);
    f.a[3 * BLOCK] = 77; // the first three blocks are the same
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 2);
    f.a[0] = 77;
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    request_router_fini(&f.router);
}

static void test_the_longest_beginning_wins(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1000);
    request_router_note(&f.router, 3, f.a, 4 * BLOCK + 1, 0);
    request_router_note(&f.router, 1, f.a, 2 * BLOCK + 1, 0);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 3);
    assert_int_equal(choose(&f, f.a, 2 * BLOCK + 1, 0), 1); // both have it all: the first
    request_router_fini(&f.router);
}

// A cached token is worth a token that waits: a common beginning does not draw all requests to one.
static void test_a_beginning_is_worth_its_tokens(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1000);
    request_router_note(&f.router, 2, f.a, PROMPT, 0);
    set_loads(&f, 0, 9, 6 * BLOCK - 1, 9);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 2);
    set_loads(&f, 0, 9, 6 * BLOCK + 1, 9);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    request_router_fini(&f.router);
}

static void test_the_last_token_is_computed_anyway(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1000);
    request_router_note(&f.router, 2, f.a, BLOCK, 0); // no block that a cache could give
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    assert_int_equal(choose(&f, f.a, 0, 0), 0);
    request_router_fini(&f.router);
}

static void test_salts_and_secrets_separate(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1000);
    request_router_note(&f.router, 2, f.a, PROMPT, 5);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    assert_int_equal(choose(&f, f.a, PROMPT, 5), 2);
    f.router.secret = 2;
    assert_int_equal(choose(&f, f.a, PROMPT, 5), 0);
    request_router_fini(&f.router);
}

static void test_without_a_prefix_cache_only_loads_count(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 0);
    request_router_note(&f.router, 2, f.a, PROMPT, 0);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    set_loads(&f, 2, 1, 2, 2);
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 1);
    request_router_fini(&f.router);
}

// The table is of a fixed size: what it forgets, it forgets whole.
static void test_old_beginnings_are_forgotten(void **state) {
    (void)state;
    struct fixture f;
    make(&f, 1);
    request_router_note(&f.router, 2, f.a, PROMPT, 0);
    for (int32_t i = 0; i < 2000; i++) {
        f.b[0] = i;
        request_router_note(&f.router, 1, f.b, PROMPT, 0);
    }
    assert_int_equal(choose(&f, f.a, PROMPT, 0), 0);
    assert_int_equal(choose(&f, f.b, PROMPT, 0), 1);
    request_router_fini(&f.router);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_loaded_engine_of_equals_the_first),
        cmocka_unit_test(test_a_prompt_goes_where_its_beginning_is),
        cmocka_unit_test(test_the_longest_beginning_wins),
        cmocka_unit_test(test_a_beginning_is_worth_its_tokens),
        cmocka_unit_test(test_the_last_token_is_computed_anyway),
        cmocka_unit_test(test_salts_and_secrets_separate),
        cmocka_unit_test(test_without_a_prefix_cache_only_loads_count),
        cmocka_unit_test(test_old_beginnings_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
