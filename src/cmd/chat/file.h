/* Small files that are written whole: a saved conversation, a shortened history. */
#ifndef CMD_CHAT_FILE_H
#define CMD_CHAT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// A file that does not exist is made, and removed again when it cannot be written to its end. One
// that exists is refused (ERR_INVALID, the sentence says so) without `replace`; with it, a new file
// takes its place and its permissions when all bytes are on the disk. Links are followed.
MUST_USE enum status chat_file_write(const char *path, const void *bytes, size_t len, bool replace,
                                     struct err *err);

#endif
