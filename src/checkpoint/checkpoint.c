#include "checkpoint/checkpoint.h"

#include "base/json/jread.h"
#include "checkpoint/checkpoint_form.h"
#include "checkpoint/model_folder.h"

enum status checkpoint_open(struct checkpoint **out, const char *path, struct err *err) {
    *out = NULL;
    if (checkpoint_is_file(path)) return checkpoint_gguf_open(out, path, err);
    enum status status = model_folder_check(path, err);
    return status ? status : checkpoint_folder_open(out, path, err);
}

enum status checkpoint_open_around(struct checkpoint **out, const char *file, const char **name,
                                   struct err *err) {
    return checkpoint_folder_open_around(out, file, name, err);
}

void checkpoint_close(struct checkpoint *checkpoint) {
    if (checkpoint) checkpoint->form->close(checkpoint);
}

const char *checkpoint_path(const struct checkpoint *checkpoint) {
    return checkpoint->path;
}

enum status checkpoint_find(const struct checkpoint *checkpoint, const char *document,
                            struct document_name *what, bool *present, struct err *err) {
    return checkpoint->form->find(checkpoint, document, what, present, err);
}

enum status checkpoint_read(const struct checkpoint *checkpoint, const char *document,
                            struct buf *out, struct err *err) {
    return checkpoint->form->read(checkpoint, document, out, err);
}

enum status checkpoint_read_strings(const struct checkpoint *checkpoint, const char *document,
                                    struct document_name *what, json_t **root, struct err *err) {
    *root = NULL;
    bool present = false;
    struct buf text = {0};
    enum status status = checkpoint_find(checkpoint, document, what, &present, err);
    if (status || !present) return status;
    status = checkpoint_read(checkpoint, document, &text, err);
    if (!status) status = jread_text_strings(root, text.data, text.len, what->text, err);
    buf_fini(&text);
    return status;
}

enum status checkpoint_list(const struct checkpoint *checkpoint, const char *group,
                            struct buf *names, struct err *err) {
    return checkpoint->form->list(checkpoint, group, names, err);
}

enum status checkpoint_explain(const struct checkpoint *checkpoint, const char *document,
                               struct err *err) {
    return checkpoint->form->explain(checkpoint, document, err);
}

bool checkpoint_has_file(const char *path, dev_t device, ino_t inode) {
    if (checkpoint_is_file(path)) return checkpoint_gguf_has_file(path, device, inode);
    return checkpoint_folder_has_file(path, device, inode);
}

enum status checkpoint_open_tensors(const struct checkpoint *checkpoint, struct tensor_set **out,
                                    struct err *err) {
    return checkpoint->form->open_tensors(checkpoint, out, err);
}
