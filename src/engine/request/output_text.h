/* Turns generated tokens into the text that a user sees, and finds stop strings. No part of a stop
 * string is ever shown: text that could begin one is held back until that is decided. Allocates
 * only in init.
 *
 * Each stop string has the automaton of Knuth, Morris and Pratt. Its state is how many of the
 * text's last bytes are the start of the stop string. So the largest state of all is what must be
 * held back. If a token completes several stop strings, the one that begins first wins; of those
 * that begin at one place, the longest. */
#ifndef ENGINE_OUTPUT_TEXT_H
#define ENGINE_OUTPUT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/text/buf.h"
#include "text/tokenizer/detokenizer.h"

struct output_stop; // one stop string and its automaton

struct output_text_options {
    const char *const *stops; // [num_stops]; copied
    size_t num_stops;
    uint32_t min_tokens; // stop strings within the first min_tokens tokens are ignored
    bool skip_special; // special tokens add no text
    bool include_stop; // the stop string is shown too, so nothing is held back
};

struct output_text {
    struct detokenizer detokenizer;
    struct output_stop *stops; // [num_stops]
    size_t num_stops;
    uint32_t min_tokens;
    bool skip_special, include_stop;
    uint32_t num_tokens; // pushed so far
    struct buf held; // decoded and not yet handed out
};

// `tokenizer` may be NULL: then there is no text, and stop strings are refused.
MUST_USE enum status output_text_init(struct output_text *text, const struct tokenizer *tokenizer,
                                      const struct output_text_options *options, struct err *err);
void output_text_fini(struct output_text *text); // all-zero is fine
// Most bytes that num_tokens pushes, or these and finish together, append: `out` must have them
// reserved.
size_t output_text_max_bytes(const struct output_text *text, const struct tokenizer *tokenizer,
                             uint32_t num_tokens);
// Adds a token, and appends to `out` the text that may be shown now. Returns the index of the stop
// string that is now complete, or -1. The text behind a complete stop string is dropped.
int output_text_push(struct output_text *text, const struct tokenizer *tokenizer, int32_t token_id,
                     struct buf *out);
// The end without a stop string: appends all text that was held back.
void output_text_finish(struct output_text *text, struct buf *out);

#endif
