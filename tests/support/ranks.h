/* Tests of engines run on several ranks too: CTest registers them once more with an environment. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include "nanovllm.h"

// tensor_parallel_size from NANOVLLM_TEST_RANKS (1 where it is not set) and worker_program from
// NANOVLLM_TEST_PROGRAM.
void use_test_ranks(struct nvllm_engine_options *options);

#endif
