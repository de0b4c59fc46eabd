/* The scheduler's own struct, shared by scheduler.c (which sequences run) and scheduler_tokens.c
 * (what becomes of their tokens). */
#ifndef ENGINE_SCHEDULE_SCHEDULER_INTERNAL_H
#define ENGINE_SCHEDULE_SCHEDULER_INTERNAL_H

#include "base/os/map.h"
#include "engine/schedule/pacer.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence_queue.h"

struct scheduler {
    struct scheduler_config config;
    uint32_t max_num_active;
    uint32_t *free_rows; // [max_num_active] rows of block tables; the first num_free_rows are free
    uint32_t num_free_rows;
    struct block_manager blocks;
    struct sequence_queue waiting; // these hold no blocks
    struct sequence_queue running; // these hold blocks: they are active
    // The running sequence whose prompt is computed only in part, or that runs ahead, or NULL.
    // There is at most one: a prompt is cut only where the budget, the pacer or the free
    // blocks end, and then nobody else is admitted.
    struct sequence *partial_prefill;

    struct pacer pacer;
    struct schedule *schedule; // borrowed until it is advanced; else NULL

    // Chain hashes of the full blocks that this step computes in whole or in part.
    struct u64map computing; // a set: values mean nothing
    uint64_t *computing_hashes; // [num_blocks], the first num_computing are in the map
    uint32_t num_computing;

    uint64_t num_added;
    uint64_t num_preemptions;
    uint64_t num_cached_tokens;
};

static inline uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline uint32_t budget_left(const struct scheduler *s) {
    return s->config.max_num_batched_tokens - s->schedule->num_tokens;
}

#endif
