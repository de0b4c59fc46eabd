/* A model as it lies on disk, behind one interface: documents, which are the texts of its
 * configuration, tokenizer and chat template, and named tensors.
 *
 * Documents and tensors have the names of a folder as Hugging Face publishes it: "config.json",
 * "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
 * "chat_template.jinja", "chat_template.json", "additional_chat_templates/NAME.jinja";
 * "model.layers.0.mlp.up_proj.weight". That folder is one form (checkpoint_folder.c). A file in
 * GGUF is another: its documents are written from its metadata (gguf/checkpoint_gguf.c).
 * checkpoint_form.h is what a form fills in. */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/os/file.h"
#include "base/text/buf.h"

struct checkpoint; // read-only after opening, so threads may share it
struct tensor_set;

// The name of a document in errors: a file's path.
struct document_name {
    char text[FILE_PATH_MAX];
};

// Whether the path is a model in one file, in GGUF: by its ending, or else by its first bytes.
bool checkpoint_is_file(const char *path);
// `path` is what the user gave as a model. Where it is none, the error says what it is instead, or
// how to get a model. Reads no document and no tensor.
MUST_USE enum status checkpoint_open(struct checkpoint **out, const char *path, struct err *err);
// The checkpoint around a single file of it, which need not have anything else: *name is the file's
// document.
MUST_USE enum status checkpoint_open_around(struct checkpoint **out, const char *file,
                                            const char **name, struct err *err);
void checkpoint_close(struct checkpoint *checkpoint); // NULL is fine
const char *checkpoint_path(const struct checkpoint *checkpoint); // as it was opened

// Whether there is a document of this name. One that exists but cannot be one (a folder, a dangling
// link) is ERR_IO. *what is set unless the status is ERR_INVALID.
MUST_USE enum status checkpoint_find(const struct checkpoint *checkpoint, const char *document,
                                     struct document_name *what, bool *present, struct err *err);
// Appends a document's text. A missing one is ERR_IO.
MUST_USE enum status checkpoint_read(const struct checkpoint *checkpoint, const char *document,
                                     struct buf *out, struct err *err);
// The tree of a JSON document whose strings alone are read (jread_text_strings). A missing one: OK,
// and *root is NULL. The caller owns *root.
MUST_USE enum status checkpoint_read_strings(const struct checkpoint *checkpoint,
                                             const char *document, struct document_name *what,
                                             json_t **root, struct err *err);
// Appends the names of the documents "<group>/NAME", each as NAME with its NUL: nothing where there
// is no such group.
MUST_USE enum status checkpoint_list(const struct checkpoint *checkpoint, const char *group,
                                     struct buf *names, struct err *err);
// For a missing document: the error says what there is instead of the model. OK: nothing known.
MUST_USE enum status checkpoint_explain(const struct checkpoint *checkpoint, const char *document,
                                        struct err *err);
// Whether a checkpoint at `path` has this file, under any name. False where there is none.
bool checkpoint_has_file(const char *path, dev_t device, ino_t inode);

// Opens all tensors; their names are unique. The set does not need the checkpoint any more.
MUST_USE enum status checkpoint_open_tensors(const struct checkpoint *checkpoint,
                                             struct tensor_set **out, struct err *err);

#endif
