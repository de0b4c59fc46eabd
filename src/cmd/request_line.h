/* One line of --input: a JSON object with `prompt`, `prompt_token_ids` or `messages` (and what else
 * belongs to a chat), an optional `cache_salt`, and any sampling field by its table name, which
 * overrides the flags. null means "not given". */
#ifndef CMD_REQUEST_LINE_H
#define CMD_REQUEST_LINE_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "cmd/request_chat.h"
#include "nanovllm.h"

// What a line takes where it says nothing itself.
struct request_defaults {
    const struct nvllm_sampling_params *sampling; // borrowed
    struct request_chat_defaults chat;
};

struct request_line {
    uint64_t line_number; // in --input, from 1; 0: not from there
    json_t *root; // the parsed line, which the strings below borrow from
    const char *prompt; // [prompt_len] or NULL; may contain NUL bytes
    size_t prompt_len;
    char *chat; // [chat_len] JSON for nvllm_request.chat, or NULL; where there is a prompt too, the
    size_t chat_len; // prompt is its user message
    int32_t *prompt_token_ids; // [num_prompt_token_ids] or NULL
    size_t num_prompt_token_ids;
    const char *cache_salt; // or NULL
    // The defaults overridden; lists that the line does not set are borrowed from the defaults.
    struct nvllm_sampling_params sampling;
};

// A fault is one sentence without the line's number. *line is empty then.
MUST_USE enum status request_line_parse(struct request_line *line, const char *text, size_t len,
                                        const struct request_defaults *defaults, struct err *err);
// A request of a text alone, which it borrows.
MUST_USE enum status request_line_from_text(struct request_line *line, const char *text, size_t len,
                                            const struct request_defaults *defaults,
                                            struct err *err);
void request_line_fini(struct request_line *line); // all-zero is fine

#endif
