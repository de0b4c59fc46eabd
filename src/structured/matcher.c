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
    if (matcher->log) {
        struct unique_position *positions =
            realloc(matcher->positions, capacity * sizeof *positions);
        if (!positions) return err_nomem(err, "structured output");
        matcher->positions = positions;
    }
    matcher->capacity = capacity;
    return OK;
}

// Begins with no token, or with those of `from`.
static enum status begin(struct matcher *matcher, struct automaton *automaton,
                         const struct matcher *from, struct err *err) {
    *matcher = (struct matcher){.automaton = automaton};
    automaton_hold(automaton);
    if (automaton_has_unique(automaton)) {
        matcher->log = calloc(1, sizeof *matcher->log);
        if (!matcher->log) return err_nomem(err, "structured output");
    }
    if (!from) return reserve(matcher, 0, err);
    enum status status = reserve(matcher, from->num_tokens, err);
    if (!status && matcher->log) status = unique_log_copy(matcher->log, from->log, err);
    return status;
}

enum status matcher_init(struct matcher *matcher, struct automaton *automaton, struct err *err) {
    enum status status = begin(matcher, automaton, NULL, err);
    if (status) {
        matcher_fini(matcher);
        return status;
    }
    matcher->states[0] = automaton_start(automaton);
    if (matcher->log) matcher->positions[0] = (struct unique_position){0};
    return OK;
}

enum status matcher_copy(struct matcher *out, const struct matcher *from, struct err *err) {
    enum status status = begin(out, from->automaton, from, err);
    if (status) {
        matcher_fini(out);
        return status;
    }
    size_t len = from->num_tokens + 1;
    memcpy(out->states, from->states, len * sizeof *out->states);
    if (out->log) memcpy(out->positions, from->positions, len * sizeof *out->positions);
    out->num_tokens = from->num_tokens;
    out->ended = from->ended;
    return OK;
}

void matcher_fini(struct matcher *matcher) {
    automaton_release(matcher->automaton);
    free(matcher->states);
    free(matcher->positions);
    if (matcher->log) unique_log_fini(matcher->log);
    free(matcher->log);
    *matcher = (struct matcher){0};
}

// Where a text stands.
struct place {
    uint32_t state;
    struct unique_position at; // only with a log
};

static struct place place_of(const struct matcher *matcher) {
    struct place place = {.state = matcher->states[matcher->num_tokens]};
    if (matcher->log) place.at = matcher->positions[matcher->num_tokens];
    return place;
}

static void push(struct matcher *matcher, const struct place *place) {
    matcher->states[++matcher->num_tokens] = place->state;
    if (matcher->log) matcher->positions[matcher->num_tokens] = place->at;
}

// Goes on behind the bytes; *fits = false where they do not fit.
static enum status advance_bytes(const struct matcher *matcher, struct place *place,
                                 const char *bytes, size_t len, bool *fits, struct err *err) {
    if (matcher->log) {
        return automaton_advance_unique(matcher->automaton, &place->state, matcher->log, &place->at,
                                        bytes, len, fits, err);
    }
    uint32_t next = AUTOMATON_DEAD;
    enum status status =
        automaton_advance(matcher->automaton, place->state, bytes, len, &next, err);
    *fits = next != AUTOMATON_DEAD;
    if (*fits) place->state = next;
    return status;
}

// The same for a token.
static enum status advance(const struct matcher *matcher, struct place *place, int32_t token,
                           bool *fits, struct err *err) {
    const struct vocabulary *vocabulary = automaton_vocabulary(matcher->automaton);
    *fits = false;
    if (token < 0 || (uint32_t)token >= vocabulary->num_tokens) return OK;
    if (vocabulary_is_ending(vocabulary, token)) {
        *fits = automaton_can_end(matcher->automaton, place->state);
        return OK;
    }
    uint32_t len, name_len;
    const char *text = vocabulary_text(vocabulary, (uint32_t)token, &len);
    const char *name = vocabulary_name(vocabulary, (uint32_t)token, &name_len);
    if (len == 0) return OK;
    enum status status = OK;
    if (name_len) status = advance_bytes(matcher, place, name, name_len, fits, err);
    if (!status && !*fits) status = advance_bytes(matcher, place, text, len, fits, err);
    return status;
}

enum status matcher_take(struct matcher *matcher, int32_t token, struct err *err) {
    bool fits = false;
    enum status status = reserve(matcher, matcher->num_tokens + 1, err);
    struct place place = place_of(matcher);
    if (!status && !matcher->ended) status = advance(matcher, &place, token, &fits, err);
    if (status) return status;
    if (!fits) {
        return err_set(err, ERR_INVALID, "token %d does not fit the constraint", (int)token);
    }
    push(matcher, &place);
    matcher->ended = vocabulary_is_ending(automaton_vocabulary(matcher->automaton), token);
    return OK;
}

enum status matcher_take_bytes(struct matcher *matcher, const char *bytes, size_t len,
                               struct err *err) {
    bool fits = false;
    enum status status = reserve(matcher, matcher->num_tokens + 1, err);
    struct place place = place_of(matcher);
    if (!status && !matcher->ended) {
        status = advance_bytes(matcher, &place, bytes, len, &fits, err);
    }
    if (status) return status;
    if (!fits) return err_set(err, ERR_INVALID, "%zu bytes do not fit the constraint", len);
    push(matcher, &place);
    return OK;
}

enum status matcher_fitting(const struct matcher *matcher, const int32_t *tokens,
                            uint32_t num_tokens, uint32_t *num_fitting, struct err *err) {
    const struct vocabulary *vocabulary = automaton_vocabulary(matcher->automaton);
    struct place place = place_of(matcher);
    bool ended = matcher->ended, fits = true;
    enum status status = OK;
    *num_fitting = 0;
    for (uint32_t i = 0; i < num_tokens && !ended; i++) {
        status = advance(matcher, &place, tokens[i], &fits, err);
        if (status || !fits) break;
        ended = vocabulary_is_ending(vocabulary, tokens[i]);
        ++*num_fitting;
    }
    if (matcher->log) unique_undo(matcher->log, &matcher->positions[matcher->num_tokens]);
    return status;
}

void matcher_rewind(struct matcher *matcher, uint32_t num_tokens) {
    CHECK(num_tokens <= matcher->num_tokens, "%u > %u", num_tokens, matcher->num_tokens);
    if (num_tokens < matcher->num_tokens) matcher->ended = false;
    matcher->num_tokens = num_tokens;
    if (matcher->log) unique_undo(matcher->log, &matcher->positions[num_tokens]);
}

bool matcher_can_end(const struct matcher *matcher) {
    return automaton_can_end(matcher->automaton, matcher->states[matcher->num_tokens]);
}

enum status matcher_mask(const struct matcher *matcher, uint32_t *words, bool *any_allowed,
                         struct err *err) {
    struct place place = place_of(matcher);
    if (!matcher->ended && matcher->log) {
        return automaton_mask_unique(matcher->automaton, place.state, matcher->log, &place.at,
                                     words, any_allowed, err);
    }
    if (!matcher->ended) {
        return automaton_mask(matcher->automaton, place.state, words, any_allowed, err);
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
    return automaton_forced(matcher->automaton, matcher->states[matcher->num_tokens], bytes_max,
                            out, err);
}
