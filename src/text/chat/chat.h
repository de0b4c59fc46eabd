/* Chat templates of checkpoints: from a chat's JSON to the prompt's text.
 *
 * Finds the template where transformers does, checks and normalises the chat, sets the variables
 * that transformers sets, and renders. The language is that of jinja/jinja.h. The contracts are
 * those of nvllm_chat_template_* in nanovllm.h, word for word. Read-only after opening, so threads
 * may share a template. A render reads the local time (strftime_now), unless the chat gives one. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text/buf.h"
#include "base/thread/interrupt.h"

struct chat_template;
struct checkpoint;

// The checkpoint is read here only. `path`: a file of Jinja source to use instead of the
// checkpoint's templates. Either may be NULL, not both.
MUST_USE enum status chat_template_open(struct chat_template **out,
                                        const struct checkpoint *checkpoint, const char *path,
                                        struct err *err);
void chat_template_close(struct chat_template *chat_template); // NULL is fine

// The Jinja source [*len] that chats with, or without, tools are rendered with; it lives as long as
// the chat template. NULL: such chats are refused.
const char *chat_template_source(const struct chat_template *chat_template, bool has_tools,
                                 size_t *len);

// Whether the prompt of a chat with tools shows them. Else such chats are refused.
bool chat_template_reads_tools(const struct chat_template *chat_template);

// Appends the prompt of `chat` [len] to `out`; after an error `out` has its old length. `interrupt`
// may be NULL.
MUST_USE enum status chat_template_render(const struct chat_template *chat_template,
                                          const char *chat, size_t len,
                                          const struct interrupt *interrupt, struct buf *out,
                                          struct err *err);
// The same for a chat that is parsed already, by jread_request. It is not changed. Texts inside it
// that are JSON themselves are parsed too: those trees may take `memory_left` bytes.
MUST_USE enum status chat_template_render_json(const struct chat_template *chat_template,
                                               const json_t *chat, size_t memory_left,
                                               const struct interrupt *interrupt, struct buf *out,
                                               struct err *err);
// As chat_template_render, but the template's variables are the members of the object `variables`
// [len], unchecked.
MUST_USE enum status chat_template_render_raw(const struct chat_template *chat_template,
                                              const char *variables, size_t len,
                                              const struct interrupt *interrupt, struct buf *out,
                                              struct err *err);

#endif
