/* The parts of the engine below llm_engine, for tests that compare logits: scheduler, batch and
 * model runner over a checkpoint. Greedy, without text. Steps are padded as llm_engine pads them.
 * Keeps every row of logits that a request got. */
#ifndef TESTS_SUPPORT_MINI_ENGINE_H
#define TESTS_SUPPORT_MINI_ENGINE_H

#include "engine/executor/executor.h"
#include "engine/plan/engine_plan.h"
#include "engine/schedule/scheduler.h"
#include "nanovllm.h"

struct mini_engine {
    struct engine_plan plan;
    struct executor *executor;
    struct scheduler *scheduler;
    struct schedule schedule;
    struct batch batch;
    struct sampling greedy;
    float *step_logits; // [max_num_seqs][vocab]
    uint32_t most_shared_seqs; // of a step so far: sequences that shared a prefix
};

struct mini_request {
    const int32_t *prompt; // [num_prompt]
    uint32_t num_prompt;
    uint32_t max_new;
    const int32_t *forced; // [max_new] tokens to append instead of the argmax; NULL: the argmax
    float *logits; // [max_new][vocab], filled; NULL: not wanted
    int32_t tokens[512]; // generated
    uint32_t num_tokens;
    struct sequence *seq;
};

// The device for a test of GPUs: ranks share GPU 0 where there are fewer GPUs than ranks. NULL, and
// why is printed: there is no GPU.
const char *mini_gpus(void);
struct nvllm_engine_options mini_options(const char *model);
// Fails the running test on any error.
void mini_open(struct mini_engine *e, const struct nvllm_engine_options *options);
// Before the first mini_run: steps of decodes are recorded where the device and the options allow,
// and the KV cache fills the device where the options give it no size. Without it steps run
// eagerly, and the cache needs a size.
void mini_warm_up(struct mini_engine *e);
void mini_run(struct mini_engine *e, struct mini_request *requests, uint32_t num_requests);
void mini_close(struct mini_engine *e);

#endif
