/* The entries of earlier chats, in a file of one line each: a backslash and a newline inside an
 * entry are written \\ and \n. New entries are appended at once, so that several chats at a time
 * lose none of them; only opening shortens the file. */
#ifndef CMD_CHAT_HISTORY_H
#define CMD_CHAT_HISTORY_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { CHAT_HISTORY_ENTRIES_MAX = 1000, CHAT_HISTORY_ENTRY_BYTES_MAX = 16 << 10 };

// An entry [len] of the file, oldest first; valid UTF-8 without NUL, and NUL-terminated.
typedef enum status (*chat_history_fn)(void *user_data, const char *entry, size_t len,
                                       struct err *err);

// nanovllm/chat_history in `state_home`, or in .local/state of `home` where that is NULL, empty or
// not absolute; makes the folders. "" in `path` when neither is there: no history.
MUST_USE enum status chat_history_path(char *path, size_t size, const char *state_home,
                                       const char *home, struct err *err);
// Hands out the newest CHAT_HISTORY_ENTRIES_MAX entries, and drops what is older from the file. A
// file that is not there is empty.
MUST_USE enum status chat_history_load(const char *path, chat_history_fn entry, void *user_data,
                                       struct err *err);
// An entry of more than CHAT_HISTORY_ENTRY_BYTES_MAX is left out. The file is made with mode 0600.
MUST_USE enum status chat_history_append(const char *path, const char *entry, size_t len,
                                         struct err *err);

#endif
