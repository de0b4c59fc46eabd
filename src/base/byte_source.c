#include "base/byte_source.h"

#include "base/os/file.h"

struct byte_source byte_source_skip(struct byte_source source, uint64_t bytes) {
    if (source.data) {
        source.data = (const char *)source.data + bytes;
    } else {
        source.offset += bytes;
    }
    return source;
}

const void *byte_source_get(const struct byte_source *source, uint64_t offset, size_t len,
                            void *buffer, struct err *err) {
    if (source->data) return (const char *)source->data + offset;
    return file_read_at(source->file, source->offset + offset, buffer, len, err) ? NULL : buffer;
}
