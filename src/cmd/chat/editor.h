/* A line editor on the terminal, by libedit: keys of Emacs, history, completion of commands, pastes
 * of many lines as one. The terminal is in the editor's mode only while a line is read. */
#ifndef CMD_CHAT_EDITOR_H
#define CMD_CHAT_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct chat_editor;

enum chat_editor_state {
    CHAT_EDITOR_LINE, // `text` [`len`] without its newline, valid until the next call
    CHAT_EDITOR_INTERRUPTED, // Ctrl-C; `empty` says whether there was nothing to clear
    CHAT_EDITOR_END, // Ctrl-D on an empty line, the terminal is gone, or a signal ended the chat
};

struct chat_editor_line {
    enum chat_editor_state state;
    const char *text; // UTF-8
    size_t len;
    bool empty;
};

// `history_path`: "" for none; borrowed. `escapes`: the terminal understands ANSI's. Standard input
// and output must be a terminal.
MUST_USE enum status chat_editor_create(struct chat_editor **out, const char *history_path,
                                        bool escapes, struct err *err);
void chat_editor_destroy(struct chat_editor *editor); // NULL is fine

MUST_USE enum status chat_editor_read(struct chat_editor *editor, const char *prompt,
                                      struct chat_editor_line *line, struct err *err);
// Puts an entry into the history and its file. A file that cannot be written any more is told
// once, by ERR_IO, and then left alone.
MUST_USE enum status chat_editor_remember(struct chat_editor *editor, const char *text, size_t len,
                                          struct err *err);

#endif
