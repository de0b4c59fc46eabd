/* Splits an answer, while it is generated, into the model's thinking and its speech. Models that
 * think do so first, between tags such as <think> and </think>. If the template has written the
 * opening tag already, the answer begins inside. Tags count only at the beginning: an answer that
 * talks about <think> is not cut. The tags belong to the thinking. No text is lost or changed. */
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

// All-zero: ready for an answer whose prompt has no opening tag.
struct chat_think {
    enum chat_think_state state;
    const struct chat_think_tag *tag; // INSIDE: the tag whose closing form ends the thinking
    char held[CHAT_THINK_TAG_LEN_MAX]; // [held_len] bytes that may begin a tag
    size_t held_len;
};

// Gets text of one kind, never empty. Any status but OK ends the feed, which returns it.
typedef enum status (*chat_think_fn)(void *user_data, const char *text, size_t len, bool thinking,
                                     struct err *err);

const struct chat_think_tag *chat_think_tag(size_t index); // NULL past the end
// Starts an answer to `prompt`. It begins inside if the prompt ends with an opening tag and blanks.
void chat_think_begin(struct chat_think *think, const char *prompt, size_t prompt_len);
MUST_USE enum status chat_think_feed(struct chat_think *think, const char *text, size_t len,
                                     chat_think_fn emit, void *user_data, struct err *err);
// Reports a tag that is a token without text: the opening form of `tag`, or the end of thinking.
MUST_USE enum status chat_think_mark(struct chat_think *think, const struct chat_think_tag *tag,
                                     bool opens, chat_think_fn emit, void *user_data,
                                     struct err *err);
// Ends the answer: passes on the held bytes, which are not a tag.
MUST_USE enum status chat_think_end(struct chat_think *think, chat_think_fn emit, void *user_data,
                                    struct err *err);

#endif
