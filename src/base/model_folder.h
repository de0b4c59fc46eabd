/* What a user named as a model and is none: the sentence says what it is, or how to get a model.
 * A model is a folder with config.json, *.safetensors and tokenizer.json, as Hugging Face has
 * them. Reads names only, never a file's bytes. */
#ifndef BASE_MODEL_FOLDER_H
#define BASE_MODEL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

// OK for a folder. ERR_UNSUPPORTED for a file of another program's format (.gguf, .bin, ...),
// ERR_IO for any other file and for a name that nothing has, with the command that gets a model.
MUST_USE enum status model_folder_check(const char *path, struct err *err);
// Whether the name ends like a checkpoint that is not read: .gguf, .bin, .pt, .pth, ...
bool model_folder_is_other_format(const char *name);
// For a folder that has not got the file `wanted`: what it has in its place, a checkpoint of
// another format (ERR_UNSUPPORTED) or the Hugging Face cache's folders (ERR_IO). OK: neither.
MUST_USE enum status model_folder_explain(const char *folder, const char *wanted, struct err *err);
// Copies the name of a file in `folder` that ends in `suffix`; false: there is none, or no folder.
bool model_folder_find(const char *folder, const char *suffix, char *name, size_t size);

#endif
