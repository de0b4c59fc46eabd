#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

// Every array is made of 4-byte words, so none needs padding.
static void *take(char *base, size_t *offset, size_t count, size_t element_size) {
    void *p = base + *offset;
    *offset += count * element_size;
    return p;
}

struct batch_arrays batch_bind(const struct batch_header *h, void *base) {
    struct batch_arrays a = {0};
    size_t at = 0;
    a.header = take(base, &at, 1, sizeof *a.header);
    a.tokens = take(base, &at, h->num_tokens, sizeof *a.tokens);
    a.positions = take(base, &at, h->num_tokens, sizeof *a.positions);
    a.slot_mapping = take(base, &at, h->num_tokens, sizeof *a.slot_mapping);
    a.query_start = take(base, &at, (size_t)h->num_seqs + 1, sizeof *a.query_start);
    a.context_len = take(base, &at, h->num_seqs, sizeof *a.context_len);
    a.logit_index = take(base, &at, h->num_logits, sizeof *a.logit_index);
    a.rows = take(base, &at, h->num_logits, sizeof *a.rows);
    a.block_tables = take(base, &at, 0, sizeof *a.block_tables);
    a.adjusts = take(base, &at, (size_t)h->first_adjust + h->num_adjusts, sizeof *a.adjusts);
    a.size_bytes = at;
    return a;
}

size_t batch_capacity_bytes(const struct batch_limits *limits) {
    size_t tokens = limits->max_num_tokens, seqs = limits->max_num_seqs;
    return sizeof(struct batch_header) + 3 * tokens * sizeof(int32_t) +
           (2 * seqs + 1 + seqs * limits->max_blocks_per_seq + seqs) * sizeof(int32_t) +
           seqs * sizeof(struct sample_row) +
           ((size_t)limits->max_adjusts + 1) * sizeof(struct sample_adjust);
}

enum status batch_init(struct batch *batch, struct backend *backend,
                       const struct batch_limits *limits, struct err *err) {
    *batch = (struct batch){.capacity_bytes = batch_capacity_bytes(limits)};
    return backend->ops->alloc_host(backend, batch->capacity_bytes, &batch->block, err);
}

void batch_fini(struct batch *batch, struct backend *backend) {
    if (batch->block) backend->ops->release_host(backend, batch->block);
    *batch = (struct batch){0};
}

static struct batch_header count_schedule(const struct schedule *schedule, uint32_t block_size,
                                          batch_sampling_fn sampling_of) {
    struct batch_header h = {0};
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        if (!item->seq) continue;
        uint32_t context_len = item->seq->num_computed_tokens + item->num_tokens;
        uint32_t num_blocks = (context_len + block_size - 1) / block_size;
        h.num_seqs++;
        h.num_tokens += item->num_tokens;
        if (item->num_tokens > h.max_query_len) h.max_query_len = item->num_tokens;
        if (context_len > h.max_context_len) h.max_context_len = context_len;
        if (num_blocks > h.block_table_stride) h.block_table_stride = num_blocks;
        if (!item->needs_token) continue;
        h.num_logits++;
        h.num_adjusts += sampling_of(item->seq)->num_adjusts;
    }
    return h;
}

// Tokens, positions, slots and the block table of one sequence.
static void fill_sequence(const struct batch_arrays *a, uint32_t row, uint32_t first_token,
                          const struct scheduled *item, uint32_t block_size) {
    const struct sequence *seq = item->seq;
    uint32_t start = seq->num_computed_tokens;
    memcpy(a->tokens + first_token, seq->token_ids + start, item->num_tokens * sizeof *a->tokens);
    if (seq->has_pending_token && start + item->num_tokens == seq->num_tokens) {
        a->tokens[first_token + item->num_tokens - 1] = -1 - (int32_t)seq->pending_row;
    }
    for (uint32_t i = 0; i < item->num_tokens; i++) {
        uint32_t position = start + i;
        uint32_t block = seq->block_table[position / block_size];
        a->positions[first_token + i] = (int32_t)position;
        a->slot_mapping[first_token + i] = (int32_t)(block * block_size + position % block_size);
    }
    uint32_t context_len = start + item->num_tokens;
    uint32_t num_blocks = (context_len + block_size - 1) / block_size;
    int32_t *table = a->block_tables + (size_t)row * a->header->block_table_stride;
    uint32_t stride = a->header->block_table_stride;
    memcpy(table, seq->block_table, num_blocks * sizeof *table); // ids are far below 2^31
    for (uint32_t i = num_blocks; i < stride; i++) table[i] = -1;
    a->context_len[row] = (int32_t)context_len;
}

static void fill_row(const struct batch_arrays *a, uint32_t row, uint32_t first_adjust,
                     const struct sequence *seq, const struct sampling *sampling) {
    a->rows[row] = sampling->row;
    a->rows[row].draw = sequence_num_generated(seq);
    a->rows[row].adjust_start = first_adjust;
    a->rows[row].adjust_count = sampling->num_adjusts;
    if (!sampling->num_adjusts) return; // memcpy wants pointers even for nothing
    memcpy(a->adjusts + first_adjust, sampling->adjusts,
           sampling->num_adjusts * sizeof *a->adjusts);
}

static void fill(struct batch *batch, const struct schedule *schedule, struct batch_header header,
                 uint32_t block_size, batch_sampling_fn sampling_of) {
    size_t table_bytes = (size_t)header.num_seqs * header.block_table_stride * sizeof(int32_t);
    header.first_adjust =
        (uint32_t)((table_bytes + sizeof(struct sample_adjust) - 1) / sizeof(struct sample_adjust));
    struct batch_arrays a = batch_bind(&header, batch->block);
    CHECK(a.size_bytes <= batch->capacity_bytes, "%zu > %zu", a.size_bytes, batch->capacity_bytes);
    header.size_bytes = (uint32_t)a.size_bytes;
    *a.header = header;

    uint32_t row = 0, token = 0, logit = 0, adjust = header.first_adjust;
    a.query_start[0] = 0;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        if (!item->seq) continue;
        fill_sequence(&a, row, token, item, block_size);
        token += item->num_tokens;
        a.query_start[++row] = (int32_t)token;
        if (!item->needs_token) continue;
        const struct sampling *sampling = sampling_of(item->seq);
        a.logit_index[logit] = (int32_t)token - 1;
        fill_row(&a, logit++, adjust, item->seq, sampling);
        adjust += sampling->num_adjusts;
    }
    for (; row < header.num_seqs; row++) {
        a.tokens[row] = 0;
        a.positions[row] = 0;
        a.slot_mapping[row] = -1;
        a.query_start[row + 1] = (int32_t)row + 1;
        a.context_len[row] = 0;
        a.logit_index[row] = (int32_t)row;
        a.rows[row] = (struct sample_row){
            .top_p = 1.0f, .num_top = -1, .repetition_penalty = 1.0f, .adjust_start = adjust};
    }
    batch->arrays = a;
}

void batch_build(struct batch *batch, const struct schedule *schedule, uint32_t block_size,
                 batch_sampling_fn sampling_of) {
    struct batch_header header = count_schedule(schedule, block_size, sampling_of);
    fill(batch, schedule, header, block_size, sampling_of);
}

void batch_build_padded(struct batch *batch, const struct schedule *schedule, uint32_t block_size,
                        batch_sampling_fn sampling_of, uint32_t num_rows) {
    struct batch_header header = count_schedule(schedule, block_size, sampling_of);
    CHECK(header.num_seqs <= num_rows && header.num_tokens == header.num_seqs &&
              header.num_logits == header.num_seqs,
          "%u sequences, %u tokens, %u logits for %u rows", header.num_seqs, header.num_tokens,
          header.num_logits, num_rows);
    header.num_seqs = header.num_tokens = header.num_logits = num_rows;
    fill(batch, schedule, header, block_size, sampling_of);
}
