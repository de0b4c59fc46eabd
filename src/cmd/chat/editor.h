/* A line editor on the terminal, by libedit: Emacs keys, history, completion of commands. A paste
 * of many lines becomes one entry. The terminal is in the editor's mode only while a line is
 * read. */
#ifndef CMD_CHAT_EDITOR_H
#define CMD_CHAT_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text/buf.h"

struct chat_editor;

enum chat_editor_state {
    CHAT_EDITOR_LINE, // `text` [`len`] without its newline, valid until the next call
    CHAT_EDITOR_INTERRUPTED, // Ctrl-C; `empty` is true if the line had no text
    CHAT_EDITOR_END, // Ctrl-D on an empty line, the terminal is gone, or a signal ended the chat
};

struct chat_editor_line {
    enum chat_editor_state state;
    const char *text; // UTF-8
    size_t len;
    bool empty;
};

// `history_path`: "" for none; borrowed. `escapes`: the terminal understands ANSI escape sequences.
// Standard input and output must be a terminal.
MUST_USE enum status chat_editor_create(struct chat_editor **out, const char *history_path,
                                        bool escapes, struct err *err);
void chat_editor_destroy(struct chat_editor *editor); // NULL is fine

MUST_USE enum status chat_editor_read(struct chat_editor *editor, const char *prompt,
                                      struct chat_editor_line *line, struct err *err);
// Adds an entry to the history and its file. If the file cannot be written, the first call returns
// ERR_IO, and later ones leave the file alone.
MUST_USE enum status chat_editor_remember(struct chat_editor *editor, const char *text, size_t len,
                                          struct err *err);

/* The entries of earlier chats, in a file of one line each: a backslash and a newline inside an
 * entry are written \\ and \n. New entries are appended at once, so that chats running at the same
 * time lose none. Only opening shortens the file. */

enum { CHAT_HISTORY_ENTRIES_MAX = 1000, CHAT_HISTORY_ENTRY_BYTES_MAX = 16 << 10 };

// An entry [len] of the file, oldest first; valid UTF-8 without NUL, and NUL-terminated.
typedef enum status (*chat_history_fn)(void *user_data, const char *entry, size_t len,
                                       struct err *err);

// Writes the history's path: nanovllm/chat_history in `state_home`, or in .local/state of `home` if
// that is NULL, empty or not absolute. Makes the folders. "" in `path`: neither is there, so there
// is no history.
MUST_USE enum status chat_history_path(char *path, size_t size, const char *state_home,
                                       const char *home, struct err *err);
// Passes on the newest CHAT_HISTORY_ENTRIES_MAX entries and removes older ones from the file. A
// missing file counts as empty.
MUST_USE enum status chat_history_load(const char *path, chat_history_fn entry, void *user_data,
                                       struct err *err);
// An entry of more than CHAT_HISTORY_ENTRY_BYTES_MAX is left out. The file is made with mode 0600.
MUST_USE enum status chat_history_append(const char *path, const char *entry, size_t len,
                                         struct err *err);

#endif
