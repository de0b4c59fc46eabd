/* One line of --input. It is a JSON object with `prompt`, `prompt_token_ids` or `messages` and the
 * other members of a chat. `cache_salt` and sampling fields, by their table names, are optional.
 * Sampling fields override the flags. null means "not given". */
#ifndef CMD_REQUEST_LINE_H
#define CMD_REQUEST_LINE_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "cmd/generate/request_chat.h"
#include "nanovllm.h"

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
    // [chat_len] JSON for nvllm_request.chat, or NULL. If there is a prompt too, it is its user
    // message.
    char *chat;
    size_t chat_len;
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
