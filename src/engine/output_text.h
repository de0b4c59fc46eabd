/* From generated tokens to the text a user sees: incremental detokenizing, and stop strings that
 * never leak, not even in part: text that could be the start of a stop string is held back until it
 * is decided. Allocates only in init.
 *
 * Each stop string is searched with Knuth, Morris and Pratt's automaton: its state after the text
 * so far is how many of the text's last bytes begin the stop string, so the longest state of all is
 * exactly what must be held back. Among stop strings that a token completes, the one that begins
 * first wins, at the same place the longer one. */
#ifndef ENGINE_OUTPUT_TEXT_H
#define ENGINE_OUTPUT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/detokenizer.h"

struct output_stop; // one stop string and its automaton

struct output_text_options {
    const char *const *stops; // [num_stops]; copied
    size_t num_stops;
    uint32_t min_tokens; // a stop string that the first so many tokens complete is passed over
    bool skip_special; // special tokens add no text
    bool include_stop; // the stop string is handed out too; so nothing is held back for it
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

// tokenizer may be NULL (no text then): stop strings are refused without one.
MUST_USE enum status output_text_init(struct output_text *text, const struct tokenizer *tokenizer,
                                      const struct output_text_options *options, struct err *err);
void output_text_fini(struct output_text *text); // all-zero is fine
// Bytes that a push, or the last push and the finish after it, can hand out at most: what `out`
// must have reserved.
size_t output_text_max_piece(const struct output_text *text, const struct tokenizer *tokenizer);
// Feeds a token. Appends to `out` what is certain. Returns the index of the stop string that is now
// complete (the text up to it is handed out, the rest dropped), or -1.
int output_text_push(struct output_text *text, const struct tokenizer *tokenizer, int32_t token_id,
                     struct buf *out);
// The end without a stop string: hands out everything held back.
void output_text_finish(struct output_text *text, struct buf *out);

#endif
