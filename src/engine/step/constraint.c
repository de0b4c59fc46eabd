#include "engine/step/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "base/text/blank.h"

// Behind each token: finds the tokens that must come, unless those found before go on.
static void find_forced(struct constraint *constraint) {
    bool goes_on = constraint->forced_at < constraint->num_forced;
    bool is_free = constraint->phase != CONSTRAINT_ANSWER || constraint->may_be_blank;
    if (!constraint->may_force || goes_on || is_free || constraint->fault->status) return;
    constraint->forced_at = constraint->num_forced = 0;
    constraint->fault->status =
        forced_tokens(&constraint->matcher, constraint->tokenizer, constraint->forced,
                      &constraint->num_forced, constraint->fault);
}

// Decides by the prompt's end where the output begins.
static enum status begin(struct constraint *constraint, const struct constraint_options *options,
                         struct err *err) {
    bool is_over;
    enum status status = prompt_reasoning(&constraint->think, &is_over, options->tokenizer,
                                          options->prompt, options->num_prompt, err);
    if (status) return status;
    constraint->phase = CONSTRAINT_ANSWER;
    if (constraint->think.state == THINK_INSIDE) {
        constraint->phase = CONSTRAINT_REASONING;
    } else if (options->may_reason && !is_over) {
        constraint->num_opening =
            reasoning_opening_tokens(options->tokenizer, options->vocab_size, constraint->opening);
        if (constraint->num_opening) constraint->phase = CONSTRAINT_START;
    }
    return OK;
}

enum status constraint_init(struct constraint *constraint, struct automaton *automaton,
                            const struct constraint_options *options, struct err *err) {
    *constraint = (struct constraint){.tokenizer = options->tokenizer,
                                      .blanks = options->blanks,
                                      .num_blanks = options->num_blanks,
                                      .may_force = options->may_force,
                                      .stats = options->stats};
    constraint->fault = calloc(1, sizeof *constraint->fault);
    if (!constraint->fault) return err_nomem(err, "structured output");
    enum status status = matcher_init(&constraint->matcher, automaton, err);
    if (!status) status = begin(constraint, options, err);
    if (status) {
        constraint_fini(constraint);
        return status;
    }
    find_forced(constraint);
    return OK;
}

enum status constraint_copy(struct constraint *out, const struct constraint *from,
                            struct err *err) {
    *out = *from;
    out->matcher = (struct matcher){0};
    out->fault = NULL;
    enum status status = matcher_copy(&out->matcher, &from->matcher, err);
    if (status) return status;
    out->fault = calloc(1, sizeof *out->fault);
    if (out->fault) return OK;
    constraint_fini(out);
    return err_nomem(err, "structured output");
}

void constraint_fini(struct constraint *constraint) {
    matcher_fini(&constraint->matcher);
    free(constraint->fault);
    *constraint = (struct constraint){0};
}

// ---- tokens ----

// Keeps what stands behind the closing tag.
static enum status keep_answer(void *user_data, const char *text, size_t len, enum think_part part,
                               struct err *err) {
    return part == THINK_ANSWER ? buf_append(user_data, text, len, err) : OK;
}

static void take_reasoning(struct constraint *constraint, const char *bytes, size_t len) {
    struct buf answer = {0};
    struct err *err = constraint->fault;
    enum status status = think_feed(&constraint->think, bytes, len, keep_answer, &answer, err);
    if (!status && constraint->think.state == THINK_AFTER) {
        constraint->phase = CONSTRAINT_ANSWER;
        constraint->may_be_blank = is_all_blank(answer.data, answer.len);
        if (!constraint->may_be_blank) {
            status = matcher_take_bytes(&constraint->matcher, answer.data, answer.len, err);
        }
    }
    constraint->fault->status = status;
    buf_fini(&answer);
}

// Behind a token that only begins an opening tag, the rest of the tag must come.
static enum status force_rest(struct constraint *constraint, int32_t token_id, struct err *err) {
    struct token_list rest = {0};
    enum status status = reasoning_opening_rest(constraint->tokenizer, token_id, &rest, err);
    constraint->forced_at = constraint->num_forced = 0;
    for (size_t i = 0; i < rest.len && i < FORCED_TOKENS_MAX && !status; i++) {
        constraint->forced[constraint->num_forced++] = rest.ids[i];
    }
    token_list_fini(&rest);
    return status;
}

static bool has_id(const int32_t *ids, uint32_t num_ids, int32_t id) {
    for (uint32_t i = 0; i < num_ids; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

static void take_answer(struct constraint *constraint, int32_t token_id) {
    bool skips =
        constraint->may_be_blank && has_id(constraint->blanks, constraint->num_blanks, token_id);
    constraint->may_be_blank = false;
    if (skips || constraint->matcher.ended) return; // ignore_eos: only ending tokens follow
    constraint->fault->status = matcher_take(&constraint->matcher, token_id, constraint->fault);
    if (constraint->forced_at < constraint->num_forced) constraint->forced_at++;
}

void constraint_note(struct constraint *constraint, int32_t token_id) {
    constraint_settle(constraint);
    constraint->noted = token_id;
    constraint->has_noted = true;
}

void constraint_settle(struct constraint *constraint) {
    if (!constraint->has_noted) return;
    constraint->has_noted = false;
    constraint_take(constraint, constraint->noted);
}

void constraint_take(struct constraint *constraint, int32_t token_id) {
    if (constraint->fault->status) return;
    CHECK(!constraint->has_noted, "token %d before %d", (int)constraint->noted, (int)token_id);
    size_t len = 0;
    const char *bytes = tokenizer_token_bytes(constraint->tokenizer, token_id, &len);
    if (!bytes) len = 0; // an id of a padded vocabulary
    bool begins = constraint->phase == CONSTRAINT_START;
    if (begins) {
        bool reasons = has_id(constraint->opening, constraint->num_opening, token_id);
        constraint->phase = reasons ? CONSTRAINT_REASONING : CONSTRAINT_ANSWER;
    }
    if (constraint->phase == CONSTRAINT_REASONING) {
        if (constraint->forced_at < constraint->num_forced) constraint->forced_at++;
        if (len) take_reasoning(constraint, bytes, len);
        if (begins && !constraint->fault->status) {
            constraint->fault->status = force_rest(constraint, token_id, constraint->fault);
        }
    } else {
        take_answer(constraint, token_id);
    }
    find_forced(constraint);
}

void constraint_rewind(struct constraint *constraint, const struct constraint *mark) {
    struct matcher matcher = constraint->matcher;
    *constraint = *mark;
    constraint->matcher = matcher; // its states may have moved
    matcher_rewind(&constraint->matcher, mark->matcher.num_tokens);
    constraint->matcher.ended = mark->matcher.ended;
    constraint->fault->status = OK;
}

uint32_t constraint_forced_tokens(const struct constraint *constraint, int32_t *tokens,
                                  uint32_t most) {
    uint32_t count = constraint->num_forced - constraint->forced_at;
    if (count > most) count = most;
    if (count) memcpy(tokens, constraint->forced + constraint->forced_at, count * sizeof *tokens);
    return count;
}

uint32_t constraint_fitting(struct constraint *constraint, const int32_t *tokens,
                            uint32_t num_tokens) {
    const struct constraint mark = *constraint;
    uint32_t num_fitting = 0;
    for (; num_fitting < num_tokens; num_fitting++) {
        constraint_take(constraint, tokens[num_fitting]);
        if (constraint->fault->status) break;
    }
    constraint_rewind(constraint, &mark);
    return num_fitting;
}

// ---- masks ----

static void allow(uint32_t *words, const int32_t *ids, uint32_t num_ids) {
    for (uint32_t i = 0; i < num_ids; i++) words[ids[i] / 32] |= 1u << (ids[i] % 32);
}

void constraint_write(const struct constraint *constraint, uint32_t *out, uint32_t num_words) {
    bool any = false;
    struct err *fault = constraint->fault;
    CHECK(!constraint->has_noted, "token %d", (int)constraint->noted);
    double start = clock_seconds();
    int32_t forced = constraint_forced_token(constraint);
    if (!fault->status && forced < 0) {
        fault->status = matcher_mask(&constraint->matcher, out, &any, fault);
    }
    if (fault->status || forced >= 0) memset(out, 0, num_words * sizeof *out);
    if (constraint->stats) durations_add(&constraint->stats->mask, clock_seconds() - start);
    if (fault->status) return;
    if (forced >= 0) allow(out, &forced, 1);
    if (constraint->phase == CONSTRAINT_START) {
        allow(out, constraint->opening, constraint->num_opening);
    }
    if (constraint->may_be_blank) allow(out, constraint->blanks, constraint->num_blanks);
}

void constraint_ban_ending(const struct constraint *constraint, uint32_t *out) {
    const struct vocabulary *vocabulary = automaton_vocabulary(constraint->matcher.automaton);
    for (uint32_t i = 0; i < vocabulary->num_ending; i++) {
        out[vocabulary->ending[i] / 32] &= ~(1u << (vocabulary->ending[i] % 32));
    }
}

bool constraint_explain(const struct constraint *constraint, struct err *err) {
    if (constraint->fault->status) {
        err_set(err, constraint->fault->status, "structured_outputs: %s",
                constraint->fault->message);
        return true;
    }
    const struct vocabulary *vocabulary = automaton_vocabulary(constraint->matcher.automaton);
    uint32_t *words = malloc(vocabulary->num_words * sizeof *words);
    bool any = false;
    enum status status =
        words ? matcher_mask(&constraint->matcher, words, &any, err) : err_nomem(err, "a mask");
    free(words);
    if (status) {
        err_prefix(err, status, "structured_outputs");
    } else if (any) {
        err_set(err, ERR_INVALID,
                "structured_outputs, with bad_words, allowed_token_ids, min_tokens or logit_bias, "
                "leaves no token");
    } else {
        err_set(err, ERR_INVALID,
                "structured_outputs: the vocabulary has no token that continues the text");
    }
    return true;
}
