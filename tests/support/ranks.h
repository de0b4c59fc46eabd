/* Tests of engines that also run on several ranks or engines: CTest registers them once more, with
 * an environment. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include "nanovllm.h"

// tensor_parallel_size from NANOVLLM_TEST_RANKS (1 where it is not set), worker_program from
// NANOVLLM_TEST_PROGRAM, data_parallel_size from NANOVLLM_TEST_ENGINES (1 where it is not set).
void use_test_ranks(struct nvllm_engine_options *options);

#endif
