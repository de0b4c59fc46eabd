/* Requests of every kind on the bundled model, to run through engines that must agree to the
 * bit. */
#ifndef SUPPORT_MIXED_WORKLOAD_H
#define SUPPORT_MIXED_WORKLOAD_H

#include "nanovllm.h"

enum { WORKLOAD_REQUESTS = 14, WORKLOAD_PROMPT_MAX = 90 };

struct mixed_workload {
    int32_t prompts[WORKLOAD_REQUESTS][WORKLOAD_PROMPT_MAX];
    struct nvllm_sampling_params params[WORKLOAD_REQUESTS];
    struct nvllm_request requests[WORKLOAD_REQUESTS];
};

// Freed with free. Fails the test when out of memory.
struct mixed_workload *mixed_workload_create(void);
// Runs it through an engine of its own. Returns [WORKLOAD_REQUESTS] results, to be freed with
// nvllm_results_free. Fails the test on any error.
struct nvllm_result *mixed_workload_run(const struct mixed_workload *workload,
                                        const struct nvllm_engine_options *options,
                                        struct nvllm_stats *stats);
// The workload's results on the CPU, one step at a time. They do not depend on how steps are cut.
struct mixed_workload_expected {
    struct mixed_workload *workload;
    struct nvllm_result *results; // [WORKLOAD_REQUESTS]
    struct nvllm_stats stats;
};
// Setup and teardown of a group of tests whose state is a struct mixed_workload_expected.
int mixed_workload_expected_make(void **state);
int mixed_workload_expected_free(void **state);

void mixed_workload_expect_same(const struct nvllm_result *got, const struct nvllm_result *want);

#endif
