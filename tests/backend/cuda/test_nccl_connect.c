// NCCL's start, by a library of ours: it needs no GPU. A start that never ends is left behind once
// a rank is lost, and what it makes later is ended.
#include <string.h>
#include <unistd.h>

#include "backend/cuda/ranks/nccl.h"
#include "support/cmocka_all.h"

static atomic_int is_held, num_ended;
static atomic_uint has_failed;
static int init_result;
static char communicator_bytes;

static struct nccl_communicator *communicator(void) {
    return (struct nccl_communicator *)(void *)&communicator_bytes;
}

static int fake_init_rank(struct nccl_communicator **out, int num_ranks, struct nccl_id id,
                          int rank) {
    assert_int_equal(num_ranks, 4);
    assert_int_equal(rank, 3);
    assert_string_equal(id.bytes, "the group");
    while (atomic_load(&is_held)) usleep(1000);
    *out = communicator();
    return init_result;
}

static int fake_end(struct nccl_communicator *ended) {
    assert_ptr_equal(ended, communicator());
    atomic_fetch_add(&num_ended, 1);
    return 0;
}

static const char *fake_error_string(int result) {
    assert_int_equal(result, 6);
    return "remote error";
}

static enum status connect_ranks(struct nccl *nccl, struct err *err) {
    const struct nccl_id id = {"the group"};
    *nccl = (struct nccl){.library = {.error_string = fake_error_string,
                                      .init_rank = fake_init_rank,
                                      .end = fake_end}};
    return nccl_connect(nccl, &id, 3, 4, &has_failed, err);
}

static void test_ranks_are_connected(void **state) {
    (void)state;
    struct nccl nccl;
    assert_int_equal(connect_ranks(&nccl, NULL), OK);
    assert_ptr_equal(atomic_load(&nccl.communicator), communicator());
    nccl_close(&nccl);
    assert_int_equal(atomic_load(&num_ended), 1);
}

static void test_an_error_is_reported(void **state) {
    (void)state;
    struct nccl nccl;
    struct err err = {0};
    init_result = 6;
    assert_int_equal(connect_ranks(&nccl, &err), ERR_DEVICE);
    init_result = 0;
    assert_string_equal(err.message, "NCCL: connecting ranks: remote error");
    assert_null(atomic_load(&nccl.communicator));
}

static void test_a_lost_rank_ends_the_wait(void **state) {
    (void)state;
    struct nccl nccl;
    struct err err = {0};
    int ended_before = atomic_load(&num_ended);
    atomic_store(&is_held, 1);
    atomic_store(&has_failed, 1);
    assert_int_equal(connect_ranks(&nccl, &err), ERR_DEVICE);
    assert_string_equal(err.message, "another rank was lost while NCCL connected the ranks");
    assert_null(atomic_load(&nccl.communicator));
    assert_int_equal(atomic_load(&num_ended), ended_before);
    atomic_store(&is_held, 0); // NCCL returns after all
    while (atomic_load(&num_ended) == ended_before) usleep(1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_connected),
        cmocka_unit_test(test_an_error_is_reported),
        cmocka_unit_test(test_a_lost_rank_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
