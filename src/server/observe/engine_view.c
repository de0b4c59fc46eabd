#include "server/observe/engine_view.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED_MAX = 1024 }; // running sequences beyond have no tokens in their blocks

// All of it is guarded by the lock, but what is said to be another's.
struct picture {
    struct view_block *blocks; // [num_blocks]
    int32_t *tokens; // [num_blocks][block_size]
    uint32_t *changed; // [num_blocks] ids, the first num_changed are valid
    bool *is_changed; // [num_blocks]
    uint32_t num_changed;
    struct view_step steps[VIEW_STEPS_MAX]; // a ring: step n is at n % VIEW_STEPS_MAX
    uint64_t num_steps, num_steps_taken;
    struct view_sequence sequences[VIEW_SEQUENCES_MAX];
    uint32_t num_sequences;
    uint32_t tables[VIEW_TABLE_MAX];
    uint32_t num_running, num_waiting;
    bool is_new, is_cleared; // since the loop took last
};

struct engine_view {
    struct nvllm_engine *engine;
    uint32_t num_blocks; // shown: all arrays have so many
    uint32_t block_size;
    atomic_bool is_wanted; // the loop's wish
    // The wish that was followed last, as far as the engine can. The engine's thread alone.
    bool is_observing;
    struct nvllm_sequence listed[LISTED_MAX]; // the engine's thread alone
    struct view_news news; // the loop's alone
    pthread_mutex_t lock;
    struct picture picture;
};

struct engine_view *engine_view_create(struct nvllm_engine *engine) {
    struct engine_view *view = calloc(1, sizeof *view);
    if (!view) return NULL;
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    view->engine = engine;
    view->num_blocks =
        stats.num_kv_blocks < VIEW_BLOCKS_MAX ? stats.num_kv_blocks : VIEW_BLOCKS_MAX;
    view->block_size = stats.block_size;
    pthread_mutex_init(&view->lock, NULL);
    return view;
}

static void free_blocks(struct engine_view *view) {
    struct picture *picture = &view->picture;
    free(picture->blocks);
    free(picture->tokens);
    free(picture->changed);
    free(picture->is_changed);
    free(view->news.blocks);
    picture->blocks = view->news.blocks = NULL;
    picture->tokens = NULL;
    picture->changed = NULL;
    picture->is_changed = NULL;
}

void engine_view_destroy(struct engine_view *view) {
    if (!view) return;
    atomic_store(&view->is_wanted, false);
    engine_view_attend(view); // this thread drives the engine now
    free_blocks(view);
    pthread_mutex_destroy(&view->lock);
    free(view);
}

uint32_t engine_view_num_blocks(const struct engine_view *view) {
    return view->num_blocks;
}

uint32_t engine_view_block_size(const struct engine_view *view) {
    return view->block_size;
}

// ---- the engine's thread, with the lock ----

static int32_t *tokens_of(struct picture *picture, uint32_t block_size, uint32_t id) {
    return picture->tokens + (size_t)id * block_size;
}

static void note_change(struct picture *picture, uint32_t id) {
    if (picture->is_changed[id]) return;
    picture->is_changed[id] = true;
    picture->changed[picture->num_changed++] = id;
}

static enum view_block_state state_of(const struct nvllm_step_block *block) {
    if (block->num_holders > 1) return VIEW_SHARED;
    if (block->num_holders) return block->token_ids ? VIEW_PUBLISHED : VIEW_USED;
    return block->token_ids ? VIEW_CACHED : VIEW_FREE;
}

static void forget_tokens(struct engine_view *view, uint32_t id) {
    view->picture.blocks[id].num_tokens = 0;
    memset(tokens_of(&view->picture, view->block_size, id), 0xff,
           view->block_size * sizeof(int32_t));
}

static void take_block(struct engine_view *view, const struct nvllm_step_block *block) {
    struct picture *picture = &view->picture;
    if (block->block_id >= view->num_blocks) return;
    struct view_block *own = &picture->blocks[block->block_id];
    bool is_another = block->changes & NVLLM_BLOCK_TAKEN || !block->num_holders;
    if (is_another && own->num_tokens) forget_tokens(view, block->block_id);
    own->state = (uint8_t)state_of(block);
    own->num_holders = block->num_holders;
    if (block->token_ids) {
        own->num_tokens = view->block_size;
        memcpy(tokens_of(picture, view->block_size, block->block_id), block->token_ids,
               view->block_size * sizeof(int32_t));
    }
    note_change(picture, block->block_id);
}

// Of an item's tokens those that are its sequence's: not the drafts that were wrong.
static uint32_t num_own_tokens(const struct nvllm_step_item *item) {
    uint32_t num_more = item->num_output_tokens ? item->num_output_tokens - 1 : 0;
    uint32_t num_right = num_more < item->num_drafts ? num_more : item->num_drafts;
    return item->num_tokens - item->num_drafts + num_right;
}

// Tokens of an item that its sequence still holds in a KV group. While steps overlap, the next one
// may have preempted the sequence, and its blocks may be another's.
static void take_tokens(struct engine_view *view, const struct nvllm_step_item *item,
                        const struct nvllm_sequence *seq, uint32_t kv_group) {
    struct picture *picture = &view->picture;
    const uint32_t *run = item->block_table + (size_t)kv_group * item->block_table_stride;
    const uint32_t *held = seq->block_table + (size_t)kv_group * seq->block_table_stride;
    uint32_t size = view->block_size, num_tokens = num_own_tokens(item);
    for (uint32_t i = 0, count; i < num_tokens; i += count) {
        uint32_t position = item->first_position + i;
        uint32_t index = position / size, at = position % size;
        uint32_t id = run[index];
        count = size - at < num_tokens - i ? size - at : num_tokens - i;
        bool is_held = index < seq->num_blocks && held[index] == id;
        // One in the prefix cache is full, and take_block has all of it.
        if (!is_held || id >= view->num_blocks || picture->blocks[id].state != VIEW_USED) continue;
        memcpy(tokens_of(picture, size, id) + at, item->token_ids + i, count * sizeof(int32_t));
        picture->blocks[id].num_tokens = at + count;
        note_change(picture, id);
    }
}

static void take_step(struct picture *picture, const struct nvllm_step_trace *trace) {
    const struct nvllm_step_times *times = &trace->times;
    picture->steps[picture->num_steps++ % VIEW_STEPS_MAX] = (struct view_step){
        .number = trace->step,
        .schedule_ms = (float)((times->launch_begin - times->schedule_begin) * 1e3),
        .model_ms = (float)((times->output_begin - times->launch_begin) * 1e3),
        .output_ms = (float)((times->output_end - times->output_begin) * 1e3),
        .end = times->output_end,
        .num_prefill_tokens = trace->num_prefill_tokens,
        .num_decode_tokens = trace->num_decode_tokens,
        .num_seqs = trace->num_items,
        .num_preempted = trace->num_preempted,
    };
}

// The blocks that a sequence holds, group by group, at most `max`. Returns how many.
static uint32_t copy_held(uint32_t *out, uint32_t max, const struct nvllm_sequence *seq) {
    uint32_t num = 0;
    for (uint32_t g = 0; g < seq->num_kv_groups; g++) {
        const uint32_t *table = seq->block_table + (size_t)g * seq->block_table_stride;
        for (uint32_t i = 0; i < seq->num_blocks && num < max; i++) {
            if (table[i] != NVLLM_NO_BLOCK) out[num++] = table[i];
        }
    }
    return num;
}

static void copy_sequences(struct engine_view *view, size_t count) {
    struct picture *picture = &view->picture;
    uint32_t num_entries = 0;
    if (count > VIEW_SEQUENCES_MAX) count = VIEW_SEQUENCES_MAX;
    for (size_t i = 0; i < count; i++) {
        const struct nvllm_sequence *seq = &view->listed[i];
        uint32_t left = VIEW_TABLE_MAX - num_entries;
        uint32_t num_shown = copy_held(picture->tables + num_entries, left, seq);
        picture->sequences[i] = (struct view_sequence){.seq = *seq, .first_block = num_entries};
        picture->sequences[i].seq.block_table = NULL;
        picture->sequences[i].seq.num_blocks = num_shown;
        num_entries += num_shown;
    }
    picture->num_sequences = (uint32_t)count;
}

// Items of a batch and sequences have nearly the same order: the next one is mostly the one sought.
static void take_items(struct engine_view *view, const struct nvllm_step_trace *trace,
                       size_t num_listed) {
    size_t at = 0;
    for (uint32_t i = 0; i < trace->num_items; i++) {
        const struct nvllm_step_item *item = &trace->items[i];
        for (size_t tries = 0; tries < num_listed; tries++, at = (at + 1) % num_listed) {
            if (view->listed[at].sequence_id != item->sequence_id) continue;
            for (uint32_t g = 0; g < item->num_kv_groups; g++) {
                take_tokens(view, item, &view->listed[at], g);
            }
            if (at >= view->picture.num_sequences) break;
            view->picture.sequences[at].num_step_tokens = item->num_tokens;
            view->picture.sequences[at].is_prefill = item->is_prefill;
            break;
        }
    }
}

static void on_step(const struct nvllm_step_trace *trace, void *user_data) {
    struct engine_view *view = user_data;
    struct picture *picture = &view->picture;
    size_t count = nvllm_engine_sequences(view->engine, view->listed, LISTED_MAX);
    pthread_mutex_lock(&view->lock);
    for (uint32_t i = 0; i < trace->num_blocks; i++) take_block(view, &trace->blocks[i]);
    copy_sequences(view, count);
    take_items(view, trace, count);
    if (trace->step) take_step(picture, trace);
    picture->num_running = trace->num_running;
    picture->num_waiting = trace->num_waiting;
    picture->is_new = true;
    pthread_mutex_unlock(&view->lock);
}

static void clear_picture(struct engine_view *view) {
    struct picture *picture = &view->picture;
    for (uint32_t id = 0; id < view->num_blocks; id++) {
        picture->blocks[id] = (struct view_block){.id = id};
        picture->is_changed[id] = false;
    }
    memset(picture->tokens, 0xff, (size_t)view->num_blocks * view->block_size * sizeof(int32_t));
    picture->num_changed = picture->num_sequences = picture->num_running = picture->num_waiting = 0;
    picture->num_steps = picture->num_steps_taken = 0;
    picture->is_new = picture->is_cleared = true;
}

void engine_view_attend(struct engine_view *view) {
    bool is_wanted = atomic_load_explicit(&view->is_wanted, memory_order_acquire);
    if (is_wanted == view->is_observing) return;
    enum nvllm_status status =
        nvllm_engine_observe(view->engine, is_wanted ? on_step : NULL, view, NULL);
    if (status == NVLLM_ERR_NOMEM) return; // it is tried again before the next step
    view->is_observing = is_wanted;
    if (!is_wanted) return;
    pthread_mutex_lock(&view->lock);
    clear_picture(view);
    pthread_mutex_unlock(&view->lock);
}

void engine_view_look(struct engine_view *view) {
    if (!view->is_observing) return;
    size_t count = nvllm_engine_sequences(view->engine, view->listed, VIEW_SEQUENCES_MAX);
    struct picture *picture = &view->picture;
    pthread_mutex_lock(&view->lock);
    bool is_same = count == picture->num_sequences;
    for (size_t i = 0; i < count && is_same; i++) {
        is_same = view->listed[i].sequence_id == picture->sequences[i].seq.sequence_id;
    }
    if (!is_same) {
        copy_sequences(view, count);
        picture->num_running = picture->num_waiting = 0;
        for (size_t i = 0; i < count; i++) {
            uint32_t *number =
                view->listed[i].is_running ? &picture->num_running : &picture->num_waiting;
            ++*number;
        }
        picture->is_new = true;
    }
    pthread_mutex_unlock(&view->lock);
}

// ---- the loop's thread ----

enum status engine_view_watch(struct engine_view *view, struct err *err) {
    struct picture *picture = &view->picture;
    if (!picture->blocks) {
        picture->blocks = calloc(view->num_blocks, sizeof *picture->blocks);
        picture->tokens =
            malloc((size_t)view->num_blocks * view->block_size * sizeof *picture->tokens);
        picture->changed = calloc(view->num_blocks, sizeof *picture->changed);
        picture->is_changed = calloc(view->num_blocks, sizeof *picture->is_changed);
        view->news.blocks = calloc(view->num_blocks, sizeof *view->news.blocks);
        if (!picture->blocks || !picture->tokens || !picture->changed || !picture->is_changed ||
            !view->news.blocks) {
            free_blocks(view);
            return err_nomem(err, "view of the engine");
        }
        clear_picture(view);
    }
    atomic_store_explicit(&view->is_wanted, true, memory_order_release);
    nvllm_engine_wake(view->engine); // it may be idle
    return OK;
}

void engine_view_unwatch(struct engine_view *view) {
    atomic_store_explicit(&view->is_wanted, false, memory_order_release);
    nvllm_engine_wake(view->engine);
}

static void take_steps(struct picture *picture, struct view_news *news) {
    uint64_t first = picture->num_steps_taken;
    if (picture->num_steps - first > VIEW_STEPS_MAX) first = picture->num_steps - VIEW_STEPS_MAX;
    news->num_steps = 0;
    for (uint64_t i = first; i < picture->num_steps; i++) {
        news->steps[news->num_steps++] = picture->steps[i % VIEW_STEPS_MAX];
    }
    picture->num_steps_taken = picture->num_steps;
}

static void take_blocks(struct engine_view *view, bool is_whole) {
    struct picture *picture = &view->picture;
    struct view_news *news = &view->news;
    news->num_changed = 0;
    for (uint32_t i = 0; i < picture->num_changed; i++) {
        uint32_t id = picture->changed[i];
        picture->is_changed[id] = false;
        if (!is_whole) news->blocks[news->num_changed++] = picture->blocks[id];
    }
    picture->num_changed = 0;
    for (uint32_t id = 0; is_whole && id < view->num_blocks; id++) {
        if (picture->blocks[id].state) news->blocks[news->num_changed++] = picture->blocks[id];
    }
}

const struct view_news *engine_view_take(struct engine_view *view, bool is_whole) {
    struct picture *picture = &view->picture;
    struct view_news *news = &view->news;
    pthread_mutex_lock(&view->lock);
    news->is_new = picture->is_new || is_whole;
    if (news->is_new) {
        news->is_whole = is_whole || picture->is_cleared;
        take_blocks(view, news->is_whole);
        take_steps(picture, news);
        memcpy(news->sequences, picture->sequences,
               picture->num_sequences * sizeof *picture->sequences);
        memcpy(news->tables, picture->tables, sizeof picture->tables);
        news->num_sequences = picture->num_sequences;
        news->num_running = picture->num_running;
        news->num_waiting = picture->num_waiting;
        picture->is_new = picture->is_cleared = false;
    }
    pthread_mutex_unlock(&view->lock);
    for (uint32_t i = 0; news->is_new && i < news->num_sequences; i++) {
        struct view_sequence *sequence = &news->sequences[i];
        sequence->seq.block_table = news->tables + sequence->first_block;
    }
    return news;
}

bool engine_view_block(struct engine_view *view, uint32_t id, struct view_block *block,
                       int32_t *tokens) {
    struct picture *picture = &view->picture;
    if (!picture->blocks || id >= view->num_blocks) return false;
    pthread_mutex_lock(&view->lock);
    *block = picture->blocks[id];
    memcpy(tokens, tokens_of(picture, view->block_size, id), view->block_size * sizeof *tokens);
    pthread_mutex_unlock(&view->lock);
    return true;
}
