/* Shared by the tests of structured output: small vocabularies, a grammar of JSON, and checks. */
#ifndef STRUCTURED_FIXTURE_H
#define STRUCTURED_FIXTURE_H

#include "structured/automaton/automaton_internal.h"
#include "structured/matcher.h"

// A vocabulary of the texts, a special token <call>, and a token that ends the text.
struct vocabulary *fixture_vocabulary(const char *const *texts, uint32_t num_texts);
// Tokens of a, b and c; and of JSON, with pieces of characters and of escapes.
struct vocabulary *fixture_letters_vocabulary(void);
struct vocabulary *fixture_json_vocabulary(void);

// value = object | array | string | digits | null, nested without end. Arrays have items_min to
// items_max items more than one, strings at most chars_max characters.
struct grammar *fixture_json_grammar(uint32_t items_min, uint32_t items_max, uint32_t chars_max);
// The grammar's automaton; an error fails the test.
struct automaton *fixture_run(struct grammar *grammar, const struct vocabulary *vocabulary);

// Whether some text of the grammar begins with `text`; *can_end: whether `text` is one itself.
bool fixture_lives(struct automaton *automaton, const char *text, bool *can_end);
// Fails unless the text fits, or does not fit, as expected.
void fixture_check(struct automaton *automaton, const char *text, bool expected);
// The mask has a token exactly where the automaton lives on behind it.
void fixture_check_mask(struct automaton *automaton, uint32_t state);

// A small deterministic generator.
static inline uint32_t fixture_below(uint64_t *state, uint32_t n) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

#endif
