/* Small files that are written whole: a saved conversation, a shortened history. */
#ifndef CMD_CHAT_FILE_H
#define CMD_CHAT_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// Writes a file whole. A new file that cannot be written completely is removed again. Without
// `replace` an existing file is refused with ERR_INVALID. With `replace` it is exchanged for a new
// file with its permissions, once all bytes are on the disk. Links are followed.
MUST_USE enum status chat_file_write(const char *path, const void *bytes, size_t len, bool replace,
                                     struct err *err);

#endif
