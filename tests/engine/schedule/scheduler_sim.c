#include "engine/schedule/scheduler_sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/schedule/block_checks.h"
#include "engine/schedule/scheduler_sim_state.h"

PRINTF_LIKE(2, 3)
static void fail(struct sim *sim, const char *format, ...) {
    if (sim->fault[0]) return;
    va_list args;
    va_start(args, format);
    int len = snprintf(sim->fault, sizeof sim->fault, "step %llu: ", (unsigned long long)sim->step);
    vsnprintf(sim->fault + len, sizeof sim->fault - (size_t)len, format, args);
    va_end(args);
}

static uint32_t below(struct sim *sim, uint32_t n) {
    CHECK(n > 0, "below %u", n);
    sim->random++;
    return (uint32_t)(mix(sim->random, 1) % n);
}

static uint32_t between(struct sim *sim, uint32_t low, uint32_t high) {
    return low + below(sim, high - low + 1);
}

static bool one_in(struct sim *sim, uint32_t n) {
    return below(sim, n) == 0;
}

static void make_alone(struct sim_request *request) {
    uint64_t before = mix(request->salt, 5);
    request->num_tokens = request->num_prompt;
    for (uint32_t i = 0; i < request->num_tokens; i++) {
        before = request->prefix[i] = slot_content(before, request->tokens[i]);
        if (i + 1 < request->num_tokens || request->num_tokens == request->num_tokens_max) continue;
        int32_t token = next_token(before, request->seed);
        request->tokens[request->num_tokens++] = token;
        if (token == EOS && !request->ignore_eos) return;
    }
}

static void make_config(struct sim *sim, enum schedule_policy policy, bool enable_prefix_caching) {
    static const uint32_t block_sizes[] = {1, 2, 3, 4, 4, 5, 7, 8, 16};
    uint32_t block_size = block_sizes[below(sim, ARRAY_LEN(block_sizes))];
    // Mostly caches that a few of the requests fill.
    uint32_t num_blocks_max = one_in(sim, 4) ? 64 : 5 + 100 / block_size;
    struct block_groups groups = {.num_groups = one_in(sim, 2) ? 1 : between(sim, 2, GROUPS_MAX)};
    bool may_have_windows = one_in(sim, 2);
    for (uint32_t g = 0; may_have_windows && g < groups.num_groups; g++) {
        groups.windows[g] = one_in(sim, 4) ? 0 : between(sim, 1, one_in(sim, 2) ? 8 : 40);
    }
    sim->config = (struct scheduler_config){
        .policy = policy,
        .max_num_seqs = one_in(sim, 2) ? between(sim, 1, 8) : between(sim, 1, ROWS_MAX),
        .max_num_batched_tokens = one_in(sim, 2) ? between(sim, 3, 16) : between(sim, 3, 64),
        .num_blocks =
            between(sim, 5, num_blocks_max < 64 ? num_blocks_max : 64) * groups.num_groups,
        .block_size = block_size,
        .groups = groups,
        .enable_prefix_caching = enable_prefix_caching,
        .hash_seed = sim->random,
    };
    if (policy != SCHEDULE_MIXED) return;
    sim->config.pace = (struct pace_options){(enum pace)below(sim, 3), 0.001 * below(sim, 1000),
                                             1 + below(sim, 4)};
}

// Further outputs of the first-th request, in the places behind it; returns the last one's.
static uint32_t make_outputs(struct sim *sim, uint32_t first) {
    uint32_t left = sim->num_requests - 1 - first, count = between(sim, 1, 6);
    uint32_t last = first + (count < left ? count : left);
    for (uint32_t i = first + 1; i <= last; i++) {
        struct sim_request *request = &sim->requests[i];
        *request = sim->requests[first];
        request->seed = i;
        request->origin = &sim->requests[first];
        request->abort_step = one_in(sim, 8) ? below(sim, 30) : UINT64_MAX;
        make_alone(request);
    }
    return last;
}

static void make_requests(struct sim *sim) {
    int32_t bases[BASES_MAX][PROMPT_MAX];
    uint32_t num_bases = between(sim, 1, BASES_MAX), num_salts = one_in(sim, 4) ? 3 : 1;
    uint32_t vocab = between(sim, 1, 4), gap = one_in(sim, 3) ? 0 : between(sim, 1, 12);
    for (uint32_t i = 0; i < num_bases; i++) {
        for (uint32_t j = 0; j < PROMPT_MAX; j++) bases[i][j] = 1 + (int32_t)below(sim, vocab);
    }
    uint32_t num_groups = sim->config.groups.num_groups;
    uint32_t cache_tokens = sim->config.num_blocks / num_groups * sim->config.block_size;
    sim->num_requests = between(sim, 1, REQUESTS_MAX);
    bool has_priorities = one_in(sim, 2), has_outputs = one_in(sim, 2);
    uint64_t arrival = 0;
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        struct sim_request *request = &sim->requests[i];
        uint32_t most = cache_tokens < PROMPT_MAX ? cache_tokens : PROMPT_MAX;
        request->num_prompt = between(sim, 1, one_in(sim, 8) ? most : (most + 1) / 2);
        uint32_t num_new = one_in(sim, 4) ? between(sim, 1, 12) : between(sim, 1, NEW_MAX);
        bool must_fit = !one_in(sim, 20);
        // The last token needs no KV.
        if (must_fit && request->num_prompt + num_new > cache_tokens + 1) {
            request->num_prompt = (request->num_prompt + 1) / 2;
            num_new = below(sim, cache_tokens + 1 - request->num_prompt) + 1;
            if (num_new > NEW_MAX) num_new = NEW_MAX;
        }
        request->num_tokens_max = request->num_prompt + num_new;
        uint32_t num_shared =
            one_in(sim, 3) ? request->num_prompt : between(sim, 0, request->num_prompt);
        memcpy(request->tokens, bases[below(sim, num_bases)], sizeof bases[0]);
        for (uint32_t j = num_shared; j < request->num_prompt; j++) {
            request->tokens[j] = 1 + (int32_t)below(sim, 3);
        }
        request->salt = below(sim, num_salts);
        request->skips_cache = one_in(sim, 10);
        request->ignore_eos = one_in(sim, 2);
        request->priority = has_priorities ? (int32_t)below(sim, 3) - 1 : 0;
        if (gap) arrival += below(sim, gap);
        request->arrival_step = arrival;
        request->abort_step = one_in(sim, 8) ? below(sim, 30) : UINT64_MAX;
        request->abort_phase = (enum abort_phase)below(sim, NUM_PHASES);
        make_alone(request);
        if (has_outputs && one_in(sim, 2)) i = make_outputs(sim, i);
    }
}

// Gives the sequence its hashes before the block manager computes better ones.
static void weaken_hashes(const struct sim *sim, struct sequence *seq) {
    const struct sim_request *request = seq->user;
    uint32_t block_size = sim->config.block_size;
    if (!sim->has_weak_hashes) return;
    uint32_t num_full = seq->num_tokens / block_size;
    if (num_full > seq->num_blocks_max) num_full = seq->num_blocks_max;
    for (; seq->num_hashes < num_full; seq->num_hashes++) {
        uint32_t end = (seq->num_hashes + 1) * block_size;
        seq->block_hashes[seq->num_hashes] = request->prefix[end - 1] % 16;
    }
}

static void check_blocks(struct sim *sim) {
    const char *fault =
        block_checks_run(scheduler_blocks(sim->scheduler), sim->seqs, sim->num_requests);
    if (fault) fail(sim, "%s", fault);
}

static void end_request(struct sim *sim, struct sim_request *request) {
    scheduler_finish(sim->scheduler, request->seq);
    if (request->seq->status != SEQUENCE_FINISHED) fail(sim, "finish left a status");
    sim->ended[sim->num_ended] = request->seq;
    request->seq = NULL;
    sim->seqs[request - sim->requests] = NULL;
    request->ended = true;
    sim->num_ended++;
}

static void abort_due(struct sim *sim, enum abort_phase phase) {
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        struct sim_request *request = &sim->requests[i];
        if (!request->seq || request->abort_phase != phase) continue;
        if (request->abort_step == UINT64_MAX) continue;
        if (sim->step < request->arrival_step + request->abort_step) continue;
        sim->totals->num_aborts++;
        if (request->seq->num_scheduled_tokens > 0) sim->totals->num_midstep_aborts++;
        end_request(sim, request);
    }
}

// Most blocks of one group that a sequence may hold.
static uint32_t most_held_of_group(const struct sim *sim, const struct sequence *seq,
                                   uint32_t group) {
    uint32_t window = sim->config.groups.windows[group], block_size = sim->config.block_size;
    if (!window) return seq->num_blocks_max;
    // A step's tokens and those that its first one sees, the first of them the last in its block.
    uint32_t num_tokens = window - 1 + sim->config.max_num_batched_tokens;
    uint32_t most = 1 + (num_tokens - 1 + block_size - 1) / block_size;
    return most < seq->num_blocks_max ? most : seq->num_blocks_max;
}

static uint32_t most_held(const struct sim *sim, const struct sequence *seq) {
    uint32_t sum = 0;
    for (uint32_t g = 0; g < sim->config.groups.num_groups; g++) {
        sum += most_held_of_group(sim, seq, g);
    }
    return sum;
}

static void add_due(struct sim *sim) {
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        struct sim_request *request = &sim->requests[i];
        if (request->seq || request->ended || request->arrival_step > sim->step) continue;
        struct err err = {0};
        if (sequence_create(&request->seq, i, request->tokens, request->num_prompt,
                            request->num_tokens_max - request->num_prompt, sim->config.block_size,
                            sim->config.groups.num_groups, &err)) {
            fail(sim, "sequence_create: %s", err.message);
            return;
        }
        CHECK(request->seq, "sequence %u", i);
        request->seq->user = request;
        request->seq->cache_salt = request->salt;
        request->seq->priority = request->priority;
        if (request->origin) {
            request->seq->origin = request->origin->first_seq;
            request->origin->first_seq->is_origin = true;
        }
        request->first_seq = request->seq;
        request->seq->skips_cache = request->skips_cache && !request->origin;
        sim->seqs[i] = request->seq;
        weaken_hashes(sim, request->seq);
        bool fits = most_held(sim, request->seq) <= sim->config.num_blocks;
        enum status status = scheduler_add(sim->scheduler, request->seq, &err);
        if (status != (fits ? OK : ERR_INVALID)) fail(sim, "scheduler_add returned %d", status);
        sim->totals->num_requests++;
        if (status) {
            sim->totals->num_refused++;
            end_request(sim, request);
        }
    }
}

static void check_item(struct sim *sim, uint32_t index) {
    const struct scheduled *item = &sim->schedule.items[index];
    const struct sequence *seq = item->seq;
    if (!seq) {
        fail(sim, "item %u has no sequence", index);
        return;
    }
    uint32_t end = seq->num_computed_tokens + item->num_tokens;
    if (seq->status != SEQUENCE_RUNNING) fail(sim, "item %u is not running", index);
    if (seq->schedule_index != index) fail(sim, "item %u is scheduled twice", index);
    if (item->num_tokens == 0 || item->num_tokens != seq->num_scheduled_tokens) {
        fail(sim, "item %u has %u tokens", index, item->num_tokens);
    }
    if (end > seq->num_tokens) fail(sim, "item %u runs unknown tokens", index);
    if (item->needs_token != (end == seq->num_tokens)) fail(sim, "B24: needs_token is wrong");
    if (seq->num_blocks * sim->config.block_size < end) fail(sim, "item %u lacks blocks", index);
    for (uint32_t g = 0; g < sim->config.groups.num_groups; g++) {
        if (seq->num_blocks - seq->first_blocks[g] > most_held_of_group(sim, seq, g)) {
            fail(sim, "item %u holds more blocks than its window needs", index);
        }
    }
    bool is_decode = index < sim->schedule.num_decode_tokens;
    if (is_decode != seq->is_prefilled) fail(sim, "decodes are not first");
    if (is_decode && (item->num_tokens != 1 || sequence_num_generated(seq) == 0)) {
        fail(sim, "a decode is not the newest generated token");
    }
}

// Of an output just admitted whose origin is there: the prompt's full blocks are not computed
// again.
static void check_sharing(struct sim *sim, const struct scheduled *item) {
    const struct sequence *seq = item->seq, *origin = seq->origin;
    const struct sim_request *request = seq->user;
    bool is_new = !request->was_running;
    if (seq->skips_cache && is_new && item->start) fail(sim, "a cached prefix is read");
    if (!origin || origin->status == SEQUENCE_FINISHED || !is_new) return;
    if (origin->num_computed_tokens < origin->num_prompt_tokens) {
        fail(sim, "an output runs before its prompt is computed");
    }
    uint32_t block_size = sim->config.block_size;
    uint32_t most = (seq->num_tokens - 1) / block_size;
    uint32_t num_blocks = seq->num_prompt_tokens / block_size;
    if (num_blocks > most) num_blocks = most;
    // Weak hashes keep blocks out of the cache, and the origin's windows may have passed some.
    if (sim->config.enable_prefix_caching && sim->has_weak_hashes) return;
    if (scheduler_blocks(sim->scheduler)->has_windows) return;
    if (seq->num_computed_tokens < num_blocks * block_size) {
        fail(sim, "an output computes its prompt again");
    }
    sim->totals->num_shared_prompts += num_blocks > 0;
}

static void check_schedule(struct sim *sim) {
    const struct schedule *schedule = &sim->schedule;
    uint32_t num_tokens = 0, num_prefills = 0, num_cut = 0;
    for (uint32_t i = 0; i < schedule->num_items && !sim->fault[0]; i++) {
        check_item(sim, i);
        check_sharing(sim, &schedule->items[i]);
        num_tokens += schedule->items[i].num_tokens;
        num_prefills += i >= schedule->num_decode_tokens;
        num_cut += !schedule->items[i].needs_token;
    }
    uint32_t sum = schedule->num_decode_tokens + schedule->num_prefill_tokens;
    if (num_tokens != schedule->num_tokens || sum != num_tokens) fail(sim, "sums are wrong");
    if (num_tokens > sim->config.max_num_batched_tokens) fail(sim, "over the token budget");
    uint32_t num_running = scheduler_num_running(sim->scheduler);
    if (num_running > sim->config.max_num_seqs) fail(sim, "B4: %u are active", num_running);
    bool has_unfinished = scheduler_has_unfinished(sim->scheduler);
    if ((schedule->num_items > 0) != has_unfinished) fail(sim, "B1: empty with work left");
    bool is_mixed = sim->config.policy == SCHEDULE_MIXED;
    if (!is_mixed && num_prefills && schedule->num_decode_tokens) fail(sim, "prefill met decode");
    if (!is_mixed && num_cut > (schedule->num_items == 1)) fail(sim, "a later prompt is cut");
}

// Whether another item computes the block that `seq` is about to begin, and came first.
static bool is_computed_by_another(const struct sim *sim, const struct sequence *seq) {
    uint32_t block_size = sim->config.block_size;
    uint32_t index = seq->num_computed_tokens / block_size, end = (index + 1) * block_size;
    const struct sim_request *request = seq->user;
    if (end > seq->num_tokens - 1) return false; // would have to be computed in any case
    for (uint32_t i = 0; i < sim->schedule.num_items; i++) {
        const struct sequence *other = sim->schedule.items[i].seq;
        const struct sim_request *theirs = other->user;
        if (other == seq || end > other->num_tokens) continue;
        if (!theirs->was_running && sequence_comes_before(seq, other)) continue;
        uint32_t their_end = other->num_computed_tokens + other->num_scheduled_tokens;
        if (other->num_computed_tokens / block_size > index || their_end <= index * block_size) {
            continue;
        }
        if (theirs->prefix[end - 1] == request->prefix[end - 1]) return true;
    }
    return false;
}

static bool was_deferred(const struct sim_request *request) {
    return request->seq && request->seq->num_deferrals > request->num_deferrals;
}

// Who was let in, who had to wait, and who should have run.
static void check_fairness(struct sim *sim) {
    bool is_mixed = sim->config.policy == SCHEDULE_MIXED;
    uint64_t num_preemptions = scheduler_num_preemptions(sim->scheduler);
    const struct sequence *first = NULL, *last_admitted = NULL;
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        const struct sequence *seq = sim->seqs[i];
        const struct sim_request *request = &sim->requests[i];
        if (!seq || seq->status != SEQUENCE_RUNNING) continue;
        bool is_scheduled = seq->num_scheduled_tokens > 0;
        bool must_decode = is_mixed || sim->schedule.num_decode_tokens > 0;
        if (seq->is_prefilled && must_decode && !is_scheduled) fail(sim, "B5: a decode waits");
        if (!first || sequence_comes_before(seq, first)) first = seq;
        if (request->was_running) continue;
        if (num_preemptions > sim->num_preemptions) fail(sim, "2.6: preempted and admitted");
        if (!last_admitted || sequence_comes_before(last_admitted, seq)) last_admitted = seq;
        if (sim->config.enable_prefix_caching && !seq->skips_cache &&
            request->num_deferrals < seq->num_tokens && is_computed_by_another(sim, seq)) {
            fail(sim, "B18: a block is computed twice in a step");
        }
    }
    if (is_mixed && first && first->num_scheduled_tokens == 0) fail(sim, "the first one waits");
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        const struct sequence *seq = sim->seqs[i];
        if (!seq || seq->status != SEQUENCE_WAITING) continue;
        if (seq->num_blocks > 0) fail(sim, "a waiting sequence holds blocks");
        sim->totals->num_deferrals += was_deferred(&sim->requests[i]);
        bool is_passed = last_admitted && sequence_comes_before(seq, last_admitted);
        if (is_passed && !was_deferred(&sim->requests[i])) {
            fail(sim, "a later one was admitted first");
        }
    }
}

static uint64_t *slot_of(struct sim *sim, uint64_t *array, const uint32_t *table,
                         uint32_t position) {
    uint32_t block_size = sim->config.block_size, id = table[position / block_size];
    CHECK(id < sim->config.num_blocks, "no block at position %u", position);
    return &array[id * block_size + position % block_size];
}

// Sends the device what its row of block tables lacks, as batch_build does.
static void send_table(struct sim *sim, const struct scheduled *item) {
    struct sequence *seq = item->seq;
    uint32_t end = item->start + item->num_tokens, block_size = sim->config.block_size;
    if (seq->table_row >= sim->config.max_num_seqs) {
        fail(sim, "row %u of block tables", seq->table_row);
        return;
    }
    for (; seq->num_sent * block_size < end; seq->num_sent++) {
        for (uint32_t g = 0; g < sim->config.groups.num_groups; g++) {
            sim->tables[g][seq->table_row][seq->num_sent] = sequence_table(seq, g)[seq->num_sent];
        }
    }
}

// Each group writes something else, so that nothing is right that reads another group's blocks.
static uint64_t group_content(uint64_t content, uint32_t group) {
    return content ^ (group * 0x9E3779B97F4A7C15u);
}

// Everything computed that a later query reads is what this sequence alone would have written,
// through its own block tables or the device's.
static void check_reads(struct sim *sim, const struct sequence *seq, bool is_sent) {
    const struct sim_request *request = seq->user;
    uint32_t end = seq->num_computed_tokens;
    for (uint32_t g = 0; g < sim->config.groups.num_groups; g++) {
        const uint32_t *table = is_sent ? sim->tables[g][seq->table_row] : sequence_table(seq, g);
        uint32_t window = sim->config.groups.windows[g];
        for (uint32_t i = window && window <= end ? end + 1 - window : 0; i < end; i++) {
            if (*slot_of(sim, sim->slots, table, i) == group_content(request->prefix[i], g)) {
                continue;
            }
            fail(sim, "request %llu reads another prefix at position %u of group %u",
                 (unsigned long long)seq->id, i, g);
            return;
        }
    }
}

static void write_slot(struct sim *sim, const uint32_t *table, uint32_t group, uint32_t i,
                       uint64_t content) {
    uint32_t id = table[i / sim->config.block_size];
    const struct block *block = &scheduler_blocks(sim->scheduler)->blocks[id];
    if (block->ref_count != 1 || block->prefix != PREFIX_NONE)
        fail(sim, "writes to a shared block");
    uint64_t *written_at = slot_of(sim, sim->written_at, table, i);
    if (*written_at == sim->step + 1) fail(sim, "two items write to one slot");
    *written_at = sim->step + 1;
    *slot_of(sim, sim->slots, table, i) = group_content(content, group);
}

static void run_item(struct sim *sim, const struct scheduled *item) {
    const struct sequence *seq = item->seq;
    const struct sim_request *request = seq->user;
    uint32_t start = seq->num_computed_tokens;
    for (uint32_t g = 0; g < sim->config.groups.num_groups; g++) {
        const uint32_t *table = sim->tables[g][seq->table_row];
        uint64_t before = start ? request->prefix[start - 1] : mix(request->salt, 5);
        if (start && sim->config.groups.windows[g] != 1) { // a window of 1 sees no other token
            before = group_content(*slot_of(sim, sim->slots, table, start - 1), g);
        }
        uint32_t own = start + item->num_tokens - item->num_drafts - 1; // the last that is no draft
        for (uint32_t i = start; i < start + item->num_tokens; i++) {
            before = slot_content(before, seq->token_ids[i]);
            write_slot(sim, table, g, i, before);
            if (i >= own) sim->outputs[request - sim->requests][i - own] = before;
        }
    }
}

static void run_model(struct sim *sim) {
    const struct schedule *schedule = &sim->schedule;
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        if (schedule->items[i].seq->status == SEQUENCE_FINISHED) continue;
        send_table(sim, &schedule->items[i]);
    }
    // Before the writes: nothing may count on KV that only this step computes.
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct sequence *seq = schedule->items[i].seq;
        if (seq->status == SEQUENCE_FINISHED) continue;
        check_reads(sim, seq, true);
    }
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        if (schedule->items[i].seq->status == SEQUENCE_FINISHED) continue;
        run_item(sim, &schedule->items[i]);
        sim->totals->num_tokens += schedule->items[i].num_tokens;
    }
}

// Some decodes get drafts: tokens that come indeed, then perhaps one that does not.
static void add_drafts(struct sim *sim) {
    for (uint32_t i = 0; i < sim->schedule.num_decode_tokens; i++) {
        struct scheduled *item = &sim->schedule.items[i];
        const struct sim_request *request = item->seq->user;
        if (!one_in(sim, 3)) continue;
        uint32_t num_drafts = below(sim, DRAFTS_MAX + 1), num_right = below(sim, num_drafts + 1);
        uint32_t room = item->seq->num_tokens_max - item->seq->num_tokens;
        for (uint32_t k = 0; k < num_drafts && k < room; k++) {
            uint32_t at = item->seq->num_tokens + k;
            bool is_right = k < num_right && at < request->num_tokens;
            item->seq->token_ids[at] = is_right ? request->tokens[at] : 7;
        }
        uint32_t taken = scheduler_add_drafts(sim->scheduler, item, num_drafts);
        if (taken > num_drafts || taken >= room) fail(sim, "%u drafts are taken", taken);
        sim->totals->num_drafts += taken;
    }
    if (sim->schedule.num_tokens > sim->config.max_num_batched_tokens) fail(sim, "drafts: budget");
}

// The k-th token of a step. Returns whether the draft behind it was the same, and the request goes
// on.
static bool take_output(struct sim *sim, const struct scheduled *item, uint32_t k) {
    struct sequence *seq = item->seq;
    struct sim_request *request = seq->user;
    uint64_t content = sim->outputs[request - sim->requests][k];
    int32_t token = next_token(content, request->seed);
    if (token != request->tokens[seq->num_tokens]) {
        fail(sim, "request %llu generates another token than alone", (unsigned long long)seq->id);
    }
    bool is_right = k < item->num_drafts && seq->token_ids[seq->num_tokens] == token;
    if (k == 0) {
        scheduler_append_token(sim->scheduler, seq, token);
    } else {
        scheduler_append_further(sim->scheduler, seq, token);
    }
    sim->totals->num_right += k > 0;
    weaken_hashes(sim, seq);
    bool is_stopped = token == EOS && !request->ignore_eos;
    if (!is_stopped && seq->num_tokens < seq->num_tokens_max) return is_right;
    if (seq->num_tokens != request->num_tokens) fail(sim, "a request is shorter than alone");
    if (memcmp(seq->token_ids, request->tokens, seq->num_tokens * sizeof token) != 0) {
        fail(sim, "a request's tokens are others than alone");
    }
    sim->totals->num_finished++;
    end_request(sim, request);
    return false;
}

static void run_step(struct sim *sim) {
    add_due(sim);
    abort_due(sim, ABORT_BEFORE);
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        const struct sequence *seq = sim->seqs[i];
        sim->requests[i].was_running = seq && seq->status == SEQUENCE_RUNNING;
        sim->requests[i].num_deferrals = seq ? seq->num_deferrals : 0;
    }
    sim->num_preemptions = scheduler_num_preemptions(sim->scheduler);
    scheduler_schedule(sim->scheduler, &sim->schedule);
    check_schedule(sim);
    check_fairness(sim);
    check_blocks(sim);
    if (sim->fault[0] || sim->schedule.num_items == 0) return;
    sim->totals->num_steps++;
    add_drafts(sim);

    abort_due(sim, ABORT_MIDSTEP);
    run_model(sim);
    abort_due(sim, ABORT_AFTER_RUN);
    check_blocks(sim);
    scheduler_advance(sim->scheduler);
    check_blocks(sim);
    for (uint32_t i = 0; i < sim->num_requests; i++) {
        const struct sequence *seq = sim->seqs[i];
        if (seq) check_reads(sim, seq, false);
    }
    for (uint32_t i = 0; i < sim->schedule.num_items && !sim->fault[0]; i++) {
        const struct scheduled *item = &sim->schedule.items[i];
        bool is_live = item->seq->status != SEQUENCE_FINISHED;
        uint32_t k = 0;
        while (is_live && item->needs_token && take_output(sim, item, k)) k++;
        if (i == 0) abort_due(sim, ABORT_AMONG_OUTPUTS);
    }
    scheduler_measure(sim->scheduler, &sim->schedule, 0.001 * below(sim, 1000));
    check_blocks(sim);
}

// Tokens of all requests, which alone would be about the steps that a budget of 1 takes.
static uint64_t total_tokens(const struct sim *sim) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sim->num_requests; i++) sum += sim->requests[i].num_tokens;
    return sum;
}

static void run_case(struct sim *sim) {
    uint64_t num_tokens = total_tokens(sim), first_steps = sim->totals->num_steps;
    uint64_t last_arrival = sim->requests[sim->num_requests - 1].arrival_step;
    while (sim->num_ended < sim->num_requests && !sim->fault[0]) {
        run_step(sim);
        sim->step++;
        // With some tokens computed per step, only recomputing for ever takes longer.
        if (sim->step > last_arrival + 2 * num_tokens + 100) fail(sim, "livelock or starvation");
    }
    const struct block_manager *blocks = scheduler_blocks(sim->scheduler);
    if (!sim->fault[0]) {
        check_blocks(sim);
        if (blocks->num_free != blocks->num_blocks) fail(sim, "blocks leaked");
        if (scheduler_num_blocks_used(sim->scheduler) != 0) fail(sim, "blocks are still used");
        if (scheduler_num_blocks_peak(sim->scheduler) > blocks->num_blocks) fail(sim, "peak");
        if (scheduler_first(sim->scheduler)) fail(sim, "a queue is not empty");
    }
    struct sim_totals *totals = sim->totals;
    totals->num_cases++;
    totals->num_preemptions += scheduler_num_preemptions(sim->scheduler);
    totals->num_cached_tokens += scheduler_num_cached_tokens(sim->scheduler);
    totals->num_duplicates += blocks->stats.num_duplicates;
    totals->num_collisions += blocks->stats.num_collisions;
    totals->num_evictions += blocks->stats.num_evicted;
    double ratio = (double)(totals->num_steps - first_steps) / (double)num_tokens;
    if (ratio > totals->worst_step_ratio) totals->worst_step_ratio = ratio;
}

const char *scheduler_sim_run(uint64_t seed, enum schedule_policy policy,
                              bool enable_prefix_caching, struct sim_totals *totals) {
    static struct sim sim;
    sim = (struct sim){.random = mix(seed, 3), .totals = totals};
    make_config(&sim, policy, enable_prefix_caching);
    make_requests(&sim);
    sim.has_weak_hashes = one_in(&sim, 4);
    size_t num_slots = (size_t)sim.config.num_blocks * sim.config.block_size;
    sim.slots = calloc(num_slots, 2 * sizeof *sim.slots);
    sim.written_at = sim.slots + num_slots;
    struct err err = {0};
    if (!sim.slots || schedule_init(&sim.schedule, sim.config.max_num_seqs, &err) ||
        scheduler_create(&sim.scheduler, &sim.config, &err)) {
        fail(&sim, "scheduler_create: %s", err.message);
    } else {
        run_case(&sim);
    }
    scheduler_destroy(sim.scheduler);
    for (uint32_t i = 0; i < sim.num_requests; i++) sequence_destroy(sim.seqs[i]);
    for (uint32_t i = 0; i < sim.num_ended; i++) sequence_destroy(sim.ended[i]);
    schedule_fini(&sim.schedule);
    free(sim.slots);
    return sim.fault[0] ? sim.fault : NULL;
}
