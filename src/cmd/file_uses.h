/* Files that a command reads and writes, compared before the first is opened for writing: two names
 * of one file (a symbolic link, a hard link, ./name, a redirected standard output) would lose its
 * content without a word. */
#ifndef CMD_FILE_USES_H
#define CMD_FILE_USES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct file_use {
    const char *option; // what names it, for the sentence: "--output"
    const char *path; // "-": standard input, or standard output where it is written; NULL: unused
    bool is_written;
};

// ERR_INVALID where two of `uses` are one regular file, one of them written. Files that are not
// there yet count by the folder and name they would get. Standard output may be written twice.
MUST_USE enum status file_uses_check(const struct file_use *uses, size_t num_uses, struct err *err);
// ERR_INVALID where `path` is one of the *.json, *.jinja and *.safetensors files that the folder
// `model` or its additional_chat_templates has now, under this or another name. Opens nothing.
MUST_USE enum status file_uses_spare_model(const char *path, const char *model, struct err *err);

#endif
