#include "engine/step/form_stats.h"

void durations_add(struct durations *durations, double seconds) {
    double bound = 1e-6;
    size_t i = 0;
    while (i < NVLLM_DURATION_BUCKETS - 1 && seconds > bound) {
        bound *= 4;
        i++;
    }
    uint64_t nanoseconds = seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
    atomic_fetch_add_explicit(&durations->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&durations->nanoseconds, nanoseconds, memory_order_relaxed);
}

static uint64_t read_count(const atomic_uint_least64_t *count) {
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void read_durations(const struct durations *durations, struct nvllm_durations *out) {
    for (size_t i = 0; i < NVLLM_DURATION_BUCKETS; i++) {
        out->counts[i] = read_count(&durations->counts[i]);
    }
    out->seconds = (double)read_count(&durations->nanoseconds) * 1e-9;
}

void form_stats_read(const struct form_stats *stats, struct nvllm_stats *out) {
    out->num_forms = read_count(&stats->num_wanted);
    out->num_forms_kept = read_count(&stats->num_kept);
    out->num_forms_refused = read_count(&stats->num_refused);
    read_durations(&stats->compile, &out->form_compile);
    read_durations(&stats->mask, &out->form_mask);
}
