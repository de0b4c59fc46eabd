#include "support/ranks.h"

#include <stdlib.h>

void use_test_ranks(struct nvllm_engine_options *options) {
    const char *ranks = getenv("NANOVLLM_TEST_RANKS"), *engines = getenv("NANOVLLM_TEST_ENGINES");
    if (engines) options->data_parallel_size = (int32_t)strtol(engines, NULL, 10);
    if (!ranks) return;
    options->tensor_parallel_size = (int32_t)strtol(ranks, NULL, 10);
    options->worker_program = getenv("NANOVLLM_TEST_PROGRAM");
}
