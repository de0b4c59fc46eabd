/* Nothing in the file is trusted. The header is parsed into a table sorted by data offset, and one
 * walk over the table proves that the tensors tile the data exactly. Only then are tensors handed
 * out.
 *
 * Everything but the sort takes linear time in the header; names are found by hash. */
#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/json/jread.h"
#include "base/os/file.h"
#include "base/os/map.h"

enum { HEADER_BYTES_MAX = 100 * 1000 * 1000, LENGTH_BYTES = 8 };

struct safetensors {
    struct file opened; // closed (fd -1) when the bytes are the caller's
    struct arena arena; // path and names
    const char *path;
    struct tensor *tensors; // [count], sorted by `begin`; of equal ones empty ones first
    size_t count;
    struct strmap by_name; // -> index into tensors
};

// The data section while the header is read.
struct section {
    struct byte_source source;
    uint64_t size; // bytes
};

static enum status tensor_fault(const struct safetensors *file, const char *name, const char *fault,
                                struct err *err) {
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" %s", file->path, name, fault);
}

static enum status read_dtype(const struct safetensors *file, const char *name, const json_t *entry,
                              enum dtype *dtype, struct err *err) {
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.200s\": \"dtype\" is %s, want a string",
                       file->path, name, jread_type_name(value));
    }
    *dtype = dtype_from_name(json_string_value(value));
    if (*dtype != DTYPE_NONE) return OK;
    return err_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" has the unknown dtype \"%.40s\"",
                   file->path, name, json_string_value(value));
}

// Fills rank and shape; *size is the bytes that follow from shape and dtype.
static enum status read_shape(const struct safetensors *file, const json_t *entry,
                              struct tensor *tensor, size_t *size, struct err *err) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.200s\": \"shape\" is %s, want a list",
                       file->path, tensor->name, jread_type_name(shape));
    }
    size_t rank = json_array_size(shape);
    if (rank > TENSOR_RANK_MAX) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor \"%.200s\" has %zu dimensions, want at most %d", file->path,
                       tensor->name, rank, TENSOR_RANK_MAX);
    }
    uint64_t product = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return tensor_fault(file, tensor->name,
                                "has a shape that is not a list of integers >= 0", err);
        }
        tensor->shape[i] = (uint64_t)json_integer_value(dim);
        if (__builtin_mul_overflow(product, tensor->shape[i], &product)) {
            return tensor_fault(file, tensor->name, "has a shape whose product overflows", err);
        }
    }
    tensor->rank = (uint32_t)rank;
    if (__builtin_mul_overflow(product, dtype_size(tensor->dtype), size)) {
        return tensor_fault(file, tensor->name, "has a shape whose size in bytes overflows", err);
    }
    return OK;
}

// Checks "data_offsets" against the data section and `size`; fills begin, source and size_bytes.
static enum status read_offsets(const struct safetensors *file, const json_t *entry,
                                const struct section *section, size_t size, struct tensor *tensor,
                                struct err *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0);
    const json_t *second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second)) {
        return tensor_fault(file, tensor->name,
                            "has \"data_offsets\" that are not a list of two integers", err);
    }
    long long begin = json_integer_value(first);
    long long end = json_integer_value(second);
    if (begin < 0 || end < begin) {
        return err_set(
            err, ERR_FORMAT,
            "%s: tensor \"%.200s\" has data_offsets [%lld, %lld], want 0 <= begin <= end",
            file->path, tensor->name, begin, end);
    }
    if ((unsigned long long)end > section->size) {
        return err_set(err, ERR_FORMAT,
                       "%s is truncated: tensor \"%.200s\" ends at byte %lld of the data, but the "
                       "file has only %llu",
                       file->path, tensor->name, end, (unsigned long long)section->size);
    }
    if ((size_t)(end - begin) != size) {
        return err_set(err, ERR_FORMAT,
                       "%s: tensor \"%.200s\" has %lld bytes of data, but its shape and dtype need "
                       "%zu",
                       file->path, tensor->name, end - begin, size);
    }
    tensor->begin = (uint64_t)begin;
    tensor->source = byte_source_skip(section->source, tensor->begin);
    tensor->size_bytes = size;
    return OK;
}

static enum status read_tensor(struct safetensors *file, const char *name, const json_t *entry,
                               const struct section *section, struct err *err) {
    if (!json_is_object(entry)) {
        return err_set(err, ERR_FORMAT, "%s: tensor \"%.200s\" is %s, want an object", file->path,
                       name, jread_type_name(entry));
    }
    struct tensor *tensor = &file->tensors[file->count];
    tensor->name = arena_strndup(&file->arena, name, strlen(name));
    if (!tensor->name) return err_nomem(err, "tensor names");
    tensor->path = file->path;
    size_t size = 0;
    enum status status = read_dtype(file, name, entry, &tensor->dtype, err);
    if (!status) status = read_shape(file, entry, tensor, &size, err);
    if (!status) status = read_offsets(file, entry, section, size, tensor, err);
    if (!status) file->count++;
    return status;
}

static enum status check_metadata(const struct safetensors *file, json_t *metadata,
                                  struct err *err) {
    if (json_is_null(metadata)) return OK; // MLX writes it so where there is nothing to say
    if (!json_is_object(metadata)) {
        return err_set(err, ERR_FORMAT, "%s: \"__metadata__\" is %s, want an object of strings",
                       file->path, jread_type_name(metadata));
    }
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (json_is_string(value)) continue;
        return err_set(err, ERR_FORMAT, "%s: \"__metadata__\": \"%.200s\" is %s, want a string",
                       file->path, key, jread_type_name(value));
    }
    return OK;
}

static enum status read_entries(struct safetensors *file, json_t *root,
                                const struct section *section, struct err *err) {
    size_t capacity = json_object_size(root);
    file->tensors = calloc(capacity ? capacity : 1, sizeof *file->tensors);
    if (!file->tensors) return err_nomem(err, "tensor table");
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry) {
        enum status status = strcmp(name, "__metadata__") == 0
                                 ? check_metadata(file, entry, err)
                                 : read_tensor(file, name, entry, section, err);
        if (status) return status;
    }
    return OK;
}

// By position. Of tensors at one position the empty ones come first.
static int compare_position(const void *left, const void *right) {
    const struct tensor *a = left;
    const struct tensor *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->size_bytes != b->size_bytes) return a->size_bytes < b->size_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

// Sorts the table and proves that it tiles the section.
static enum status check_tiling(struct safetensors *file, const struct section *section,
                                struct err *err) {
    qsort(file->tensors, file->count, sizeof *file->tensors, compare_position);
    uint64_t end = 0; // of the tensors so far
    for (size_t i = 0; i < file->count; i++) {
        const struct tensor *tensor = &file->tensors[i];
        uint64_t begin = tensor->begin;
        if (begin > end) {
            return err_set(err, ERR_FORMAT,
                           "%s: %llu bytes before tensor \"%.200s\" belong to no tensor",
                           file->path, (unsigned long long)(begin - end), tensor->name);
        }
        if (begin < end) {
            return err_set(err, ERR_FORMAT, "%s: tensors \"%.150s\" and \"%.150s\" overlap",
                           file->path, file->tensors[i - 1].name, tensor->name);
        }
        end = begin + tensor->size_bytes;
    }
    if (end == section->size) return OK;
    return err_set(err, ERR_FORMAT, "%s: the last %llu bytes of the file belong to no tensor",
                   file->path, (unsigned long long)(section->size - end));
}

static enum status index_names(struct safetensors *file, struct err *err) {
    enum status status = strmap_reserve(&file->by_name, file->count, err);
    for (size_t i = 0; i < file->count && !status; i++) {
        const char *name = file->tensors[i].name;
        status = strmap_put(&file->by_name, name, strlen(name), (uint32_t)i, NULL, err);
    }
    return status;
}

// Bytes of the file's start that are enough to tell its kind.
enum { START_BYTES = 64 };

// Reads the header's length and checks it against the file; sets *header_bytes on success. `start`
// has the first START_BYTES of the file, or all of a shorter one.
static enum status read_length(const struct safetensors *file, const unsigned char *start,
                               uint64_t size, size_t *header_bytes, struct err *err) {
    size_t start_bytes = size < START_BYTES ? (size_t)size : START_BYTES;
    enum status status = file_check_lfs((const char *)start, start_bytes, file->path, err);
    if (status) return status;
    if (size < LENGTH_BYTES) {
        return err_set(err, ERR_FORMAT,
                       "%s is not a safetensors file: it has %zu bytes, but the header's length "
                       "alone takes 8",
                       file->path, (size_t)size);
    }
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)start[i] << (8 * i);
    if (length > HEADER_BYTES_MAX) {
        return err_set(err, ERR_FORMAT,
                       "%s is not a safetensors file: its header would have %llu bytes, but the "
                       "format allows %d",
                       file->path, (unsigned long long)length, HEADER_BYTES_MAX);
    }
    if (length > size - LENGTH_BYTES) {
        return err_set(err, ERR_FORMAT,
                       "%s is truncated: its header has %llu bytes, but only %llu follow the "
                       "header's length",
                       file->path, (unsigned long long)length,
                       (unsigned long long)(size - LENGTH_BYTES));
    }
    if (length == 0 || start[LENGTH_BYTES] != '{') {
        return err_set(err, ERR_FORMAT,
                       "%s is not a safetensors file: its header does not begin with '{'",
                       file->path);
    }
    *header_bytes = (size_t)length;
    return OK;
}

static enum status parse_header(struct safetensors *file, const char *header, size_t header_bytes,
                                const struct section *section, struct err *err) {
    json_t *root = NULL;
    enum status status = jread_text(&root, header, header_bytes, file->path, err);
    if (status) return status;
    status = read_entries(file, root, section, err); // root is an object: the text begins with '{'
    json_decref(root);
    if (!status) status = check_tiling(file, section, err);
    if (!status) status = index_names(file, err);
    return status;
}

// Parses the whole file, `size` bytes.
static enum status parse_into(struct safetensors *file, const struct byte_source *whole,
                              uint64_t size, struct err *err) {
    unsigned char buffer[START_BYTES];
    size_t header_bytes = 0;
    const unsigned char *start =
        byte_source_get(whole, 0, size < START_BYTES ? (size_t)size : START_BYTES, buffer, err);
    if (!start) return ERR_IO;
    enum status status = read_length(file, start, size, &header_bytes, err);
    if (status) return status;
    char *header_buffer = whole->data ? NULL : malloc(header_bytes);
    if (!whole->data && !header_buffer) return err_nomem(err, "safetensors header");
    const char *header = byte_source_get(whole, LENGTH_BYTES, header_bytes, header_buffer, err);
    const struct section section = {.source = byte_source_skip(*whole, LENGTH_BYTES + header_bytes),
                                    .size = size - LENGTH_BYTES - header_bytes};
    status = header ? parse_header(file, header, header_bytes, &section, err) : ERR_IO;
    free(header_buffer);
    return status;
}

static enum status create(struct safetensors **out, const char *path, struct err *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return err_nomem(err, "safetensors file");
    (*out)->opened.fd = -1;
    (*out)->path = arena_strndup(&(*out)->arena, path, strlen(path));
    return (*out)->path ? OK : err_nomem(err, "safetensors path");
}

enum status safetensors_parse(struct safetensors **out, const void *bytes, size_t size,
                              const char *what, struct err *err) {
    struct safetensors *file = NULL;
    *out = NULL;
    enum status status = create(&file, what, err);
    const struct byte_source whole = {.data = bytes};
    if (!status) status = parse_into(file, &whole, size, err);
    if (status) {
        safetensors_close(file);
        return status;
    }
    *out = file;
    return OK;
}

enum status safetensors_open(struct safetensors **out, const char *path, struct err *err) {
    struct safetensors *file = NULL;
    *out = NULL;
    enum status status = create(&file, path, err);
    // `opened` borrows the path for messages, so it gets the copy that the file owns.
    if (!status) status = file_open(&file->opened, file->path, err);
    if (!status) {
        // Tensors are read once, each from front to back. This doubles the kernel's read-ahead. It
        // is only a hint, so its failure does not matter.
        posix_fadvise(file->opened.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        const struct byte_source whole = {.file = &file->opened};
        status = parse_into(file, &whole, file->opened.size, err);
    }
    if (status) {
        safetensors_close(file);
        return status;
    }
    *out = file;
    return OK;
}

void safetensors_close(struct safetensors *file) {
    if (!file) return;
    strmap_fini(&file->by_name);
    free(file->tensors);
    arena_fini(&file->arena);
    file_close(&file->opened);
    free(file);
}

size_t safetensors_count(const struct safetensors *file) {
    return file->count;
}

const struct tensor *safetensors_at(const struct safetensors *file, size_t index) {
    CHECK(index < file->count, "index=%zu count=%zu", index, file->count);
    return &file->tensors[index];
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *name) {
    uint32_t index;
    if (!strmap_get(&file->by_name, name, strlen(name), &index)) return NULL;
    return &file->tensors[index];
}

const char *safetensors_path(const struct safetensors *file) {
    return file->path;
}

enum status safetensors_check_unchanged(const struct safetensors *file, struct err *err) {
    return file->opened.fd < 0 ? OK : file_check_unchanged(&file->opened, err);
}
