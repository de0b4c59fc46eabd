/* Text that is safe to print as one line. Names and strings of checkpoints, templates and requests
 * get into error messages and logs; raw, their control characters could move a terminal's cursor,
 * forge a line or turn the reading direction.
 *
 * These are escaped: C0, DEL and C1 (as \n, \r, \t, else \u001b), line and paragraph separators,
 * direction marks (\u202e), and bytes that are not UTF-8 (\xff). A backslash stays as it is, so
 * that safe text passes unchanged. */
#ifndef BASE_SENTENCE_H
#define BASE_SENTENCE_H

#include <stdarg.h>
#include <stddef.h>

#include "base/compiler.h"

// Copies `text` [len] to `out`, NUL-terminated. A text that does not fit in `size` (at least 1) is
// cut between characters or escapes, never inside one. Returns the length of `out`.
size_t sentence_copy(char *out, size_t size, const char *text, size_t len);
// vsnprintf, then sentence_copy. `size` is at most SENTENCE_BYTES_MAX.
size_t sentence_format(char *out, size_t size, const char *format, va_list args) PRINTF_LIKE(3, 0);

enum { SENTENCE_BYTES_MAX = 1024 };

#endif
