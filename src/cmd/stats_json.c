/* One table of members serves the differences and both reports, so that none of them misses a
 * counter. */
#include "cmd/stats_json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

static const struct {
    const char *name;
    size_t offset;
    bool peak; // a peak or a size: taken from `after`, not a difference
} counters[] = {
    {"num_steps", offsetof(struct nvllm_stats, num_steps), false},
    {"num_prefill_tokens", offsetof(struct nvllm_stats, num_prefill_tokens), false},
    {"num_decode_tokens", offsetof(struct nvllm_stats, num_decode_tokens), false},
    {"num_generated_tokens", offsetof(struct nvllm_stats, num_generated_tokens), false},
    {"num_cached_tokens", offsetof(struct nvllm_stats, num_cached_tokens), false},
    {"num_preemptions", offsetof(struct nvllm_stats, num_preemptions), false},
    {"num_requests_added", offsetof(struct nvllm_stats, num_requests_added), false},
    {"num_requests_finished", offsetof(struct nvllm_stats, num_requests_finished), false},
    {"peak_rss_bytes", offsetof(struct nvllm_stats, peak_rss_bytes), true},
    {"weights_bytes", offsetof(struct nvllm_stats, weights_bytes), true},
    {"workspace_bytes", offsetof(struct nvllm_stats, workspace_bytes), true},
    {"kv_cache_bytes", offsetof(struct nvllm_stats, kv_cache_bytes), true},
};

static const struct {
    const char *name;
    size_t offset;
} phases[] = {
    {"schedule", offsetof(struct nvllm_stats, schedule_seconds)},
    {"forward", offsetof(struct nvllm_stats, forward_seconds)},
    {"sample", offsetof(struct nvllm_stats, sample_seconds)},
    {"output", offsetof(struct nvllm_stats, output_seconds)},
};

static uint64_t *counter_at(struct nvllm_stats *stats, size_t i) {
    return (uint64_t *)(void *)((char *)stats + counters[i].offset);
}

static double *phase_at(struct nvllm_stats *stats, size_t i) {
    return (double *)(void *)((char *)stats + phases[i].offset);
}

struct nvllm_stats stats_since(const struct nvllm_stats *before, const struct nvllm_stats *after) {
    struct nvllm_stats from = *before, since = *after;
    for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
        if (!counters[i].peak) *counter_at(&since, i) -= *counter_at(&from, i);
    }
    for (size_t i = 0; i < ARRAY_LEN(phases); i++) *phase_at(&since, i) -= *phase_at(&from, i);
    return since;
}

enum status stats_json_members(struct buf *out, const struct nvllm_stats *stats,
                               double total_seconds, int indent, struct err *err) {
    struct nvllm_stats copy = *stats;
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(counters) && !status; i++) {
        status = buf_appendf(out, err, "%*s\"%s\": %llu,\n", indent, "", counters[i].name,
                             (unsigned long long)*counter_at(&copy, i));
    }
    if (!status) {
        status = buf_appendf(out, err,
                             "%*s\"num_kv_blocks\": %u,\n%*s\"num_kv_blocks_peak\": %u,\n"
                             "%*s\"block_size\": %u,\n%*s\"seconds\": {\"load\": %.6f, "
                             "\"warm_up\": %.6f",
                             indent, "", stats->num_kv_blocks, indent, "",
                             stats->num_kv_blocks_peak, indent, "", stats->block_size, indent, "",
                             stats->load_seconds, stats->warm_up_seconds);
    }
    for (size_t i = 0; i < ARRAY_LEN(phases) && !status; i++) {
        status = buf_appendf(out, err, ", \"%s\": %.6f", phases[i].name, *phase_at(&copy, i));
    }
    return status ? status : buf_appendf(out, err, ", \"total\": %.6f}", total_seconds);
}
