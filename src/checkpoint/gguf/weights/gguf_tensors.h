#ifndef CHECKPOINT_GGUF_GGUF_TENSORS_H
#define CHECKPOINT_GGUF_GGUF_TENSORS_H

#include "base/err.h"

struct gguf_files;
struct tensor_set;

// Opens the tensors of a model in GGUF, with the names of a folder's.
MUST_USE enum status gguf_tensors_open(const char *path, struct tensor_set **out, struct err *err);
// The same of open files, which the set takes, also after an error.
MUST_USE enum status gguf_tensors_take(struct gguf_files *files, struct tensor_set **out,
                                       struct err *err);

#endif
