#include "engine/schedule/block_fixture.h"

#include "support/cmocka_all.h"

void block_fixture_init(struct block_fixture *f, uint32_t num_blocks,
                        const struct block_groups *groups) {
    *f = (struct block_fixture){0};
    struct err err;
    assert_int_equal(block_manager_init(&f->manager, num_blocks, BLOCK_SIZE, groups, true, 7, &err),
                     OK);
}

void block_fixture_check(const struct block_fixture *f) {
    const char *fault = block_checks_run(&f->manager, f->seqs, f->num_seqs);
    if (fault) fail_msg("%s", fault);
}

void block_fixture_fini(struct block_fixture *f) {
    block_fixture_check(f);
    for (size_t i = 0; i < f->num_seqs; i++) {
        block_manager_release(&f->manager, f->seqs[i]);
        sequence_destroy(f->seqs[i]);
    }
    assert_int_equal(f->manager.num_free, f->manager.num_blocks);
    block_manager_fini(&f->manager);
}

struct sequence *block_fixture_add_salted(struct block_fixture *f, int32_t first,
                                          uint32_t num_tokens, uint64_t salt) {
    int32_t tokens[256];
    assert_true(num_tokens <= 256 && f->num_seqs < NUM_SEQS_MAX);
    for (uint32_t i = 0; i < num_tokens; i++) tokens[i] = first + (int32_t)i;
    struct sequence *seq;
    struct err err;
    assert_int_equal(sequence_create(&seq, f->num_seqs, tokens, num_tokens, MAX_NEW, BLOCK_SIZE,
                                     f->manager.groups.num_groups, &err),
                     OK);
    seq->cache_salt = salt;
    f->seqs[f->num_seqs++] = seq;
    return seq;
}

struct sequence *block_fixture_add(struct block_fixture *f, int32_t first, uint32_t num_tokens) {
    return block_fixture_add_salted(f, first, num_tokens, 0);
}

uint32_t block_fixture_run(struct block_fixture *f, struct sequence *seq) {
    block_manager_match(&f->manager, seq);
    block_manager_admit(&f->manager, seq);
    uint32_t num_cached = seq->num_computed_tokens;
    assert_true(block_manager_grow(&f->manager, seq, seq->num_tokens));
    seq->num_computed_tokens = seq->num_tokens;
    block_manager_publish(&f->manager, seq);
    block_fixture_check(f);
    return num_cached;
}

uint32_t block_fixture_match(struct block_fixture *f, struct sequence *seq) {
    block_manager_match(&f->manager, seq);
    return seq->num_matched;
}
