/* The entries of earlier chats, in a file of one line each: a backslash and a newline inside an
 * entry are written \\ and \n. New entries are appended at once, so that chats running at the same
 * time lose none. Only opening shortens the file. */
#ifndef CMD_CHAT_HISTORY_H
#define CMD_CHAT_HISTORY_H

#include <stddef.h>

#include "base/err.h"
#include "base/text/buf.h"

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
