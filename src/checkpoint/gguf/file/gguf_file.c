/* The header is read front to back into memory that grows with what has been read, so a length that
 * the file does not back never takes memory. Everything refers to that memory by offset until the
 * end is known. */
#include "checkpoint/gguf/file/gguf_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/os/file.h"
#include "base/os/map.h"
#include "base/text/buf.h"
#include "base/text/utf8.h"
#include "checkpoint/gguf/weights/gguf_codes.h"

enum {
    VERSION = 3,
    MAGIC_BYTES = 4,
    READ_BYTES = 1 << 20, // the least that is read together
    HEADER_BYTES_MAX = 256 << 20,
    VALUES_MAX = 1 << 16,
    TENSORS_MAX = 1 << 16,
    KEY_BYTES_MAX = 1 << 16,
    NAME_BYTES_MAX = 255,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
};

struct span { // of the header
    size_t at, len;
};

struct entry {
    struct span key;
    enum gguf_type type;
    bool is_array;
    uint64_t count;
    size_t data; // offset in the header
};

struct gguf {
    struct file opened; // closed (fd -1) when the bytes are the caller's
    char *path;
    struct byte_source whole;
    uint64_t size; // bytes of the file
    struct buf header;
    size_t at; // where reading the header goes on
    struct entry *entries; // [num_entries]
    size_t num_entries;
    struct gguf_tensor *tensors; // [num_tensors]
    struct span *names; // [num_tensors]
    size_t num_tensors;
    struct strmap by_key, by_name; // -> indices into entries and tensors
};

static const struct {
    const char *name;
    uint8_t size; // bytes; 0: it varies
} types[NUM_GGUF_TYPES] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type) {
    return types[type].name;
}

static enum status truncated(const struct gguf *gguf, struct err *err) {
    return err_set(err, ERR_FORMAT,
                   "%s is truncated, or no GGUF file: its header goes beyond its %llu bytes",
                   gguf->path, (unsigned long long)gguf->size);
}

// Brings the next `len` bytes of the header into memory.
static enum status need(struct gguf *gguf, uint64_t len, struct err *err) {
    if (len > gguf->size - gguf->at) return truncated(gguf, err);
    uint64_t end = gguf->at + len;
    if (end <= gguf->header.len) return OK;
    if (end > HEADER_BYTES_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%s: its header has more than %d bytes", gguf->path,
                       HEADER_BYTES_MAX);
    }
    uint64_t want = 2 * gguf->header.len > end ? 2 * gguf->header.len : end;
    if (want < READ_BYTES) want = READ_BYTES;
    if (want > gguf->size) want = gguf->size;
    size_t more = (size_t)want - gguf->header.len;
    enum status status = buf_reserve(&gguf->header, more, err);
    if (status) return status;
    char *buffer = gguf->header.data + gguf->header.len;
    const void *bytes = byte_source_get(&gguf->whole, gguf->header.len, more, buffer, err);
    if (!bytes) return ERR_IO;
    if (bytes != buffer) memcpy(buffer, bytes, more);
    gguf->header.len += more;
    return OK;
}

// Copies the next `size` bytes, an integer.
static enum status take(struct gguf *gguf, void *out, size_t size, struct err *err) {
    enum status status = need(gguf, size, err);
    if (status) return status;
    memcpy(out, gguf->header.data + gguf->at, size);
    gguf->at += size;
    return OK;
}

static enum status take_string(struct gguf *gguf, uint64_t len_max, struct span *out,
                               const char *role, struct err *err) {
    uint64_t len = 0;
    enum status status = take(gguf, &len, sizeof len, err);
    if (status) return status;
    if (len > len_max) {
        return err_set(err, ERR_FORMAT, "%s: %s has %llu bytes, want at most %llu", gguf->path,
                       role, (unsigned long long)len, (unsigned long long)len_max);
    }
    status = need(gguf, len, err);
    if (status) return status;
    const char *text = gguf->header.data + gguf->at;
    if (memchr(text, '\0', (size_t)len) || utf8_valid_prefix(text, (size_t)len) != len) {
        return err_set(err, ERR_FORMAT, "%s: %s at byte %zu is not UTF-8 text without NUL",
                       gguf->path, role, gguf->at);
    }
    *out = (struct span){gguf->at, (size_t)len};
    gguf->at += (size_t)len;
    return OK;
}

static enum status take_type(struct gguf *gguf, const struct entry *entry, enum gguf_type *out,
                             struct err *err) {
    uint32_t type = 0;
    enum status status = take(gguf, &type, sizeof type, err);
    if (status) return status;
    if (type >= NUM_GGUF_TYPES) {
        return err_set(err, ERR_FORMAT, "%s: \"%.*s\" has the unknown type %u", gguf->path,
                       (int)entry->key.len, gguf->header.data + entry->key.at, type);
    }
    *out = (enum gguf_type)type;
    return OK;
}

// The value's type and elements; `entry->key` is set.
static enum status read_value(struct gguf *gguf, struct entry *entry, struct err *err) {
    enum status status = take_type(gguf, entry, &entry->type, err);
    entry->count = 1;
    entry->is_array = !status && entry->type == GGUF_ARRAY;
    if (entry->is_array) {
        status = take_type(gguf, entry, &entry->type, err);
        if (!status) status = take(gguf, &entry->count, sizeof entry->count, err);
        if (!status && entry->type == GGUF_ARRAY) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: \"%.*s\" is an array of arrays, which is not supported", gguf->path,
                           (int)entry->key.len, gguf->header.data + entry->key.at);
        }
    }
    if (status) return status;
    entry->data = gguf->at;
    uint64_t left = gguf->size - gguf->at;
    size_t least = entry->type == GGUF_STRING ? sizeof(uint64_t) : types[entry->type].size;
    if (entry->count > left / least) return truncated(gguf, err);
    if (entry->type != GGUF_STRING) {
        status = need(gguf, entry->count * least, err);
        if (!status) gguf->at += (size_t)(entry->count * least);
    }
    for (uint64_t i = 0; entry->type == GGUF_STRING && i < entry->count && !status; i++) {
        struct span unused;
        status = take_string(gguf, HEADER_BYTES_MAX, &unused, "a string", err);
    }
    return status;
}

static enum status read_entries(struct gguf *gguf, uint64_t count, struct err *err) {
    gguf->entries = calloc(count ? count : 1, sizeof *gguf->entries);
    if (!gguf->entries) return err_nomem(err, "metadata of a GGUF file");
    enum status status = OK;
    for (uint64_t i = 0; i < count && !status; i++) {
        struct entry *entry = &gguf->entries[gguf->num_entries++];
        status = take_string(gguf, KEY_BYTES_MAX, &entry->key, "a key", err);
        if (!status && !entry->key.len) {
            status = err_set(err, ERR_FORMAT, "%s has an empty key", gguf->path);
        }
        if (!status) status = read_value(gguf, entry, err);
    }
    return status;
}

static enum status tensor_fault(const struct gguf *gguf, size_t index, const char *fault,
                                struct err *err) {
    const struct span *name = &gguf->names[index];
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.*s\" %s", gguf->path, (int)name->len,
                   gguf->header.data + name->at, fault);
}

// Fills rank and shape; the file has the innermost dimension first.
static enum status read_shape(struct gguf *gguf, size_t index, struct err *err) {
    struct gguf_tensor *tensor = &gguf->tensors[index];
    enum status status = take(gguf, &tensor->rank, sizeof tensor->rank, err);
    if (status) return status;
    if (tensor->rank < 1 || tensor->rank > GGUF_RANK_MAX) {
        return tensor_fault(gguf, index, "does not have 1 to 4 dimensions", err);
    }
    for (uint32_t i = 0; i < tensor->rank && !status; i++) {
        uint64_t *size = &tensor->shape[tensor->rank - 1 - i];
        status = take(gguf, size, sizeof *size, err);
        if (!status && (*size == 0 || *size > INT64_MAX)) {
            return tensor_fault(gguf, index, "has a dimension that is not positive", err);
        }
    }
    return status;
}

// Fills type and size_bytes.
static enum status read_type(struct gguf *gguf, size_t index, struct err *err) {
    struct gguf_tensor *tensor = &gguf->tensors[index];
    uint32_t number = 0;
    enum status status = take(gguf, &number, sizeof number, err);
    if (status) return status;
    const struct span *name = &gguf->names[index];
    tensor->type = block_type_of(number);
    if (!tensor->type || !block_type_is_read(tensor->type)) {
        const char *known = tensor->type ? tensor->type->name : "unknown";
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.*s\" has type %u (%s), which is not supported", gguf->path,
                       (int)name->len, gguf->header.data + name->at, number, known);
    }
    uint64_t columns = tensor->shape[tensor->rank - 1];
    if (columns % tensor->type->elements) {
        return err_set(err, ERR_FORMAT,
                       "%s: tensor \"%.*s\" has rows of %llu elements, but its type %s has blocks "
                       "of %u",
                       gguf->path, (int)name->len, gguf->header.data + name->at,
                       (unsigned long long)columns, tensor->type->name, tensor->type->elements);
    }
    bool overflows = __builtin_mul_overflow(columns / tensor->type->elements,
                                            (uint64_t)tensor->type->bytes, &tensor->size_bytes);
    for (uint32_t i = 0; i + 1 < tensor->rank && !overflows; i++) {
        overflows =
            __builtin_mul_overflow(tensor->size_bytes, tensor->shape[i], &tensor->size_bytes);
    }
    if (!overflows && tensor->size_bytes <= INT64_MAX) return OK;
    return tensor_fault(gguf, index, "has a shape whose size in bytes overflows", err);
}

// Until place_tensors, `source.offset` is the offset in the data.
static enum status read_tensors(struct gguf *gguf, uint64_t count, struct err *err) {
    gguf->tensors = calloc(count ? count : 1, sizeof *gguf->tensors);
    gguf->names = calloc(count ? count : 1, sizeof *gguf->names);
    if (!gguf->tensors || !gguf->names) return err_nomem(err, "tensors of a GGUF file");
    enum status status = OK;
    for (uint64_t i = 0; i < count && !status; i++) {
        size_t index = gguf->num_tensors++;
        status = take_string(gguf, NAME_BYTES_MAX, &gguf->names[index], "a tensor's name", err);
        if (!status) status = read_shape(gguf, index, err);
        if (!status) status = read_type(gguf, index, err);
        uint64_t *offset = &gguf->tensors[index].source.offset;
        if (!status) status = take(gguf, offset, sizeof *offset, err);
    }
    return status;
}

// The header has its final place from here on.
static enum status index_names(struct gguf *gguf, struct err *err) {
    const char *header = gguf->header.data;
    bool existed = false;
    enum status status = strmap_reserve(&gguf->by_key, gguf->num_entries, err);
    for (size_t i = 0; i < gguf->num_entries && !status; i++) {
        const struct span *key = &gguf->entries[i].key;
        status = strmap_put(&gguf->by_key, header + key->at, key->len, (uint32_t)i, &existed, err);
        if (!status && existed) {
            return err_set(err, ERR_FORMAT, "%s has the key \"%.*s\" twice", gguf->path,
                           (int)key->len, header + key->at);
        }
    }
    if (!status) status = strmap_reserve(&gguf->by_name, gguf->num_tensors, err);
    for (size_t i = 0; i < gguf->num_tensors && !status; i++) {
        const struct span *name = &gguf->names[i];
        gguf->tensors[i].name = (struct gguf_string){header + name->at, name->len};
        status =
            strmap_put(&gguf->by_name, header + name->at, name->len, (uint32_t)i, &existed, err);
        if (!status && existed) return tensor_fault(gguf, i, "appears twice", err);
    }
    return status;
}

static enum status read_alignment(const struct gguf *gguf, uint64_t *out, struct err *err) {
    struct gguf_value value;
    int64_t alignment = ALIGNMENT_DEFAULT;
    if (gguf_find(gguf, "general.alignment", &value)) {
        bool is_number = !value.is_array && value.type == GGUF_U32;
        if (!is_number || !gguf_integer(&value, 0, &alignment) || alignment < 1 ||
            alignment > ALIGNMENT_MAX || (alignment & (alignment - 1))) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"general.alignment\" is not a power of two of type u32, up to %d",
                           gguf->path, ALIGNMENT_MAX);
        }
    }
    *out = (uint64_t)alignment;
    return OK;
}

// `number` and `alignment` are far below 2^63.
static uint64_t align_up(uint64_t number, uint64_t alignment) {
    return (number + alignment - 1) & ~(alignment - 1);
}

// Checks that the tensors lie one after the other within the file.
static enum status place_tensors(struct gguf *gguf, struct err *err) {
    uint64_t alignment = 0;
    enum status status = read_alignment(gguf, &alignment, err);
    if (status) return status;
    uint64_t data = align_up(gguf->at, alignment), want = 0;
    for (size_t i = 0; i < gguf->num_tensors; i++) {
        struct gguf_tensor *tensor = &gguf->tensors[i];
        uint64_t offset = tensor->source.offset;
        if (offset != want) {
            return err_set(err, ERR_FORMAT,
                           "%s: tensor \"%.*s\" is at byte %llu of the data, want %llu, where the "
                           "tensor before it ends",
                           gguf->path, (int)tensor->name.len, tensor->name.text,
                           (unsigned long long)offset, (unsigned long long)want);
        }
        if (data > gguf->size || offset > gguf->size - data ||
            tensor->size_bytes > gguf->size - data - offset) {
            return err_set(err, ERR_FORMAT,
                           "%s is truncated: tensor \"%.*s\" ends beyond the file's %llu bytes",
                           gguf->path, (int)tensor->name.len, tensor->name.text,
                           (unsigned long long)gguf->size);
        }
        tensor->source = byte_source_skip(gguf->whole, data + offset);
        want = align_up(offset + tensor->size_bytes, alignment);
    }
    return OK;
}

// The fixed part of the header.
static enum status read_start(struct gguf *gguf, uint64_t *num_tensors, uint64_t *num_values,
                              struct err *err) {
    char magic[MAGIC_BYTES] = {0};
    uint32_t version = 0;
    enum status status = take(gguf, magic, sizeof magic, err);
    if (!status) status = take(gguf, &version, sizeof version, err);
    if (status) return status;
    if (memcmp(magic, "GGUF", MAGIC_BYTES) != 0) {
        status = file_check_lfs(gguf->header.data, gguf->header.len, gguf->path, err);
        if (status) return status;
        return err_set(err, ERR_FORMAT, "%s is not a GGUF file: it does not begin with \"GGUF\"",
                       gguf->path);
    }
    if (version && version % (1u << 16) == 0) {
        return err_set(err, ERR_UNSUPPORTED, "%s is a big-endian GGUF file, which is not supported",
                       gguf->path);
    }
    if (version != VERSION) {
        return err_set(err, ERR_UNSUPPORTED, "%s is a GGUF file of version %u, want version %d",
                       gguf->path, version, VERSION);
    }
    status = take(gguf, num_tensors, sizeof *num_tensors, err);
    if (!status) status = take(gguf, num_values, sizeof *num_values, err);
    if (status) return status;
    if (*num_tensors <= TENSORS_MAX && *num_values <= VALUES_MAX) return OK;
    return err_set(err, ERR_FORMAT,
                   "%s has %llu tensors and %llu metadata entries, want at most %d and %d",
                   gguf->path, (unsigned long long)*num_tensors, (unsigned long long)*num_values,
                   TENSORS_MAX, VALUES_MAX);
}

static enum status parse(struct gguf *gguf, struct err *err) {
    uint64_t num_tensors = 0, num_values = 0;
    enum status status = read_start(gguf, &num_tensors, &num_values, err);
    if (!status) status = read_entries(gguf, num_values, err);
    if (!status) status = read_tensors(gguf, num_tensors, err);
    if (!status) status = index_names(gguf, err);
    return status ? status : place_tensors(gguf, err);
}

static enum status create(struct gguf **out, const char *path, struct err *err) {
    struct gguf *gguf = calloc(1, sizeof *gguf);
    *out = gguf;
    if (!gguf) return err_nomem(err, "GGUF file");
    gguf->opened.fd = -1;
    gguf->path = strdup(path);
    return gguf->path ? OK : err_nomem(err, "GGUF file");
}

enum status gguf_parse(struct gguf **out, const void *bytes, size_t size, const char *what,
                       struct err *err) {
    struct gguf *gguf = NULL;
    enum status status = create(&gguf, what, err);
    *out = NULL;
    if (!status) {
        gguf->whole.data = bytes;
        gguf->size = size;
        status = parse(gguf, err);
    }
    if (status) {
        gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return OK;
}

enum status gguf_open(struct gguf **out, const char *path, struct err *err) {
    struct gguf *gguf = NULL;
    enum status status = create(&gguf, path, err);
    *out = NULL;
    // `opened` borrows the path for messages, so it gets the copy that the struct owns.
    if (!status) status = file_open(&gguf->opened, gguf->path, err);
    if (!status) {
        // Tensors are read once, each from front to back. A hint, so its failure does not matter.
        posix_fadvise(gguf->opened.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        gguf->whole.file = &gguf->opened;
        gguf->size = gguf->opened.size;
        status = parse(gguf, err);
    }
    if (status) {
        gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return OK;
}

void gguf_close(struct gguf *gguf) {
    if (!gguf) return;
    strmap_fini(&gguf->by_key);
    strmap_fini(&gguf->by_name);
    free(gguf->entries);
    free(gguf->tensors);
    free(gguf->names);
    buf_fini(&gguf->header);
    file_close(&gguf->opened);
    free(gguf->path);
    free(gguf);
}

bool gguf_is_file(const char *path) {
    struct file file;
    char magic[MAGIC_BYTES];
    if (!file_exists(path) || file_open(&file, path, NULL)) return false;
    bool is_gguf = file.size >= MAGIC_BYTES && !file_read_at(&file, 0, magic, sizeof magic, NULL) &&
                   memcmp(magic, "GGUF", sizeof magic) == 0;
    file_close(&file);
    return is_gguf;
}

const char *gguf_path(const struct gguf *gguf) {
    return gguf->path;
}

size_t gguf_num_tensors(const struct gguf *gguf) {
    return gguf->num_tensors;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, size_t index) {
    CHECK(index < gguf->num_tensors, "index=%zu num_tensors=%zu", index, gguf->num_tensors);
    return &gguf->tensors[index];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name) {
    uint32_t index;
    if (!strmap_get(&gguf->by_name, name, strlen(name), &index)) return NULL;
    return &gguf->tensors[index];
}

enum status gguf_check_unchanged(const struct gguf *gguf, struct err *err) {
    return gguf->opened.fd < 0 ? OK : file_check_unchanged(&gguf->opened, err);
}

size_t gguf_num_values(const struct gguf *gguf) {
    return gguf->num_entries;
}

struct gguf_string gguf_key(const struct gguf *gguf, size_t index) {
    CHECK(index < gguf->num_entries, "index=%zu num_entries=%zu", index, gguf->num_entries);
    const struct span *key = &gguf->entries[index].key;
    return (struct gguf_string){gguf->header.data + key->at, key->len};
}

bool gguf_find(const struct gguf *gguf, const char *key, struct gguf_value *value) {
    uint32_t index;
    if (!strmap_get(&gguf->by_key, key, strlen(key), &index)) return false;
    const struct entry *entry = &gguf->entries[index];
    *value = (struct gguf_value){entry->type, entry->is_array, entry->count,
                                 gguf->header.data + entry->data};
    return true;
}

struct gguf_string gguf_next_string(const char **at) {
    uint64_t len;
    memcpy(&len, *at, sizeof len);
    struct gguf_string string = {*at + sizeof len, (size_t)len};
    *at = string.text + len;
    return string;
}

bool gguf_integer(const struct gguf_value *value, uint64_t index, int64_t *out) {
    if (value->type == GGUF_F32 || value->type == GGUF_F64 || value->type == GGUF_STRING) {
        return false;
    }
    size_t size = types[value->type].size;
    bool is_signed = value->type == GGUF_I8 || value->type == GGUF_I16 || value->type == GGUF_I32;
    uint64_t bits = 0;
    memcpy(&bits, value->data + index * size, size); // little-endian, as this machine
    if (is_signed && bits >> (8 * size - 1)) return false;
    *out = (int64_t)bits;
    return bits <= INT64_MAX;
}

double gguf_real(const struct gguf_value *value, uint64_t index) {
    double wide = 0;
    float narrow;
    int64_t integer = 0;
    if (value->type == GGUF_F64) {
        memcpy(&wide, value->data + index * sizeof wide, sizeof wide);
    } else if (value->type == GGUF_F32) {
        memcpy(&narrow, value->data + index * sizeof narrow, sizeof narrow);
        wide = (double)narrow;
    } else if (gguf_integer(value, index, &integer)) {
        wide = (double)integer;
    }
    return wide;
}
