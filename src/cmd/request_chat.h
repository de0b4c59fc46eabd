/* The chat of a request, as JSON that the library takes: the members that a line of --input has, or
 * one user message of a text prompt (--chat), with what the flags give to every chat. */
#ifndef CMD_REQUEST_CHAT_H
#define CMD_REQUEST_CHAT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct request_chat_defaults {
    bool wrap_prompts; // a text prompt is one user message
    const char *system; // put before chats that do not begin with a system message; NULL: none
    json_t *template_kwargs; // an object, under the chat's own; NULL: none
};

// From --chat-template-kwargs: ERR_INVALID where it is no object. The caller ends it with
// json_decref(template_kwargs).
MUST_USE enum status request_chat_set_kwargs(struct request_chat_defaults *defaults,
                                             const char *json, struct err *err);

// Whether a member of a line belongs to its chat; names them all for suggestions.
enum { REQUEST_CHAT_MEMBERS = 6 };
extern const char *const request_chat_members[REQUEST_CHAT_MEMBERS];
bool request_chat_has_member(const char *name);

// A chat from a line's members (an object, NULL: none) and its prompt [len] (NULL: none), as
// malloc'ed text [*out_len]. Bytes of the prompt that are not UTF-8 become U+FFFD.
MUST_USE enum status request_chat_make(const json_t *members, const char *prompt, size_t len,
                                       const struct request_chat_defaults *defaults, char **out,
                                       size_t *out_len, struct err *err);

#endif
