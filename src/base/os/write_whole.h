/* Writes all bytes or nothing. */
#ifndef BASE_WRITE_WHOLE_H
#define BASE_WRITE_WHOLE_H

#include <stdbool.h>
#include <stddef.h>

// Writes at once, unbuffered. Waits for a slow reader, also where another process made the
// descriptor non-blocking. False: errno says why (a full disk, a limit). If the bytes written so
// far are then the end of a regular file, they are cut off again, so that its lines stay whole.
bool write_whole(int fd, const void *bytes, size_t len);

#endif
