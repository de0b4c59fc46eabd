// How a call of attention is cut: parts of split sequences never need more memory than there is,
// and only parts that a query sees are counted.
#include <stdlib.h>

#include "backend/cpu/attention/attention.h"
#include "backend/ops_util.h"

enum { NUM_SEQS = 8, CONTEXT = 4096, KV_HEADS = 2, GROUP = 2, HEAD_DIM = 64 };

// NUM_SEQS sequences of one token each over a cache that is as long as one of them, as sequences
// that share a prefix are. Returns how many are split; *used is the floats that their parts take.
// Each sequence sees num_parts parts from first_part on.
static uint32_t plan(size_t partials_floats, uint32_t window, uint32_t first_part,
                     uint32_t num_parts, size_t *used) {
    struct backend *backend = ops_backend("scalar", 4, DTYPE_F32);
    struct attention_seq seqs[NUM_SEQS];
    atomic_uint parts_left[NUM_SEQS * KV_HEADS];
    struct kv_cache cache = {
        .seqs = seqs, .parts_left = parts_left, .partials_floats = partials_floats};
    int32_t query_start[NUM_SEQS + 1], context_len[NUM_SEQS];
    for (int i = 0; i <= NUM_SEQS; i++) query_start[i] = i;
    for (int i = 0; i < NUM_SEQS; i++) context_len[i] = CONTEXT;
    const struct step step = {.num_tokens = NUM_SEQS,
                              .num_seqs = NUM_SEQS,
                              .query_start = query_start,
                              .context_len = context_len};
    const struct attention_args args = {.step = &step,
                                        .cache = &cache,
                                        .num_heads = KV_HEADS * GROUP,
                                        .num_kv_heads = KV_HEADS,
                                        .head_dim = HEAD_DIM,
                                        .window = window};
    const struct attention_kernels kernels = {.item_rows = 4, .item_rows_max = 64};
    struct attention_job job = {
        .cpu = cpu_backend_of_const(backend), .kernels = &kernels, .args = &args, .group = GROUP};
    attention_make_plan(&job);
    uint32_t num_split = 0;
    *used = 0;
    for (int i = 0; i < NUM_SEQS; i++) {
        assert_int_equal(seqs[i].first_part, first_part);
        assert_int_equal(seqs[i].num_parts, num_parts);
        if (!seqs[i].is_split) continue;
        assert_true(seqs[i].first_partial == *used); // one after another
        *used += attention_state_floats(GROUP, HEAD_DIM) * seqs[i].num_parts * KV_HEADS;
        num_split++;
    }
    backend_destroy(backend);
    return num_split;
}

static void test_parts_fit_into_the_memory(void **state) {
    (void)state;
    enum { PARTS = (CONTEXT + ATTENTION_PART - 1) / ATTENTION_PART };
    size_t used, of_one = attention_state_floats(GROUP, HEAD_DIM) * KV_HEADS * PARTS;
    assert_int_equal(plan(SIZE_MAX, 0, 0, PARTS, &used), NUM_SEQS);
    assert_int_equal(used, NUM_SEQS * of_one);
    for (uint32_t fit = 0; fit < 4; fit++) {
        assert_int_equal(plan(fit * of_one, 0, 0, PARTS, &used), fit);
        assert_int_equal(plan((fit + 1) * of_one - 1, 0, 0, PARTS, &used), fit);
    }
}

static void test_parts_before_the_window_are_not_counted(void **state) {
    (void)state;
    enum { LAST_PART = (CONTEXT - 1) / ATTENTION_PART };
    size_t used, of_part = attention_state_floats(GROUP, HEAD_DIM) * KV_HEADS;
    assert_int_equal(plan(SIZE_MAX, ATTENTION_PART, LAST_PART, 1, &used), 0);
    assert_int_equal(plan(SIZE_MAX, ATTENTION_PART + 1, LAST_PART - 1, 2, &used), NUM_SEQS);
    assert_int_equal(used, NUM_SEQS * 2 * of_part);
    assert_int_equal(plan(SIZE_MAX, CONTEXT, 0, LAST_PART + 1, &used), NUM_SEQS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_fit_into_the_memory),
        cmocka_unit_test(test_parts_before_the_window_are_not_counted),
    };
    return cmocka_run_group_tests_name("attention_plan", tests, NULL, NULL);
}
