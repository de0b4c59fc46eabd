/* The slots of snapshots of states: which one a step takes, and that it takes none that it uses. */
#include "engine/schedule/snapshots.h"

#include "support/cmocka_all.h"

static uint32_t take(struct snapshots *snapshots, uint32_t want_prefix) {
    uint32_t prefix = 0, slot = snapshots_take(snapshots, &prefix);
    assert_int_equal(prefix, want_prefix);
    if (slot != SNAPSHOT_NONE) snapshots->slots[slot].prefix = 100 + slot;
    return slot;
}

static void test_the_least_recently_used_is_taken(void **state) {
    (void)state;
    struct snapshots snapshots;
    assert_int_equal(snapshots_init(&snapshots, 3, NULL), OK);
    for (uint32_t i = 0; i < 3; i++) {
        snapshots_begin_step(&snapshots);
        assert_int_equal(take(&snapshots, UINT32_MAX), i);
    }
    snapshots_begin_step(&snapshots);
    snapshots_use(&snapshots, 0);
    snapshots_begin_step(&snapshots);
    assert_int_equal(take(&snapshots, 101), 1); // slot 0 was read later
    snapshots_begin_step(&snapshots);
    assert_int_equal(take(&snapshots, 102), 2);
    snapshots_begin_step(&snapshots);
    snapshots_free(&snapshots, 2); // a free one comes before those that are known
    assert_int_equal(take(&snapshots, UINT32_MAX), 2);
    snapshots_fini(&snapshots);
}

static void test_what_a_step_uses_is_not_taken(void **state) {
    (void)state;
    struct snapshots snapshots;
    assert_int_equal(snapshots_init(&snapshots, 2, NULL), OK);
    assert_int_equal(take(&snapshots, UINT32_MAX), 0);
    snapshots_free(&snapshots, 0); // its sequence has ended, but the step may still write it
    snapshots_use(&snapshots, 1);
    assert_int_equal(take(&snapshots, UINT32_MAX), SNAPSHOT_NONE);
    snapshots_begin_step(&snapshots);
    assert_int_equal(take(&snapshots, UINT32_MAX), 0);
    snapshots_fini(&snapshots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_recently_used_is_taken),
        cmocka_unit_test(test_what_a_step_uses_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
