// "did you mean": what counts as one slip, how far a name may be off, and who wins a tie.
#include "base/text/suggest.h"

#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

static const char *const names[] = {"temperature", "top_p", "top_k", "seed", "stop", "max_tokens"};

static void expect(const char *name, const char *nearest) {
    const char *got = suggest_nearest(name, names, ARRAY_LEN(names));
    if (!nearest) {
        assert_null(got);
        return;
    }
    assert_non_null(got);
    assert_string_equal(got, nearest);
}

static void test_one_slip_of_each_kind(void **state) {
    (void)state;
    expect("seed", "seed");
    expect("sed", "seed"); // one missing
    expect("seeed", "seed"); // one too many
    expect("sead", "seed"); // one replaced
    expect("sede", "seed"); // two swapped
}

static void test_longer_names_may_be_further_off(void **state) {
    (void)state;
    expect("tempratrue", "temperature"); // missing e, swapped ur: 2 of 10
    expect("max-tokens", "max_tokens"); // 1 of 10
    expect("maximum_tokn", NULL); // 4 too many, 2 missing: 6 edits are more than 12 / 3
    expect("steed", "seed");
    expect("sd", NULL); // two edits of two letters
    expect("zzzzzz", NULL);
    expect("", NULL);
}

static void test_the_nearer_wins_and_then_the_first(void **state) {
    (void)state;
    expect("top_k", "top_k");
    expect("top_", "top_p"); // one edit from both
    expect("stp", "stop");
}

static void test_the_only_completion_wins(void **state) {
    (void)state;
    expect("temp", "temperature"); // 7 edits away
    expect("max", "max_tokens");
    expect("s", NULL); // of two, and both too far off
    expect("top", "stop"); // of two, so the distance decides
    const char *const nearer[] = {"--temperature", "--tmp"};
    assert_string_equal(suggest_nearest("--temp", nearer, 2), "--temperature");
    const char *const itself[] = {"stop_token_ids", "stop"};
    assert_string_equal(suggest_nearest("stop", itself, 2), "stop");
}

static void test_a_name_of_other_characters_is_not_near(void **state) {
    (void)state;
    const char *const candidates[] = {"n"};
    assert_null(suggest_nearest("", candidates, 1)); // one edit
    assert_null(suggest_nearest("m", candidates, 1));
    assert_string_equal(suggest_nearest("nn", candidates, 1), "n");
}

static void test_names_beyond_the_limit_are_not_compared(void **state) {
    (void)state;
    char longer[65], longest[64];
    memset(longer, 'a', sizeof longer - 1);
    longer[64] = '\0';
    memset(longest, 'a', sizeof longest - 1);
    longest[63] = '\0';
    const char *const candidates[] = {longer, longest};
    assert_null(suggest_nearest(longer, candidates, 2)); // 64 bytes
    assert_ptr_equal(suggest_nearest(longest, candidates, 2), longest);
    assert_null(suggest_nearest("a", candidates, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_slip_of_each_kind),
        cmocka_unit_test(test_longer_names_may_be_further_off),
        cmocka_unit_test(test_the_nearer_wins_and_then_the_first),
        cmocka_unit_test(test_the_only_completion_wins),
        cmocka_unit_test(test_a_name_of_other_characters_is_not_near),
        cmocka_unit_test(test_names_beyond_the_limit_are_not_compared),
    };
    return cmocka_run_group_tests_name("suggest", tests, NULL, NULL);
}
