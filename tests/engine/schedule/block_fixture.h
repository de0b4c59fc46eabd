/* A block manager with its sequences: what its unit tests share. */
#ifndef ENGINE_BLOCK_FIXTURE_H
#define ENGINE_BLOCK_FIXTURE_H

#include "engine/schedule/block_checks.h"
#include "engine/schedule/block_manager.h"

enum { BLOCK_SIZE = 4, MAX_NEW = 64, NUM_SEQS_MAX = 8 };

struct block_fixture {
    struct block_manager manager;
    struct sequence *seqs[NUM_SEQS_MAX];
    size_t num_seqs;
};

// With a prefix cache.
void block_fixture_init(struct block_fixture *f, uint32_t num_blocks,
                        const struct block_groups *groups);
void block_fixture_check(const struct block_fixture *f);
void block_fixture_fini(struct block_fixture *f); // checks that no block is left

// A sequence whose tokens are first, first + 1, ...
struct sequence *block_fixture_add_salted(struct block_fixture *f, int32_t first,
                                          uint32_t num_tokens, uint64_t salt);
struct sequence *block_fixture_add(struct block_fixture *f, int32_t first, uint32_t num_tokens);
// Matches, admits, computes all known tokens and publishes. Returns how many tokens were cached.
uint32_t block_fixture_run(struct block_fixture *f, struct sequence *seq);
uint32_t block_fixture_match(struct block_fixture *f, struct sequence *seq);

#endif
