/* What attention.c (running) and attention_plan.c (cutting a call into items) share. */
#ifndef BACKEND_CPU_ATTENTION_H
#define BACKEND_CPU_ATTENTION_H

#include <stdatomic.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"

enum {
    // Most query rows of an item: they share one walk over a kv head's blocks.
    ATTENTION_ROWS_MAX = 192,
    // Positions whose results are joined with those before: absolute multiples, of 8 spans.
    ATTENTION_PART = 512,
    // Queries of one sequence of the cache's whole length that `partials` has room for.
    ATTENTION_SPLIT_QUERIES = 8,
};

// Results of some rows over some positions.
struct attention_state {
    float *acc; // [rows][head_dim]
    float *sum; // [rows][ATTENTION_SUMS]
    float *max; // [rows]
};

// How a sequence of the call is cut into items.
struct attention_seq {
    uint32_t first_item; // of the call's; its items stand together
    uint32_t num_rows; // queries x group
    uint32_t first_position; // of its first query
    uint32_t num_parts; // that its last query sees
    bool is_split; // an item is a part, of all rows; else a tile of rows, over all parts
    size_t first_partial; // floats into the cache's partials, where it is split
};

struct attention_job {
    const struct cpu_backend *cpu;
    const struct attention_kernels *kernels;
    const struct attention_args *args;
    uint32_t group; // query heads per kv head
    uint32_t rows_per_item; // of a sequence that is not split: panel_rows .. ATTENTION_ROWS_MAX
    uint32_t num_items;
};

size_t attention_state_floats(uint32_t rows, uint32_t head_dim);

// Fills the cache's table of sequences and counts of parts, rows_per_item and num_items.
void attention_make_plan(struct attention_job *job);

// Floats of kv_cache.partials.
size_t attention_partials_floats(const struct kv_cache_spec *spec);

#endif
