/* Bytes in memory, or in an open file that is read on demand. */
#ifndef BASE_BYTE_SOURCE_H
#define BASE_BYTE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct file;

// Borrows what it points to.
struct byte_source {
    const void *data; // the first byte, any alignment; NULL: they are in `file`
    const struct file *file;
    uint64_t offset; // of the first byte in `file`
};

// The same source without its first `bytes` bytes.
struct byte_source byte_source_skip(struct byte_source source, uint64_t bytes);
// Returns bytes [offset, offset + len): a pointer into memory, or `buffer` [len] after reading the
// file into it. NULL on a read error; err names the file. Threads may share a source.
MUST_USE const void *byte_source_get(const struct byte_source *source, uint64_t offset, size_t len,
                                     void *buffer, struct err *err);

#endif
