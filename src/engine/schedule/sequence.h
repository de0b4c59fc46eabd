/* One output of a request inside the scheduler: its tokens, its KV blocks, its state.
 *
 * All its memory is allocated when it is created, so that the step loop never allocates. token_ids
 * has places for prompt + max_tokens, block_table and block_hashes for the blocks of all these
 * tokens but the last.
 *
 *   token_ids:  [ prompt ........ | generated ...... | unused ]
 *                                 ^num_prompt_tokens ^num_tokens   ^num_tokens_max
 *   Drafts of the tokens that follow stand at the beginning of `unused` while a step is built.
 *   KV computed: [0, num_computed_tokens); this step computes num_scheduled_tokens more. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum sequence_status { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_FINISHED };

#define SEQUENCE_UNSCHEDULED UINT32_MAX
#define BLOCK_NONE UINT32_MAX // in a block table: no block

// What each step reads of each sequence stands first, in few cache lines: with many sequences the
// caches hold little else from step to step.
struct sequence {
    uint64_t id; // its request's; outputs of one request share it
    struct sequence *prev, *next; // in its queue (`queued`); NULL outside
    void *user; // the engine's per-request data; the scheduler never looks
    int32_t *token_ids; // [num_tokens_max]
    uint32_t num_tokens;
    uint32_t num_prompt_tokens;
    uint32_t num_tokens_max; // num_prompt_tokens + tokens it may generate
    uint32_t num_computed_tokens; // whose KV is in the cache
    uint32_t num_scheduled_tokens; // in the step being run, without drafts; 0 outside
    uint32_t num_cached_tokens; // found in the prefix cache at its first admission
    uint32_t num_preemptions;
    uint32_t schedule_index; // of its item in the current schedule, or SEQUENCE_UNSCHEDULED
    enum sequence_status status;
    // The last token is pending: the launched step samples it, so it counts but its id is not
    // known.
    bool has_pending_token;
    // All tokens but those that a form demanded were computed since its admission: it decodes.
    bool is_prefilled;
    bool queued; // a scheduler has it, in waiting or running as status says
    uint32_t pending_row; // the row of that step's results that will have the id

    // A full block's id may change once, in the scheduler_advance that follows. If its content is
    // cached already, the sequence gives its block back and shares the cached one.
    // One table for each KV group (block_groups.h): [num_kv_groups][num_blocks_max] block ids. Of
    // each, [first_blocks[group], num_blocks) are held, and BLOCK_NONE is before them.
    uint32_t *block_table;
    uint32_t *first_blocks; // [num_kv_groups]
    uint64_t *block_hashes; // [num_blocks_max] chain hash of each full block, [0, num_hashes) known
    uint32_t num_kv_groups;
    uint32_t num_blocks; // entries of each table
    // While it holds blocks: which row of the devices' block tables it has, and which slot for
    // states of recurrent layers. No other sequence that holds blocks has the same.
    uint32_t table_row;
    uint32_t num_sent; // leading entries of each table that the row has (batch.h)
    uint32_t num_hashes;
    uint32_t num_published; // leading entries whose tokens are a known prefix: `prefix`
    uint32_t prefix; // id in block_manager; meaningful with num_published > 0
    uint32_t num_blocks_max;

    uint64_t cache_salt; // starts the hash chain; 0: the common salt; set before scheduler_add
    int32_t priority; // the lower, the more important; set before scheduler_add
    uint32_t num_deferrals; // steps it waited for a block that another sequence was computing
    uint64_t arrival; // number of its scheduler_add, from 1: no other sequence has it
    struct sequence *left, *right; // in the queue's treap (sequence_queue.h)
    uint64_t queue_key; // the treap's random number
    bool was_scheduled; // num_cached_tokens is set
    // It generates nothing: its answer is made of its prompt's hidden states, and takes the place
    // of a pending token until the caller finishes it. Set before scheduler_add.
    bool is_pooled;
    bool skips_cache; // it reads no cached prefix: every token of its prompt is to be computed
    bool is_origin; // another output has it as its origin; set before its prompt is computed
    // Output 0 of the request, if this is another output. It was added before and lives as long.
    // This sequence waits until origin's prompt is computed and shares its full blocks. Set before
    // scheduler_add.
    const struct sequence *origin;

    // While it holds no blocks, [0, num_matched) of its tables is what the last block_manager_match
    // found: in the cache or, without one, in its origin's tables. `prefix` may be longer, and is
    // still known if its serial is still match_serial.
    uint32_t num_matched;
    uint64_t match_serial;
};

// Copies the prompt. num_prompt_tokens, max_new_tokens, block_size, num_kv_groups >= 1, else
// ERR_INVALID.
MUST_USE enum status sequence_create(struct sequence **out, uint64_t id, const int32_t *prompt,
                                     uint32_t num_prompt_tokens, uint32_t max_new_tokens,
                                     uint32_t block_size, uint32_t num_kv_groups, struct err *err);
void sequence_destroy(struct sequence *seq); // NULL is fine; must hold no blocks and be in no queue

// Who is served first; the other one is preempted first.
static inline bool sequence_comes_before(const struct sequence *a, const struct sequence *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

static inline uint32_t *sequence_table(const struct sequence *seq, uint32_t kv_group) {
    return seq->block_table + (size_t)kv_group * seq->num_blocks_max;
}

static inline uint32_t sequence_num_generated(const struct sequence *seq) {
    return seq->num_tokens - seq->num_prompt_tokens;
}

static inline const int32_t *sequence_generated(const struct sequence *seq) {
    return seq->token_ids + seq->num_prompt_tokens;
}

// Tokens whose ids are known.
static inline uint32_t sequence_num_known(const struct sequence *seq) {
    return seq->num_tokens - seq->has_pending_token;
}

// Most tokens whose KV it needs. The last token's KV is never read.
static inline uint32_t sequence_num_kv_tokens_max(const struct sequence *seq) {
    return seq->num_tokens_max - 1;
}

// It has all tokens that it may have. The last one may be pending.
static inline bool sequence_is_full(const struct sequence *seq) {
    return seq->num_tokens == seq->num_tokens_max;
}

// Its origin has yet to compute their prompt.
static inline bool sequence_waits_for_origin(const struct sequence *seq) {
    const struct sequence *origin = seq->origin;
    return origin && origin->status != SEQUENCE_FINISHED &&
           origin->num_computed_tokens < origin->num_prompt_tokens;
}

// Tokens whose KV is not in the cache.
static inline uint32_t sequence_num_uncomputed(const struct sequence *seq) {
    return seq->num_tokens - seq->num_computed_tokens;
}

#endif
