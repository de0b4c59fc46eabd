/* A folder as Hugging Face publishes it: each document is a file. Where it has another form of a
 * tokenizer in place of tokenizer.json, that document is written from it (tokens/). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json/jread.h"
#include "base/json/json_out.h"
#include "base/text/c_locale.h"
#include "checkpoint/checkpoint_form.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/tokens/tokenizer_form.h"

struct folder {
    struct checkpoint base;
    bool is_unnamed; // the working directory, and its files are named without it
    const struct tokenizer_form *form; // the tokenizer to read; NULL: the first that is there
};

static const char tokenizer_name[] = "tokenizer.json", config_name[] = "tokenizer_config.json";

static enum status name_file(const struct checkpoint *checkpoint, const char *document,
                             struct document_name *what, struct err *err) {
    if (!((const struct folder *)checkpoint)->is_unnamed) {
        return file_join(what->text, sizeof what->text, checkpoint->path, document, err);
    }
    snprintf(what->text, sizeof what->text, "%s", document);
    return OK;
}

static enum status find_file(const struct checkpoint *checkpoint, const char *document,
                             struct document_name *what, bool *present, struct err *err) {
    *present = false;
    enum status status = name_file(checkpoint, document, what, err);
    return status ? status : file_is_present(what->text, present, err);
}

// The form that the tokenizer's documents are written from; NULL: none is there, or tokenizer.json
// is.
static enum status find_form(const struct checkpoint *checkpoint,
                             const struct tokenizer_form **form, struct document_name *what,
                             struct err *err) {
    *form = ((const struct folder *)checkpoint)->form;
    if (*form) return name_file(checkpoint, (*form)->file, what, err);
    bool present = false;
    enum status status = find_file(checkpoint, tokenizer_name, what, &present, err);
    for (size_t i = 0; i < TOKENIZER_FORMS && !status && !present; i++) {
        status = find_file(checkpoint, tokenizer_forms[i].file, what, &present, err);
        if (present) *form = &tokenizer_forms[i];
    }
    return status;
}

// *form: what the document is written from; NULL: it is a file, where it is there at all. *what
// names the file that is read or missing.
static enum status find_source(const struct checkpoint *checkpoint, const char *document,
                               const struct tokenizer_form **form, struct document_name *what,
                               bool *present, struct err *err) {
    const bool is_config = strcmp(document, config_name) == 0;
    const struct folder *folder = (const struct folder *)checkpoint;
    *form = NULL;
    *present = false;
    enum status status = OK;
    if (!is_config && strcmp(document, tokenizer_name) != 0) {
        return find_file(checkpoint, document, what, present, err);
    }
    if (is_config || !folder->form) {
        status = find_file(checkpoint, document, what, present, err);
        if (status || *present) return status;
    }
    struct document_name source;
    status = find_form(checkpoint, form, &source, err);
    if (*form && is_config && !(*form)->write_config) *form = NULL;
    if (status || !*form) return status;
    *what = source;
    return file_is_present(what->text, present, err);
}

static enum status folder_find(const struct checkpoint *checkpoint, const char *document,
                               struct document_name *what, bool *present, struct err *err) {
    const struct tokenizer_form *form;
    return find_source(checkpoint, document, &form, what, present, err);
}

static enum status write_document(const struct checkpoint *checkpoint, const char *document,
                                  const struct tokenizer_form *form,
                                  const struct document_name *what, struct json_out *out,
                                  struct err *err) {
    struct document_name config_file;
    struct buf text = {0}, config_text = {0};
    json_t *config = NULL;
    bool has_config = false;
    const bool is_config = strcmp(document, config_name) == 0;
    enum status status = file_read(&text, what->text, err);
    if (!status && !is_config) {
        status = find_file(checkpoint, config_name, &config_file, &has_config, err);
    }
    if (!status && has_config) status = file_read(&config_text, config_file.text, err);
    if (!status && has_config) {
        status =
            jread_text_strings(&config, config_text.data, config_text.len, config_file.text, err);
    }
    if (!status) {
        const struct form_source source = {text.data, text.len, what->text, config};
        status = is_config ? form->write_config(&source, out, err)
                           : form->write_tokenizer(&source, out, err);
    }
    buf_fini(&text);
    buf_fini(&config_text);
    json_decref(config);
    return status;
}

static enum status folder_read(const struct checkpoint *checkpoint, const char *document,
                               struct buf *out, struct err *err) {
    const struct tokenizer_form *form;
    struct document_name what;
    bool present;
    enum status status = find_source(checkpoint, document, &form, &what, &present, err);
    if (status) return status;
    if (!form) return file_read(out, what.text, err);
    struct json_out json = {0};
    status = write_document(checkpoint, document, form, &what, &json, err);
    if (!status && json.status) status = err_nomem(err, document);
    if (!status) status = buf_append(out, json.buf.data, json.buf.len, err);
    json_out_fini(&json);
    return status;
}

static enum status folder_list(const struct checkpoint *checkpoint, const char *group,
                               struct buf *names, struct err *err) {
    struct document_name folder;
    enum status status = name_file(checkpoint, group, &folder, err);
    if (status) return status;
    DIR *dir = opendir(folder.text);
    if (!dir) {
        if (errno == ENOENT || errno == ENOTDIR) return OK;
        if (errno == ENOMEM) return err_nomem(err, folder.text);
        return err_set(err, ERR_IO, "cannot open %s: %s", folder.text, c_locale_strerror(errno));
    }
    const struct dirent *entry;
    while (!status && (entry = readdir(dir))) {
        status = buf_append(names, entry->d_name, strlen(entry->d_name) + 1, err);
    }
    closedir(dir);
    return status;
}

static enum status folder_explain(const struct checkpoint *checkpoint, const char *document,
                                  struct err *err) {
    return model_folder_explain(checkpoint->path, document, err);
}

static enum status folder_open_tensors(const struct checkpoint *checkpoint, struct tensor_set **out,
                                       struct err *err) {
    return folder_tensors_open(checkpoint->path, out, err);
}

static void folder_close(struct checkpoint *checkpoint) {
    free(checkpoint->path);
    free(checkpoint);
}

static const struct checkpoint_form folder_form = {
    .find = folder_find,
    .read = folder_read,
    .list = folder_list,
    .explain = folder_explain,
    .open_tensors = folder_open_tensors,
    .close = folder_close,
};

static enum status open_folder(struct checkpoint **out, const char *path, size_t len,
                               bool is_unnamed, struct err *err) {
    *out = NULL;
    struct folder *folder = calloc(1, sizeof *folder);
    if (!folder) return err_nomem(err, "checkpoint");
    folder->base.form = &folder_form;
    folder->base.path = strndup(path, len);
    folder->is_unnamed = is_unnamed;
    if (!folder->base.path) {
        free(folder);
        return err_nomem(err, "checkpoint");
    }
    *out = &folder->base;
    return OK;
}

enum status checkpoint_folder_open(struct checkpoint **out, const char *path, struct err *err) {
    return open_folder(out, path, strlen(path), false, err);
}

enum status checkpoint_folder_open_around(struct checkpoint **out, const char *file,
                                          const char **name, struct err *err) {
    const char *slash = strrchr(file, '/');
    *name = slash ? slash + 1 : file;
    const struct tokenizer_form *form = tokenizer_form_find(*name);
    enum status status = slash ? open_folder(out, file, (size_t)(slash - file), false, err)
                               : open_folder(out, ".", 1, true, err);
    if (status || !form) return status;
    ((struct folder *)*out)->form = form;
    *name = tokenizer_name;
    return OK;
}

// Compares files, not names, because checkpoints are often links into a cache.
static bool is_in(const char *path, dev_t device, ino_t inode) {
    static const char *const endings[] = {".json", ".jinja", ".model", ".safetensors"};
    DIR *folder = opendir(path);
    if (!folder) return false;
    const struct dirent *entry;
    bool same = false;
    while (!same && (entry = readdir(folder))) {
        struct stat info;
        bool is_ours = false;
        for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
            is_ours = is_ours || file_name_ends(entry->d_name, endings[i]);
        }
        same = is_ours && fstatat(dirfd(folder), entry->d_name, &info, 0) == 0 &&
               info.st_dev == device && info.st_ino == inode;
    }
    closedir(folder);
    return same;
}

bool checkpoint_folder_has_file(const char *path, dev_t device, ino_t inode) {
    char templates[FILE_PATH_MAX];
    if (is_in(path, device, inode)) return true;
    return !file_join(templates, sizeof templates, path, "additional_chat_templates", NULL) &&
           is_in(templates, device, inode);
}
