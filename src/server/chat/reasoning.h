/* Splits an answer into the fields `reasoning` and `content`, as it comes. text/chat/think.h finds
 * the tags; here they are left out, and so is white space that only separates:
 *   - before the reasoning, after it, and before the content that follows it;
 *   - an answer without reasoning keeps every byte.
 * White space (blank, tab, CR, LF) is held until the next character decides, at most
 * REASONING_BLANKS_MAX bytes of it: a longer run is handed out.
 *
 * An answer that ends before the closing tag is all reasoning. The thinking is over once and for
 * all at its closing tag: later tags are content. */
#ifndef SERVER_REASONING_H
#define SERVER_REASONING_H

#include "base/text/buf.h"
#include "text/chat/think.h"

enum { REASONING_BLANKS_MAX = 64 };

// One answer's. Holds no memory of its own.
struct reasoning {
    bool enabled;
    struct think think;
    bool has_tag; // there is reasoning: the prompt or the answer has opened it
    bool has_text; // of the field under way: more than white space was handed out
    enum think_part field; // THINK_ANSWER: content, THINK_THOUGHT: reasoning
    char blanks[REASONING_BLANKS_MAX]; // [num_blanks] held back
    size_t num_blanks;
};

struct reasoning_delta {
    struct buf *reasoning, *content; // the caller's; appended to
};

// For an answer to `prompt`. It begins inside the reasoning if the prompt ends in an opening tag.
// Not enabled: all text, tags included, is content. If the prompt contains the beginning of the
// answer (continue_final_message), push that beginning first and drop its deltas.
void reasoning_begin(struct reasoning *reasoning, bool enabled, const char *prompt,
                     size_t prompt_len);
// Adds what is certain after `text`. ERR_NOMEM: nothing of `text` was taken.
MUST_USE enum status reasoning_push(struct reasoning *reasoning, const char *text, size_t len,
                                    const struct reasoning_delta *out, struct err *err);
// The end of the answer. ERR_NOMEM: may be called again.
MUST_USE enum status reasoning_finish(struct reasoning *reasoning,
                                      const struct reasoning_delta *out, struct err *err);

#endif
