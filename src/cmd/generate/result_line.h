/* The result of one request, and its line of --output. */
#ifndef CMD_RESULT_LINE_H
#define CMD_RESULT_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text/buf.h"
#include "nanovllm.h"

// One output of a request.
struct completion {
    int32_t *token_ids; // [num_tokens] generated
    size_t num_tokens;
    struct buf text;
    enum nvllm_finish_reason finish_reason;
    int32_t stop_token_id; // -1: none
    char *stop_string; // NULL: none
    struct nvllm_times times;
    struct buf logprobs; // the JSON of the list so far, without its brackets
};

struct result {
    uint64_t index; // of the request among all, from 0
    int32_t *prompt_ids; // [num_prompt_ids]
    size_t num_prompt_ids;
    struct completion first;
    struct completion *others; // [num_others] with the indices from 1 on
    size_t num_others;
    uint32_t num_cached_tokens;
    bool has_times; // the line includes the times
    int32_t num_top; // alternatives per token; -1: no logprobs were asked for
    bool has_prompt_logprobs; // the line has them
    struct buf prompt_logprobs; // as those of a completion; empty: the request ended before
    char *error; // NULL: none
};

// Reserves `num_outputs` in all; once, and at least 1.
MUST_USE enum status result_add_others(struct result *result, size_t num_outputs, struct err *err);
struct completion *result_completion(struct result *result, size_t index);
void result_fini(struct result *result); // all-zero is fine
size_t result_bytes(const struct result *result); // memory it holds, roughly
// Adds one generated token's element to completion->logprobs. `row` [1 + num_top] as in
// nvllm_event.
MUST_USE enum status result_add_logprobs(struct completion *completion,
                                         const struct nvllm_logprob *row, size_t num_top,
                                         struct err *err);
// Adds those of all tokens of the prompt, `rows` as in nvllm_event.
MUST_USE enum status result_add_prompt_logprobs(struct result *result,
                                                const struct nvllm_logprob *rows, size_t num_top,
                                                size_t num_prompt_tokens, struct err *err);
// Appends the line with its newline.
MUST_USE enum status result_line_format(struct buf *out, const struct result *result,
                                        struct err *err);
// The same of a vector, whose JSON is the first completion's text; none: the request was refused.
MUST_USE enum status vector_line_format(struct buf *out, const struct result *result,
                                        struct err *err);

#endif
