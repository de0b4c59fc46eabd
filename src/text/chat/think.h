/* Splits an answer, as it comes, into the model's thinking and what it says. A model that thinks
 * does so at the start of its answer, between tags such as <think> and </think>. If the template
 * has already written the opening tag, the answer begins inside. Tags count only at the start: an
 * answer that talks about <think> is not cut. Pure: no text is lost or changed. */
#ifndef TEXT_THINK_H
#define TEXT_THINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct think_tag {
    const char *open, *close;
    const char *token; // that open begins with; NULL: open may be one
};

enum think_state {
    THINK_BEFORE, // nothing but blanks so far: an opening tag may come
    THINK_INSIDE,
    THINK_AFTER,
};

enum think_part { THINK_ANSWER, THINK_THOUGHT, THINK_TAG };

enum { THINK_TAG_LEN_MAX = 24 };

// All-zero is a splitter before an answer whose prompt has no opening tag.
struct think {
    enum think_state state;
    const struct think_tag *tag; // INSIDE: whose closing tag ends it
    // The prompt has opened the thinking and only blanks came: some models repeat the opening tag.
    bool may_reopen;
    // Behind an opening token without text: the characters of the tag that have not come yet; NULL:
    // none.
    const char *rest;
    char held[THINK_TAG_LEN_MAX]; // [held_len] what may be the beginning of a tag
    size_t held_len;
};

// A run of text of one part, never empty; a tag comes as one run. A status other than OK ends the
// feed and is passed on.
typedef enum status (*think_fn)(void *user_data, const char *text, size_t len, enum think_part part,
                                struct err *err);

const struct think_tag *think_tag(size_t index); // NULL past the end
// For a new answer to `prompt`: inside when that ends in an opening tag and blanks.
void think_begin(struct think *think, const char *prompt, size_t prompt_len);
MUST_USE enum status think_feed(struct think *think, const char *text, size_t len, think_fn emit,
                                void *user_data, struct err *err);
// A tag that is a token without text: an opening one of `tag`, or the end of the thinking. What
// follows the token in an opening tag is not emitted.
MUST_USE enum status think_mark(struct think *think, const struct think_tag *tag, bool opens,
                                think_fn emit, void *user_data, struct err *err);
// The end of the answer: emits what was held back, since it became no tag.
MUST_USE enum status think_end(struct think *think, think_fn emit, void *user_data,
                               struct err *err);

#endif
