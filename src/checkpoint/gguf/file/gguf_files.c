#include "checkpoint/gguf/file/gguf_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/file.h"
#include "checkpoint/gguf/file/gguf_read.h"

enum { PARTS_MAX = 99999 }; // five digits

bool gguf_part_path(const char *path, uint32_t index, uint32_t count, char *out, size_t size) {
    char first[32], other[32];
    snprintf(first, sizeof first, "-00001-of-%05u.gguf", count);
    snprintf(other, sizeof other, "-%05u-of-%05u.gguf", index + 1, count);
    if (!file_name_ends(path, first)) return false;
    int len = snprintf(out, size, "%.*s%s", (int)(strlen(path) - strlen(first)), path, other);
    return len > 0 && (size_t)len < size;
}

// A file that is no part has part 0 of 1.
static enum status read_split(const struct gguf *gguf, int64_t *index, int64_t *count,
                              struct err *err) {
    *index = 0;
    *count = 1;
    enum status status = gguf_read_int(gguf, "split.no", 0, PARTS_MAX - 1, index, err);
    if (!status) status = gguf_read_int(gguf, "split.count", 0, PARTS_MAX, count, err);
    if (!status && *count == 0) *count = 1; // of a file that is not split
    return status;
}

static enum status open_part(struct gguf_files *files, const char *path, uint32_t index,
                             uint32_t count, struct err *err) {
    char part[FILE_PATH_MAX];
    if (!gguf_part_path(path, index, count, part, sizeof part)) {
        return err_set(err, ERR_FORMAT,
                       "%s is the first of %u parts, but its name does not end in "
                       "-00001-of-%05u.gguf, so the others cannot be found",
                       path, count, count);
    }
    bool is_present = false;
    enum status status = file_is_present(part, &is_present, err);
    if (!status && !is_present) {
        status = err_set(err, ERR_IO, "%s is missing: %s is one of %u parts", part, path, count);
    }
    if (!status) status = gguf_open(&files->files[files->num_files], part, err);
    if (status) return status;
    const struct gguf *gguf = files->files[files->num_files++];
    int64_t own_index = 0, own_count = 0;
    status = read_split(gguf, &own_index, &own_count, err);
    if (status || (own_index == index && own_count == count)) return status;
    return err_set(err, ERR_FORMAT, "%s says that it is part %lld of %lld", part,
                   (long long)own_index + 1, (long long)own_count);
}

static enum status check_count(const struct gguf_files *files, struct err *err) {
    int64_t want = -1;
    size_t found = 0;
    enum status status =
        gguf_read_int(files->files[0], "split.tensors.count", 0, INT64_MAX, &want, err);
    for (size_t i = 0; i < files->num_files; i++) found += gguf_num_tensors(files->files[i]);
    if (status || want < 0 || (uint64_t)want == found) return status;
    return err_set(err, ERR_FORMAT, "%s: the parts have %zu tensors, want %lld",
                   gguf_path(files->files[0]), found, (long long)want);
}

static enum status open_parts(struct gguf_files *files, const char *path, struct err *err) {
    int64_t index = 0, count = 1;
    enum status status = read_split(files->files[0], &index, &count, err);
    if (status || count == 1) return status;
    if (index != 0) {
        return err_set(err, ERR_INVALID,
                       "%s is part %lld of %lld: give the first, which ends in "
                       "-00001-of-%05lld.gguf",
                       path, (long long)index + 1, (long long)count, (long long)count);
    }
    struct gguf **more = realloc(files->files, (size_t)count * sizeof(struct gguf *));
    if (!more) return err_nomem(err, "parts of a GGUF model");
    files->files = more;
    for (uint32_t i = 1; i < count && !status; i++) {
        status = open_part(files, path, i, (uint32_t)count, err);
    }
    return status ? status : check_count(files, err);
}

enum status gguf_files_take(struct gguf_files *out, struct gguf *gguf, struct err *err) {
    *out = (struct gguf_files){.files = malloc(sizeof(struct gguf *))};
    if (!out->files) {
        gguf_close(gguf);
        return err_nomem(err, "GGUF file");
    }
    out->files[out->num_files++] = gguf;
    return OK;
}

enum status gguf_files_open(struct gguf_files *out, const char *path, struct err *err) {
    struct gguf *gguf = NULL;
    *out = (struct gguf_files){0};
    enum status status = gguf_open(&gguf, path, err);
    if (!status) status = gguf_files_take(out, gguf, err);
    if (!status) status = open_parts(out, path, err);
    if (status) gguf_files_close(out);
    return status;
}

void gguf_files_close(struct gguf_files *files) {
    for (size_t i = 0; i < files->num_files; i++) gguf_close(files->files[i]);
    free(files->files);
    *files = (struct gguf_files){0};
}

const struct gguf_tensor *gguf_files_find(const struct gguf_files *files, const char *name) {
    const struct gguf_tensor *found = NULL;
    for (size_t i = 0; i < files->num_files && !found; i++) {
        found = gguf_find_tensor(files->files[i], name);
    }
    return found;
}
