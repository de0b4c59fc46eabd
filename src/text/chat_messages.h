/* A chat's JSON, checked and brought into the form that templates read. Each fault is one sentence
 * that names the place: "messages[2].content[0] is ...". */
#ifndef TEXT_CHAT_MESSAGES_H
#define TEXT_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

#include "text/chat_now.h"

struct chat {
    json_t *root; // owned; the others borrow from it
    json_t *messages; // a list
    json_t *tools, *documents; // lists; NULL: not given
    json_t *template_kwargs; // an object; NULL: not given
    bool add_generation_prompt, continue_final_message;
    struct chat_now now; // the chat's, else the clock's
};

MUST_USE enum status chat_read(struct chat *chat, const char *text, size_t len, struct err *err);
void chat_fini(struct chat *chat); // all-zero is fine
// Brings the messages into the template's form: arguments of tool calls as objects, and, unless the
// template `takes_parts`, lists of text parts as strings; unless it `takes_null`, null as "".
MUST_USE enum status chat_normalize(struct chat *chat, bool takes_parts, bool takes_null,
                                    struct err *err);

// For continue_final_message: puts a mark behind the last text of the last message. *text is that
// text before, and the caller's (json_decref).
MUST_USE enum status chat_mark_end(struct chat *chat, json_t **text, struct err *err);
// Cuts what the template put behind the mark, from `start` of `out` on. ERR_INVALID: the template
// left out the text or the mark.
MUST_USE enum status chat_cut_at_mark(struct buf *out, size_t start, const json_t *text,
                                      struct err *err);

#endif
