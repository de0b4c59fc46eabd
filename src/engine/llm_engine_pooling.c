/* Requests for a vector in place of text (embeddings). Such a request computes its prompt like any
 * other, in chunks, from cached prefixes, preempted and computed again. Nothing is sampled: the
 * hidden states of its last token, or the mean over all of its tokens, are the answer. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/llm_engine_internal.h"

static enum status check_pooling(const struct llm_engine *engine,
                                 const struct nvllm_sampling_params *sampling,
                                 const struct nvllm_pooling *pooling, struct err *err) {
    const struct pooling_config *model = &engine->plan.pooling;
    uint32_t hidden_size = engine->plan.config.hidden_size;
    const struct {
        const char *name;
        bool is_set;
    } params[] = {
        {"n", sampling->n > 1},
        {"echo", sampling->echo != 0},
        {"prompt_logprobs", sampling->prompt_logprobs != -1},
        {"structured_outputs", sampling->num_structured_outputs > 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(params); i++) {
        if (!params[i].is_set) continue;
        return err_set(err, ERR_INVALID, "%s is of generated text, but a vector is asked for",
                       params[i].name);
    }
    enum status status = executor_check_rows(engine->executor, "embeddings", err);
    if (status) return status;
    if (model->unsupported[0]) {
        return err_set(err, ERR_UNSUPPORTED, "the model's embeddings cannot be made: %s",
                       model->unsupported);
    }
    if ((uint32_t)pooling->kind > NVLLM_POOLING_MEAN) {
        return err_set(err, ERR_INVALID, "there is no kind of pooling %d", (int)pooling->kind);
    }
    if (pooling->normalize < -1 || pooling->normalize > 1) {
        return err_set(err, ERR_INVALID, "normalize is %d, want -1, 0 or 1", pooling->normalize);
    }
    if (pooling->dimensions <= hidden_size) return OK;
    return err_set(err, ERR_INVALID, "dimensions is %u, but the model's vectors have %u numbers",
                   pooling->dimensions, hidden_size);
}

enum status llm_engine_pool(const struct llm_engine *engine, struct request *request,
                            const struct nvllm_pooling *pooling, struct err *err) {
    const struct pooling_config *model = &engine->plan.pooling;
    enum status status = check_pooling(engine, &request->sampling.params, pooling, err);
    if (status) return status;
    struct pooled *pooled = &request->pooled;
    uint32_t size = engine->plan.config.hidden_size;
    pooled->vector = calloc(size, sizeof *pooled->vector);
    if (!pooled->vector) return err_nomem(err, "embedding");
    pooled->size = size;
    pooled->dimensions = pooling->dimensions ? pooling->dimensions : size;
    pooled->is_mean = pooling->kind == NVLLM_POOLING_MODEL ? model->kind == POOLING_MEAN
                                                           : pooling->kind == NVLLM_POOLING_MEAN;
    pooled->normalizes = pooling->normalize < 0 ? model->normalizes : pooling->normalize != 0;
    request->seq->is_pooled = true;
    request->seq->skips_cache = pooled->is_mean; // cached tokens have no hidden states
    return OK;
}

const struct pooling_config *llm_engine_pooling(const struct llm_engine *engine) {
    return &engine->plan.pooling;
}

enum status llm_engine_prefix_prompt(const struct llm_engine *engine,
                                     const struct nvllm_request *in, struct buf *text,
                                     struct err *err) {
    const char *name = in->pooling->prompt_name;
    const json_t *prefix = json_object_get(engine->plan.pooling.prompts, name);
    if (!prefix) {
        return err_set(err, ERR_INVALID,
                       "the model's config_sentence_transformers.json has no prompt named %.60s",
                       name);
    }
    if (!in->prompt) {
        return err_set(err, ERR_INVALID,
                       "prompt_name goes before a text, not before a chat or ids");
    }
    enum status status =
        buf_append(text, json_string_value(prefix), json_string_length(prefix), err);
    return status ? status : buf_append(text, in->prompt, in->prompt_len, err);
}

void llm_engine_want_pooled(const struct schedule *schedule) {
    for (uint32_t i = schedule->num_decode_tokens; i < schedule->num_items; i++) {
        struct scheduled *item = &schedule->items[i];
        const struct request *request = item->seq->user;
        if (!request->pooled.vector) continue;
        item->num_pooled = request->pooled.is_mean ? item->num_tokens : item->ends_pooling;
    }
}

void llm_engine_take_hidden(void *user_data, uint32_t slot, uint32_t row, const float *hidden) {
    struct llm_engine *engine = user_data;
    const struct scheduled *item = engine->inflight_steps[slot].schedule.items;
    while (row >= item->num_pooled) row -= item++->num_pooled;
    const struct request *request = item->seq->user;
    const struct pooled *pooled = &request->pooled;
    // A prompt begins here. After a preemption it begins again, and the old sums are dropped.
    bool is_first = !pooled->is_mean || item->start + row == 0;
    for (uint32_t i = 0; i < pooled->size; i++) {
        pooled->vector[i] = hidden[i] + (is_first ? 0 : pooled->vector[i]);
    }
}

// Divides by logits_scale, because the final norm has it as a factor.
const float *llm_engine_pooled_vector(const struct llm_engine *engine,
                                      const struct request *request) {
    const struct pooled *pooled = &request->pooled;
    uint32_t count = pooled->is_mean ? request->seq->num_prompt_tokens : 1;
    double factor = 1.0 / ((double)engine->plan.layers.logits_scale * count), squares = 0;
    for (uint32_t i = 0; i < pooled->dimensions; i++) {
        double value = (double)pooled->vector[i] * factor;
        squares += value * value;
    }
    if (pooled->normalizes && squares > 0) factor /= sqrt(squares);
    for (uint32_t i = 0; i < pooled->dimensions; i++) {
        pooled->vector[i] = (float)((double)pooled->vector[i] * factor);
    }
    return pooled->vector;
}
