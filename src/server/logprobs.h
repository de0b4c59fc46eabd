/* Log-probabilities in the two shapes that clients know: chat's, a list of objects, and completions',
 * four lists side by side. They are collected in the choice until a chunk or the answer takes them. */
#ifndef SERVER_LOGPROBS_H
#define SERVER_LOGPROBS_H

#include "server/call.h"

void logprobs_collect_chat(struct choice *choice, const struct piece *piece);
void logprobs_collect_completion(struct choice *choice, const struct piece *piece);
// What was collected as the value of "logprobs": null when the call asked for none. Collecting starts
// anew.
void logprobs_write_chat(struct choice *choice, struct json_out *out);
void logprobs_write_completion(struct choice *choice, struct json_out *out);

#endif
