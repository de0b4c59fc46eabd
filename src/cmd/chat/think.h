/* Splits an answer, as it comes, into the model's thinking and what it says. Models that think
 * begin with it, between tags such as <think> and </think>; where the template has written the
 * opening tag already, the answer begins inside. Tags count only there: an answer that talks about
 * <think> is not cut. The tags belong to the thinking. Pure: no text is lost or changed. */
#ifndef CMD_CHAT_THINK_H
#define CMD_CHAT_THINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct chat_think_tag {
    const char *open, *close;
};

enum chat_think_state {
    CHAT_THINK_BEFORE, // nothing but blanks so far: an opening tag may come
    CHAT_THINK_INSIDE,
    CHAT_THINK_AFTER,
};

enum { CHAT_THINK_TAG_LEN_MAX = 24 };

// All-zero is a splitter before an answer whose prompt has no opening tag.
struct chat_think {
    enum chat_think_state state;
    const struct chat_think_tag *tag; // INSIDE: whose closing tag ends it
    char held[CHAT_THINK_TAG_LEN_MAX]; // [held_len] what may be the beginning of a tag
    size_t held_len;
};

// A run of text of one kind, never empty. A status other than OK ends the feed and is passed on.
typedef enum status (*chat_think_fn)(void *user_data, const char *text, size_t len, bool thinking,
                                     struct err *err);

const struct chat_think_tag *chat_think_tag(size_t index); // NULL past the end
// For a new answer to `prompt`: inside when that ends in an opening tag and blanks.
void chat_think_begin(struct chat_think *think, const char *prompt, size_t prompt_len);
MUST_USE enum status chat_think_feed(struct chat_think *think, const char *text, size_t len,
                                     chat_think_fn emit, void *user_data, struct err *err);
// A tag that is a token without text: an opening one of `tag`, or the end of the thinking.
MUST_USE enum status chat_think_mark(struct chat_think *think, const struct chat_think_tag *tag,
                                     bool opens, chat_think_fn emit, void *user_data,
                                     struct err *err);
// The end of the answer: what was held back turned out to be no tag.
MUST_USE enum status chat_think_end(struct chat_think *think, chat_think_fn emit, void *user_data,
                                    struct err *err);

#endif
