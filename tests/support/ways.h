/* Ways to run the same requests: devices, policies, sizes of steps. On the CPU, and on the fake
 * device, results must agree to the bit. */
#ifndef SUPPORT_WAYS_H
#define SUPPORT_WAYS_H

#include <stddef.h>

#include "support/mixed_workload.h"

struct way {
    const char *device; // "cpu" or "cuda", the fake one
    const char *async_scheduling, *schedule; // NULL: the default
    int max_num_seqs;
    int max_num_tokens; // of a step; 0: 64
    int num_blocks; // 0: enough for everything; else requests must be preempted
    int enforce_eager;
    int no_prefix_cache;
};

extern const struct way way_alone; // one request at a time, step by step, on the CPU

struct nvllm_engine_options way_options(const struct way *way);
struct nvllm_result *way_run_alone(const struct mixed_workload *workload,
                                   struct nvllm_stats *stats);
// Each way gives the expected results; fails the test else.
void ways_expect_same(const struct mixed_workload_expected *expected, const struct way *ways,
                      size_t num_ways);

#endif
