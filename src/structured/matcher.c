#include "structured/matcher.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static enum status reserve(struct matcher *matcher, uint32_t num_tokens, struct err *err) {
    if (num_tokens < matcher->capacity) return OK;
    uint32_t capacity = matcher->capacity ? matcher->capacity : 64;
    while (capacity <= num_tokens) capacity *= 2;
    uint32_t *states = realloc(matcher->states, capacity * sizeof *states);
    if (!states) return err_nomem(err, "structured output");
    matcher->states = states;
    matcher->capacity = capacity;
    return OK;
}

enum status matcher_init(struct matcher *matcher, struct automaton *automaton, struct err *err) {
    *matcher = (struct matcher){0};
    enum status status = reserve(matcher, 0, err);
    if (status) return status;
    automaton_hold(automaton);
    matcher->automaton = automaton;
    matcher->states[0] = automaton_start(automaton);
    return OK;
}

enum status matcher_copy(struct matcher *out, const struct matcher *from, struct err *err) {
    *out = (struct matcher){0};
    enum status status = reserve(out, from->num_tokens, err);
    if (status) return status;
    automaton_hold(from->automaton);
    out->automaton = from->automaton;
    memcpy(out->states, from->states, (from->num_tokens + 1) * sizeof *out->states);
    out->num_tokens = from->num_tokens;
    out->ended = from->ended;
    return OK;
}

void matcher_fini(struct matcher *matcher) {
    automaton_release(matcher->automaton);
    free(matcher->states);
    *matcher = (struct matcher){0};
}

static uint32_t state_of(const struct matcher *matcher) {
    return matcher->states[matcher->num_tokens];
}

// The state behind the token; *fits = false where it does not fit.
static enum status advance(const struct matcher *matcher, uint32_t *state, int32_t token,
                           bool *fits, struct err *err) {
    const struct vocabulary *vocabulary = automaton_vocabulary(matcher->automaton);
    *fits = false;
    if (token < 0 || (uint32_t)token >= vocabulary->num_tokens) return OK;
    if (vocabulary_is_ending(vocabulary, token)) {
        *fits = automaton_can_end(matcher->automaton, *state);
        return OK;
    }
    uint32_t len, name_len, next = AUTOMATON_DEAD;
    const char *text = vocabulary_text(vocabulary, (uint32_t)token, &len);
    const char *name = vocabulary_name(vocabulary, (uint32_t)token, &name_len);
    if (len == 0) return OK;
    enum status status = OK;
    if (name_len) {
        status = automaton_advance(matcher->automaton, *state, name, name_len, &next, err);
    }
    if (!status && next == AUTOMATON_DEAD) {
        status = automaton_advance(matcher->automaton, *state, text, len, &next, err);
    }
    if (status) return status;
    *fits = next != AUTOMATON_DEAD;
    if (*fits) *state = next;
    return OK;
}

enum status matcher_take(struct matcher *matcher, int32_t token, struct err *err) {
    uint32_t state = state_of(matcher);
    bool fits = false;
    enum status status = reserve(matcher, matcher->num_tokens + 1, err);
    if (!status && !matcher->ended) status = advance(matcher, &state, token, &fits, err);
    if (status) return status;
    if (!fits) {
        return err_set(err, ERR_INVALID, "token %d does not fit the constraint", (int)token);
    }
    matcher->states[++matcher->num_tokens] = state;
    matcher->ended = vocabulary_is_ending(automaton_vocabulary(matcher->automaton), token);
    return OK;
}

enum status matcher_take_bytes(struct matcher *matcher, const char *bytes, size_t len,
                               struct err *err) {
    uint32_t next = AUTOMATON_DEAD;
    enum status status = reserve(matcher, matcher->num_tokens + 1, err);
    if (!status && !matcher->ended) {
        status = automaton_advance(matcher->automaton, state_of(matcher), bytes, len, &next, err);
    }
    if (status) return status;
    if (next == AUTOMATON_DEAD) {
        return err_set(err, ERR_INVALID, "%zu bytes do not fit the constraint", len);
    }
    matcher->states[++matcher->num_tokens] = next;
    return OK;
}

enum status matcher_fitting(const struct matcher *matcher, const int32_t *tokens,
                            uint32_t num_tokens, uint32_t *num_fitting, struct err *err) {
    const struct vocabulary *vocabulary = automaton_vocabulary(matcher->automaton);
    uint32_t state = state_of(matcher);
    bool ended = matcher->ended;
    *num_fitting = 0;
    for (uint32_t i = 0; i < num_tokens && !ended; i++) {
        bool fits;
        enum status status = advance(matcher, &state, tokens[i], &fits, err);
        if (status) return status;
        if (!fits) break;
        ended = vocabulary_is_ending(vocabulary, tokens[i]);
        ++*num_fitting;
    }
    return OK;
}

void matcher_rewind(struct matcher *matcher, uint32_t num_tokens) {
    CHECK(num_tokens <= matcher->num_tokens, "%u > %u", num_tokens, matcher->num_tokens);
    if (num_tokens < matcher->num_tokens) matcher->ended = false;
    matcher->num_tokens = num_tokens;
}

bool matcher_can_end(const struct matcher *matcher) {
    return automaton_can_end(matcher->automaton, state_of(matcher));
}

enum status matcher_mask(const struct matcher *matcher, uint32_t *words, bool *any_allowed,
                         struct err *err) {
    if (!matcher->ended) {
        return automaton_mask(matcher->automaton, state_of(matcher), words, any_allowed, err);
    }
    const struct vocabulary *vocabulary = automaton_vocabulary(matcher->automaton);
    memset(words, 0, vocabulary->num_words * sizeof *words);
    for (uint32_t i = 0; i < vocabulary->num_ending; i++) {
        words[vocabulary->ending[i] / 32] |= 1u << (vocabulary->ending[i] % 32);
    }
    if (any_allowed) *any_allowed = vocabulary->num_ending > 0;
    return OK;
}

enum status matcher_forced(const struct matcher *matcher, size_t bytes_max, struct buf *out,
                           struct err *err) {
    if (matcher->ended) return OK;
    return automaton_forced(matcher->automaton, state_of(matcher), bytes_max, out, err);
}
