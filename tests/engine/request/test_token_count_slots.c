// Which request has which slot of the token counts: free ones first, then one of a preempted
// request, never one of an active request.
#include "engine/request/token_count_slots.h"

#include "support/cmocka_all.h"

enum { NUM_SLOTS = 3, NUM_REQUESTS = 5 };

struct fixture {
    struct token_count_slots slots;
    struct sequence seqs[NUM_REQUESTS];
    struct request requests[NUM_REQUESTS];
};

// Every request is active.
static void init(struct fixture *f) {
    *f = (struct fixture){0};
    assert_int_equal(token_count_slots_init(&f->slots, NUM_SLOTS, NULL), OK);
    for (int i = 0; i < NUM_REQUESTS; i++) {
        f->seqs[i].status = SEQUENCE_RUNNING;
        f->requests[i].seq = &f->seqs[i];
    }
}

static uint32_t take(struct fixture *f, int i) {
    token_count_slots_take(&f->slots, &f->requests[i]);
    return f->requests[i].counts_slot;
}

static void fill(struct fixture *f) {
    init(f);
    for (int i = 0; i < NUM_SLOTS; i++) take(f, i);
}

static void test_slots_are_told_apart(void **state) {
    (void)state;
    struct fixture f;
    init(&f);
    bool is_taken[NUM_SLOTS + 1] = {false};
    for (int i = 0; i < NUM_SLOTS; i++) {
        uint32_t slot = take(&f, i);
        assert_in_range(slot, 1, NUM_SLOTS); // 0 is no slot
        assert_false(is_taken[slot]);
        is_taken[slot] = true;
    }
    token_count_slots_fini(&f.slots);
}

static void test_a_slot_given_back_is_taken_again(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    uint32_t slot = f.requests[1].counts_slot;
    token_count_slots_give_back(&f.slots, &f.requests[1]);
    assert_int_equal(f.requests[1].counts_slot, 0);
    token_count_slots_give_back(&f.slots, &f.requests[1]); // it has none any more
    token_count_slots_give_back(&f.slots, &f.requests[4]); // nor had this one
    assert_int_equal(take(&f, 3), slot);
    assert_int_equal(f.requests[0].counts_slot + f.requests[2].counts_slot + slot, 1 + 2 + 3);
    token_count_slots_fini(&f.slots);
}

static void test_a_preempted_request_keeps_its_slot_while_one_is_free(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    uint32_t kept = f.requests[0].counts_slot, free_slot = f.requests[2].counts_slot;
    f.seqs[0].status = SEQUENCE_WAITING;
    token_count_slots_give_back(&f.slots, &f.requests[2]);
    assert_int_equal(take(&f, 3), free_slot);
    assert_int_equal(f.requests[0].counts_slot, kept);
    token_count_slots_fini(&f.slots);
}

static void test_the_slot_of_a_preempted_request_is_taken(void **state) {
    (void)state;
    for (int preempted = 0; preempted < NUM_SLOTS; preempted++) {
        struct fixture f;
        fill(&f);
        uint32_t slot = f.requests[preempted].counts_slot;
        f.seqs[preempted].status = SEQUENCE_WAITING;
        assert_int_equal(take(&f, 3), slot);
        assert_int_equal(f.requests[preempted].counts_slot, 0);
        // Its slot is another's now: its end gives nothing back.
        token_count_slots_give_back(&f.slots, &f.requests[preempted]);
        for (int i = 0; i < NUM_SLOTS; i++) {
            if (i != preempted) assert_int_not_equal(f.requests[i].counts_slot, 0);
        }
        // Another one ends, so the preempted one comes back and finds a slot.
        int ends = (preempted + 1) % NUM_SLOTS;
        uint32_t next = f.requests[ends].counts_slot;
        token_count_slots_give_back(&f.slots, &f.requests[ends]);
        f.seqs[preempted].status = SEQUENCE_RUNNING;
        assert_int_equal(take(&f, preempted), next);
        token_count_slots_fini(&f.slots);
    }
}

static void test_every_slot_of_preempted_requests_is_to_be_had(void **state) {
    (void)state;
    struct fixture f;
    fill(&f);
    for (int i = 0; i < NUM_SLOTS; i++) f.seqs[i].status = SEQUENCE_WAITING;
    uint32_t first = take(&f, 3), second = take(&f, 4);
    assert_int_not_equal(first, second);
    int num_left = 0;
    for (int i = 0; i < NUM_SLOTS; i++) num_left += f.requests[i].counts_slot != 0;
    assert_int_equal(num_left, 1);
    token_count_slots_fini(&f.slots);
}

static void test_fini_of_nothing(void **state) {
    (void)state;
    struct token_count_slots slots = {0};
    token_count_slots_fini(&slots);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_are_told_apart),
        cmocka_unit_test(test_a_slot_given_back_is_taken_again),
        cmocka_unit_test(test_a_preempted_request_keeps_its_slot_while_one_is_free),
        cmocka_unit_test(test_the_slot_of_a_preempted_request_is_taken),
        cmocka_unit_test(test_every_slot_of_preempted_requests_is_to_be_had),
        cmocka_unit_test(test_fini_of_nothing),
    };
    return cmocka_run_group_tests_name("token_count_slots", tests, NULL, NULL);
}
