#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/check.h"
#include "engine/schedule/block_snapshots.h"
#include "engine/schedule/scheduler_internal.h"
#include "engine/schedule/sequence_queue.h"

enum status scheduler_create(struct scheduler **out, const struct scheduler_config *config,
                             struct err *err) {
    *out = NULL;
    if (config->max_num_seqs == 0) return err_set(err, ERR_INVALID, "max_num_seqs is 0");
    if (config->max_num_batched_tokens == 0) {
        return err_set(err, ERR_INVALID, "max_num_batched_tokens is 0");
    }
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(err, "scheduler");
    s->config = *config;
    pacer_init(&s->pacer, &config->pace, config->max_num_batched_tokens);
    // A step runs at least one token of each active sequence: more of them could only hold blocks.
    s->max_num_active = min_u32(config->max_num_seqs, config->max_num_batched_tokens);
    enum status status =
        block_manager_init(&s->blocks, config->num_blocks, config->block_size, &config->groups,
                           config->enable_prefix_caching, config->hash_seed, err);
    if (status) goto fail;
    // Each holds at least one block in each group, except groups with a window of one token.
    s->max_num_active = min_u32(s->max_num_active, config->num_blocks);
    s->free_rows = calloc(s->max_num_active, sizeof *s->free_rows);
    if (!s->free_rows) {
        status = err_nomem(err, "schedule");
        goto fail;
    }
    while (s->num_free_rows < s->max_num_active) {
        s->free_rows[s->num_free_rows] = s->max_num_active - 1 - s->num_free_rows;
        s->num_free_rows++;
    }
    if (config->enable_prefix_caching) {
        s->computing_hashes = calloc(config->num_blocks, sizeof *s->computing_hashes);
        if (!s->computing_hashes) {
            status = err_nomem(err, "schedule");
            goto fail;
        }
        status = u64map_init(&s->computing, config->num_blocks, err);
        if (!status && config->num_snapshots) {
            status = block_manager_init_snapshots(&s->blocks, config->num_snapshots, err);
        }
        if (status) goto fail;
    }
    *out = s;
    return OK;

fail:
    scheduler_destroy(s);
    return status;
}

size_t scheduler_bytes(const struct scheduler_config *config) {
    size_t bytes = sizeof(struct scheduler) +
                   block_manager_bytes(config->num_blocks, config->block_size, &config->groups,
                                       config->enable_prefix_caching) +
                   config->max_num_seqs * sizeof(uint32_t);
    if (!config->enable_prefix_caching) return bytes;
    bytes += config->num_snapshots * sizeof(struct snapshot);
    return bytes + config->num_blocks * sizeof(uint64_t) + u64map_bytes(config->num_blocks);
}

void scheduler_destroy(struct scheduler *s) {
    if (!s) return;
    for (struct sequence *seq; (seq = scheduler_first(s));) scheduler_finish(s, seq);
    u64map_fini(&s->computing);
    free(s->computing_hashes);
    free(s->free_rows);
    block_manager_fini(&s->blocks);
    free(s);
}

enum status scheduler_check(const struct scheduler *s, const struct sequence *seq,
                            struct err *err) {
    const struct scheduler_config *config = &s->config;
    uint32_t num_entries = block_manager_blocks_for(&s->blocks, sequence_num_kv_tokens_max(seq));
    if (num_entries != seq->num_blocks_max || seq->num_kv_groups != config->groups.num_groups) {
        return err_set(err, ERR_INVALID,
                       "the request has room for %u blocks of %u KV groups, want %u of %u tokens "
                       "of %u KV groups",
                       seq->num_blocks_max, seq->num_kv_groups, num_entries, config->block_size,
                       config->groups.num_groups);
    }
    uint64_t num_blocks = block_groups_most(&config->groups, config->block_size, num_entries,
                                            config->max_num_batched_tokens);
    if (num_blocks > config->num_blocks) {
        return err_set(err, ERR_INVALID,
                       "%u prompt tokens and up to %u generated ones need %llu KV blocks of %u "
                       "tokens, the whole cache has %u",
                       seq->num_prompt_tokens, seq->num_tokens_max - seq->num_prompt_tokens,
                       (unsigned long long)num_blocks, config->block_size, config->num_blocks);
    }
    return OK;
}

enum status scheduler_add(struct scheduler *s, struct sequence *seq, struct err *err) {
    CHECK(seq->status == SEQUENCE_WAITING && !seq->queued, "sequence %" PRIu64 " is not new",
          seq->id);
    enum status status = scheduler_check(s, seq, err);
    if (status) return status;
    seq->arrival = ++s->num_added;
    seq->queue_key = XXH3_64bits_withSeed(&seq->arrival, sizeof seq->arrival, s->config.hash_seed);
    seq->queued = true;
    sequence_queue_insert(&s->waiting, seq);
    return OK;
}

// Keeps the states behind the item's first tokens up to `end` of the sequence, if there is a slot.
static void add_snapshot(struct scheduler *s, struct scheduled *item, uint32_t end) {
    struct schedule *schedule = s->schedule;
    if (end <= item->start || end > item->start + item->num_tokens) return;
    if (schedule->num_snapshots == STEP_SNAPSHOTS_MAX) return;
    uint32_t slot = block_snapshots_take(&s->blocks);
    if (slot == SNAPSHOT_NONE) return;
    schedule->snapshots[schedule->num_snapshots++] =
        (struct scheduled_snapshot){end - item->start, slot};
    item->num_snapshots++;
}

// Takes snapshots at multiples of a distance, and at the end of the prompt's last block that a hit
// may have. If slots are short, the one at the end gets its slot first.
static void add_snapshots(struct scheduler *s, struct scheduled *item) {
    uint32_t distance = s->config.snapshot_tokens, block_size = s->config.block_size;
    item->first_snapshot = s->schedule->num_snapshots;
    if (!s->config.num_snapshots || item->seq->is_prefilled) return;
    uint32_t last = (item->seq->num_prompt_tokens - 1) / block_size * block_size;
    add_snapshot(s, item, last);
    uint32_t end = item->start / distance * distance + distance;
    for (; end <= item->start + item->num_tokens; end += distance) {
        if (end != last) add_snapshot(s, item, end);
    }
}

static void add_item(struct scheduler *s, struct sequence *seq, uint32_t num_tokens) {
    struct schedule *schedule = s->schedule;
    uint32_t uncomputed = sequence_num_uncomputed(seq), index = schedule->num_items++;
    CHECK(num_tokens > 0 && num_tokens <= uncomputed && num_tokens <= budget_left(s),
          "%u tokens of %u, budget %u", num_tokens, uncomputed, budget_left(s));
    CHECK(index < s->max_num_active && index < schedule->max_items, "%u items", index);
    if (seq->is_prefilled) {
        CHECK(schedule->num_decode_tokens == index, "a decode after %u items", index);
        schedule->num_decode_tokens++;
        step_work_add_decodes(&schedule->work, seq->num_computed_tokens, num_tokens);
    } else {
        schedule->num_prefill_tokens += num_tokens;
        step_work_add_prompt(&schedule->work, seq->num_computed_tokens, num_tokens);
    }
    bool is_last = num_tokens == uncomputed;
    schedule->items[index] = (struct scheduled){.seq = seq,
                                                .start = seq->num_computed_tokens,
                                                .num_tokens = num_tokens,
                                                .from_snapshot = SNAPSHOT_NONE,
                                                .needs_token = is_last && !seq->is_pooled,
                                                .ends_pooling = is_last && seq->is_pooled};
    schedule->num_tokens += num_tokens;
    seq->schedule_index = index;
    seq->num_scheduled_tokens = num_tokens;
    add_snapshots(s, &schedule->items[index]);
}

static void forget_computing(struct scheduler *s) {
    for (uint32_t i = 0; i < s->num_computing; i++) {
        u64map_remove(&s->computing, s->computing_hashes[i]);
    }
    s->num_computing = 0;
}

// Gives back the sequence's blocks and, if it is running, its row of the block tables.
static void release(struct scheduler *s, struct sequence *seq) {
    block_manager_release(&s->blocks, seq);
    if (seq->status == SEQUENCE_RUNNING) s->free_rows[s->num_free_rows++] = seq->table_row;
}

// Preempts by recompute: the sequence gives its blocks back and keeps its tokens. Its full blocks
// stay in the prefix cache until they are allocated again, so often few tokens are really
// recomputed.
static void preempt(struct scheduler *s, struct sequence *seq) {
    // It is the last item: decodes are scheduled in the order of the queue, and the partial
    // prefill, which may preempt them, after all of them.
    if (seq->schedule_index != SEQUENCE_UNSCHEDULED) schedule_remove_last(s->schedule, seq);
    if (s->partial_prefill == seq) s->partial_prefill = NULL;
    release(s, seq);
    sequence_queue_remove(&s->running, seq);
    seq->status = SEQUENCE_WAITING;
    sequence_queue_insert(&s->waiting, seq);
    s->num_preemptions++;
    seq->num_preemptions++;
    // There is room, because no sequence is preempted twice between two schedules with items.
    struct schedule *schedule = s->schedule;
    CHECK(schedule->num_preempted < schedule->max_items, "%u preempted", schedule->num_preempted);
    schedule->preempted[schedule->num_preempted++] = seq->arrival;
}

// Gives a running sequence blocks for num_tokens tokens, and preempts from the tail of the queue
// until they suffice. False: the sequence was itself the last, and is waiting now. The first
// running sequence always gets its blocks, because scheduler_check has checked that it fits alone.
static bool grow_or_preempt(struct scheduler *s, struct sequence *seq, uint32_t num_tokens) {
    while (!block_manager_grow(&s->blocks, seq, num_tokens)) {
        struct sequence *victim = s->running.tail;
        preempt(s, victim);
        if (victim == seq) return false;
    }
    return true;
}

static void schedule_decodes(struct scheduler *s) {
    for (struct sequence *seq = s->running.head; seq; seq = seq->next) {
        if (!seq->is_prefilled || sequence_is_full(seq)) continue;
        if (!grow_or_preempt(s, seq, seq->num_tokens)) return; // it was the tail
        add_item(s, seq, 1);
    }
}

// How many of a sequence's `uncomputed` tokens, which begin at position `start`, this step may run.
static uint32_t prompt_budget(const struct scheduler *s, uint32_t start, uint32_t uncomputed) {
    return pacer_budget(&s->pacer, &s->schedule->work, start, min_u32(uncomputed, budget_left(s)));
}

// Continues the prefill that an earlier step began. It preempts others for its first token, so that
// it gets on. The rest of its chunk takes only free blocks.
static void schedule_partial_prefill(struct scheduler *s) {
    struct sequence *seq = s->partial_prefill;
    if (!seq || !grow_or_preempt(s, seq, seq->num_computed_tokens + 1)) return;
    uint64_t num_entries =
        (uint64_t)seq->num_blocks + s->blocks.num_free / s->config.groups.num_groups;
    uint64_t left = num_entries * s->config.block_size - seq->num_computed_tokens;
    uint32_t num_tokens = prompt_budget(s, seq->num_computed_tokens, sequence_num_uncomputed(seq));
    if (num_tokens > left) num_tokens = (uint32_t)left;
    bool has_grown = block_manager_grow(&s->blocks, seq, seq->num_computed_tokens + num_tokens);
    CHECK(has_grown, "%u tokens", num_tokens);
    if (num_tokens == sequence_num_uncomputed(seq)) s->partial_prefill = NULL;
    add_item(s, seq, num_tokens);
}

static void mark_computing(struct scheduler *s, struct sequence *seq) {
    if (!s->config.enable_prefix_caching) return;
    uint32_t block_size = s->config.block_size;
    uint32_t index = seq->num_computed_tokens / block_size;
    uint32_t end =
        block_manager_blocks_for(&s->blocks, seq->num_computed_tokens + seq->num_scheduled_tokens);
    end = min_u32(end, sequence_num_known(seq) / block_size);
    for (; index < end; index++) {
        uint64_t hash = block_manager_hash(&s->blocks, seq, index);
        // Only this sequence holds the block, so there are at most num_blocks hashes.
        s->computing_hashes[s->num_computing++] = hash;
        u64map_put(&s->computing, hash, 0);
    }
}

// Whether another sequence is computing the next block that this one misses. Each step of waiting
// computes at least one more token of the prefix. More deferrals than tokens mean that the prefix
// is evicted before this sequence can use it; then it computes the prefix itself.
static bool is_deferred(struct scheduler *s, struct sequence *seq) {
    uint64_t hash;
    uint32_t unused;
    if (seq->skips_cache) return false;
    if (s->num_computing == 0 || seq->num_deferrals >= seq->num_tokens) return false;
    if (!block_manager_first_miss(&s->blocks, seq, &hash)) return false;
    return u64map_get(&s->computing, hash, &unused);
}

// Entries of its block tables that a sequence needs soon: for all its tokens and, in mixed, one
// more to decode into.
static uint32_t num_entries_soon(const struct scheduler *s, const struct sequence *seq) {
    uint32_t num_entries = block_manager_blocks_for(&s->blocks, seq->num_tokens);
    if (s->config.policy == SCHEDULE_PREFILL_FIRST) return num_entries;
    return min_u32(num_entries + 1, seq->num_blocks_max);
}

// Blocks that a running sequence needs soon and does not hold.
static uint32_t num_missing(const struct scheduler *s, const struct sequence *seq) {
    uint32_t max_query = seq->is_prefilled ? 1 : s->config.max_num_batched_tokens;
    return block_manager_num_missing(&s->blocks, seq, num_entries_soon(s, seq), max_query);
}

// Free blocks that an admission must leave. Mixed: those that the running sequences need soon. In
// block_size steps each decoding sequence takes exactly one block, so for about that long an
// admission causes no preemption. prefill-first reserves nothing, as nano-vllm does.
static uint64_t num_reserved(const struct scheduler *s) {
    uint64_t reserved = 0;
    if (s->config.policy == SCHEDULE_PREFILL_FIRST) return 0;
    for (const struct sequence *seq = s->running.head; seq; seq = seq->next) {
        reserved += num_missing(s, seq);
    }
    return reserved;
}

// Makes a waiting sequence active: it runs num_tokens tokens in this step. It was matched just
// before.
static void admit(struct scheduler *s, struct sequence *seq, uint32_t num_tokens) {
    block_manager_admit(&s->blocks, seq);
    uint32_t from_snapshot = block_snapshots_of(&s->blocks, seq);
    bool is_by_chunks = s->config.policy == SCHEDULE_MIXED || s->blocks.has_windows;
    uint32_t end = is_by_chunks ? seq->num_computed_tokens + num_tokens : seq->num_tokens;
    bool has_grown = block_manager_grow(&s->blocks, seq, end);
    CHECK(has_grown, "%u tokens", end);
    if (!seq->was_scheduled) {
        seq->was_scheduled = true;
        seq->num_cached_tokens = seq->num_computed_tokens;
        // The prompt that outputs share is counted once.
        if (!seq->origin) s->num_cached_tokens += seq->num_cached_tokens;
    }
    sequence_queue_remove(&s->waiting, seq);
    seq->status = SEQUENCE_RUNNING;
    CHECK(s->num_free_rows, "%u active sequences", s->running.count);
    seq->table_row = s->free_rows[--s->num_free_rows];
    seq->num_deferrals = 0;
    sequence_queue_insert(&s->running, seq);
    add_item(s, seq, num_tokens);
    s->schedule->items[seq->schedule_index].is_admitted = true;
    s->schedule->items[seq->schedule_index].from_snapshot = from_snapshot;
    mark_computing(s, seq);
    if (num_tokens == sequence_num_uncomputed(seq)) return;
    CHECK(!s->partial_prefill, "a second partial prefill");
    s->partial_prefill = seq;
}

static void admit_waiting(struct scheduler *s) {
    if (!s->waiting.head || s->partial_prefill) return;
    bool is_mixed = s->config.policy == SCHEDULE_MIXED;
    uint64_t reserved = num_reserved(s);
    uint32_t num_deferred = 0; // they count as active, which bounds how many are looked at
    for (uint32_t i = 0; i < s->schedule->num_items; i++)
        mark_computing(s, s->schedule->items[i].seq);

    struct sequence *next;
    for (struct sequence *seq = s->waiting.head; seq; seq = next) {
        next = seq->next;
        if (budget_left(s) == 0 || s->partial_prefill) return;
        if (s->running.count + num_deferred >= s->max_num_active) return;
        bool waits = sequence_waits_for_origin(seq);
        if (!waits) block_manager_match(&s->blocks, seq);
        if (waits || is_deferred(s, seq)) {
            seq->num_deferrals++;
            num_deferred++;
            continue;
        }
        uint32_t num_taken = block_manager_num_taken(&s->blocks, seq, num_entries_soon(s, seq),
                                                     s->config.max_num_batched_tokens);
        if (num_taken + reserved > s->blocks.num_free) return;
        uint32_t start = seq->num_matched * s->config.block_size;
        uint32_t uncomputed = seq->num_tokens - start;
        uint32_t num_tokens = prompt_budget(s, start, uncomputed);
        if (!num_tokens) return;
        if (!is_mixed && num_tokens < uncomputed && s->schedule->num_items > 0) return;
        admit(s, seq, num_tokens);
        if (is_mixed) reserved += num_missing(s, seq);
    }
}

static void schedule_mixed(struct scheduler *s) {
    uint64_t num_preemptions = s->num_preemptions;
    schedule_decodes(s);
    schedule_partial_prefill(s);
    // After a preemption blocks are short: nothing is admitted in this step.
    if (s->num_preemptions == num_preemptions) admit_waiting(s);
}

static void schedule_prefill_first(struct scheduler *s) {
    uint64_t num_preemptions = s->num_preemptions;
    schedule_partial_prefill(s);
    if (s->num_preemptions == num_preemptions) admit_waiting(s);
    if (s->schedule->num_items == 0) schedule_decodes(s);
}

// Whether a sequence has nothing to run before its last token's id is known.
static bool has_waiting_for_token(const struct scheduler *s) {
    for (const struct sequence *seq = s->running.head; seq; seq = seq->next) {
        if (sequence_is_full(seq)) return true;
    }
    return false;
}

double scheduler_measure(struct scheduler *s, const struct schedule *schedule, double seconds) {
    return pacer_measure(&s->pacer, &schedule->work, seconds);
}

void scheduler_schedule(struct scheduler *s, struct schedule *schedule) {
    CHECK(!s->schedule, "the last schedule of %u items was not advanced", s->schedule->num_items);
    uint32_t num_preempted = schedule->num_items ? 0 : schedule->num_preempted;
    *schedule = (struct schedule){.items = schedule->items,
                                  .max_items = schedule->max_items,
                                  .preempted = schedule->preempted,
                                  .num_preempted = num_preempted};
    s->schedule = schedule;
    snapshots_begin_step(&s->blocks.snapshots);
    forget_computing(s);
    if (s->config.policy == SCHEDULE_MIXED) {
        schedule_mixed(s);
    } else {
        schedule_prefill_first(s);
    }
    if (schedule->num_items > 0) return;
    CHECK(!scheduler_has_unfinished(s) || has_waiting_for_token(s), "%u waiting, %u running",
          s->waiting.count, s->running.count);
    s->schedule = NULL;
}

// The first position whose query may still read a sequence's blocks: those before its window are
// given back. The other outputs of a request compute the prompt's last block again. So until the
// first output has a token of its own, the blocks that this block's queries read are kept. Its next
// step has one token, or a few that a form demanded, and takes free blocks only. So this needs no
// more blocks than a step of more tokens than a block, which has enough (block_groups_need).
static uint32_t next_position(const struct scheduler *s, const struct sequence *seq) {
    uint32_t computed = seq->num_computed_tokens, block_size = s->config.block_size;
    if (!seq->is_origin || sequence_num_generated(seq)) return computed;
    if (s->config.max_num_batched_tokens <= block_size) return computed;
    return min_u32(computed, (seq->num_prompt_tokens - 1) / block_size * block_size);
}

// `seq`: the item's sequence; NULL: it has ended.
static void keep_snapshots(struct scheduler *s, const struct scheduled *item,
                           const struct sequence *seq) {
    for (uint32_t i = 0; i < item->num_snapshots; i++) {
        const struct scheduled_snapshot *snapshot =
            &s->schedule->snapshots[item->first_snapshot + i];
        block_snapshots_keep(&s->blocks, seq, item->start + snapshot->num_tokens, snapshot->slot);
    }
}

void scheduler_advance(struct scheduler *s) {
    if (!s->schedule) return;
    for (uint32_t i = 0; i < s->schedule->num_items; i++) {
        const struct scheduled *item = &s->schedule->items[i];
        struct sequence *seq = item->seq;
        if (seq->status == SEQUENCE_FINISHED) {
            keep_snapshots(s, item, NULL);
            continue;
        }
        seq->num_computed_tokens += seq->num_scheduled_tokens;
        seq->num_scheduled_tokens = 0;
        seq->schedule_index = SEQUENCE_UNSCHEDULED;
        seq->is_prefilled = sequence_num_uncomputed(seq) == 0;
        block_manager_publish(&s->blocks, seq);
        keep_snapshots(s, item, seq);
        if (!s->blocks.has_windows) continue;
        block_manager_slide(&s->blocks, seq, next_position(s, seq));
    }
    s->schedule = NULL;
}

void scheduler_finish(struct scheduler *s, struct sequence *seq) {
    if (seq->queued) {
        seq->schedule_index = SEQUENCE_UNSCHEDULED;
        seq->num_scheduled_tokens = 0;
        if (s->partial_prefill == seq) s->partial_prefill = NULL;
        sequence_queue_remove(seq->status == SEQUENCE_RUNNING ? &s->running : &s->waiting, seq);
        release(s, seq);
        seq->queued = false;
    }
    seq->status = SEQUENCE_FINISHED;
}

bool scheduler_has_unfinished(const struct scheduler *s) {
    return s->waiting.count > 0 || s->running.count > 0;
}

uint32_t scheduler_num_waiting(const struct scheduler *s) {
    return s->waiting.count;
}

uint32_t scheduler_num_running(const struct scheduler *s) {
    return s->running.count;
}

uint64_t scheduler_num_preemptions(const struct scheduler *s) {
    return s->num_preemptions;
}

uint64_t scheduler_num_cached_tokens(const struct scheduler *s) {
    return s->num_cached_tokens;
}

uint32_t scheduler_num_blocks_used(const struct scheduler *s) {
    return s->config.num_blocks - s->blocks.num_free;
}

uint32_t scheduler_num_blocks_peak(const struct scheduler *s) {
    return s->blocks.stats.num_used_peak;
}

const struct sequence *scheduler_first_running(const struct scheduler *s) {
    return s->running.head;
}

const struct sequence *scheduler_first_waiting(const struct scheduler *s) {
    return s->waiting.head;
}

struct sequence *scheduler_first(const struct scheduler *s) {
    struct sequence *a = s->waiting.head, *b = s->running.head;
    if (!a || !b) return a ? a : b;
    return sequence_comes_before(a, b) ? a : b;
}

void scheduler_observe(struct scheduler *s, struct block_changes *changes) {
    block_manager_observe(&s->blocks, changes);
}

const struct block_manager *scheduler_blocks(const struct scheduler *s) {
    return &s->blocks;
}
