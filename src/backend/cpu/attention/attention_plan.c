/* Cuts a call of attention into items of about equal cost. An item is usually a tile of rows, which
 * walk all positions. A sequence of few rows that would keep one thread busy while others idle is
 * split instead: an item is one of its parts. The choice changes only the time, as parts are joined
 * in the same order either way. */
#include "backend/cpu/attention/attention.h"

enum {
    ITEMS_PER_THREAD = 4, // where rows are many
    SPLIT_SHARE = 8, // an item longer than this fraction of a thread's share is split
};

size_t attention_partials_floats(const struct kv_cache_spec *spec) {
    size_t parts = (size_t)spec->num_blocks * spec->block_size / ATTENTION_PART + 1;
    size_t rows = (size_t)spec->num_heads * ATTENTION_SPLIT_QUERIES;
    return parts * rows * attention_state_floats(1, spec->head_dim);
}

// Larger items read K and V less often, but every thread should have several items.
static uint32_t choose_rows(const struct attention_job *job) {
    uint32_t step = job->kernels->item_rows;
    uint64_t rows = (uint64_t)job->args->step->num_tokens * job->group * job->args->num_kv_heads;
    uint64_t share = rows / (thread_pool_num_threads(job->cpu->pool) * ITEMS_PER_THREAD);
    if (share > job->kernels->item_rows_max) share = job->kernels->item_rows_max;
    uint32_t rows_of_item = (uint32_t)share / step * step;
    return rows_of_item ? rows_of_item : step;
}

static uint32_t num_tiles(const struct attention_job *job, const struct attention_seq *seq) {
    return (seq->num_rows + job->rows_per_item - 1) / job->rows_per_item;
}

// Parts of the positions that are seen by at least one of the queries from `first` to `last`.
static uint32_t count_parts(const struct attention_args *args, uint32_t first, uint32_t last) {
    return last / ATTENTION_PART - attention_first_seen(args, first) / ATTENTION_PART + 1;
}

static void measure_seqs(const struct attention_job *job) {
    const struct attention_args *args = job->args;
    for (uint32_t s = 0; s < args->step->num_seqs; s++) {
        uint32_t query_len =
            (uint32_t)(args->step->query_start[s + 1] - args->step->query_start[s]);
        uint32_t context_len = (uint32_t)args->step->context_len[s];
        struct attention_seq seq = {.num_rows = query_len * job->group,
                                    .first_position = context_len - query_len};
        if (query_len > 0) {
            seq.first_part = attention_first_seen(args, seq.first_position) / ATTENTION_PART;
            seq.num_parts = count_parts(args, seq.first_position, context_len - 1);
        }
        args->cache->seqs[s] = seq;
    }
}

// Parts that the tiles of a sequence walk.
static uint64_t cost_of(const struct attention_job *job, const struct attention_seq *seq) {
    uint64_t cost = 0;
    for (uint32_t row = 0; row < seq->num_rows; row += job->rows_per_item) {
        uint32_t left = seq->num_rows - row;
        uint32_t last = row + (left < job->rows_per_item ? left : job->rows_per_item) - 1;
        cost += count_parts(job->args, seq->first_position + row / job->group,
                            seq->first_position + last / job->group);
    }
    return cost;
}

// A thread's share of the cost, which is counted in parts that an item walks.
static uint64_t thread_share(const struct attention_job *job) {
    uint64_t cost = 0;
    for (uint32_t s = 0; s < job->args->step->num_seqs; s++) {
        const struct attention_seq *seq = &job->args->cache->seqs[s];
        cost += cost_of(job, seq) * job->args->num_kv_heads;
    }
    return cost / thread_pool_num_threads(job->cpu->pool);
}

void attention_make_plan(struct attention_job *job) {
    const struct attention_args *args = job->args;
    struct kv_cache *cache = args->cache;
    job->rows_per_item = choose_rows(job);
    measure_seqs(job);
    uint64_t share = thread_share(job);
    bool is_alone = thread_pool_num_threads(job->cpu->pool) == 1;
    size_t partials = 0;
    job->num_items = 0;
    for (uint32_t s = 0; s < args->step->num_seqs; s++) {
        struct attention_seq *seq = &cache->seqs[s];
        size_t floats = attention_state_floats(seq->num_rows, args->head_dim) * seq->num_parts *
                        args->num_kv_heads;
        seq->first_item = job->num_items;
        seq->is_split = !is_alone && seq->num_parts > 1 && seq->num_rows > 0 &&
                        seq->num_rows <= job->kernels->item_rows_max &&
                        (uint64_t)seq->num_parts * SPLIT_SHARE > share &&
                        floats <= cache->partials_floats - partials;
        if (seq->is_split) {
            seq->first_partial = partials;
            partials += floats;
            for (uint32_t head = 0; head < args->num_kv_heads; head++) {
                atomic_store_explicit(&cache->parts_left[(size_t)s * args->num_kv_heads + head],
                                      seq->num_parts, memory_order_relaxed);
            }
        }
        job->num_items +=
            args->num_kv_heads * (seq->is_split ? seq->num_parts : num_tiles(job, seq));
    }
}
