/* The parts of an open chat template, shared by chat_open.c (finding it) and chat.c (using it). */
#ifndef TEXT_CHAT_INTERNAL_H
#define TEXT_CHAT_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "jinja/jinja.h"
#include "text/chat/chat.h"
#include "text/chat/chat_messages.h"

struct chat_variant {
    struct jinja_template *template; // NULL: the checkpoint has none of this name, or a broken one
    struct buf source; // of `template`
    struct err fault; // why it is broken: the error of every chat that needs it
    struct chat_forms forms;
};

struct chat_template {
    struct chat_variant main; // the only template, or the one named "default"
    struct chat_variant tool_use; // for chats with tools, where there is one
    struct buf names; // of all templates, "a, b": for the error where `main` is missing
    json_t *special_tokens; // object: variable -> string or list of strings
};

void chat_variant_fini(struct chat_variant *variant); // all-zero is fine

// Fills an all-zero chat template except for the `forms`. After a fault it is half filled.
MUST_USE enum status chat_open_files(struct chat_template *chat_template,
                                     const struct checkpoint *checkpoint, const char *path,
                                     struct err *err);

#endif
