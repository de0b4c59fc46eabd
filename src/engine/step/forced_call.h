/* Forces an output to be a tool call: it begins with one of some texts, such as
 * <tool_call>\n{"name": "add", "arguments": and then has a JSON object. A model that reasons does
 * so first. Nothing checks the object against a schema; it only cannot be left open: tokens that
 * end the output are banned until its last brace.
 *
 *     START ---- an opening tag ----> REASONING
 *       | \                             | the closing tag
 *       |  \------> PREFIX <------------+
 *       |             | the texts' tokens, as the tokenizer cuts them
 *     (the prompt     v
 *      was closed)  BRACE ----> OBJECT ----> DONE: any token may follow
 *
 * Texts are token ids in a sorted table, so that the choice between functions is the model's, token
 * by token. Allocates only in init. */
#ifndef ENGINE_FORCED_CALL_H
#define ENGINE_FORCED_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "text/chat/think.h"
#include "text/tokenizer/tokenizer.h"

enum { FORCED_CALL_PREFIXES_MAX = 1024, FORCED_CALL_PREFIX_BYTES_MAX = 2048 };

struct forced_prefix { // ids[start, start + len)
    uint32_t start, len;
};

struct forced_ids {
    int32_t *ids; // [len]
    uint32_t len;
};

// What all outputs of a request share; all-zero: no call is forced.
struct forced_call {
    const struct tokenizer *tokenizer;
    int32_t *ids; // of all prefixes
    struct forced_prefix *prefixes; // [num_prefixes] sorted by their ids
    uint32_t num_prefixes;
    struct forced_ids opening; // tags that open the reasoning
    struct forced_ids blank; // of white space alone: behind the reasoning, or before the object
    struct forced_ids brace; // may begin the object, white space in front
    uint32_t *kept; // [num_words] the mask that forced_call_restrict makes
    uint32_t num_words;
};

enum forced_phase {
    FORCED_DONE, // also where no call is forced
    FORCED_START,
    FORCED_REASONING,
    FORCED_PREFIX,
    FORCED_BRACE,
    FORCED_OBJECT,
};

// One output's.
struct forced_state {
    enum forced_phase phase;
    struct think think;
    bool may_be_blank; // a token of white space may come, once
    uint32_t first, count; // of the prefixes that begin with the `len` tokens so far
    uint32_t len;
    uint32_t depth; // of the object's brackets
    bool in_string, is_escaped;
};

struct forced_call_options {
    const char *const *prefixes; // [num_prefixes] with which the call may begin
    size_t num_prefixes; // 0: no call is forced
    const int32_t *prompt; // [num_prompt] decides where an output begins
    uint32_t num_prompt;
};

// ERR_INVALID: a prefix is empty or too long, or there are too many. On failure *call is empty.
MUST_USE enum status forced_call_init(struct forced_call *call, struct forced_state *state,
                                      const struct forced_call_options *options,
                                      const struct tokenizer *tokenizer, uint32_t vocab_size,
                                      struct err *err);
void forced_call_fini(struct forced_call *call); // all-zero is fine

// The output has one more token.
void forced_call_take(const struct forced_call *call, struct forced_state *state, int32_t token_id);
// Whether tokens that end the output are banned now.
static inline bool forced_call_bans_ending(const struct forced_state *state) {
    return state->phase != FORCED_DONE;
}
// Whether only some tokens are allowed now.
bool forced_call_restricts(const struct forced_state *state);
// Keeps of `words` [num_words], a mask as in token_mask.h, the tokens that are allowed now. Outputs
// of a request share memory here: one thread at a time may call it.
void forced_call_restrict(const struct forced_call *call, const struct forced_state *state,
                          uint32_t *words);

#endif
