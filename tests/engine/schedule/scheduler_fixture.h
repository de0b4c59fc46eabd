/* A scheduler with its sequences, and a model that is not there: what the scheduler's unit tests
 * share. */
#ifndef ENGINE_SCHEDULER_FIXTURE_H
#define ENGINE_SCHEDULER_FIXTURE_H

#include "engine/schedule/scheduler.h"

enum { FIXTURE_SEQS_MAX = 16 };

struct fixture {
    struct scheduler *scheduler;
    struct scheduler_config config;
    struct schedule schedule; // of the last fixture_schedule
    struct sequence *seqs[FIXTURE_SEQS_MAX]; // [num_seqs], also finished ones
    uint32_t num_seqs;
    int32_t priority; // of those that fixture_add adds
    const struct sequence *origin; // of these too; NULL: none
};

// Fields of the config that are 0 become: 64 seqs, 64 tokens, 64 blocks of 4 tokens.
void fixture_init(struct fixture *f, struct scheduler_config config);
// Takes everything out, checks that no block is left, destroys.
void fixture_fini(struct fixture *f);

// Adds a request whose tokens are first, first + 1, ...: equal firsts make equal prefixes.
struct sequence *fixture_add(struct fixture *f, int32_t first, uint32_t num_prompt_tokens,
                             uint32_t max_new_tokens);
// schedule, and the block invariants.
void fixture_schedule(struct fixture *f);
// advance, a token for everyone who needs one, finish of those that have all theirs.
void fixture_complete(struct fixture *f);
// Both; returns the step's number of tokens.
uint32_t fixture_step(struct fixture *f);
// Steps until nothing is unfinished; returns the number of steps. Fails after `limit`.
uint32_t fixture_run(struct fixture *f, uint32_t limit);

#endif
