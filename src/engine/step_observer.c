#include "engine/step_observer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/request/request.h"

_Static_assert((int)BLOCK_TAKEN == (int)NVLLM_BLOCK_TAKEN &&
                   (int)BLOCK_HIT == (int)NVLLM_BLOCK_HIT &&
                   (int)BLOCK_SHARED == (int)NVLLM_BLOCK_SHARED &&
                   (int)BLOCK_CACHED == (int)NVLLM_BLOCK_CACHED &&
                   (int)BLOCK_LEFT == (int)NVLLM_BLOCK_LEFT,
               "the flags of block_changes are nvllm_block_change's");
_Static_assert(BLOCK_NONE == NVLLM_NO_BLOCK, "tables are shown as they are");

enum status step_observer_init(struct step_observer *out, const struct scheduler_config *config,
                               uint32_t max_blocks_per_seq, nvllm_step_fn on_step, void *user_data,
                               struct err *err) {
    struct step_observer observer = {.on_step = on_step, .user_data = user_data};
    enum status status = block_changes_init(&observer.changes, config->num_blocks, err);
    if (status) return status;
    observer.items = calloc(config->max_num_seqs, sizeof *observer.items);
    observer.blocks = calloc(config->num_blocks, sizeof *observer.blocks);
    bool has_all = observer.items && observer.blocks;
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) {
        size_t count =
            (size_t)config->max_num_seqs * max_blocks_per_seq * config->groups.num_groups;
        observer.tables[i] = calloc(count, sizeof *observer.tables[i]);
        has_all = has_all && observer.tables[i];
    }
    if (!has_all) {
        step_observer_fini(&observer);
        return err_nomem(err, "observer");
    }
    *out = observer;
    return OK;
}

void step_observer_fini(struct step_observer *observer) {
    block_changes_fini(&observer->changes);
    free(observer->items);
    free(observer->blocks);
    for (uint32_t i = 0; i < MODEL_RUNNER_SLOTS; i++) free(observer->tables[i]);
    *observer = (struct step_observer){0};
}

// How many blocks the item's tokens see.
static uint32_t num_blocks_of(const struct scheduled *item, uint32_t block_size) {
    return (item->start + item->num_tokens + block_size - 1) / block_size;
}

void step_observer_note_launch(struct step_observer *observer, uint32_t slot,
                               const struct schedule *schedule, uint32_t block_size) {
    uint32_t *to = observer->tables[slot];
    for (uint32_t i = 0; i < schedule->num_items; i++) {
        const struct scheduled *item = &schedule->items[i];
        uint32_t num_blocks = num_blocks_of(item, block_size);
        for (uint32_t g = 0; g < item->seq->num_kv_groups; g++, to += num_blocks) {
            memcpy(to, sequence_table(item->seq, g), num_blocks * sizeof *to);
        }
    }
}

void step_observer_begin(struct step_observer *observer, uint32_t slot) {
    observer->num_items = 0;
    observer->next_table = observer->tables[slot];
}

void step_observer_add(struct step_observer *observer, const struct schedule *schedule,
                       uint32_t block_size, const int32_t *ran, uint32_t num_output_tokens) {
    uint32_t i = observer->num_items++;
    const struct scheduled *item = &schedule->items[i];
    const struct sequence *seq = item->seq;
    const struct request *request = seq->user;
    uint32_t num_blocks = num_blocks_of(item, block_size);
    observer->items[i] = (struct nvllm_step_item){
        .request_id = seq->id,
        .index = request->index,
        .sequence_id = seq->arrival,
        .is_prefill = i >= schedule->num_decode_tokens,
        .is_admitted = item->is_admitted,
        .num_prompt_tokens = seq->num_prompt_tokens,
        .first_position = item->start,
        .num_tokens = item->num_tokens,
        .num_drafts = item->num_drafts,
        .token_ids = item->num_drafts ? ran : seq->token_ids + item->start,
        .block_table = observer->next_table,
        .num_blocks = num_blocks,
        .num_kv_groups = seq->num_kv_groups,
        .block_table_stride = num_blocks,
        .num_hit_blocks = item->is_admitted ? item->start / block_size : 0,
        .output_token_ids = seq->token_ids + sequence_num_known(seq) - num_output_tokens,
        .num_output_tokens = num_output_tokens,
        .finish_reason = request->finish_reason,
    };
    observer->next_table += (size_t)seq->num_kv_groups * num_blocks;
}

static void list_blocks(struct step_observer *observer, const struct block_manager *manager) {
    const struct block_changes *changes = &observer->changes;
    for (uint32_t i = 0; i < changes->num_ids; i++) {
        uint32_t id = changes->ids[i];
        const struct block *block = &manager->blocks[id];
        bool is_published = block->prefix != PREFIX_NONE;
        size_t at = is_published ? block->prefix : 0;
        observer->blocks[i] = (struct nvllm_step_block){
            .block_id = id,
            .changes = changes->flags[id] & ~(uint32_t)BLOCK_LISTED,
            .num_holders = block->ref_count,
            .token_ids = is_published ? manager->tokens + at * manager->block_size : NULL,
        };
    }
}

void step_observer_tell(struct step_observer *observer, const struct schedule *schedule,
                        const struct scheduler *scheduler, struct nvllm_step_trace *trace) {
    struct block_changes *changes = &observer->changes;
    const struct block_manager *manager = scheduler_blocks(scheduler);
    list_blocks(observer, manager);
    if (schedule) {
        CHECK(observer->num_items == schedule->num_items, "%u of %u items", observer->num_items,
              schedule->num_items);
        trace->items = observer->items;
        trace->num_items = schedule->num_items;
        trace->num_prefill_tokens = schedule->num_prefill_tokens;
        trace->num_decode_tokens = schedule->num_decode_tokens + schedule->num_draft_tokens;
        trace->preempted = schedule->preempted;
        trace->num_preempted = schedule->num_preempted;
    }
    trace->blocks = observer->blocks;
    trace->num_blocks = changes->num_ids;
    trace->num_blocks_taken = changes->num_taken;
    trace->num_blocks_freed = changes->num_freed;
    trace->num_running = scheduler_num_running(scheduler);
    trace->num_waiting = scheduler_num_waiting(scheduler);
    trace->num_kv_blocks = manager->num_blocks;
    trace->num_kv_blocks_used = manager->num_blocks - manager->num_free;
    trace->num_kv_blocks_cached = manager->num_free_cached;
    trace->num_kv_blocks_free = manager->num_free - manager->num_free_cached;
    trace->block_size = manager->block_size;
    observer->on_step(trace, observer->user_data);
    block_changes_clear(changes);
    observer->has_changes = false;
}
