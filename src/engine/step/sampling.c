/* A field is resolved in one place, before anything is allocated: the user's value, else the
 * model's default, else the library's. */
#include "engine/step/sampling.h"

#include <stdlib.h>
#include <string.h>

#include "engine/params/params.h"

// vLLM's bound: below it, dividing by the temperature only loses precision.
#define TEMPERATURE_MIN 1e-5f

void sampling_fill_defaults(struct nvllm_sampling_params *params,
                            const struct generation_config *defaults) {
#define FILL(type, name, fallback, ...)                                                            \
    if (params->name == NVLLM_UNSET_##type) {                                                      \
        params->name = defaults->has_##name ? defaults->name : fallback;                           \
    }
    NVLLM_MODEL_PARAMS(FILL)
}

static enum status resolve(struct nvllm_sampling_params *params,
                           const struct generation_config *defaults, struct err *err) {
    enum status status = params_check_sampling(params, err);
    if (status) return status;
    sampling_fill_defaults(params, defaults);
    // The user's values have passed above, so a fault now is in the model's defaults.
    status = params_check_sampling(params, err);
    if (status) return err_prefix(err, status, "default of the model");
    if (params->min_tokens > params->max_tokens) {
        return err_set(err, ERR_INVALID, "min_tokens is %d, more than max_tokens %d",
                       params->min_tokens, params->max_tokens);
    }
    return OK;
}

static enum status check_id(int32_t token_id, uint32_t vocab_size, const char *what,
                            struct err *err) {
    if (token_id >= 0 && (uint32_t)token_id < vocab_size) return OK;
    return err_set(err, ERR_INVALID, "%s has token id %d, the vocabulary ends at %u", what,
                   token_id, vocab_size - 1);
}

static enum status check_ids(const struct nvllm_sampling_params *params, uint32_t vocab_size,
                             struct err *err) {
    enum status status = OK;
    for (size_t i = 0; !status && i < params->num_stop_token_ids; i++) {
        status = check_id(params->stop_token_ids[i], vocab_size, "stop_token_ids", err);
    }
    for (size_t i = 0; !status && i < params->num_allowed_token_ids; i++) {
        status = check_id(params->allowed_token_ids[i], vocab_size, "allowed_token_ids", err);
    }
    for (size_t i = 0; !status && i < params->num_logit_bias; i++) {
        status = check_id(params->logit_bias[i].token_id, vocab_size, "logit_bias", err);
    }
    for (size_t i = 0; !status && i < params->num_logprob_token_ids; i++) {
        status = check_id(params->logprob_token_ids[i], vocab_size, "logprob_token_ids", err);
    }
    if (!status && params->num_logprob_token_ids && params->logprobs < 0) {
        status = err_set(err, ERR_INVALID, "logprob_token_ids is given, but logprobs is not");
    }
    return status;
}

// A copy of `bytes` bytes, NULL in *out for none.
static enum status copy_list(void *out, const void *list, size_t bytes, const char *what,
                             struct err *err) {
    void *copy = NULL;
    if (bytes) {
        copy = malloc(bytes);
        if (!copy) return err_nomem(err, what);
        memcpy(copy, list, bytes);
    }
    memcpy(out, &copy, sizeof copy);
    return OK;
}

static enum status copy_stops(struct sampling *out, const char *const *stops, size_t num_stops,
                              struct err *err) {
    if (!num_stops) return OK;
    size_t bytes = num_stops * sizeof(char *);
    for (size_t i = 0; i < num_stops; i++) bytes += strlen(stops[i]) + 1;
    out->stops = malloc(bytes);
    if (!out->stops) return err_nomem(err, "stop");
    char *at = (char *)(out->stops + num_stops);
    for (size_t i = 0; i < num_stops; i++) {
        size_t size = strlen(stops[i]) + 1;
        out->stops[i] = memcpy(at, stops[i], size);
        at += size;
    }
    return OK;
}

// Makes the struct's own copies and lets `out->params` point to them.
static enum status copy_lists(struct sampling *out, struct err *err) {
    struct nvllm_sampling_params given = out->params;
    struct nvllm_sampling_params *params = &out->params;
    enum status status =
        copy_list(&out->stop_token_ids, given.stop_token_ids,
                  given.num_stop_token_ids * sizeof *given.stop_token_ids, "stop_token_ids", err);
    if (!status) {
        status = copy_list(&out->logit_bias, given.logit_bias,
                           given.num_logit_bias * sizeof *given.logit_bias, "logit_bias", err);
    }
    if (!status) status = copy_stops(out, given.stop, given.num_stop, err);
    params->stop_token_ids = out->stop_token_ids;
    params->logit_bias = out->logit_bias;
    params->stop = (const char *const *)out->stops;
    params->allowed_token_ids = params->logprob_token_ids = NULL;
    params->bad_words = NULL;
    params->structured_outputs = NULL;
    params->num_structured_outputs = 0;
    params->num_allowed_token_ids = params->num_bad_words = params->num_logprob_token_ids = 0;
    params->owned = NULL;
    return status;
}

enum status sampling_init_borrowed(struct sampling *out, const struct sampling *first,
                                   struct err *err) {
    *out = *first;
    out->is_borrowed = true;
    enum status status = token_mask_borrow(&out->mask, &first->mask, err);
    if (status) *out = (struct sampling){0};
    return status;
}

void sampling_set_seed(struct sampling *sampling, uint64_t seed, uint32_t index) {
    if (sampling->params.seed >= 0) seed = (uint64_t)sampling->params.seed + index;
    sampling->row.seed_low = (uint32_t)seed;
    sampling->row.seed_high = (uint32_t)(seed >> 32);
}

static void fill_row(struct sampling *out, uint32_t vocab_size) {
    struct nvllm_sampling_params *params = &out->params;
    if (params->temperature < TEMPERATURE_MIN) params->temperature = 0.0f;
    if (params->top_k < 0) params->top_k = 0;
    if ((uint32_t)params->top_k >= vocab_size) params->top_k = 0;
    if (params->logprobs >= 0 && (uint32_t)params->logprobs > vocab_size) {
        params->logprobs = (int32_t)vocab_size;
    }
    bool is_all = params->prompt_logprobs == NVLLM_LOGPROBS_ALL;
    if (is_all || params->prompt_logprobs > (int32_t)vocab_size) {
        params->prompt_logprobs = (int32_t)vocab_size;
    }
#define COPY(type, name, ...) .name = params->name,
    out->row = (struct sample_row){NVLLM_MODEL_PARAMS(COPY) NVLLM_SAMPLER_PARAMS(COPY).num_top =
                                       params->logprobs};
    sampling_set_seed(out, 0, 0);
}

static int compare_ids(const void *a, const void *b) {
    const struct sample_bias *left = a, *right = b;
    return (left->token_id > right->token_id) - (left->token_id < right->token_id);
}

// The logits that are biased, and behind them the tokens whose log-probabilities are wanted.
static enum status init_biases(struct sampling *out, const struct nvllm_sampling_params *given,
                               struct err *err) {
    const struct nvllm_sampling_params *params = &out->params;
    size_t count = params->num_logit_bias + given->num_logprob_token_ids;
    if (!count) return OK;
    out->biases = calloc(count, sizeof *out->biases);
    if (!out->biases) return err_nomem(err, "logit_bias");
    for (size_t i = 0; i < given->num_logprob_token_ids; i++) {
        out->biases[params->num_logit_bias + i].token_id = given->logprob_token_ids[i];
    }
    out->row.num_given = (uint32_t)given->num_logprob_token_ids;
    if (out->row.num_given) out->row.num_top = (int32_t)out->row.num_given;
    for (size_t i = 0; i < params->num_logit_bias; i++) {
        out->biases[i] =
            (struct sample_bias){params->logit_bias[i].token_id, params->logit_bias[i].bias, 0};
    }
    out->row.bias_count = (uint32_t)params->num_logit_bias;
    qsort(out->biases, params->num_logit_bias, sizeof *out->biases, compare_ids);
    for (size_t i = 1; i < params->num_logit_bias; i++) {
        if (out->biases[i].token_id != out->biases[i - 1].token_id) continue;
        return err_set(err, ERR_INVALID, "logit_bias names token %d twice",
                       out->biases[i].token_id);
    }
    return OK;
}

enum status sampling_init(struct sampling *out, const struct nvllm_sampling_params *params,
                          const struct generation_config *model_defaults,
                          const struct model_config *config, const struct tokenizer *tokenizer,
                          struct err *err) {
    static const struct nvllm_sampling_params unset = NVLLM_SAMPLING_PARAMS_INIT;
    static const struct generation_config no_defaults;
    *out = (struct sampling){0};
    struct nvllm_sampling_params resolved = params ? *params : unset;
    enum status status = resolve(&resolved, model_defaults ? model_defaults : &no_defaults, err);
    if (status) return status;
    status = check_ids(&resolved, config->vocab_size, err);
    if (status) return status;
    out->params = resolved;
    status = token_mask_init(&out->mask, &resolved, config, tokenizer, err);
    if (!status) status = copy_lists(out, err);
    if (status) goto fail;
    fill_row(out, config->vocab_size);
    out->has_penalties = out->params.repetition_penalty != 1.0f ||
                         out->params.presence_penalty != 0.0f ||
                         out->params.frequency_penalty != 0.0f;
    status = init_biases(out, &resolved, err);
    if (status) goto fail;
    return OK;

fail:
    sampling_fini(out);
    return status;
}

void sampling_fini(struct sampling *sampling) {
    if (!sampling) return;
    if (!sampling->is_borrowed) {
        free(sampling->stop_token_ids);
        free(sampling->stops);
        free(sampling->logit_bias);
        free(sampling->biases);
        token_mask_fini(&sampling->mask);
    } else {
        token_mask_fini_borrowed(&sampling->mask);
    }
    *sampling = (struct sampling){0};
}

bool sampling_is_stop_token(const struct sampling *sampling, int32_t token_id) {
    if (!sampling->stop_token_ids) return false;
    for (size_t i = 0; i < sampling->params.num_stop_token_ids; i++) {
        if (sampling->stop_token_ids[i] == token_id) return true;
    }
    return false;
}
