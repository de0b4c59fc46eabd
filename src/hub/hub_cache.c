#include "hub/hub_cache.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text/c_locale.h"

enum { DEPTH_MAX = 4 }; // folders in a snapshot

// ---- listing ----

static enum status add_entries(struct hub_files *files, const char *folder, const char *prefix,
                               int depth, struct err *err) {
    DIR *dir = opendir(folder);
    if (!dir) {
        if (errno == ENOENT || errno == ENOTDIR) return OK;
        return err_set(err, ERR_IO, "cannot open %s: %s", folder, c_locale_strerror(errno));
    }
    enum status status = OK;
    const struct dirent *entry;
    while (!status && (entry = readdir(dir))) {
        char path[FILE_PATH_MAX], name[FILE_PATH_MAX];
        struct stat info;
        if (entry->d_name[0] == '.') continue;
        status = file_join(path, sizeof path, folder, entry->d_name, err);
        if (status || lstat(path, &info)) continue;
        bool is_folder = S_ISDIR(info.st_mode);
        int len =
            snprintf(name, sizeof name, "%s%s%s", prefix, entry->d_name, is_folder ? "/" : "");
        if (len < 0 || (size_t)len >= sizeof name) continue;
        if (!is_folder) {
            status = hub_files_add(files, name, err);
        } else if (depth < DEPTH_MAX) {
            status = add_entries(files, path, name, depth + 1, err);
        }
    }
    closedir(dir);
    return status;
}

enum status hub_cache_list_files(struct hub_files *files, const char *folder, struct err *err) {
    enum status status = add_entries(files, folder, "", 0, err);
    hub_files_sort(files);
    return status;
}

// ---- snapshots ----

bool hub_cache_read_ref(char commit[HUB_COMMIT_SIZE], const char *folder, const char *revision) {
    char refs[FILE_PATH_MAX], path[FILE_PATH_MAX];
    struct file file;
    commit[0] = '\0';
    if (file_join(refs, sizeof refs, folder, "refs", NULL) ||
        file_join(path, sizeof path, refs, revision, NULL) || !file_exists(path) ||
        file_open(&file, path, NULL)) {
        return false;
    }
    size_t len = file.size < HUB_COMMIT_SIZE - 1 ? (size_t)file.size : HUB_COMMIT_SIZE - 1;
    bool is_read = !file_read_at(&file, 0, commit, len, NULL);
    file_close(&file);
    commit[is_read ? len : 0] = '\0';
    commit[strspn(commit, "0123456789abcdef")] = '\0';
    return commit[0] != '\0';
}

// The name of the only snapshot.
static bool find_only_snapshot(char commit[HUB_COMMIT_SIZE], const char *snapshots) {
    size_t num_found = 0;
    DIR *dir = opendir(snapshots);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= HUB_COMMIT_SIZE) continue;
        snprintf(commit, HUB_COMMIT_SIZE, "%.*s", HUB_COMMIT_SIZE - 1, entry->d_name);
        num_found++;
    }
    if (dir) closedir(dir);
    return num_found == 1;
}

// The folder of the snapshot that `revision` is. False: the cache has none.
static bool find_snapshot(char path[FILE_PATH_MAX], const char *folder, const char *revision) {
    char snapshots[FILE_PATH_MAX], commit[HUB_COMMIT_SIZE] = "";
    if (file_join(snapshots, sizeof snapshots, folder, "snapshots", NULL)) return false;
    if (revision && hub_is_commit(revision)) {
        memcpy(commit, revision, strlen(revision) + 1);
    } else if (!hub_cache_read_ref(commit, folder, revision ? revision : "main")) {
        // Some programs write no refs.
        if (revision || !find_only_snapshot(commit, snapshots)) return false;
    }
    return !file_join(path, FILE_PATH_MAX, snapshots, commit, NULL) && file_is_folder(path);
}

// ---- files ----

// *is_there: the file exists, in the cache. ERR_INVALID: it leads out of the cache.
static enum status check_file(bool *is_there, const char *root, const char *folder,
                              const char *name, struct err *err) {
    char path[FILE_PATH_MAX], target[PATH_MAX];
    *is_there = false;
    enum status status = file_join(path, sizeof path, folder, name, err);
    if (status) return status;
    if (!realpath(path, target)) {
        if (errno == ENOENT) return OK;
        return err_set(err, ERR_IO, "cannot open %s: %s", path, c_locale_strerror(errno));
    }
    size_t len = strlen(root);
    if (strncmp(target, root, len) != 0 || target[len] != '/') {
        return err_set(err, ERR_INVALID, "%s leads out of the cache, to %s", path, target);
    }
    *is_there = file_exists(target);
    return OK;
}

static enum status read_index(struct hub_files *files, const char *snapshot, struct err *err) {
    char path[FILE_PATH_MAX];
    struct buf text = {0};
    enum status status = file_join(path, sizeof path, snapshot, HUB_INDEX_NAME, err);
    if (!status) status = file_read(&text, path, err);
    if (!status) status = hub_files_want_shards(files, text.data, text.len, snapshot, err);
    buf_fini(&text);
    return status;
}

// A download that ended early may lack texts, and a model is read without those that it does not
// have. So the names of a commit's texts are kept until all of them are there.
static enum status check_texts(bool *is_whole, const struct hub_files *files, const char *snapshot,
                               struct err *err) {
    char path[FILE_PATH_MAX];
    const char *commit = strrchr(snapshot, '/') + 1;
    int len = snprintf(path, sizeof path, "%.*s../" HUB_UNFINISHED_FOLDER "/%s",
                       (int)(commit - snapshot), snapshot, commit);
    *is_whole = true;
    if (len < 0 || (size_t)len >= sizeof path || !file_exists(path)) return OK;
    struct buf text = {0};
    enum status status = file_read(&text, path, err);
    if (!status) status = buf_append(&text, "", 1, err);
    for (char *name = text.data; !status && *is_whole && *name;) {
        char *end = name + strcspn(name, "\n");
        bool is_last = !*end;
        *end = '\0';
        *is_whole = hub_files_find(files, name) != NULL;
        if (!*is_whole) {
            err_set(err, ERR_IO, "%s/%.200s is missing: its download was interrupted", snapshot,
                    name);
        }
        name = is_last ? end : end + 1;
    }
    buf_fini(&text);
    return status;
}

// Whether the wanted files are there and lie in the cache.
static enum status check_files(bool *is_found, const struct hub_files *files, const char *root,
                               const char *snapshot, struct err *err) {
    enum status status = OK;
    *is_found = true;
    for (size_t i = 0; i < files->count && !status && *is_found; i++) {
        if (!files->items[i].is_wanted) continue;
        status = check_file(is_found, root, snapshot, files->items[i].name, err);
        if (!status && !*is_found) {
            err_set(err, ERR_IO, "%s/%s is missing", snapshot, files->items[i].name);
        }
    }
    return status;
}

static enum status find_in_snapshot(char path[FILE_PATH_MAX], bool *is_found, const char *root,
                                    const char *snapshot, const struct hub_wish *wish,
                                    struct err *err) {
    struct hub_files files = {0};
    struct hub_choice choice = {0};
    bool is_chosen = false;
    enum status status = hub_cache_list_files(&files, snapshot, err);
    if (status) goto done;
    // A choice that lacks files is no error here: the model may be downloaded.
    if (hub_files_choose(&files, wish->quant, wish->want, &choice, snapshot, err)) goto done;
    if (!choice.is_gguf && !hub_files_find(&files, "config.json") &&
        !hub_files_find(&files, "tokenizer.json")) {
        err_set(err, ERR_IO, "%s has no config.json", snapshot);
        goto done;
    }
    if (!choice.is_gguf) status = check_texts(&is_chosen, &files, snapshot, err);
    if (status || (!choice.is_gguf && !is_chosen)) goto done;
    if ((status = check_files(&is_chosen, &files, root, snapshot, err))) goto done;
    if (is_chosen && choice.has_shards) {
        is_chosen = !read_index(&files, snapshot, err);
        if (is_chosen) status = check_files(&is_chosen, &files, root, snapshot, err);
    }
    if (status || !is_chosen) goto done;
    *is_found = true;
    if (choice.is_gguf) {
        status = file_join(path, FILE_PATH_MAX, snapshot, choice.gguf, err);
    } else {
        snprintf(path, FILE_PATH_MAX, "%s", snapshot);
    }
done:
    hub_files_fini(&files);
    return status;
}

enum status hub_cache_find(char path[FILE_PATH_MAX], bool *is_found,
                           const struct hub_settings *settings, const struct hub_wish *wish,
                           struct err *err) {
    char folder[FILE_PATH_MAX], snapshot[FILE_PATH_MAX], root[PATH_MAX];
    *is_found = false;
    enum status status = file_join(folder, sizeof folder, settings->cache, wish->name->folder, err);
    if (status) return status;
    if (!realpath(settings->cache, root) || !file_is_folder(folder)) {
        err_set(err, ERR_IO, "%s does not have it", settings->cache);
        return OK;
    }
    if (!find_snapshot(snapshot, folder, wish->revision)) {
        err_set(err, ERR_IO, "%s has no revision %s", folder,
                wish->revision ? wish->revision : "main");
        return OK;
    }
    return find_in_snapshot(path, is_found, root, snapshot, wish, err);
}
