/* What the server asks after each step. It is not public: nvllm_engine_stats has the same numbers,
 * but takes a lock and asks the kernel. */
#ifndef API_STEP_TOKENS_H
#define API_STEP_TOKENS_H

#include <stdint.h>

#include "nanovllm.h"

// The stats' num_prefill_tokens + num_decode_tokens: those of all steps so far.
uint64_t api_num_step_tokens(struct nvllm_engine *engine);

#endif
