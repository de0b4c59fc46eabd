/* The form that an output must have, as structured/ runs it, beside the reasoning of the model.
 *
 *     START ---- an opening tag ----> REASONING
 *       | the answer's first token      | the closing tag, and what follows it in the same token
 *       v                               v
 *     ANSWER <---- white space, once ---+
 *
 * Where a token only begins the opening tag, the rest of the tag must follow.
 *
 * A model that reasons does so freely, but it cannot end the text there; the form begins behind it.
 * White space between the closing tag and the answer is not part of the form, because templates
 * teach models to write it there. An output that may not reason begins in ANSWER, unless its prompt
 * ends inside of reasoning.
 *
 * A form that takes too much memory or too many steps fails: nothing is allowed from then on, and
 * constraint_explain says why. */
#ifndef ENGINE_CONSTRAINT_H
#define ENGINE_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/step/form_stats.h"
#include "engine/step/prompt_reasoning.h"
#include "structured/forced_tokens.h"
#include "structured/matcher.h"
#include "text/chat/think.h"
#include "text/tokenizer/tokenizer.h"

enum constraint_phase { CONSTRAINT_START, CONSTRAINT_REASONING, CONSTRAINT_ANSWER };

// One output's.
struct constraint {
    const struct tokenizer *tokenizer;
    struct matcher matcher; // of the answer
    enum constraint_phase phase;
    struct think think; // REASONING: what was read of it
    bool may_be_blank; // ANSWER: white space behind the reasoning may come
    const int32_t *blanks; // [num_blanks] borrowed: tokens of white space alone
    uint32_t num_blanks;
    int32_t opening[REASONING_OPENING_MAX]; // [num_opening] START: tokens that begin reasoning
    uint32_t num_opening;
    struct form_stats *stats; // borrowed: masks are counted there; NULL: nowhere
    bool may_force; // where the text is certain, only the tokenizer's own tokens are allowed
    int32_t forced[FORCED_TOKENS_MAX]; // [num_forced] the tokens that must come, from forced_at
    uint32_t num_forced, forced_at;
    // The output's last token, where the form has not taken it yet. Taking it may take longer than
    // all else that a token needs, so it is left to the thread that makes the next mask.
    int32_t noted;
    bool has_noted;
    struct err *fault; // why nothing is allowed any more; its status is OK while nothing has failed
};

struct constraint_options {
    const struct tokenizer *tokenizer;
    const int32_t *prompt; // [num_prompt] whether it ends in reasoning
    uint32_t num_prompt;
    uint32_t vocab_size;
    const int32_t *blanks; // [num_blanks] tokens of white space alone; they live as long
    uint32_t num_blanks;
    struct form_stats *stats; // they live as long; NULL: masks are not counted
    bool may_reason; // the output may begin with an opening tag
    bool may_force; // false where other masks may ban tokens of the answer
};

// Holds the automaton. On failure *constraint is empty.
MUST_USE enum status constraint_init(struct constraint *constraint, struct automaton *automaton,
                                     const struct constraint_options *options, struct err *err);
// Another output of the same prompt, before any token.
MUST_USE enum status constraint_copy(struct constraint *out, const struct constraint *from,
                                     struct err *err);
void constraint_fini(struct constraint *constraint); // all-zero is fine

// Whether only some tokens are allowed now.
static inline bool constraint_restricts(const struct constraint *constraint) {
    bool is_free = constraint->phase == CONSTRAINT_REASONING &&
                   constraint->forced_at == constraint->num_forced;
    return !is_free || constraint->fault->status;
}
// Whether the output is in its reasoning: then all tokens are allowed but those that end the text.
static inline bool constraint_bans_ending(const struct constraint *constraint) {
    return constraint->phase == CONSTRAINT_REASONING;
}
// The token that must come next, whatever the model would choose; -1: there is a choice, or it was
// not looked for.
static inline int32_t constraint_forced_token(const struct constraint *constraint) {
    bool is_forced = constraint->forced_at < constraint->num_forced;
    return is_forced ? constraint->forced[constraint->forced_at] : -1;
}
// Writes the tokens that must come next, one behind the other, at most `most`. Returns how many.
uint32_t constraint_forced_tokens(const struct constraint *constraint, int32_t *tokens,
                                  uint32_t most);
// The output has one more token.
void constraint_take(struct constraint *constraint, int32_t token_id);
// The same, but the form takes it at constraint_settle, which comes before any other call that
// reads the form. The thread may be another one.
void constraint_note(struct constraint *constraint, int32_t token_id);
void constraint_settle(struct constraint *constraint);
// Takes back the tokens since `mark`, a copy of the struct from before them. Nothing had failed.
void constraint_rewind(struct constraint *constraint, const struct constraint *mark);
// How many of the tokens fit one behind the other. Nothing has failed.
uint32_t constraint_fitting(struct constraint *constraint, const int32_t *tokens,
                            uint32_t num_tokens);
// Writes the tokens that are allowed now, as in token_mask.h: out[num_words]. With
// constraint_restricts. All banned: constraint_explain says why.
void constraint_write(const struct constraint *constraint, uint32_t *out, uint32_t num_words);
// Bans the tokens that end the text. With constraint_bans_ending.
void constraint_ban_ending(const struct constraint *constraint, uint32_t *out);
// No token is left: writes why, and returns true, where the constraint is the reason or a part of
// it.
bool constraint_explain(const struct constraint *constraint, struct err *err);

#endif
