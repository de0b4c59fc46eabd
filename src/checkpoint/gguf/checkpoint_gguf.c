/* A model in GGUF: its documents are written from the file's metadata, each when it is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/checkpoint_form.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/gguf_model.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"
#include "checkpoint/gguf/weights/gguf_tensors.h"

struct gguf_checkpoint {
    struct checkpoint base;
    struct gguf_files files;
};

static const char template_key[] = "tokenizer.chat_template";
static const char group[] = "additional_chat_templates", ending[] = ".jinja";

static const struct gguf_files *files_of(const struct checkpoint *checkpoint) {
    return &((const struct gguf_checkpoint *)checkpoint)->files;
}

static const struct gguf *first_of(const struct checkpoint *checkpoint) {
    return files_of(checkpoint)->files[0];
}

// The key of a document that is a chat template. False: it is none.
static bool key_of_template(const char *document, char key[GGUF_KEY_MAX]) {
    size_t len = strlen(group);
    if (strcmp(document, "chat_template.jinja") == 0) {
        snprintf(key, GGUF_KEY_MAX, "%s", template_key);
        return true;
    }
    if (strncmp(document, group, len) != 0 || document[len] != '/' ||
        !file_name_ends(document, ending)) {
        return false;
    }
    const char *name = document + len + 1;
    int key_len = snprintf(key, GGUF_KEY_MAX, "%s.%.*s", template_key,
                           (int)(strlen(name) - strlen(ending)), name);
    return key_len > 0 && key_len < GGUF_KEY_MAX;
}

static enum status gguf_find_document(const struct checkpoint *checkpoint, const char *document,
                                      struct document_name *what, bool *present, struct err *err) {
    const struct gguf *gguf = first_of(checkpoint);
    char key[GGUF_KEY_MAX];
    struct gguf_value unused;
    *present = false;
    int len = snprintf(what->text, sizeof what->text, "%s (as %s)", checkpoint->path, document);
    if (len < 0 || (size_t)len >= sizeof what->text) {
        return err_set(err, ERR_INVALID, "the path is too long: %s", checkpoint->path);
    }
    if (strcmp(document, "config.json") == 0) {
        *present = true;
    } else if (strcmp(document, "generation_config.json") == 0) {
        *present = gguf_has_generation_config(gguf);
    } else if (strcmp(document, "1_Pooling/config.json") == 0) {
        *present = gguf_has_pooling(gguf);
    } else if (strcmp(document, "tokenizer.json") == 0 ||
               strcmp(document, "tokenizer_config.json") == 0) {
        *present = gguf_has_tokenizer(gguf);
    } else if (key_of_template(document, key)) {
        *present = gguf_find(gguf, key, &unused);
    }
    return OK;
}

static enum status write_document(const struct checkpoint *checkpoint, const char *document,
                                  struct json_out *out, struct err *err) {
    const struct gguf *gguf = first_of(checkpoint);
    if (strcmp(document, "config.json") == 0) {
        return gguf_write_config(files_of(checkpoint), out, err);
    }
    if (strcmp(document, "generation_config.json") == 0) {
        return gguf_write_generation_config(gguf, out, err);
    }
    if (strcmp(document, "1_Pooling/config.json") == 0) {
        gguf_write_pooling(gguf, out);
        return OK;
    }
    if (strcmp(document, "tokenizer.json") == 0) return gguf_write_tokenizer(gguf, out, err);
    return gguf_write_tokenizer_config(gguf, out, err);
}

static enum status gguf_read_document(const struct checkpoint *checkpoint, const char *document,
                                      struct buf *out, struct err *err) {
    char key[GGUF_KEY_MAX];
    struct document_name what;
    bool present = false;
    enum status status = gguf_find_document(checkpoint, document, &what, &present, err);
    if (status) return status;
    if (!present) return err_set(err, ERR_IO, "%s has no %s", checkpoint->path, document);
    if (key_of_template(document, key)) {
        struct gguf_string text = {"", 0};
        status = gguf_read_string(first_of(checkpoint), key, &text, err);
        return status ? status : buf_append(out, text.text, text.len, err);
    }
    struct json_out json = {0};
    status = write_document(checkpoint, document, &json, err);
    if (!status && json.status) status = err_nomem(err, document);
    if (!status) status = buf_append(out, json.buf.data, json.buf.len, err);
    json_out_fini(&json);
    return status;
}

// The templates beside the main one, as NAME.jinja.
static enum status gguf_list_documents(const struct checkpoint *checkpoint, const char *wanted,
                                       struct buf *names, struct err *err) {
    const struct gguf *gguf = first_of(checkpoint);
    char prefix[GGUF_KEY_MAX];
    snprintf(prefix, sizeof prefix, "%s.", template_key);
    enum status status = OK;
    if (strcmp(wanted, group) != 0) return OK;
    for (size_t i = 0; i < gguf_num_values(gguf) && !status; i++) {
        struct gguf_string key = gguf_key(gguf, i);
        size_t len = strlen(prefix);
        if (!gguf_string_begins(key, prefix) || key.len >= GGUF_KEY_MAX) continue;
        status = buf_append(names, key.text + len, key.len - len, err);
        if (!status) status = buf_append(names, ending, sizeof ending, err); // with its NUL
    }
    return status;
}

static enum status gguf_explain(const struct checkpoint *checkpoint, const char *document,
                                struct err *err) {
    (void)checkpoint, (void)document, (void)err;
    return OK;
}

static enum status gguf_open_tensors(const struct checkpoint *checkpoint, struct tensor_set **out,
                                     struct err *err) {
    return gguf_tensors_open(checkpoint->path, out, err);
}

static void gguf_close_checkpoint(struct checkpoint *checkpoint) {
    struct gguf_checkpoint *own = (struct gguf_checkpoint *)checkpoint;
    gguf_files_close(&own->files);
    free(own->base.path);
    free(own);
}

static const struct checkpoint_form gguf_form = {
    .find = gguf_find_document,
    .read = gguf_read_document,
    .list = gguf_list_documents,
    .explain = gguf_explain,
    .open_tensors = gguf_open_tensors,
    .close = gguf_close_checkpoint,
};

enum status checkpoint_gguf_open(struct checkpoint **out, const char *path, struct err *err) {
    *out = NULL;
    struct gguf_checkpoint *own = calloc(1, sizeof *own);
    if (!own) return err_nomem(err, "checkpoint");
    own->base.form = &gguf_form;
    own->base.path = strdup(path);
    enum status status = own->base.path ? OK : err_nomem(err, "checkpoint");
    if (!status) status = gguf_files_open(&own->files, path, err);
    if (status) {
        gguf_close_checkpoint(&own->base);
        return status;
    }
    *out = &own->base;
    return OK;
}

bool checkpoint_is_file(const char *path) {
    return file_name_ends(path, ".gguf") ? file_exists(path) : gguf_is_file(path);
}

bool checkpoint_gguf_has_file(const char *path, dev_t device, ino_t inode) {
    struct gguf_files files;
    struct stat info;
    bool is_same = stat(path, &info) == 0 && info.st_dev == device && info.st_ino == inode;
    if (is_same || gguf_files_open(&files, path, NULL)) return is_same;
    for (size_t i = 0; i < files.num_files && !is_same; i++) {
        is_same = stat(gguf_path(files.files[i]), &info) == 0 && info.st_dev == device &&
                  info.st_ino == inode;
    }
    gguf_files_close(&files);
    return is_same;
}
