/* Builds the JSON of a request's chat for the library. It comes from the members of an --input
 * line, or from a text prompt as one user message (--chat). Flags add a system message and template
 * variables. */
#ifndef CMD_REQUEST_CHAT_H
#define CMD_REQUEST_CHAT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

struct request_chat_defaults {
    bool wrap_prompts; // a text prompt becomes one user message
    const char *system; // begins the chats that do not begin with a system message; NULL: none
    json_t *template_kwargs; // an object; the chat's own variables override it; NULL: none
};

// Parses --chat-template-kwargs. ERR_INVALID: it is not an object. The caller frees it with
// json_decref(template_kwargs).
MUST_USE enum status request_chat_set_kwargs(struct request_chat_defaults *defaults,
                                             const char *json, struct err *err);

// True if a line's member belongs to its chat.
enum { REQUEST_CHAT_MEMBERS = 6 };
extern const char *const request_chat_members[REQUEST_CHAT_MEMBERS];
bool request_chat_has_member(const char *name);

// Writes the chat of a line's members (an object, NULL: none) and its prompt [len] (NULL: none) as
// malloc'ed text [*out_len]. Bytes of the prompt that are not UTF-8 become U+FFFD.
MUST_USE enum status request_chat_make(const json_t *members, const char *prompt, size_t len,
                                       const struct request_chat_defaults *defaults, char **out,
                                       size_t *out_len, struct err *err);

#endif
