/* A model in GGUF: one file, or the parts NAME-00001-of-00003.gguf and so on, of which the first is
 * given. The metadata is that of the first; the tensors are in all of them. */
#ifndef CHECKPOINT_GGUF_GGUF_FILES_H
#define CHECKPOINT_GGUF_GGUF_FILES_H

#include "checkpoint/gguf/file/gguf_file.h"

struct gguf_files {
    struct gguf **files; // [num_files]
    size_t num_files;
};

MUST_USE enum status gguf_files_open(struct gguf_files *out, const char *path, struct err *err);
// One file, which `out` takes.
MUST_USE enum status gguf_files_take(struct gguf_files *out, struct gguf *gguf, struct err *err);
void gguf_files_close(struct gguf_files *files); // all-zero is fine
const struct gguf_tensor *gguf_files_find(const struct gguf_files *files, const char *name);
// The path of part `index` [0, count), where `path` is that of the first. False: `path` has no such
// name, or the new one does not fit.
bool gguf_part_path(const char *path, uint32_t index, uint32_t count, char *out, size_t size);

#endif
