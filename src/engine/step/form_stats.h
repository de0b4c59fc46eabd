/* Counts of the forms that answers must have: for the statistics of an engine. Any thread. */
#ifndef ENGINE_FORM_STATS_H
#define ENGINE_FORM_STATS_H

#include <stdatomic.h>

#include "nanovllm.h"

struct durations {
    atomic_uint_least64_t counts[NVLLM_DURATION_BUCKETS]; // as in struct nvllm_durations
    atomic_uint_least64_t nanoseconds;
};

// All-zero: nothing was counted.
struct form_stats {
    atomic_uint_least64_t num_wanted, num_kept, num_refused;
    struct durations compile, mask;
};

void durations_add(struct durations *durations, double seconds);
// Writes the members of `out` that are about forms.
void form_stats_read(const struct form_stats *stats, struct nvllm_stats *out);

#endif
