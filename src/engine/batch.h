/* Everything one forward pass is told, in ONE flat block of 32-bit words, so that the same bytes
 * are uploaded to a device and sent to other ranks:
 *
 *   header
 *   tokens positions slot_mapping: [num_tokens] each
 *   query_start [num_seqs + 1], context_len [num_seqs]
 *   logit_index rows: [num_logits] each
 *   tail: block_tables [num_seqs][block_table_stride], adjusts [num_adjusts]
 *
 * The arrays lie where the header's counts put them; batch_bind finds them again from any copy. The
 * stride and the adjusts change from step to step, so they move nothing but the tail's inside: a
 * recorded step of so many rows finds everything at the same address. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"
#include "engine/sampling.h"
#include "engine/scheduler.h"

struct batch_header {
    uint32_t num_tokens;
    uint32_t num_seqs;
    uint32_t num_logits;
    uint32_t num_adjusts;
    uint32_t first_adjust; // index of the first one, counted from the tail's start
    uint32_t block_table_stride; // blocks of the longest sequence in the batch
    uint32_t max_query_len, max_context_len;
    uint32_t size_bytes; // of the whole block as used
};

// Pointers into one copy of the block; shapes as in the file head.
struct batch_arrays {
    struct batch_header *header;
    int32_t *tokens, *positions, *slot_mapping;
    int32_t *query_start, *context_len, *block_tables, *logit_index;
    struct sample_row *rows;
    struct sample_adjust *adjusts; // the tail's start, from which adjust_start counts
    size_t size_bytes;
};

// Lays the arrays out behind `base` by the header's counts; `base` itself is not read, so it may be
// device memory.
struct batch_arrays batch_bind(const struct batch_header *header, void *base);

struct batch {
    void *block; // host [capacity_bytes], from the backend
    size_t capacity_bytes;
    struct batch_arrays arrays; // of the batch built last
};

struct batch_limits {
    uint32_t max_num_tokens, max_num_seqs;
    uint32_t max_blocks_per_seq;
    uint32_t max_adjusts; // over all rows
};

MUST_USE enum status batch_init(struct batch *batch, struct backend *backend,
                                const struct batch_limits *limits, struct err *err);
void batch_fini(struct batch *batch, struct backend *backend); // all-zero is fine
size_t batch_capacity_bytes(const struct batch_limits *limits);

// The sampling state of a scheduled sequence; the engine knows how to find it.
typedef const struct sampling *(*batch_sampling_fn)(const struct sequence *seq);

// Fills the batch from a schedule; items whose seq is NULL (aborted) are left out. Row i of the
// logits belongs to the i-th item with needs_token. A pending token is -1 - its row.
void batch_build(struct batch *batch, const struct schedule *schedule, uint32_t block_size,
                 batch_sampling_fn sampling_of);
// The same for a schedule of decodes alone, in the layout of a recorded step: num_rows sequences of
// one token each. Those beyond the schedule's have no context,
// write no slot and are sampled greedily for nobody.
void batch_build_padded(struct batch *batch, const struct schedule *schedule, uint32_t block_size,
                        batch_sampling_fn sampling_of, uint32_t num_rows);

#endif
