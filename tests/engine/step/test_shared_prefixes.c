// Which rows share a prefix, and how long it is.
#include "engine/step/shared_prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { BLOCK_SIZE = 16, ROWS_MAX = 300, BLOCKS_MAX = 40 };

struct fixture {
    struct shared_prefix_finder finder;
    uint32_t tables[ROWS_MAX][BLOCKS_MAX];
    uint32_t num_rows, next_block;
};

static void init(struct fixture *f, struct shared_prefix_limits limits) {
    memset(f, 0, sizeof *f);
    assert_int_equal(shared_prefix_finder_init(&f->finder, ROWS_MAX, NULL), OK);
    f->finder.limits = limits;
}

// A row of so many blocks; the first `common` are those of row `like`.
static void add_row(struct fixture *f, uint32_t num_blocks, uint32_t like, uint32_t common) {
    uint32_t row = f->num_rows++;
    for (uint32_t i = 0; i < num_blocks; i++) {
        f->tables[row][i] = i < common ? f->tables[like][i] : f->next_block++;
    }
    // Numbers in the step are others than numbers among the rows.
    f->finder.rows[row] = (struct shared_prefix_row){f->tables[row], num_blocks, 1000 - row};
}

static void find(struct fixture *f) {
    f->finder.num_rows = f->num_rows;
    shared_prefix_finder_find(&f->finder, BLOCK_SIZE);
    const struct shared_prefix_finder *found = &f->finder;
    bool is_taken[ROWS_MAX] = {false};
    uint32_t num_seqs = 0;
    assert_in_range(found->num_prefixes, 0, SHARED_PREFIXES_MAX);
    // Whatever was chosen is true: the blocks are the same, and no row has two prefixes.
    for (uint32_t p = 0; p < found->num_prefixes; p++) {
        const struct shared_prefix *prefix = &found->prefixes[p];
        uint32_t num_blocks = prefix->num_positions / BLOCK_SIZE;
        assert_int_equal(prefix->first, num_seqs);
        assert_int_equal(prefix->num_positions % BLOCK_SIZE, 0);
        assert_true(prefix->num_seqs >= found->limits.min_rows);
        assert_true(prefix->num_positions >= found->limits.min_positions);
        assert_true((prefix->num_seqs - 1) * prefix->num_positions >= found->limits.min_saved);
        uint32_t first = 1000 - found->seqs[prefix->first];
        for (uint32_t i = 0; i < prefix->num_seqs; i++) {
            uint32_t row = 1000 - found->seqs[num_seqs + i];
            assert_in_range(row, 0, f->num_rows - 1);
            assert_false(is_taken[row]);
            is_taken[row] = true;
            assert_true(found->rows[row].num_blocks >= num_blocks);
            assert_memory_equal(f->tables[row], f->tables[first], num_blocks * sizeof **f->tables);
        }
        num_seqs += prefix->num_seqs;
    }
    assert_int_equal(found->num_seqs, num_seqs);
}

static void expect(const struct fixture *f, uint32_t p, uint32_t num_seqs, uint32_t num_blocks) {
    assert_true(p < f->finder.num_prefixes);
    assert_int_equal(f->finder.prefixes[p].num_seqs, num_seqs);
    assert_int_equal(f->finder.prefixes[p].num_positions, num_blocks * BLOCK_SIZE);
}

static void fini(struct fixture *f) {
    shared_prefix_finder_fini(&f->finder);
}

static void test_limits(void **state) {
    (void)state;
    // 20 rows with 10 blocks in common. What each limit says is enough, and one more is not.
    const struct {
        struct shared_prefix_limits limits;
        uint32_t num_prefixes;
    } cases[] = {
        {{20, 16, 0}, 1},
        {{21, 16, 0}, 0},
        {{2, 10 * BLOCK_SIZE, 0}, 1},
        {{2, 10 * BLOCK_SIZE + 1, 0}, 0},
        {{2, 16, 19 * 10 * BLOCK_SIZE}, 1},
        {{2, 16, 19 * 10 * BLOCK_SIZE + 1}, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        init(&f, cases[i].limits);
        for (uint32_t row = 0; row < 20; row++) add_row(&f, 12, 0, row ? 10 : 0);
        for (uint32_t row = 0; row < 20; row++) add_row(&f, 12, 0, 0);
        find(&f);
        assert_int_equal(f.finder.num_prefixes, cases[i].num_prefixes);
        if (cases[i].num_prefixes) expect(&f, 0, 20, 10);
        fini(&f);
    }
}

// The limits of a step, as doc/kernels-cuda.md has them: 65,536 positions saved, at least 16 rows.
static void test_limits_of_steps(void **state) {
    (void)state;
    static const struct {
        uint32_t num_rows, num_blocks, num_prefixes; // of 512 positions
    } cases[] = {{16, 9, 1}, {16, 8, 0}, {15, 20, 0}, {129, 1, 1}, {128, 1, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fixture f;
        memset(&f, 0, sizeof f);
        assert_int_equal(shared_prefix_finder_init(&f.finder, ROWS_MAX, NULL), OK);
        for (uint32_t row = 0; row < cases[i].num_rows; row++) {
            add_row(&f, BLOCKS_MAX, 0, row ? cases[i].num_blocks : 0);
        }
        f.finder.num_rows = f.num_rows;
        shared_prefix_finder_find(&f.finder, 512);
        assert_int_equal(f.finder.num_prefixes, cases[i].num_prefixes);
        // Half a block of this size is not enough, however many share it.
        shared_prefix_finder_find(&f.finder, 256);
        if (cases[i].num_blocks == 1) assert_int_equal(f.finder.num_prefixes, 0);
        fini(&f);
    }
}

// One row that leaves the prefix early does not make it short for all others, and one that shares
// more with the first row does not leave out the others.
static void test_the_length_that_saves_most(void **state) {
    (void)state;
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 0});
    add_row(&f, 30, 0, 0);
    add_row(&f, 30, 0, 3);
    for (uint32_t i = 0; i < 8; i++) add_row(&f, 30, 0, 20);
    add_row(&f, 30, 0, 29);
    find(&f);
    assert_int_equal(f.finder.num_prefixes, 1);
    expect(&f, 0, 10, 20);
    fini(&f);
}

// Many rows, each with a length of its own: the one that saves most is found whatever their order.
static void test_many_lengths_in_any_order(void **state) {
    (void)state;
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 0});
    uint32_t nums[BLOCKS_MAX + 1] = {0}, num_seqs = 0, num_blocks = 0;
    for (uint32_t i = 0; i < ROWS_MAX; i++) {
        uint32_t common = i ? 3 + i * i * 7 % 37 : BLOCKS_MAX;
        add_row(&f, BLOCKS_MAX, 0, i ? common : 0);
        nums[common]++;
    }
    for (uint32_t blocks = BLOCKS_MAX, num = 0, most = 0; blocks >= 2; blocks--) {
        num += nums[blocks];
        if ((num - 1) * blocks <= most) continue;
        most = (num - 1) * blocks;
        num_seqs = num;
        num_blocks = blocks;
    }
    find(&f);
    expect(&f, 0, num_seqs, num_blocks);
    // The longest first; of the same length, in the order of rows.
    for (uint32_t i = 1, before = BLOCKS_MAX; i < num_seqs; i++) {
        uint32_t row = 1000 - f.finder.seqs[i], common = 3 + row * row * 7 % 37;
        assert_true(common < before || (common == before && row > 1000 - f.finder.seqs[i - 1]));
        before = common;
    }
    fini(&f);
}

// Rows that a prefix leaves out may have one of their own.
static void test_rows_that_are_left_share_too(void **state) {
    (void)state;
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 0});
    for (uint32_t i = 0; i < 10; i++) add_row(&f, 30, 0, i ? 20 : 0);
    for (uint32_t i = 0; i < 8; i++) add_row(&f, 30, i ? 10 : 0, i ? 15 : 3);
    find(&f);
    assert_int_equal(f.finder.num_prefixes, 2);
    expect(&f, 0, 10, 20);
    expect(&f, 1, 8, 15);
    fini(&f);
}

// Rows that share too little stand before those of a prefix: pairs, and rows that begin as those of
// the prefix do. With many of the latter the search ends, because each is compared with all rows.
static void test_rows_without_a_prefix_come_first(void **state) {
    (void)state;
    static const uint32_t nums_before[] = {1, 6, 200};
    for (size_t n = 0; n < ARRAY_LEN(nums_before); n++) {
        struct fixture f;
        init(&f, (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 23 * 28 * BLOCK_SIZE});
        for (uint32_t i = 0; i < 40; i++) add_row(&f, 30, i - i % 2, i % 2 ? 5 : 0);
        uint32_t first = f.num_rows;
        for (uint32_t i = 0; i < nums_before[n]; i++) add_row(&f, 30, first, i ? 2 : 0);
        uint32_t leader = f.num_rows;
        for (uint32_t i = 0; i < 24; i++) add_row(&f, 30, i ? leader : first, i ? 28 : 2);
        find(&f);
        assert_int_equal(f.finder.num_prefixes, nums_before[n] < 200);
        if (nums_before[n] < 200) expect(&f, 0, 24, 28);
        fini(&f);
    }
}

// A row that has fewer blocks than its table's others can share no more than these.
static void test_only_blocks_that_may_be_shared(void **state) {
    (void)state;
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 0});
    for (uint32_t i = 0; i < 3; i++) add_row(&f, 30, 0, i ? 30 : 0);
    f.finder.rows[2].num_blocks = 25;
    find(&f);
    expect(&f, 0, 3, 25);
    f.finder.rows[2].num_blocks = 1;
    find(&f);
    expect(&f, 0, 2, 30);
    fini(&f);
}

// The same block behind a shorter prefix does not make a longer one.
static void test_one_block_is_not_a_prefix(void **state) {
    (void)state;
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, 4 * BLOCK_SIZE, 0});
    for (uint32_t i = 0; i < 10; i++) add_row(&f, 8, 0, i ? 2 : 0);
    for (uint32_t i = 1; i < 10; i++) f.tables[i][3] = f.tables[0][3];
    find(&f);
    assert_int_equal(f.finder.num_prefixes, 0);
    fini(&f);
}

static void test_nothing_to_share(void **state) {
    (void)state;
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, BLOCK_SIZE, 0});
    find(&f);
    assert_int_equal(f.finder.num_prefixes, 0);
    for (uint32_t i = 0; i < ROWS_MAX; i++) add_row(&f, i % BLOCKS_MAX, 0, 0);
    find(&f);
    assert_int_equal(f.finder.num_prefixes, 0);
    fini(&f);
}

// More prefixes than a step has, with their rows in turns. Then the same rows again: nothing is
// left from the step before.
static void test_many_prefixes(void **state) {
    (void)state;
    enum { PREFIXES = SHARED_PREFIXES_MAX + 3, ROWS = 17 };
    struct fixture f;
    init(&f, (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 0});
    for (uint32_t p = 0; p < PREFIXES; p++) add_row(&f, 20, 0, 0);
    for (uint32_t i = 1; i < ROWS; i++) {
        for (uint32_t p = 0; p < PREFIXES; p++) add_row(&f, 20, p, 3 + p);
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        find(&f);
        assert_int_equal(f.finder.num_prefixes, SHARED_PREFIXES_MAX);
        for (uint32_t p = 0; p < SHARED_PREFIXES_MAX; p++) expect(&f, p, ROWS, 3 + p);
    }
    fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limits_of_steps),
        cmocka_unit_test(test_the_length_that_saves_most),
        cmocka_unit_test(test_many_lengths_in_any_order),
        cmocka_unit_test(test_rows_that_are_left_share_too),
        cmocka_unit_test(test_rows_without_a_prefix_come_first),
        cmocka_unit_test(test_only_blocks_that_may_be_shared),
        cmocka_unit_test(test_one_block_is_not_a_prefix),
        cmocka_unit_test(test_nothing_to_share),
        cmocka_unit_test(test_many_prefixes),
    };
    return cmocka_run_group_tests_name("shared_prefixes", tests, NULL, NULL);
}
