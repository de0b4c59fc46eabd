// The map from ids to requests, with more requests than its first buckets.
#include "engine/request/request_table.h"

#include "support/cmocka_all.h"

enum { NUM_REQUESTS = 1000 };

struct fixture {
    struct request_table table;
    struct sequence seqs[NUM_REQUESTS];
    struct request requests[NUM_REQUESTS];
};

static struct fixture f;

// Adds requests with ids 1 .. NUM_REQUESTS.
static int fill(void **state) {
    (void)state;
    f = (struct fixture){0};
    for (uint64_t i = 0; i < NUM_REQUESTS; i++) {
        f.seqs[i].id = i + 1;
        f.requests[i].seq = &f.seqs[i];
        if (request_table_add(&f.table, &f.requests[i], NULL)) return -1;
    }
    return 0;
}

static int empty(void **state) {
    (void)state;
    request_table_fini(&f.table);
    return 0;
}

static void test_every_request_is_found_by_its_id(void **state) {
    (void)state;
    assert_int_equal(f.table.count, NUM_REQUESTS);
    for (uint64_t id = 1; id <= NUM_REQUESTS; id++) {
        assert_ptr_equal(request_table_find(&f.table, id), &f.requests[id - 1]);
    }
}

static void test_an_unknown_id_is_not_found(void **state) {
    (void)state;
    assert_null(request_table_find(&f.table, 0));
    assert_null(request_table_find(&f.table, NUM_REQUESTS + 1));
    assert_null(request_table_find(&f.table, UINT64_MAX));
    assert_null(request_table_find(&(struct request_table){0}, 1));
}

static void test_a_removed_request_is_gone_and_no_other(void **state) {
    (void)state;
    for (uint64_t id = 3; id <= NUM_REQUESTS; id += 3) request_table_remove(&f.table, id);
    assert_int_equal(f.table.count, NUM_REQUESTS - NUM_REQUESTS / 3);
    for (uint64_t id = 1; id <= NUM_REQUESTS; id++) {
        const struct request *want = id % 3 ? &f.requests[id - 1] : NULL;
        assert_ptr_equal(request_table_find(&f.table, id), want);
    }
}

static void test_the_table_grows_with_what_is_in_it_alone(void **state) {
    (void)state;
    size_t capacity = f.table.capacity;
    for (uint64_t id = 1; id <= NUM_REQUESTS; id++) {
        request_table_remove(&f.table, id);
        f.seqs[id - 1].id = NUM_REQUESTS + id;
        assert_int_equal(request_table_add(&f.table, &f.requests[id - 1], NULL), OK);
    }
    assert_int_equal(f.table.capacity, capacity);
    assert_ptr_equal(request_table_find(&f.table, NUM_REQUESTS + 1), &f.requests[0]);
}

// Old requests beside new ones may share a bucket. The middle one of three goes first.
static void test_requests_in_one_bucket_are_told_apart(void **state) {
    (void)state;
    struct request_table table = {0};
    struct sequence seqs[3] = {{.id = 1}, {.id = 1 + (1 << 20)}, {.id = 1 + (2 << 20)}};
    struct request requests[3] = {{.seq = &seqs[0]}, {.seq = &seqs[1]}, {.seq = &seqs[2]}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(request_table_add(&table, &requests[i], NULL), OK);
    }
    request_table_remove(&table, seqs[1].id);
    assert_ptr_equal(request_table_find(&table, seqs[0].id), &requests[0]);
    assert_null(request_table_find(&table, seqs[1].id));
    assert_ptr_equal(request_table_find(&table, seqs[2].id), &requests[2]);
    request_table_fini(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_request_is_found_by_its_id, fill, empty),
        cmocka_unit_test_setup_teardown(test_an_unknown_id_is_not_found, fill, empty),
        cmocka_unit_test_setup_teardown(test_a_removed_request_is_gone_and_no_other, fill, empty),
        cmocka_unit_test_setup_teardown(test_the_table_grows_with_what_is_in_it_alone, fill, empty),
        cmocka_unit_test(test_requests_in_one_bucket_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
