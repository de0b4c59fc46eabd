/* One GGUF file, version 3: the format of llama.cpp and ollama. Every rule is checked before
 * anything is used.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: "GGUF", version, the numbers
 * of tensors and of metadata entries, the entries, the tensors' descriptions, then the aligned
 * data. All integers are little-endian.
 *
 * Checked: counts and lengths against the file's size before memory is taken for them; keys and
 * names are valid UTF-8 and unique; types are known; shapes and sizes agree without overflow; each
 * tensor begins where the one before it ends, at the alignment, and ends within the file. The
 * header is kept in memory until the file is closed; tensors are read on demand. */
#ifndef CHECKPOINT_GGUF_GGUF_FILE_H
#define CHECKPOINT_GGUF_GGUF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/byte_source.h"
#include "base/err.h"
#include "checkpoint/gguf/weights/gguf_blocks.h"

struct gguf;

enum gguf_type { // of a metadata value, with the file's numbers
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    NUM_GGUF_TYPES,
};

struct gguf_string { // borrowed from the file; valid UTF-8 without NUL, but not terminated
    const char *text;
    size_t len;
};

struct gguf_value {
    enum gguf_type type; // of an array that of its elements; never GGUF_ARRAY
    bool is_array;
    uint64_t count; // elements; 1 unless it is an array
    const char *data; // [count], any alignment; strings are read by gguf_next_string
};

enum { GGUF_RANK_MAX = 4 };

struct gguf_tensor {
    struct gguf_string name;
    const struct block_type *type;
    uint32_t rank; // 1 to 4
    uint64_t shape[GGUF_RANK_MAX]; // [rank], outermost first; the file has the reverse order
    uint64_t size_bytes;
    struct byte_source source;
};

// Opens and checks a file. Errors name it. It is not for a path whose file has another format.
MUST_USE enum status gguf_open(struct gguf **out, const char *path, struct err *err);
// The same over bytes the caller keeps alive; `what` names them in errors.
MUST_USE enum status gguf_parse(struct gguf **out, const void *bytes, size_t size, const char *what,
                                struct err *err);
void gguf_close(struct gguf *gguf); // NULL is fine
// Whether a regular file begins with "GGUF", whatever its name is.
bool gguf_is_file(const char *path);

const char *gguf_path(const struct gguf *gguf); // or `what`
size_t gguf_num_tensors(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, size_t index);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);
// ERR_IO where the file was written to since it was opened.
MUST_USE enum status gguf_check_unchanged(const struct gguf *gguf, struct err *err);

size_t gguf_num_values(const struct gguf *gguf);
struct gguf_string gguf_key(const struct gguf *gguf, size_t index);
bool gguf_find(const struct gguf *gguf, const char *key, struct gguf_value *value);
// The string at *at, which then is the place of the next one. Begin with value->data.
struct gguf_string gguf_next_string(const char **at);
// Element `index` of a value of integers or booleans. False: it is not in [0, INT64_MAX].
bool gguf_integer(const struct gguf_value *value, uint64_t index, int64_t *out);
double gguf_real(const struct gguf_value *value, uint64_t index); // of any number
const char *gguf_type_name(enum gguf_type type); // "u32"

#endif
