/* Writes GGUF files piece by piece, wrong ones too. Each fails the test when memory is out. */
#ifndef SUPPORT_GGUF_BUILDER_H
#define SUPPORT_GGUF_BUILDER_H

#include <stdint.h>

#include "base/text/buf.h"
#include "checkpoint/gguf/file/gguf_file.h"

void put_bytes(struct buf *out, const void *bytes, size_t len);
void put_u32(struct buf *out, uint32_t value);
void put_u64(struct buf *out, uint64_t value);
void put_string(struct buf *out, const char *text);
void put_start(struct buf *out, uint64_t num_tensors, uint64_t num_values); // of version 3
void put_u32_value(struct buf *out, const char *key, uint32_t value);
void put_f32_value(struct buf *out, const char *key, float value);
void put_bool_value(struct buf *out, const char *key, bool value);
void put_string_value(struct buf *out, const char *key, const char *value);
// An array's beginning; its elements follow.
void put_array(struct buf *out, const char *key, enum gguf_type type, uint64_t count);
// The description of a tensor; the innermost size first, as in the file.
void put_tensor(struct buf *out, const char *name, uint32_t rank, const uint64_t *sizes,
                uint32_t type, uint64_t offset);
void put_data(struct buf *out, size_t alignment, size_t len); // zeros, from the next boundary on

#endif
