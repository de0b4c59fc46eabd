#include "support/gguf_builder.h"

#include <string.h>

#include "base/check.h"

void put_bytes(struct buf *out, const void *bytes, size_t len) {
    CHECK(!buf_append(out, bytes, len, NULL), "len=%zu", len);
}

void put_u32(struct buf *out, uint32_t value) {
    put_bytes(out, &value, sizeof value);
}

void put_u64(struct buf *out, uint64_t value) {
    put_bytes(out, &value, sizeof value);
}

void put_string(struct buf *out, const char *text) {
    put_u64(out, strlen(text));
    put_bytes(out, text, strlen(text));
}

void put_start(struct buf *out, uint64_t num_tensors, uint64_t num_values) {
    put_bytes(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, num_tensors);
    put_u64(out, num_values);
}

void put_u32_value(struct buf *out, const char *key, uint32_t value) {
    put_string(out, key);
    put_u32(out, GGUF_U32);
    put_u32(out, value);
}

void put_f32_value(struct buf *out, const char *key, float value) {
    put_string(out, key);
    put_u32(out, GGUF_F32);
    put_bytes(out, &value, sizeof value);
}

void put_bool_value(struct buf *out, const char *key, bool value) {
    put_string(out, key);
    put_u32(out, GGUF_BOOL);
    put_bytes(out, &value, 1);
}

void put_string_value(struct buf *out, const char *key, const char *value) {
    put_string(out, key);
    put_u32(out, GGUF_STRING);
    put_string(out, value);
}

void put_array(struct buf *out, const char *key, enum gguf_type type, uint64_t count) {
    put_string(out, key);
    put_u32(out, GGUF_ARRAY);
    put_u32(out, type);
    put_u64(out, count);
}

void put_tensor(struct buf *out, const char *name, uint32_t rank, const uint64_t *sizes,
                uint32_t type, uint64_t offset) {
    put_string(out, name);
    put_u32(out, rank);
    for (uint32_t i = 0; i < rank; i++) put_u64(out, sizes[i]);
    put_u32(out, type);
    put_u64(out, offset);
}

void put_data(struct buf *out, size_t alignment, size_t len) {
    while (out->len % alignment) put_bytes(out, "", 1);
    for (size_t i = 0; i < len; i++) put_bytes(out, "", 1);
}
