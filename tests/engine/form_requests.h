/* Requests to the bundled model: one whose answer has a form, and plain ones that run beside it. */
#ifndef ENGINE_FORM_REQUESTS_H
#define ENGINE_FORM_REQUESTS_H

#include "nanovllm.h"

enum { FORM_REQUESTS_MAX = 8 };

// Fails the test after an error. `drafts` as the option; NULL: its default.
struct nvllm_engine *form_engine(const char *async_scheduling, const char *drafts,
                                 int32_t num_blocks, int32_t max_model_len);
// The first request has `formed`, the num_plain others `plain`. `stats` are those at the end; NULL:
// not wanted. The caller frees the results.
struct nvllm_result *form_run(struct nvllm_engine *engine,
                              const struct nvllm_sampling_params *formed,
                              const struct nvllm_sampling_params *plain, size_t num_plain,
                              struct nvllm_stats *stats);

#endif
