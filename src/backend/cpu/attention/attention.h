/* Shared by attention.c, which runs a call, and attention_plan.c, which cuts it into items. */
#ifndef BACKEND_CPU_ATTENTION_H
#define BACKEND_CPU_ATTENTION_H

#include <stdatomic.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"

enum {
    // `partials` holds this many queries of one sequence as long as the whole cache.
    ATTENTION_SPLIT_QUERIES = 8,
};

// Running results of some rows over some positions.
struct attention_state {
    float *acc; // [rows][head_dim]
    float *sum; // [rows][ATTENTION_SUMS]
    float *max; // [rows]
};

// How a sequence of the call is cut into items.
struct attention_seq {
    uint32_t first_item; // index of the first of its items, which are consecutive
    uint32_t num_rows; // queries x group
    uint32_t first_position; // of its first query
    uint32_t first_part, num_parts; // the parts that its queries see
    bool is_split; // an item is one part of all rows; else a tile of rows over all parts
    size_t first_partial; // offset into the cache's partials, in floats, if split
};

struct attention_job {
    const struct cpu_backend *cpu;
    const struct attention_kernels *kernels;
    const struct attention_args *args;
    struct kv_layer layer;
    const struct attention_narrow *narrow; // all NULL if not fused
    uint32_t group; // query heads per kv head
    uint32_t rows_per_item; // of a sequence that is not split: item_rows .. item_rows_max
    uint32_t num_items;
};

// The first position that a query at `position` sees.
static inline uint32_t attention_first_seen(const struct attention_args *args, uint32_t position) {
    if (args->is_chunked) return position / args->window * args->window;
    return args->window != 0 && position >= args->window ? position - args->window + 1 : 0;
}

size_t attention_state_floats(uint32_t rows, uint32_t head_dim);

// Fills cache->seqs, cache->parts_left, rows_per_item and num_items.
void attention_make_plan(struct attention_job *job);

// Floats of kv_cache.partials.
size_t attention_partials_floats(const struct kv_cache_spec *spec);

#endif
