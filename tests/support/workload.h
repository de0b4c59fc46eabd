/* Requests of every kind on the bundled model, to be run through engines that must agree to the
 * bit. */
#ifndef SUPPORT_WORKLOAD_H
#define SUPPORT_WORKLOAD_H

#include "nanovllm.h"

enum { WORKLOAD_REQUESTS = 14, WORKLOAD_PROMPT_MAX = 90 };

struct workload {
    int32_t prompts[WORKLOAD_REQUESTS][WORKLOAD_PROMPT_MAX];
    struct nvllm_sampling_params params[WORKLOAD_REQUESTS];
    struct nvllm_request requests[WORKLOAD_REQUESTS];
};

struct workload *workload_create(void); // free it; fails the test without memory
// Through an engine of its own; [WORKLOAD_REQUESTS], of nvllm_results_free. Fails the test where
// anything fails.
struct nvllm_result *workload_run(const struct workload *workload,
                                  const struct nvllm_engine_options *options,
                                  struct nvllm_stats *stats);
// What the workload gives on the CPU, step by step: the same however its steps are cut.
struct workload_expected {
    struct workload *workload;
    struct nvllm_result *results; // [WORKLOAD_REQUESTS]
    struct nvllm_stats stats;
};
// Setup and teardown of a group of tests whose state that is.
int workload_expected_make(void **state);
int workload_expected_free(void **state);

void workload_expect_same(const struct nvllm_result *got, const struct nvllm_result *want);

#endif
