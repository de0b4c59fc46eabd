/* Compares the files that a command reads and writes before it opens the first for writing. If two
 * names mean one file (a symbolic link, a hard link, ./name, a redirected standard output), its
 * content would be lost silently. */
#ifndef CMD_FILE_USES_H
#define CMD_FILE_USES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct file_use {
    const char *option; // its name in the error: "--output"
    const char *path; // "-": standard input, or standard output if it is written; NULL: unused
    bool is_written;
};

// ERR_INVALID: two of `uses` are the same regular file, and at least one writes it. Files that do
// not exist yet are compared by folder and name. Standard output may be written twice.
MUST_USE enum status file_uses_check(const struct file_use *uses, size_t num_uses, struct err *err);
// ERR_INVALID: `path` is, under any name, one of the *.json, *.jinja and *.safetensors files in the
// folder `model` or its additional_chat_templates. Opens no file.
MUST_USE enum status file_uses_spare_model(const char *path, const char *model, struct err *err);

#endif
