/* The flat batch: the input of one step (backend.h, struct step) as one array of 32-bit words. So
 * the same bytes are uploaded to a device and read by other ranks:
 *
 *   header
 *   tokens positions: [num_tokens] each, slot_mapping [num_kv_groups][num_tokens]
 *   query_start [num_seqs + 1], context_len table_row state_row: [num_seqs] each
 *   logit_index rows: [num_logits] each
 *   tail: table_runs [num_table_runs], table_blocks [num_table_blocks], biases [num_biases],
 *         prompt_index prompt_rows: [num_prompt_logits] each, pool_index [num_pooled],
 *         snapshot_token snapshot_slot: [num_snapshots] each, of shared prefixes, if there are any:
 *         prefix_of [num_seqs] and seqs [num_shared_seqs], masks
 *
 * The header's counts say where the arrays are, and batch_bind finds them in any copy. The numbers
 * in the tail change from step to step, so these arrays come last.
 *
 * Each rank keeps the block tables of all active sequences, one in each row (sequence.h,
 * table_row). A batch has only the entries that its sequences' rows lack: a new block, or the whole
 * table after an admission. So every rank must run every batch, in order.
 *
 * On a device that records steps, a token with drafts behind it comes as many sequences of one
 * token each (backend.h, struct step). So steps of decodes with drafts are recorded too.
 *
 * Rows count their biases and masks from the tail's start. So a recorded step finds every array at
 * the same address whenever the number of sequences is the same.
 *
 * A mask may depend on a token that the step before is still sampling, and a form's may take long.
 * The batch is launched without such late masks, and batch_write_late_masks makes them while the
 * forward pass runs. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "base/thread/thread_pool.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/sampling.h"
#include "engine/step/shared_prefixes.h"

struct batch_header {
    uint32_t num_tokens;
    uint32_t num_seqs;
    uint32_t num_kv_groups;
    uint32_t num_logits;
    uint32_t num_biases, num_masks;
    uint32_t num_late_masks; // of the masks
    uint32_t first_bias, first_mask; // in entries of their kind from the tail's start
    uint32_t num_prompt_logits, num_pooled, num_snapshots;
    uint32_t first_prompt; // prompt_index in 32-bit words from the tail's start
    uint32_t num_table_runs, num_table_blocks;
    uint32_t num_shared, num_shared_seqs; // shared prefixes, and sequences of all of them
    struct shared_prefix shared[SHARED_PREFIXES_MAX];
    uint32_t max_query_len, max_context_len;
    uint32_t num_prompts, prompt_positions; // as in struct step
    uint32_t size_bytes; // of header, arrays and tail
    uint32_t masks_at; // offset of the masks in bytes; they are the last in the batch
};

// The step whose arrays are in the copy at `base`. Reads only `header`, so `base` may be device
// memory. The result has no `previous`, and no block tables.
struct step batch_bind(const struct batch_header *header, void *base);
// The entries of the block tables `tables` that the batch changes.
struct update_tables_args batch_table_update(const struct batch_header *header, void *base,
                                             int32_t *tables);

// Bytes of a batch that its launch needs: all but late masks, which come last.
static inline size_t batch_launch_bytes(const struct batch_header *header) {
    return header->num_late_masks ? header->masks_at : header->size_bytes;
}

struct batch {
    struct batch_header *header; // host [capacity_bytes]
    size_t capacity_bytes;
    uint32_t num_kv_groups;
    uint32_t mask_words; // of one row's mask
    uint32_t table_rows, table_stride; // of a KV group's block tables
    bool *is_late; // [max_num_seqs]: the mask of this logit row is late
    struct late_row {
        uint32_t item, row; // of the schedule; of logits
    } * late_rows; // [max_num_seqs] for batch_write_late_masks
    struct shared_prefix_finder finder;
    bool shares_prefixes; // steps have their shared prefixes. The caller sets it
    bool splits_drafts; // a token with drafts is several sequences
    bool forms_are_late; // all masks of forms are late: threads share them. The caller sets it
    bool is_borrowed; // the caller of batch_init owns the memory
};

// `block`: memory [batch_capacity_bytes], borrowed. NULL: batch_init allocates it on the host.
MUST_USE enum status batch_init(struct batch *batch, struct backend *backend,
                                const struct step_limits *limits, uint32_t vocab_size, void *block,
                                struct err *err);
void batch_fini(struct batch *batch, struct backend *backend); // all-zero is fine
// SIZE_MAX: more than a batch can have.
size_t batch_capacity_bytes(const struct step_limits *limits, uint32_t vocab_size);

// How a scheduled sequence is sampled.
struct batch_row {
    struct sampling *sampling;
    uint32_t counts_slot; // as in sample_row
};

// How this sequence is sampled. Asked for items with needs_token or num_prompt_rows.
typedef struct batch_row (*batch_row_fn)(const struct sequence *seq);

// Fills the batch from a schedule. An item with needs_token has scheduled_num_rows rows of logits,
// behind those of the items before it. The row behind a draft is sampled as if the draft were the
// output's: with its number, its mask and the draw of that place.
// The prompt rows are those of the items' num_prompt_rows, in order; the pooled rows are the last
// num_pooled tokens of each item. Token id -1-r stands for a pending token, sampled in row r of the
// step before. padded_seqs is 0, or, for a schedule of decodes alone, how many sequences the step
// is to have, drafts included. The added ones have no context, write no KV slot, and their samples
// are ignored.
//
// num_sent of the sequences counts what the batch brings, so a batch that was built must be
// launched. nano-vllm: prepare_prefill, prepare_decode and prepare_block_tables.
void batch_build(struct batch *batch, const struct schedule *schedule, uint32_t block_size,
                 batch_row_fn row_of, uint32_t padded_seqs);
// With num_late_masks: makes these masks, once the tokens that were pending at batch_build have
// come. One that has not is of a sequence that was aborted. The pool's threads share the masks.
// Without a pool (NULL) the caller makes them all.
void batch_write_late_masks(struct batch *batch, const struct schedule *schedule,
                            batch_row_fn row_of, struct thread_pool *pool);

#endif
