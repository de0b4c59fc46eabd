#include "engine/step/token_mask.h"

#include <stdlib.h>
#include <string.h>

static enum status init_ending(struct token_mask *mask, const struct nvllm_sampling_params *params,
                               const struct model_config *config, struct err *err) {
    size_t num_ids = config->num_eos_token_ids + params->num_stop_token_ids;
    if (!num_ids) return OK;
    mask->ending = malloc(num_ids * sizeof *mask->ending);
    if (!mask->ending) return err_nomem(err, "tokens that end the output");
    for (uint32_t i = 0; i < config->num_eos_token_ids; i++) {
        int32_t id = config->eos_token_ids[i];
        // A model may name an id that it cannot generate.
        if (id >= 0 && (uint32_t)id < config->vocab_size) mask->ending[mask->num_ending++] = id;
    }
    for (size_t i = 0; i < params->num_stop_token_ids; i++) {
        mask->ending[mask->num_ending++] = params->stop_token_ids[i];
    }
    return OK;
}

static bool is_full(const struct token_mask *mask) {
    for (uint32_t i = 0; i < mask->num_words; i++) {
        if (mask->always[i] != UINT32_MAX) return false;
    }
    return true;
}

static enum status init_always(struct token_mask *mask, const struct nvllm_sampling_params *params,
                               const struct tokenizer *tokenizer, struct err *err) {
    if (!params->num_allowed_token_ids && !params->num_bad_words) return OK;
    size_t bytes = mask->num_words * sizeof *mask->always;
    mask->always = malloc(bytes);
    if (!mask->always) return err_nomem(err, "allowed tokens");
    memset(mask->always, params->num_allowed_token_ids ? 0 : 0xff, bytes);
    for (size_t i = 0; i < params->num_allowed_token_ids; i++) {
        int32_t id = params->allowed_token_ids[i];
        mask->always[id / 32] |= 1u << (id % 32);
    }
    if (!params->num_bad_words) return OK;
    if (!tokenizer) {
        return err_set(err, ERR_INVALID,
                       "bad_words need the tokenizer, which skip_tokenizer_init left out");
    }
    enum status status = bad_words_init(&mask->bad_words, params->bad_words, params->num_bad_words,
                                        tokenizer, mask->always, err);
    if (!status && is_full(mask)) { // all bad words have several tokens: most rows need no mask
        free(mask->always);
        mask->always = NULL;
    }
    return status;
}

// Whether any token is allowed while those that end the output are banned.
static bool allows_any(const struct token_mask *mask, uint32_t vocab_size) {
    if (!mask->always) return true;
    for (uint32_t id = 0; id < vocab_size; id++) {
        if (!(mask->always[id / 32] >> (id % 32) & 1)) continue;
        bool is_ending = false;
        for (size_t i = 0; i < mask->num_ending; i++) is_ending |= mask->ending[i] == (int32_t)id;
        if (!is_ending) return true;
    }
    return false;
}

enum status token_mask_init(struct token_mask *mask, const struct nvllm_sampling_params *params,
                            const struct model_config *config, const struct tokenizer *tokenizer,
                            struct err *err) {
    *mask = (struct token_mask){.num_words = (config->vocab_size + 31) / 32,
                                .min_tokens = (uint32_t)params->min_tokens};
    enum status status = params->min_tokens ? init_ending(mask, params, config, err) : OK;
    if (!status) status = init_always(mask, params, tokenizer, err);
    if (!status && !allows_any(mask, config->vocab_size)) {
        status =
            err_set(err, ERR_INVALID,
                    "allowed_token_ids, bad_words and min_tokens together ban every first token");
    }
    if (status) token_mask_fini(mask);
    return status;
}

// Whether the output may begin with the opening token and all of the tag behind it. No constraint
// is set yet.
static enum status check_opening(const struct token_mask *mask, const struct tokenizer *tokenizer,
                                 int32_t opening, bool *is_allowed, struct err *err) {
    struct token_list rest = {0};
    enum status status = reasoning_opening_rest(tokenizer, opening, &rest, err);
    int32_t *tag = malloc((rest.len + 1) * sizeof *tag);
    uint32_t *words = malloc(mask->num_words * sizeof *words);
    if (!status && (!tag || !words)) status = err_nomem(err, "a mask");
    *is_allowed = true;
    if (!status) tag[0] = opening;
    for (uint32_t i = 0; i < rest.len && *is_allowed && !status; i++) {
        int32_t id = tag[i + 1] = rest.ids[i];
        token_mask_write(mask, tag, i + 1, words);
        *is_allowed = words[id / 32] >> (id % 32) & 1;
    }
    token_list_fini(&rest);
    free(tag);
    free(words);
    return status;
}

// A tag whose rest is banned must not be begun: its rest is appended without a look at other masks.
static enum status drop_openings(const struct token_mask *mask, struct constraint *constraint,
                                 struct err *err) {
    enum status status = OK;
    for (uint32_t i = constraint->num_opening; i-- > 0 && !status;) {
        bool is_allowed;
        status =
            check_opening(mask, constraint->tokenizer, constraint->opening[i], &is_allowed, err);
        if (status || is_allowed) continue;
        constraint->opening[i] = constraint->opening[--constraint->num_opening];
    }
    return status;
}

enum status token_mask_constrain(struct token_mask *mask, struct automaton *automaton,
                                 const struct constraint_options *options, struct err *err) {
    struct constraint *constraint = malloc(sizeof *constraint);
    if (!constraint) return err_nomem(err, "structured output");
    enum status status = constraint_init(constraint, automaton, options, err);
    if (!status) status = drop_openings(mask, constraint, err);
    mask->constraint = constraint;
    return status;
}

enum status token_mask_borrow(struct token_mask *out, const struct token_mask *from,
                              struct err *err) {
    *out = *from;
    if (!from->constraint) return OK;
    out->constraint = malloc(sizeof *out->constraint);
    if (!out->constraint) return err_nomem(err, "structured output");
    return constraint_copy(out->constraint, from->constraint, err);
}

void token_mask_fini_borrowed(struct token_mask *mask) {
    if (mask->constraint) constraint_fini(mask->constraint);
    free(mask->constraint);
    *mask = (struct token_mask){0};
}

void token_mask_fini(struct token_mask *mask) {
    free(mask->always);
    free(mask->ending);
    bad_words_fini(&mask->bad_words);
    token_mask_fini_borrowed(mask);
}

static bool bans_ending(const struct token_mask *mask, uint32_t num_generated) {
    return mask->num_ending && num_generated < mask->min_tokens;
}

// Whether the form bans any token.
static bool constraint_bans(const struct constraint *constraint) {
    return constraint && (constraint_bans_ending(constraint) || constraint_restricts(constraint));
}

bool token_mask_is_needed(const struct token_mask *mask, const int32_t *generated,
                          uint32_t num_generated) {
    return mask->always || bans_ending(mask, num_generated) || constraint_bans(mask->constraint) ||
           bad_words_ban(&mask->bad_words, generated, num_generated, NULL);
}

void token_mask_write(const struct token_mask *mask, const int32_t *generated,
                      uint32_t num_generated, uint32_t *out) {
    size_t bytes = mask->num_words * sizeof *out;
    struct constraint *constraint = mask->constraint;
    if (constraint && constraint_restricts(constraint)) {
        constraint_write(constraint, out, mask->num_words);
        for (uint32_t i = 0; mask->always && i < mask->num_words; i++) out[i] &= mask->always[i];
    } else if (mask->always) {
        memcpy(out, mask->always, bytes);
    } else {
        memset(out, 0xff, bytes);
    }
    bad_words_ban(&mask->bad_words, generated, num_generated, out);
    bool bans = bans_ending(mask, num_generated);
    for (size_t i = 0; bans && i < mask->num_ending; i++) token_mask_ban(out, mask->ending[i]);
    if (constraint && constraint_bans_ending(constraint)) constraint_ban_ending(constraint, out);
}
