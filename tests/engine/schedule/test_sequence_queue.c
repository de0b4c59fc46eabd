// The order of a queue under random insertions and removals, and that no order of priorities makes
// the ways through it long.
#include "engine/schedule/sequence_queue.h"

#include <stdlib.h>

#include "engine/schedule/scheduler_fixture.h"
#include "support/cmocka_all.h"

enum { NUM_SEQS = 20000, NUM_FEW = 64 };

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

// Of the treap below `node`. Recurses as deep as the test allows at most.
static uint32_t height_of(const struct sequence *node, uint32_t limit) {
    if (!node) return 0;
    if (limit == 0) fail_msg("too high");
    uint32_t left = height_of(node->left, limit - 1), right = height_of(node->right, limit - 1);
    return 1 + (left > right ? left : right);
}

// Both directions of the list, and that the treap is a search tree and a heap.
static uint32_t check_treap(const struct sequence *node, const struct sequence **last) {
    if (!node) return 0;
    uint32_t count = check_treap(node->left, last);
    assert_true(!node->left || node->left->queue_key <= node->queue_key);
    assert_true(!node->right || node->right->queue_key <= node->queue_key);
    assert_ptr_equal(node->prev, *last);
    assert_true(!*last || ((*last)->next == node && sequence_comes_before(*last, node)));
    *last = node;
    return count + 1 + check_treap(node->right, last);
}

static void check_queue(const struct sequence_queue *queue) {
    const struct sequence *last = NULL;
    assert_int_equal(check_treap(queue->root, &last), queue->count);
    assert_ptr_equal(queue->tail, last);
    assert_true(!last || !last->next);
    assert_true(queue->count == 0 ? !queue->head : queue->head && !queue->head->prev);
}

static void test_random_changes_keep_the_order(void **state) {
    (void)state;
    static struct sequence seqs[NUM_FEW];
    struct sequence_queue queue = {0};
    uint64_t random = 1;
    for (uint32_t i = 0; i < NUM_FEW; i++) {
        seqs[i] =
            (struct sequence){.arrival = i + 1, .priority = (int32_t)next_random(&random) % 7};
        seqs[i].queue_key = next_random(&random) % 16; // equal keys are legal
    }
    uint32_t count = 0;
    for (int i = 0; i < 20000; i++) {
        struct sequence *seq = &seqs[next_random(&random) % NUM_FEW];
        if (seq->queued) {
            sequence_queue_remove(&queue, seq);
        } else {
            sequence_queue_insert(&queue, seq);
        }
        seq->queued = !seq->queued;
        count += seq->queued ? 1 : UINT32_MAX;
        assert_int_equal(queue.count, count);
        check_queue(&queue);
    }
}

// An insertion or a removal walks one way from the root down, so it costs the height at most. A
// random treap of 20,000 has a height of about 36; a list, or a treap whose keys are in order, one
// of 20,000.
static void check_height(int32_t (*priority_of)(uint32_t i)) {
    struct fixture f;
    fixture_init(&f, (struct scheduler_config){.max_num_seqs = 8});
    struct sequence **seqs = calloc(NUM_SEQS, sizeof *seqs);
    bool *is_child = calloc(NUM_SEQS + 1, sizeof *is_child);
    assert_true(seqs && is_child);
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        const int32_t token = 7;
        assert_int_equal(sequence_create(&seqs[i], i, &token, 1, 1, 4, 1, NULL), OK);
        seqs[i]->priority = priority_of(i);
        assert_int_equal(scheduler_add(f.scheduler, seqs[i], NULL), OK);
    }
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        const struct sequence *seq = seqs[i];
        if (seq->left) is_child[seq->left->arrival] = true;
        if (seq->right) is_child[seq->right->arrival] = true;
    }
    uint32_t num_roots = 0;
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        if (is_child[seqs[i]->arrival]) continue;
        num_roots++;
        assert_in_range(height_of(seqs[i], 100), 15, 100);
    }
    assert_int_equal(num_roots, 1);
    for (uint32_t i = 0; i < NUM_SEQS; i++) scheduler_finish(f.scheduler, seqs[i]);
    for (uint32_t i = 0; i < NUM_SEQS; i++) sequence_destroy(seqs[i]);
    free(seqs);
    free(is_child);
    fixture_fini(&f);
}

static int32_t falling(uint32_t i) {
    return -(int32_t)i;
}

static int32_t rising(uint32_t i) {
    return (int32_t)i;
}

static int32_t equal(uint32_t i) {
    (void)i;
    return 0;
}

static int32_t alternating(uint32_t i) {
    return i % 2 ? (int32_t)i : -(int32_t)i;
}

static void test_no_order_of_priorities_makes_it_high(void **state) {
    (void)state;
    check_height(falling);
    check_height(rising);
    check_height(equal);
    check_height(alternating);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_changes_keep_the_order),
        cmocka_unit_test(test_no_order_of_priorities_makes_it_high),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
