/* Counters and histograms for GET /metrics, under vLLM's names and with its buckets, so that its
 * dashboards read them. Those of requests belong to the loop's thread; steps are counted by the
 * engine's. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <stdint.h>

#include "base/json/json_out.h"
#include "nanovllm.h"

struct metrics;

struct metrics *metrics_create(uint32_t max_model_len);
void metrics_destroy(struct metrics *metrics); // NULL is fine

void metrics_step(struct metrics *metrics, uint64_t num_tokens); // the engine's thread
// The first step of an output that generated tokens, and each later one, `seconds` after the one
// before.
void metrics_first_tokens(struct metrics *metrics, uint32_t num_tokens, uint32_t num_prompt_tokens,
                          uint32_t num_cached_tokens, const struct nvllm_times *times);
void metrics_next_tokens(struct metrics *metrics, uint32_t num_tokens, double seconds);
// `n` of the request; 0: another of its outputs counts it.
void metrics_finished(struct metrics *metrics, enum nvllm_finish_reason reason,
                      uint32_t num_prompt_tokens, uint32_t num_generated_tokens, int32_t max_tokens,
                      int32_t n, uint32_t num_preemptions, const struct nvllm_times *times);
void metrics_answered(struct metrics *metrics, int status); // an HTTP request

// What the server knows beside.
struct metrics_now {
    struct nvllm_stats stats;
    const char *model_name;
    uint32_t num_connections, num_unanswered, num_calls;
    size_t bodies_bytes;
};
// Prometheus' text format.
void metrics_write(const struct metrics *metrics, const struct metrics_now *now,
                   struct json_out *out);

#endif
