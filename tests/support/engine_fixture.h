/* Small helpers over the public API for tests on the bundled model. */
#ifndef TESTS_SUPPORT_ENGINE_FIXTURE_H
#define TESTS_SUPPORT_ENGINE_FIXTURE_H

#include "nanovllm.h"

// The bundled model answers "37 + 58 = 95."
#define QUESTION                                                                                   \
    "<|im_start|>user\nWhat is 37 + 58?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

// The bundled model, max_model_len 256, one thread; load_format from NANOVLLM_TEST_LOAD_FORMAT.
struct nvllm_engine_options small_options(void);
// From here on small_options has another model, with random weights. NULL: the bundled one again.
void small_options_use(const char *model);
struct nvllm_engine *open_engine(const struct nvllm_engine_options *options); // or fails the test
struct nvllm_sampling_params greedy_params(int32_t max_tokens);
// Four that together meet every part of sampling: greedy, penalties, log-probabilities with a bias,
// drawn.
enum { MIXED_PARAMS = 4 };
void mixed_params(struct nvllm_sampling_params *out, int32_t max_tokens); // [MIXED_PARAMS]
struct nvllm_request text_request(const char *prompt, const struct nvllm_sampling_params *params);
struct nvllm_request ids_request(const int32_t *ids, size_t count,
                                 const struct nvllm_sampling_params *params);
void expect_refused(struct nvllm_engine *engine, const struct nvllm_request *request,
                    const char *message_part);
struct nvllm_result *generate_one(struct nvllm_engine *engine, const struct nvllm_request *request);

// cmocka group fixtures: one engine of small_options in *state.
int open_shared_engine(void **state);
int close_shared_engine(void **state);

#endif
