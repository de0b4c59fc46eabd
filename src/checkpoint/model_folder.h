/* Errors for a path that the user gave as a model but that is none: they say what the path is, or
 * how to get a model. A model is a folder with config.json, *.safetensors and tokenizer.json, as on
 * Hugging Face. Only names are read, and no file's bytes but refs/main of a cache. */
#ifndef CHECKPOINT_MODEL_FOLDER_H
#define CHECKPOINT_MODEL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/os/file.h"

// OK for a folder. ERR_UNSUPPORTED for a file of another program's format (.gguf, .bin, ...).
// ERR_IO for any other file, and for a name that does not exist, with the command that gets a
// model.
MUST_USE enum status model_folder_check(const char *path, struct err *err);
// Whether the name has the ending of a checkpoint in an unsupported format: .gguf, .bin, .pt, ...
bool model_folder_is_other_format(const char *name);
// For a folder without the file `wanted`: the error says what the folder has instead, a checkpoint
// in another format or a LoRA adapter (ERR_UNSUPPORTED), or the Hugging Face cache's folders
// (ERR_IO). OK: none of them.
MUST_USE enum status model_folder_explain(const char *folder, const char *wanted, struct err *err);
// Copies the name of a file in `folder` that ends in `suffix`, of several the first by name. False:
// there is none, or no such folder.
bool model_folder_find(const char *folder, const char *suffix, char *name, size_t size);
// The snapshot in a model's folder of the Hugging Face cache: that of refs/main, else the only one.
// False: there is none with a config.json, or there are several.
bool model_folder_snapshot(const char *folder, char path[FILE_PATH_MAX]);

#endif
