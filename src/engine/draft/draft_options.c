#include "engine/draft/draft_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"

enum {
    ADAPTIVE_MIN_LEN = 1,
    ADAPTIVE_MAX_LEN = 16,
    GIVEN_MIN_LEN = 3, // with a number of tokens: every match is drafted, so it must say more
    LEN_MAX = 64,
    NGRAM_LEN = 5, // vLLM's
};

static const char source[] = "speculative_config";

static enum status check_keys(const json_t *object, struct err *err) {
    static const char *const known[] = {"method", "model", "num_speculative_tokens",
                                        "prompt_lookup_min", "prompt_lookup_max"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(key, known[i]) != 0) i++;
        if (i == ARRAY_LEN(known) && !json_is_null(value)) {
            return err_set(err, ERR_UNSUPPORTED, "%s: %s is not supported", source, key);
        }
    }
    return OK;
}

// As in vLLM, a model named ngram stands for the method.
static enum status check_method(const json_t *object, struct err *err) {
    const char *method = NULL, *model = NULL;
    enum status status = jread_string(object, "method", &method, source, err);
    if (!status) status = jread_string(object, "model", &model, source, err);
    if (status) return status;
    bool is_named = model && (strcmp(model, "ngram") == 0 || strcmp(model, "[ngram]") == 0);
    if (method && strcmp(method, "ngram") != 0) {
        return err_set(err, ERR_UNSUPPORTED, "%s: method %s is not supported, only ngram is",
                       source, method);
    }
    if (model && !is_named) {
        return err_set(err, ERR_UNSUPPORTED, "%s: a draft model (%s) is not supported", source,
                       model);
    }
    if (method || is_named) return OK;
    return err_set(err, ERR_INVALID, "%s: method is missing, want \"ngram\"", source);
}

static enum status read_ngram(struct draft_options *out, const json_t *object, struct err *err) {
    int64_t num_tokens = 0, min_len = 0, max_len = 0;
    enum status status = check_keys(object, err);
    if (!status) status = check_method(object, err);
    if (!status) {
        status = jread_int(object, "num_speculative_tokens", 1, DRAFT_TOKENS_MAX, &num_tokens,
                           source, err);
    }
    if (!status) status = jread_int(object, "prompt_lookup_min", 1, LEN_MAX, &min_len, source, err);
    if (!status) status = jread_int(object, "prompt_lookup_max", 1, LEN_MAX, &max_len, source, err);
    if (status) return status;
    if (!num_tokens) {
        return err_set(err, ERR_INVALID, "%s: num_speculative_tokens is missing", source);
    }
    if (!min_len) min_len = max_len ? max_len : NGRAM_LEN;
    if (!max_len) max_len = min_len;
    if (min_len > max_len) {
        return err_set(err, ERR_INVALID, "%s: prompt_lookup_min is %d, above prompt_lookup_max %d",
                       source, (int)min_len, (int)max_len);
    }
    *out = (struct draft_options){.num_tokens = (uint32_t)num_tokens,
                                  .min_len = (uint32_t)min_len,
                                  .max_len = (uint32_t)max_len};
    return OK;
}

static enum status read_config(struct draft_options *out, const char *text, struct err *err) {
    json_t *object = NULL;
    enum status status = jread_text(&object, text, strlen(text), source, err);
    if (status) return status;
    if (jread_is_object(object)) {
        status = read_ngram(out, object, err);
    } else {
        status =
            err_set(err, ERR_INVALID, "%s is %s, want an object", source, jread_type_name(object));
    }
    json_decref(object);
    return status;
}

static enum status read_options(struct draft_options *out,
                                const struct nvllm_engine_options *options, struct err *err) {
    const char *drafts = options->drafts;
    static const struct nvllm_engine_options usual = NVLLM_ENGINE_OPTIONS_INIT;
    bool is_auto = strcmp(drafts, "auto") == 0;
    *out = (struct draft_options){0};
    if (options->speculative_config) {
        bool is_usual = strcmp(drafts, usual.drafts) == 0;
        if (is_usual) return read_config(out, options->speculative_config, err);
        return err_set(err, ERR_INVALID,
                       "drafts is %s and speculative_config is given: want one of them", drafts);
    }
    if (strcmp(drafts, "off") == 0) return OK;
    *out = (struct draft_options){.num_tokens = DRAFT_TOKENS_MAX,
                                  .is_adaptive = true,
                                  .uses_others = true,
                                  .min_len = ADAPTIVE_MIN_LEN,
                                  .max_len = ADAPTIVE_MAX_LEN};
    if (is_auto) return OK;
    long num_tokens = strtol(drafts, NULL, 10); // params.c has checked that it is a number
    if (num_tokens < 1 || num_tokens > DRAFT_TOKENS_MAX) {
        return err_set(err, ERR_INVALID, "drafts is %s, want auto, off or 1 to %d tokens", drafts,
                       DRAFT_TOKENS_MAX);
    }
    out->num_tokens = (uint32_t)num_tokens;
    out->is_adaptive = false;
    out->min_len = GIVEN_MIN_LEN;
    return OK;
}

struct draft_options draft_options_forced(void) {
    return (struct draft_options){
        .num_tokens = DRAFT_TOKENS_MAX, .is_adaptive = true, .only_forced = true};
}

enum status draft_options_read(struct draft_options *out,
                               const struct nvllm_engine_options *options, bool has_states,
                               struct err *err) {
    enum status status = read_options(out, options, err);
    if (status || !has_states) return status;
    if (out->num_tokens && !out->is_adaptive) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: drafts are not supported for models with recurrent layers",
                       options->model);
    }
    *out = (struct draft_options){0};
    return OK;
}

uint32_t draft_options_rows(const struct draft_options *drafts, uint32_t max_num_seqs,
                            uint32_t max_num_batched_tokens) {
    uint64_t rows = (uint64_t)max_num_seqs * (1 + drafts->num_tokens);
    if (rows > DRAFT_ROWS_MAX) rows = DRAFT_ROWS_MAX;
    if (rows > max_num_batched_tokens) rows = max_num_batched_tokens;
    return rows > max_num_seqs ? (uint32_t)rows : max_num_seqs;
}
