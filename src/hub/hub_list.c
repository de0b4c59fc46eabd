#include "hub/hub_list.h"

#include <string.h>

#include "base/json/jread.h"

static enum status add_file(struct hub_files *files, const json_t *item, struct err *err) {
    const char *name = NULL;
    if (!jread_is_object(item)) {
        return err_set(err, ERR_FORMAT, "the hub's list of files has %s, want objects",
                       jread_type_name(item));
    }
    enum status status = jread_string(item, "rfilename", &name, "the hub's list of files", err);
    if (status) return status;
    if (!name || !hub_file_name_is_safe(name)) {
        return err_set(err, ERR_FORMAT,
                       "the hub's list of files has the name \"%.100s\", which is refused",
                       name ? name : "");
    }
    return hub_files_add(files, name, err);
}

static enum status read_list(struct hub_files *files, char commit[HUB_COMMIT_SIZE],
                             const json_t *root, struct err *err) {
    const char *sha = NULL;
    if (!jread_is_object(root)) {
        return err_set(err, ERR_FORMAT, "the hub's list of files is %s", jread_type_name(root));
    }
    enum status status = jread_string(root, "sha", &sha, "the hub's list of files", err);
    if (status) return status;
    if (!sha || !hub_is_commit(sha)) {
        return err_set(err, ERR_FORMAT, "the hub's list of files has no commit (\"sha\")");
    }
    memcpy(commit, sha, strlen(sha) + 1);
    const json_t *siblings = json_object_get(root, "siblings");
    if (!json_is_array(siblings)) {
        return err_set(err, ERR_FORMAT, "the hub's list of files has no \"siblings\"");
    }
    for (size_t i = 0; i < json_array_size(siblings) && !status; i++) {
        status = add_file(files, json_array_get(siblings, i), err);
    }
    hub_files_sort(files);
    for (size_t i = 1; i < files->count && !status; i++) {
        if (strcmp(files->items[i - 1].name, files->items[i].name) != 0) continue;
        status = err_set(err, ERR_FORMAT, "the hub's list of files has %.100s twice",
                         files->items[i].name);
    }
    return status;
}

enum status hub_list_read(struct hub_files *files, char commit[HUB_COMMIT_SIZE], const char *json,
                          size_t len, struct err *err) {
    json_t *root;
    enum status status = jread_request(&root, json, len, "the hub's list of files", err);
    if (!status) status = read_list(files, commit, root, err);
    json_decref(root);
    return status;
}
