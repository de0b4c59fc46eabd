/* A member of a body that is one prompt or a list of them; a prompt is text or token ids. */
#ifndef SERVER_PROMPTS_H
#define SERVER_PROMPTS_H

#include "server/loop/api_request.h"

struct prompts_options {
    const char *key; // of the member
    const char *prefix; // goes before each text; NULL: nothing
    bool add_special_tokens; // to texts, by the tokenizer's rule
    size_t most; // prompts; more are refused
};

// Fills request->prompts. False: request->error is set.
bool prompts_read(struct api_request *request, const struct prompts_options *options);
// Prompt `i` of the member as the client sent it.
const json_t *prompts_item(const json_t *member, size_t i);

#endif
