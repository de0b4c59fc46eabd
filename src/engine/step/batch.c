#include "engine/step/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/draft/draft_options.h"
#include "engine/params/params.h"

// Every array is made of 4-byte words, so none needs padding.
static void *take(char *base, size_t *offset, size_t count, size_t element_size) {
    void *p = base + *offset;
    *offset += count * element_size;
    return p;
}

static size_t num_prefix_of(const struct batch_header *h) {
    return h->num_shared ? h->num_seqs : 0;
}

struct step batch_bind(const struct batch_header *h, void *base) {
    struct step s = {
        .num_tokens = h->num_tokens,
        .num_seqs = h->num_seqs,
        .num_logits = h->num_logits,
        .num_prompt_logits = h->num_prompt_logits,
        .num_pooled = h->num_pooled,
        .num_snapshots = h->num_snapshots,
        .group_tokens = h->num_tokens,
        .max_query_len = h->max_query_len,
        .max_context_len = h->max_context_len,
        .num_prompts = h->num_prompts,
        .prompt_positions = h->prompt_positions,
        .shared.num = h->num_shared,
    };
    memcpy(s.shared.list, h->shared, sizeof s.shared.list);
    size_t at = 0;
    take(base, &at, 1, sizeof *h);
    s.tokens = take(base, &at, h->num_tokens, sizeof *s.tokens);
    s.positions = take(base, &at, h->num_tokens, sizeof *s.positions);
    s.slot_mapping =
        take(base, &at, (size_t)h->num_kv_groups * h->num_tokens, sizeof *s.slot_mapping);
    s.query_start = take(base, &at, (size_t)h->num_seqs + 1, sizeof *s.query_start);
    s.context_len = take(base, &at, h->num_seqs, sizeof *s.context_len);
    s.table_row = take(base, &at, h->num_seqs, sizeof *s.table_row);
    s.state_row = take(base, &at, h->num_seqs, sizeof *s.state_row);
    s.logit_index = take(base, &at, h->num_logits, sizeof *s.logit_index);
    s.rows = take(base, &at, h->num_logits, sizeof *s.rows);
    s.biases = take(base, &at, 0, sizeof *s.biases);
    s.masks = take(base, &at, 0, sizeof *s.masks); // rows count from the tail's start
    at += (size_t)h->first_prompt * sizeof(uint32_t);
    s.prompt_index = take(base, &at, h->num_prompt_logits, sizeof *s.prompt_index);
    s.prompt_rows = take(base, &at, h->num_prompt_logits, sizeof *s.prompt_rows);
    s.pool_index = take(base, &at, h->num_pooled, sizeof *s.pool_index);
    s.snapshot_token = take(base, &at, h->num_snapshots, sizeof *s.snapshot_token);
    s.snapshot_slot = take(base, &at, h->num_snapshots, sizeof *s.snapshot_slot);
    s.shared.prefix_of = take(base, &at, num_prefix_of(h), sizeof *s.shared.prefix_of);
    s.shared.seqs = take(base, &at, h->num_shared_seqs, sizeof *s.shared.seqs);
    return s;
}

// Bytes from the batch's start to the tail's.
static size_t tail_at(const struct batch_header *h) {
    return sizeof *h + (2 + (size_t)h->num_kv_groups) * h->num_tokens * sizeof(int32_t) +
           (4 * (size_t)h->num_seqs + 1) * sizeof(int32_t) +
           h->num_logits * (sizeof(int32_t) + sizeof(struct sample_row));
}

struct update_tables_args batch_table_update(const struct batch_header *h, void *base,
                                             int32_t *tables) {
    struct update_tables_args args = {.tables = tables, .num_runs = h->num_table_runs};
    size_t at = tail_at(h);
    args.runs = take(base, &at, h->num_table_runs, sizeof *args.runs);
    args.blocks = take(base, &at, h->num_table_blocks, sizeof *args.blocks);
    return args;
}

static uint32_t divide_up(size_t a, size_t b) {
    return (uint32_t)((a + b - 1) / b);
}

// Places the biases, prompt rows and masks behind the changes of tables. Returns the batch's bytes.
static size_t place_tail(struct batch_header *h, uint32_t mask_words) {
    size_t mask_bytes = mask_words * sizeof(uint32_t);
    size_t end = h->num_table_runs * sizeof(struct table_run) +
                 (size_t)h->num_table_blocks * sizeof(int32_t);
    h->first_bias = divide_up(end, sizeof(struct sample_bias));
    if (h->num_biases) end = ((size_t)h->first_bias + h->num_biases) * sizeof(struct sample_bias);
    h->first_prompt = divide_up(end, sizeof(uint32_t));
    end += h->num_prompt_logits * (sizeof(int32_t) + sizeof(struct sample_row)) +
           (h->num_pooled + 2 * (size_t)h->num_snapshots + num_prefix_of(h) + h->num_shared_seqs) *
               sizeof(int32_t);
    h->first_mask = divide_up(end, mask_bytes);
    if (h->num_masks) end = ((size_t)h->first_mask + h->num_masks) * mask_bytes;
    size_t size = tail_at(h) + end;
    h->masks_at = (uint32_t)(size - h->num_masks * mask_bytes);
    return size;
}

static uint32_t mask_words_of(uint32_t vocab_size) {
    return divide_up(vocab_size, 32);
}

size_t batch_capacity_bytes(const struct step_limits *limits, uint32_t vocab_size) {
    uint64_t num_tables = (uint64_t)limits->num_kv_groups * limits->max_num_seqs;
    uint64_t num_table_blocks = num_tables * limits->max_blocks_per_seq;
    if (num_table_blocks > UINT32_MAX) return SIZE_MAX; // more than the header can count
    struct batch_header most = {
        .num_tokens = limits->max_num_tokens,
        .num_seqs = limits->max_num_seqs,
        .num_kv_groups = limits->num_kv_groups,
        .num_logits = limits->max_num_seqs,
        .num_biases = limits->max_num_seqs * (PARAMS_MAX_logit_bias + PARAMS_MAX_logprob_token_ids +
                                              DRAFT_TOKENS_MAX) +
                      limits->max_num_tokens,
        .num_masks = limits->max_num_seqs,
        .num_prompt_logits = limits->max_num_tokens,
        .num_pooled = limits->max_num_tokens,
        .num_snapshots = limits->num_snapshots ? STEP_SNAPSHOTS_MAX : 0,
        .num_shared = 1,
        .num_shared_seqs = limits->max_num_seqs,
        .num_table_runs = (uint32_t)num_tables,
        .num_table_blocks = (uint32_t)num_table_blocks,
    };
    return place_tail(&most, mask_words_of(vocab_size));
}

enum status batch_init(struct batch *batch, struct backend *backend,
                       const struct step_limits *limits, uint32_t vocab_size, void *block,
                       struct err *err) {
    *batch = (struct batch){.header = block,
                            .capacity_bytes = batch_capacity_bytes(limits, vocab_size),
                            .num_kv_groups = limits->num_kv_groups,
                            .mask_words = mask_words_of(vocab_size),
                            .table_rows = limits->max_num_seqs,
                            .table_stride = limits->max_blocks_per_seq,
                            .splits_drafts = backend->queue != NULL,
                            .is_borrowed = block != NULL};
    batch->is_late = calloc(limits->max_num_seqs, sizeof *batch->is_late);
    batch->late_rows = calloc(limits->max_num_seqs, sizeof *batch->late_rows);
    if (!batch->is_late || !batch->late_rows) return err_nomem(err, "batch");
    enum status status = shared_prefix_finder_init(&batch->finder, limits->max_num_seqs, err);
    if (status || block) return status;
    status = backend_alloc_host(backend, batch->capacity_bytes, &block, err);
    batch->header = block;
    return status;
}

void batch_fini(struct batch *batch, struct backend *backend) {
    if (batch->header && !batch->is_borrowed) backend_release_host(backend, batch->header);
    free(batch->is_late);
    free(batch->late_rows);
    shared_prefix_finder_fini(&batch->finder);
    *batch = (struct batch){0};
}

static bool has_late_mask(const struct batch *batch, const struct sampling *sampling,
                          const struct sequence *seq) {
    bool is_form = batch->forms_are_late && sampling->mask.constraint != NULL;
    return is_form || (seq->has_pending_token && token_mask_reads_ids(&sampling->mask));
}

// An item with drafts has several rows: row k samples what follows its first k drafts. Here
// num_drafts is that k, also below. Whether a form's mask is needed does not depend on it.
static bool needs_mask(const struct sampling *sampling, const struct sequence *seq,
                       uint32_t num_drafts) {
    return token_mask_is_needed(&sampling->mask, sequence_generated(seq),
                                sequence_num_generated(seq) + num_drafts);
}

_Static_assert(1 + DRAFT_TOKENS_MAX <= STEP_SPLIT_MAX, "devices take so many parts of a sequence");

// How many sequences of the step an item is.
static uint32_t num_parts(const struct batch *batch, const struct scheduled *item) {
    return batch->splits_drafts ? 1 + item->num_drafts : 1;
}

// Room for the biases of row num_drafts. With penalties each draft before it may be a bias of its
// own (sample_bias.count).
static uint32_t num_biases(const struct sampling *sampling, uint32_t num_drafts) {
    uint32_t num_counted = sampling->has_penalties ? num_drafts : 0;
    return sampling->row.bias_count + sampling->row.num_given + num_counted;
}

// UINT32_MAX where the sum is larger: 4,096 long prompts may be in a step.
static uint32_t add_saturated(uint32_t a, uint32_t b) {
    return b > UINT32_MAX - a ? UINT32_MAX : a + b;
}

static struct batch_header count_schedule(const struct batch *batch,
                                          const struct schedule *schedule, uint32_t block_size,
                                          batch_row_fn row_of) {
    uint32_t num_kv_groups = batch->num_kv_groups;
    struct batch_header h = {.num_kv_groups = num_kv_groups,
                             .num_snapshots = schedule->num_snapshots};
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        uint32_t context_len = item->seq->num_computed_tokens + item->num_tokens;
        uint32_t num_blocks = divide_up(context_len, block_size);
        h.num_seqs += num_parts(batch, item);
        h.num_tokens += item->num_tokens;
        if (item->num_tokens > num_parts(batch, item)) {
            h.num_prompts++;
            h.prompt_positions = add_saturated(h.prompt_positions, context_len);
        }
        if (item->num_tokens > h.max_query_len) h.max_query_len = item->num_tokens;
        if (context_len > h.max_context_len) h.max_context_len = context_len;
        if (num_blocks > item->seq->num_sent) {
            h.num_table_runs += num_kv_groups;
            h.num_table_blocks += num_kv_groups * (num_blocks - item->seq->num_sent);
        }
        h.num_prompt_logits += item->num_prompt_rows;
        h.num_biases += item->num_prompt_rows;
        h.num_pooled += item->num_pooled;
        if (!item->needs_token) continue;
        struct sampling *sampling = row_of(item->seq).sampling;
        bool is_late = has_late_mask(batch, sampling, item->seq);
        if (!is_late) token_mask_settle(&sampling->mask);
        for (uint32_t k = 0; k < scheduled_num_rows(item); k++) {
            h.num_logits++;
            h.num_biases += num_biases(sampling, k);
            h.num_late_masks += is_late;
            h.num_masks += is_late || needs_mask(sampling, item->seq, k);
        }
    }
    return h;
}

// Finds the prefixes that the schedule's decodes share.
static void find_shared(struct batch *batch, const struct schedule *schedule,
                        struct batch_header *h, uint32_t block_size) {
    struct shared_prefix_finder *finder = &batch->finder;
    finder->num_rows = 0;
    for (uint32_t i = 0, seq = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        uint32_t parts = num_parts(batch, item);
        for (uint32_t k = 0; k < parts && item->num_tokens == parts; k++) {
            finder->rows[finder->num_rows++] = (struct shared_prefix_row){
                .blocks = sequence_table(item->seq, 0),
                .num_blocks = item->seq->num_computed_tokens / block_size,
                .seq = seq + k};
        }
        seq += parts;
    }
    shared_prefix_finder_find(finder, block_size);
    h->num_shared = finder->num_prefixes;
    h->num_shared_seqs = finder->num_seqs;
    memcpy(h->shared, finder->prefixes, sizeof h->shared);
}

static void fill_shared(const struct step *a, const struct shared_prefix_finder *finder) {
    for (uint32_t seq = 0; a->shared.num && seq < a->num_seqs; seq++) a->shared.prefix_of[seq] = -1;
    for (uint32_t p = 0; p < a->shared.num; p++) {
        const struct shared_prefix *prefix = &a->shared.list[p];
        for (uint32_t i = prefix->first; i < prefix->first + prefix->num_seqs; i++) {
            a->shared.seqs[i] = (int32_t)finder->seqs[i];
            a->shared.prefix_of[finder->seqs[i]] = (int32_t)p;
        }
    }
}

// Where the next entries of block tables go.
struct table_tail {
    struct table_run *runs;
    int32_t *blocks;
    uint32_t num_runs, num_blocks;
    uint32_t num_rows, stride; // of the tables of a KV group
};

// A sequence's slots in one KV group, and the entries of its block table that the device lacks.
static void fill_kv_group(const struct step *a, uint32_t kv_group, uint32_t first_token,
                          const struct scheduled *item, struct table_tail *tail,
                          uint32_t block_size) {
    const struct sequence *seq = item->seq;
    const uint32_t *blocks = sequence_table(seq, kv_group);
    uint32_t start = seq->num_computed_tokens;
    int32_t *slots = step_slots(a, kv_group) + first_token;
    for (uint32_t i = 0; i < item->num_tokens; i++) {
        uint32_t position = start + i;
        uint32_t block = blocks[position / block_size];
        slots[i] = (int32_t)(block * block_size + position % block_size);
    }
    uint32_t num_blocks = divide_up((size_t)start + item->num_tokens, block_size);
    if (num_blocks <= seq->num_sent) return;
    uint32_t count = num_blocks - seq->num_sent;
    CHECK(num_blocks <= tail->stride, "%u blocks of %u", num_blocks, tail->stride);
    tail->runs[tail->num_runs++] = (struct table_run){
        .to = (kv_group * tail->num_rows + seq->table_row) * tail->stride + seq->num_sent,
        .from = tail->num_blocks,
        .count = count,
    };
    // BLOCK_NONE is -1, ids are far below 2^31.
    memcpy(tail->blocks + tail->num_blocks, blocks + seq->num_sent, count * sizeof *tail->blocks);
    tail->num_blocks += count;
}

// From which slot a sequence's states come, and in which ones they are kept. Those of snapshots lie
// behind those of the rows.
static void fill_states(const struct step *a, uint32_t row, uint32_t first_token,
                        const struct schedule *schedule, const struct scheduled *item,
                        uint32_t num_rows) {
    bool is_hit = item->from_snapshot != SNAPSHOT_NONE;
    a->state_row[row] = (int32_t)(is_hit ? num_rows + item->from_snapshot : item->seq->table_row);
    for (uint32_t i = 0; i < item->num_snapshots; i++) {
        uint32_t at = item->first_snapshot + i;
        const struct scheduled_snapshot *snapshot = &schedule->snapshots[at];
        a->snapshot_token[at] = (int32_t)(first_token + snapshot->num_tokens - 1);
        a->snapshot_slot[at] = (int32_t)(num_rows + snapshot->slot);
    }
}

// Tokens, positions, slots and block tables of an item, which is `parts` sequences from `row` on.
static void fill_item(const struct step *a, uint32_t num_kv_groups, uint32_t row, uint32_t parts,
                      uint32_t first_token, const struct scheduled *item, struct table_tail *tables,
                      uint32_t block_size) {
    struct sequence *seq = item->seq;
    uint32_t start = seq->num_computed_tokens;
    memcpy(a->tokens + first_token, seq->token_ids + start, item->num_tokens * sizeof *a->tokens);
    if (seq->has_pending_token && start + item->num_tokens == seq->num_tokens) {
        a->tokens[first_token + item->num_tokens - 1] = -1 - (int32_t)seq->pending_row;
    }
    for (uint32_t i = 0; i < item->num_tokens; i++) {
        a->positions[first_token + i] = (int32_t)(start + i);
    }
    uint32_t context_len = start + item->num_tokens;
    for (uint32_t group = 0; group < num_kv_groups; group++) {
        fill_kv_group(a, group, first_token, item, tables, block_size);
    }
    uint32_t num_blocks = divide_up(context_len, block_size);
    if (num_blocks > seq->num_sent) seq->num_sent = num_blocks;
    for (uint32_t k = 0; k < parts; k++) {
        uint32_t later = parts - 1 - k; // tokens behind this part
        a->table_row[row + k] = a->state_row[row + k] = (int32_t)seq->table_row;
        a->context_len[row + k] = (int32_t)(context_len - later);
        a->query_start[row + k + 1] = (int32_t)(first_token + item->num_tokens - later);
    }
}

// Where the next row's biases and masks go, in entries of their kind from the tail's start; and the
// number of the next prompt row.
struct tail {
    uint32_t bias, mask, mask_words;
    uint32_t prompt;
};

// Larger than the difference of any two logits.
static const float prompt_bias = 1e30f;

static struct sample_row greedy_row(int32_t num_top) {
    return (struct sample_row){.top_p = 1.0f, .repetition_penalty = 1.0f, .num_top = num_top};
}

// The sampling op reports the log-probability of the token that it chooses. So each row is biased
// to choose the prompt's own next token.
static void fill_prompt_rows(const struct step *a, uint32_t first_token, struct tail *tail,
                             const struct scheduled *item, int32_t num_top) {
    for (uint32_t i = 0; i < item->num_prompt_rows; i++, tail->prompt++) {
        struct sample_row *row = &a->prompt_rows[tail->prompt];
        *row = greedy_row(num_top);
        row->bias_start = tail->bias;
        row->bias_count = 1;
        a->biases[tail->bias++] =
            (struct sample_bias){item->seq->token_ids[item->start + i + 1], prompt_bias, 0};
        a->prompt_index[tail->prompt] = (int32_t)(first_token + i);
    }
}

static void write_mask(const struct step *a, const struct sampling *sampling, uint32_t mask,
                       uint32_t mask_words, const struct sequence *seq, uint32_t num_drafts) {
    token_mask_write(&sampling->mask, sequence_generated(seq),
                     sequence_num_generated(seq) + num_drafts,
                     a->masks + (size_t)mask * mask_words);
}

// Writes the biases of a row, then the given tokens. With penalties the drafts before the row count
// as generated. Returns how many biases there are.
static uint32_t fill_biases(struct sample_bias *out, const struct sampling *sampling,
                            const int32_t *drafts, uint32_t num_drafts) {
    uint32_t count = sampling->row.bias_count, num_given = sampling->row.num_given;
    if (count) memcpy(out, sampling->biases, count * sizeof *out);
    for (uint32_t i = 0; sampling->has_penalties && i < num_drafts; i++) {
        uint32_t at = 0;
        while (at < count && out[at].token_id != drafts[i]) at++;
        if (at == count) out[count++] = (struct sample_bias){.token_id = drafts[i]};
        out[at].count++;
    }
    if (num_given) {
        memcpy(out + count, sampling->biases + sampling->row.bias_count, num_given * sizeof *out);
    }
    uint32_t room = num_biases(sampling, num_drafts), used = count + num_given;
    if (room > used) memset(out + used, 0, (room - used) * sizeof *out);
    return count;
}

// Fills row num_drafts of an item. Its form has taken the drafts before that row. `is_late`: the
// row's mask only gets a place, and batch_write_late_masks makes it.
static void fill_row(const struct step *a, uint32_t row, struct tail *tail,
                     const struct scheduled *item, struct batch_row how, bool is_late,
                     uint32_t num_drafts) {
    const struct sampling *sampling = how.sampling;
    const struct sequence *seq = item->seq;
    struct sample_row *out = &a->rows[row];
    *out = sampling->row;
    out->draw = sequence_num_generated(seq) + num_drafts;
    out->counts_slot = how.counts_slot;
    out->is_tentative = item->num_drafts > 0;
    out->bias_start = tail->bias;
    uint32_t room = num_biases(sampling, num_drafts);
    if (room) {
        out->bias_count = fill_biases(a->biases + tail->bias, sampling,
                                      seq->token_ids + seq->num_tokens, num_drafts);
        tail->bias += room;
    }
    if (!is_late && !needs_mask(sampling, seq, num_drafts)) return;
    if (!is_late) write_mask(a, sampling, tail->mask, tail->mask_words, seq, num_drafts);
    out->mask = ++tail->mask; // counted from 1
    out->masks_logprobs = sampling->mask.constraint != NULL;
}

// The rows of an item whose tokens end before `token`. Returns how many there are.
static uint32_t fill_rows(const struct step *a, uint32_t logit, uint32_t token, struct tail *tail,
                          const struct scheduled *item, struct batch_row how, bool is_late) {
    const struct sequence *seq = item->seq;
    struct constraint *constraint = is_late ? NULL : how.sampling->mask.constraint;
    struct constraint before;
    if (constraint && item->num_drafts) before = *constraint;
    for (uint32_t k = 0; k < scheduled_num_rows(item); k++) {
        if (constraint && k) constraint_take(constraint, seq->token_ids[seq->num_tokens + k - 1]);
        a->logit_index[logit + k] = (int32_t)(token - 1 - item->num_drafts + k);
        fill_row(a, logit + k, tail, item, how, is_late, k);
    }
    if (constraint && item->num_drafts) constraint_rewind(constraint, &before);
    return scheduled_num_rows(item);
}

// Rows from `row` on that stand for no sequence: they write nowhere and see nothing.
static void fill_padding(const struct step *a, uint32_t num_kv_groups, uint32_t row) {
    for (; row < a->num_seqs; row++) {
        a->tokens[row] = 0;
        a->positions[row] = 0;
        for (uint32_t group = 0; group < num_kv_groups; group++) step_slots(a, group)[row] = -1;
        a->query_start[row + 1] = (int32_t)row + 1;
        a->context_len[row] = 0;
        a->table_row[row] = a->state_row[row] = 0;
        a->logit_index[row] = (int32_t)row;
        a->rows[row] = greedy_row(-1);
    }
}

void batch_build(struct batch *batch, const struct schedule *schedule, uint32_t block_size,
                 batch_row_fn row_of, uint32_t padded_seqs) {
    struct batch_header header = count_schedule(batch, schedule, block_size, row_of);
    if (padded_seqs) {
        CHECK(header.num_seqs <= padded_seqs && header.num_tokens == header.num_seqs &&
                  header.num_logits == header.num_seqs,
              "%u sequences, %u tokens, %u logits for %u rows", header.num_seqs, header.num_tokens,
              header.num_logits, padded_seqs);
        header.num_seqs = header.num_tokens = header.num_logits = padded_seqs;
        // A warm-up's step of padding alone says only whether it stands for one with drafts.
        if (!schedule->num_items) header.max_query_len = 1 + schedule->num_draft_tokens;
    }
    if (batch->shares_prefixes) find_shared(batch, schedule, &header, block_size);
    size_t size_bytes = place_tail(&header, batch->mask_words);
    CHECK(size_bytes <= batch->capacity_bytes, "%zu > %zu", size_bytes, batch->capacity_bytes);
    header.size_bytes = (uint32_t)size_bytes;
    *batch->header = header;
    const struct step a = batch_bind(&header, batch->header);
    const struct update_tables_args update = batch_table_update(&header, batch->header, NULL);
    struct table_tail tables = {.runs = (struct table_run *)(uintptr_t)update.runs,
                                .blocks = (int32_t *)(uintptr_t)update.blocks,
                                .num_rows = batch->table_rows,
                                .stride = batch->table_stride};

    fill_shared(&a, &batch->finder);
    struct tail tail = {header.first_bias, header.first_mask, batch->mask_words, 0};
    uint32_t row = 0, token = 0, logit = 0, pooled = 0;
    a.query_start[0] = 0;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        uint32_t parts = num_parts(batch, item);
        fill_item(&a, header.num_kv_groups, row, parts, token, item, &tables, block_size);
        fill_states(&a, row, token, schedule, item, batch->table_rows);
        if (item->num_prompt_rows) {
            int32_t num_top = row_of(item->seq).sampling->params.prompt_logprobs;
            fill_prompt_rows(&a, token, &tail, item, num_top);
        }
        token += item->num_tokens;
        for (uint32_t k = item->num_pooled; k > 0; k--) {
            a.pool_index[pooled++] = (int32_t)(token - k);
        }
        row += parts;
        if (!item->needs_token) continue;
        struct batch_row how = row_of(item->seq);
        bool is_late = has_late_mask(batch, how.sampling, item->seq);
        batch->is_late[logit] = is_late;
        logit += fill_rows(&a, logit, token, &tail, item, how, is_late);
    }
    fill_padding(&a, header.num_kv_groups, row);
}

struct late_masks {
    const struct batch *batch;
    const struct schedule *schedule;
    struct step step;
    batch_row_fn row_of;
};

// The masks of an item's rows, from number `mask` on. A sequence's form is its own, or has a lock,
// so threads may write masks of several at once.
static void write_item_masks(const struct step *a, struct sampling *sampling, uint32_t mask,
                             uint32_t mask_words, const struct scheduled *item) {
    const struct sequence *seq = item->seq;
    struct constraint *constraint = sampling->mask.constraint;
    token_mask_settle(&sampling->mask);
    struct constraint before;
    if (constraint && item->num_drafts) before = *constraint;
    for (uint32_t k = 0; k < scheduled_num_rows(item); k++) {
        if (constraint && k) constraint_take(constraint, seq->token_ids[seq->num_tokens + k - 1]);
        write_mask(a, sampling, mask + k, mask_words, seq, k);
    }
    if (constraint && item->num_drafts) constraint_rewind(constraint, &before);
}

static void write_late_mask(void *arg, uint32_t index, uint32_t thread) {
    (void)thread;
    const struct late_masks *late = arg;
    const struct batch *batch = late->batch;
    const struct late_row *at = &batch->late_rows[index];
    const struct scheduled *item = &late->schedule->items[at->item];
    const struct sequence *seq = item->seq;
    uint32_t mask = late->step.rows[at->row].mask - 1;
    if (seq->has_pending_token) { // aborted: its result is not used
        memset(late->step.masks + (size_t)mask * batch->mask_words, 0xff,
               batch->mask_words * sizeof *late->step.masks);
    } else {
        write_item_masks(&late->step, late->row_of(seq).sampling, mask, batch->mask_words, item);
    }
}

void batch_write_late_masks(struct batch *batch, const struct schedule *schedule,
                            batch_row_fn row_of, struct thread_pool *pool) {
    struct late_masks late = {batch, schedule, batch_bind(batch->header, batch->header), row_of};
    uint32_t row = 0, num_late = 0;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        if (item->needs_token && batch->is_late[row]) {
            batch->late_rows[num_late++] = (struct late_row){i, row};
        }
        row += scheduled_num_rows(item);
    }
    if (pool) {
        thread_pool_for(pool, num_late, write_late_mask, &late);
    } else {
        for (uint32_t i = 0; i < num_late; i++) write_late_mask(&late, i, 0);
    }
}
