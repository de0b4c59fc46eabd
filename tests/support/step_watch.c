#include "support/step_watch.h"

#include <string.h>

#include "support/cmocka_all.h"

static void watch_blocks(struct step_watch *w, const struct nvllm_step_trace *trace) {
    bool seen[WATCH_BLOCKS_MAX] = {false};
    for (uint32_t i = 0; i < trace->num_blocks; i++) {
        const struct nvllm_step_block *block = &trace->blocks[i];
        uint32_t id = block->block_id;
        assert_true(id < trace->num_kv_blocks);
        assert_false(seen[id]);
        seen[id] = true;
        bool is_new = block->changes & NVLLM_BLOCK_TAKEN,
             is_left = block->changes & NVLLM_BLOCK_LEFT;
        bool is_held = block->changes & (NVLLM_BLOCK_HIT | NVLLM_BLOCK_SHARED);
        assert_true(w->num_calls == 0 || block->changes);
        if (block->num_holders > w->holders[id]) assert_true(!w->num_calls || is_new || is_held);
        if (block->num_holders < w->holders[id]) assert_true(is_left);
        if (block->token_ids && !w->is_cached[id]) {
            assert_true(!w->num_calls || block->changes & NVLLM_BLOCK_CACHED);
        }
        if (!block->token_ids && w->is_cached[id]) assert_true(is_new);
        w->holders[id] = block->num_holders;
        w->is_cached[id] = block->token_ids != NULL;
        for (int flag = 0; flag < 5; flag++) w->changes[flag] += block->changes >> flag & 1;
        for (uint32_t t = 0; block->token_ids && !w->is_attached_late && t < trace->block_size;
             t++) {
            assert_int_equal(block->token_ids[t], w->slots[id * trace->block_size + t]);
        }
    }
}

// The picture has as many blocks of each kind as the engine says.
static void watch_totals(struct step_watch *w, const struct nvllm_step_trace *trace) {
    uint32_t num_used = 0, num_cached = 0;
    for (uint32_t id = 0; id < trace->num_kv_blocks; id++) {
        num_used += w->holders[id] > 0;
        num_cached += w->is_cached[id] && !w->holders[id];
    }
    assert_int_equal(trace->num_kv_blocks_used, num_used);
    assert_int_equal(trace->num_kv_blocks_cached, num_cached);
    assert_int_equal(trace->num_kv_blocks_free, trace->num_kv_blocks - num_used - num_cached);
    if (w->num_calls || !w->is_attached_late) {
        assert_int_equal(num_used, w->num_used + trace->num_blocks_taken - trace->num_blocks_freed);
    }
    w->num_used = num_used;
    w->num_taken += trace->num_blocks_taken;
    w->num_freed += trace->num_blocks_freed;
}

static uint32_t slot_of(const struct nvllm_step_trace *trace, const struct nvllm_step_item *item,
                        uint32_t position) {
    uint32_t size = trace->block_size;
    assert_true(position / size < item->num_blocks);
    return item->block_table[position / size] * size + position % size;
}

static void watch_admission(struct step_watch *w, const struct nvllm_step_trace *trace,
                            const struct nvllm_step_item *item, struct watched_sequence *seq) {
    assert_int_equal(item->first_position, item->num_hit_blocks * trace->block_size);
    w->num_hit_blocks += item->num_hit_blocks;
    if (!seq->num_prompt_tokens) w->num_first_hit_blocks += item->num_hit_blocks;
    seq->is_active = true;
    seq->request_id = item->request_id;
    seq->index = item->index;
    seq->num_prompt_tokens = item->num_prompt_tokens;
    // Its blocks' contents were written by others, or by itself before it was preempted.
    for (uint32_t p = 0; p < item->first_position; p++) {
        int32_t token = w->slots[slot_of(trace, item, p)];
        if (p < seq->num_tokens) assert_int_equal(token, seq->tokens[p]);
        seq->tokens[p] = token;
    }
    if (seq->num_tokens < item->first_position) seq->num_tokens = item->first_position;
    seq->num_computed = item->first_position;
}

// `is_written`: slots that a token of this step went to.
static void watch_item(struct step_watch *w, const struct nvllm_step_trace *trace,
                       const struct nvllm_step_item *item, bool is_written[WATCH_SLOTS_MAX]) {
    assert_true(item->sequence_id < WATCH_SEQS_MAX);
    struct watched_sequence *seq = &w->sequences[item->sequence_id];
    if (w->is_attached_late) return;
    if (item->is_admitted) watch_admission(w, trace, item, seq);
    assert_true(seq->is_active);
    assert_int_equal(item->first_position, seq->num_computed);
    if (!item->is_prefill) assert_int_equal(item->num_tokens, 1);
    for (uint32_t i = 0; i < item->num_tokens; i++) {
        uint32_t position = item->first_position + i;
        if (position < seq->num_tokens) assert_int_equal(item->token_ids[i], seq->tokens[position]);
        uint32_t slot = slot_of(trace, item, position);
        assert_false(is_written[slot]);
        is_written[slot] = true;
        seq->tokens[position] = item->token_ids[i];
        w->slots[slot] = item->token_ids[i];
    }
    // What it attends to is there: its own tokens, whoever computed them.
    uint32_t end = item->first_position + item->num_tokens;
    for (uint32_t p = 0; p < end; p++) {
        assert_int_equal(w->slots[slot_of(trace, item, p)], seq->tokens[p]);
    }
    if (seq->num_tokens < end) seq->num_tokens = end;
    seq->num_computed = end;
    if (item->num_output_tokens) {
        assert_int_equal(seq->num_tokens, end);
        assert_int_equal(seq->finish_reason, NVLLM_FINISH_NONE);
    }
    for (uint32_t i = 0; i < item->num_output_tokens; i++) {
        seq->tokens[seq->num_tokens++] = item->output_token_ids[i];
        seq->num_outputs++;
    }
    seq->finish_reason = item->finish_reason;
}

static void watch_times(struct step_watch *w, const struct nvllm_step_times *times) {
    assert_true(times->schedule_begin > 0);
    assert_true(times->schedule_begin <= times->launch_begin);
    assert_true(times->launch_begin <= times->sample_begin);
    assert_true(times->sample_begin <= times->launch_end);
    assert_true(times->launch_end <= times->wait_begin);
    assert_true(times->wait_begin <= times->output_begin);
    assert_true(times->output_begin <= times->output_end);
    assert_true(w->last_output_end <= times->output_end);
    w->num_overlaps += times->launch_begin < w->last_results;
    w->last_results = times->output_begin;
    w->last_output_end = times->output_end;
}

void step_watch_call(const struct nvllm_step_trace *trace, void *user_data) {
    struct step_watch *w = user_data;
    assert_true(trace->num_kv_blocks <= WATCH_BLOCKS_MAX);
    watch_times(w, &trace->times);
    uint32_t num_prefill_tokens = 0, num_decode_tokens = 0;
    bool is_written[WATCH_SLOTS_MAX] = {false};
    for (uint32_t i = 0; i < trace->num_preempted; i++) {
        w->sequences[trace->preempted[i]].is_active = false;
    }
    for (uint32_t i = 0; i < trace->num_items; i++) {
        const struct nvllm_step_item *item = &trace->items[i];
        watch_item(w, trace, item, is_written);
        *(item->is_prefill ? &num_prefill_tokens : &num_decode_tokens) += item->num_tokens;
    }
    assert_int_equal(num_prefill_tokens, trace->num_prefill_tokens);
    assert_int_equal(num_decode_tokens, trace->num_decode_tokens);
    watch_blocks(w, trace);
    watch_totals(w, trace);
    if (trace->step) {
        assert_true(trace->num_items > 0);
        if (w->num_steps) assert_int_equal(trace->step, w->last_step + 1);
        w->last_step = trace->step;
        w->num_steps++;
    } else {
        assert_int_equal(trace->num_items, 0);
    }
    w->num_calls++;
    w->num_prefill_tokens += num_prefill_tokens;
    w->num_decode_tokens += num_decode_tokens;
    w->num_preempted += trace->num_preempted;
}
