/* One line of --input. It is a JSON object with `prompt`, `prompt_token_ids` or `messages` and the
 * other members of a chat. `cache_salt` and sampling fields, by their table names, are optional.
 * Sampling fields override the flags. null means "not given". */
#ifndef CMD_REQUEST_LINE_H
#define CMD_REQUEST_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "nanovllm.h"

/* Builds the JSON of a request's chat for the library. It comes from the members of an --input
 * line, or from a text prompt as one user message (--chat). Flags add a system message and template
 * variables. */

struct request_chat_defaults {
    bool wrap_prompts; // a text prompt becomes one user message
    const char *system; // begins the chats that do not begin with a system message; NULL: none
    json_t *template_kwargs; // an object; the chat's own variables override it; NULL: none
};

// Parses --chat-template-kwargs. ERR_INVALID: it is not an object. The caller frees it with
// json_decref(template_kwargs).
MUST_USE enum status request_chat_set_kwargs(struct request_chat_defaults *defaults,
                                             const char *json, struct err *err);

// Makes the chat of a line's members (an object, NULL: none) and its prompt [len] (NULL: none); the
// caller's. Bytes of the prompt that are not UTF-8 become U+FFFD.
MUST_USE enum status request_chat_make(const json_t *members, const char *prompt, size_t len,
                                       const struct request_chat_defaults *defaults, json_t **out,
                                       struct err *err);

// ---- lines ----

// Values that a line takes if it has none of its own.
struct request_defaults {
    const struct nvllm_sampling_params *sampling; // borrowed
    struct request_chat_defaults chat;
};

struct request_line {
    uint64_t line_number; // in --input, from 1; 0: not from --input
    json_t *root; // the parsed line, which the strings below borrow from
    const char *prompt; // [prompt_len] or NULL; may contain NUL bytes
    size_t prompt_len;
    // An object as nvllm_request.chat has it, or NULL. If there is a prompt too, it is its user
    // message.
    json_t *chat;
    size_t memory_left; // bytes for trees of JSON texts in the chat (api/parsed.h)
    struct buf rendered; // the chat's prompt, once the template made it; else empty
    int32_t *prompt_token_ids; // [num_prompt_token_ids] or NULL
    size_t num_prompt_token_ids;
    const char *cache_salt; // or NULL
    // The defaults overridden; lists that the line does not set are borrowed from the defaults.
    struct nvllm_sampling_params sampling;
};

// On failure *line is empty, and err has a sentence without the line's number.
MUST_USE enum status request_line_parse(struct request_line *line, const char *text, size_t len,
                                        const struct request_defaults *defaults, struct err *err);
// Makes a request of a text, which it borrows.
MUST_USE enum status request_line_from_text(struct request_line *line, const char *text, size_t len,
                                            const struct request_defaults *defaults,
                                            struct err *err);
void request_line_fini(struct request_line *line); // all-zero is fine

#endif
