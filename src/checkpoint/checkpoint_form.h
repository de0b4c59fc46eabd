/* What a form of checkpoint fills in. Its functions have the contracts of checkpoint.h. */
#ifndef CHECKPOINT_CHECKPOINT_FORM_H
#define CHECKPOINT_CHECKPOINT_FORM_H

#include "checkpoint/checkpoint.h"

struct checkpoint_form {
    enum status (*find)(const struct checkpoint *checkpoint, const char *document,
                        struct document_name *what, bool *present, struct err *err);
    enum status (*read)(const struct checkpoint *checkpoint, const char *document, struct buf *out,
                        struct err *err);
    enum status (*list)(const struct checkpoint *checkpoint, const char *group, struct buf *names,
                        struct err *err);
    enum status (*explain)(const struct checkpoint *checkpoint, const char *document,
                           struct err *err);
    enum status (*open_tensors)(const struct checkpoint *checkpoint, struct tensor_set **out,
                                struct err *err);
    void (*close)(struct checkpoint *checkpoint);
};

// First member of a form's own struct.
struct checkpoint {
    const struct checkpoint_form *form;
    char *path; // as it was opened; owned by the form
};

// `path`: a folder, checked already.
MUST_USE enum status checkpoint_folder_open(struct checkpoint **out, const char *path,
                                            struct err *err);
// The folder of a file, which is the working directory where the path has no '/'.
MUST_USE enum status checkpoint_folder_open_around(struct checkpoint **out, const char *file,
                                                   const char **name, struct err *err);
bool checkpoint_folder_has_file(const char *path, dev_t device, ino_t inode);
// A file in GGUF (gguf/checkpoint_gguf.c).
MUST_USE enum status checkpoint_gguf_open(struct checkpoint **out, const char *path,
                                          struct err *err);
bool checkpoint_gguf_has_file(const char *path, dev_t device, ino_t inode);
// The tensors of a folder: model.safetensors, or the shards of model.safetensors.index.json.
MUST_USE enum status folder_tensors_open(const char *folder, struct tensor_set **out,
                                         struct err *err);

#endif
