/* The library for callers that have JSON parsed already: the server's bodies, and generate's lines.
 * Each function is the public one without its way through text. A tree comes from jread_request,
 * and is not changed. */
#ifndef API_PARSED_H
#define API_PARSED_H

#include <jansson.h>
#include <stdbool.h>

#include "base/text/buf.h"
#include "nanovllm.h"

// nvllm_sampling_params_set.
enum nvllm_status api_sampling_params_set(struct nvllm_sampling_params *params, const char *name,
                                          const json_t *value, struct nvllm_error *error);

// nvllm_chat_template_render, which appends to `out`. Texts in the chat that are JSON themselves,
// such as a tool call's arguments, are parsed too: those trees may take `memory_left` bytes.
enum nvllm_status api_chat_render(const struct nvllm_chat_template *chat_template,
                                  const json_t *chat, size_t memory_left,
                                  const struct nvllm_interrupt *interrupt, struct buf *out,
                                  struct nvllm_error *error);
// The Jinja source [*len] of chats with or without tools; it lives as long as the template. NULL:
// such chats are refused.
const char *api_chat_source(const struct nvllm_chat_template *chat_template, bool has_tools,
                            size_t *len);
// Whether prompts of chats with tools show them. Else such chats are refused.
bool api_chat_reads_tools(const struct nvllm_chat_template *chat_template);
// nvllm_engine_add_request of a chat whose prompt is rendered: the request's `prompt` has it. The
// template has written the special tokens, so none are added.
enum nvllm_status api_add_rendered(struct nvllm_engine *engine, const struct nvllm_request *request,
                                   uint64_t *request_id, struct nvllm_error *error);

#endif
