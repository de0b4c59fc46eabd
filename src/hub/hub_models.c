#include "hub/hub_models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/c_locale.h"

static const char folder_prefix[] = "models--";

// ---- listing ----

void hub_models_fini(struct hub_models *models) {
    free(models->items);
    *models = (struct hub_models){0};
}

static enum status add_model(struct hub_models *models, const struct hub_model *model,
                             struct err *err) {
    if (models->count == models->capacity) {
        size_t capacity = models->capacity ? 2 * models->capacity : 16;
        struct hub_model *items = realloc(models->items, capacity * sizeof *items);
        if (!items) return err_nomem(err, "list of models");
        models->items = items;
        models->capacity = capacity;
    }
    models->items[models->count++] = *model;
    return OK;
}

// "models--Qwen--Qwen3-0.6B" is Qwen/Qwen3-0.6B. False: a folder of something else.
static bool name_of_folder(struct hub_name *name, const char *folder) {
    char text[HUB_NAME_MAX];
    size_t len = sizeof folder_prefix - 1;
    if (strncmp(folder, folder_prefix, len) != 0) return false;
    const char *dashes = strstr(folder + len, "--");
    if (!dashes) return false;
    int n = snprintf(text, sizeof text, "%.*s/%s", (int)(dashes - folder - (ptrdiff_t)len),
                     folder + len, dashes + 2);
    return n > 0 && (size_t)n < sizeof text && hub_name_parse(name, text);
}

// A ref that is this commit, main before others; else the commit itself.
static void find_revision(char out[HUB_REVISION_MAX], const char *folder, const char *commit) {
    char refs[FILE_PATH_MAX], at[HUB_COMMIT_SIZE];
    struct hub_files files = {0};
    snprintf(out, HUB_REVISION_MAX, "%.*s", HUB_REVISION_MAX - 1, commit);
    if (file_join(refs, sizeof refs, folder, "refs", NULL)) return;
    if (!hub_cache_list_files(&files, refs, NULL)) {
        for (size_t i = 0; i < files.count; i++) {
            const char *name = files.items[i].name;
            bool is_it = strlen(name) < HUB_REVISION_MAX && hub_cache_read_ref(at, folder, name) &&
                         strcmp(at, commit) == 0;
            if (is_it) snprintf(out, HUB_REVISION_MAX, "%.*s", HUB_REVISION_MAX - 1, name);
            if (is_it && strcmp(name, "main") == 0) break;
        }
    }
    hub_files_fini(&files);
}

static uint64_t size_of_wanted(const struct hub_files *files, const char *snapshot) {
    uint64_t sum = 0;
    for (size_t i = 0; i < files->count; i++) {
        char path[FILE_PATH_MAX];
        struct stat info;
        if (!files->items[i].is_wanted ||
            file_join(path, sizeof path, snapshot, files->items[i].name, NULL)) {
            continue;
        }
        if (stat(path, &info) == 0) sum += (uint64_t)info.st_size;
    }
    return sum;
}

// Adds the choice that `quant` ("": safetensors) makes of the snapshot.
static enum status add_choice(struct hub_models *models, const struct hub_model *like,
                              const struct hub_settings *settings, const struct hub_name *name,
                              const char *quant, struct err *err) {
    struct hub_model model = *like;
    struct hub_wish wish = {.name = name, .revision = like->commit, .quant = quant};
    char path[FILE_PATH_MAX];
    struct err missing = {0};
    // A file that leads out of the cache makes the model one that cannot be read.
    if (hub_cache_find(path, &model.is_whole, settings, &wish, &missing)) model.is_whole = false;
    snprintf(model.name, sizeof model.name, "%s%s%s", name->id, *quant ? ":" : "", quant);
    return add_model(models, &model, err);
}

static bool has_wanted_before(const struct hub_files *files, size_t end) {
    for (size_t i = 0; i < end; i++) {
        if (files->items[i].is_wanted) return true;
    }
    return false;
}

static enum status add_snapshot(struct hub_models *models, const struct hub_settings *settings,
                                const struct hub_name *name, const char *folder,
                                const char *snapshot, const char *commit, struct err *err) {
    struct hub_files files = {0};
    struct hub_model model = {0};
    struct stat info;
    enum status status = hub_cache_list_files(&files, snapshot, err);
    if (status) return status;
    snprintf(model.commit, sizeof model.commit, "%.*s", HUB_COMMIT_SIZE - 1, commit);
    find_revision(model.revision, folder, commit);
    if (stat(snapshot, &info) == 0) model.changed_at = info.st_mtime;
    char quant[HUB_QUANT_MAX];
    size_t num_gguf = 0;
    for (size_t i = 0; i < files.count && !status; i++) {
        if (!hub_files_read_quant(quant, files.items[i].name)) continue;
        num_gguf++;
        hub_files_want_there(&files, quant);
        if (files.items[i].is_wanted && has_wanted_before(&files, i)) continue; // a later part
        model.num_bytes = size_of_wanted(&files, snapshot);
        status = add_choice(models, &model, settings, name, quant, err);
    }
    bool has_config = hub_files_find(&files, "config.json") != NULL;
    bool has_weights =
        hub_files_find(&files, "model.safetensors") || hub_files_find(&files, HUB_INDEX_NAME);
    if (!status && (has_weights || (has_config && !num_gguf))) {
        for (size_t i = 0; i < files.count; i++) files.items[i].is_wanted = true;
        model.num_bytes = size_of_wanted(&files, snapshot);
        status = add_choice(models, &model, settings, name, "", err);
    }
    hub_files_fini(&files);
    return status;
}

typedef enum status (*entry_fn)(void *user_data, const char *path, const char *name,
                                struct err *err);

// Calls `take` with each entry of a folder. A folder that is not there has none.
static enum status for_each(const char *folder, entry_fn take, void *user_data, struct err *err) {
    DIR *dir = opendir(folder);
    if (!dir) {
        if (errno == ENOENT) return OK;
        return err_set(err, ERR_IO, "cannot open %s: %s", folder, c_locale_strerror(errno));
    }
    enum status status = OK;
    const struct dirent *entry;
    while (!status && (entry = readdir(dir))) {
        char path[FILE_PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = file_join(path, sizeof path, folder, entry->d_name, err);
        if (!status) status = take(user_data, path, entry->d_name, err);
    }
    closedir(dir);
    return status;
}

struct listing {
    struct hub_models *models;
    const struct hub_settings *settings;
    struct hub_name name;
    char folder[FILE_PATH_MAX];
    size_t num_snapshots;
};

static enum status list_snapshot(void *user_data, const char *path, const char *name,
                                 struct err *err) {
    struct listing *listing = user_data;
    if (!hub_is_commit(name)) return OK;
    listing->num_snapshots++;
    return add_snapshot(listing->models, listing->settings, &listing->name, listing->folder, path,
                        name, err);
}

static enum status add_size(void *user_data, const char *path, const char *name, struct err *err) {
    (void)name, (void)err;
    struct hub_model *model = user_data;
    struct stat info;
    if (stat(path, &info) || !S_ISREG(info.st_mode)) return OK;
    model->num_bytes += (uint64_t)info.st_size;
    if (info.st_mtime > model->changed_at) model->changed_at = info.st_mtime;
    return OK;
}

// A download that ended before the first of its files was whole.
static enum status list_begun(struct listing *listing, struct err *err) {
    char blobs[FILE_PATH_MAX];
    struct hub_model model = {0};
    snprintf(model.name, sizeof model.name, "%s", listing->name.id);
    enum status status = file_join(blobs, sizeof blobs, listing->folder, "blobs", err);
    if (!status) status = for_each(blobs, add_size, &model, err);
    return status || !model.num_bytes ? status : add_model(listing->models, &model, err);
}

static enum status list_folder(void *user_data, const char *path, const char *name,
                               struct err *err) {
    struct listing *listing = user_data;
    char snapshots[FILE_PATH_MAX];
    if (!name_of_folder(&listing->name, name)) return OK;
    snprintf(listing->folder, sizeof listing->folder, "%s", path);
    enum status status = file_join(snapshots, sizeof snapshots, path, "snapshots", err);
    listing->num_snapshots = 0;
    if (!status) status = for_each(snapshots, list_snapshot, listing, err);
    return status || listing->num_snapshots ? status : list_begun(listing, err);
}

static int compare_models(const void *a, const void *b) {
    const struct hub_model *first = a, *second = b;
    int order = strcmp(first->name, second->name);
    return order ? order : strcmp(first->revision, second->revision);
}

enum status hub_models_list(struct hub_models *models, const struct hub_settings *settings,
                            struct err *err) {
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) return err_nomem(err, "list of models");
    listing->models = models;
    listing->settings = settings;
    enum status status = for_each(settings->cache, list_folder, listing, err);
    free(listing);
    if (models->count) qsort(models->items, models->count, sizeof *models->items, compare_models);
    return status;
}

// ---- removing ----

struct removal {
    uint64_t num_bytes;
    const struct hub_name *name;
    char blobs[FILE_PATH_MAX], snapshots[FILE_PATH_MAX], refs[FILE_PATH_MAX];
    const char *commit; // of whose ref is removed, or NULL
    struct hub_files used; // names of the blobs that remaining snapshots lead to
    size_t num_removed;
};

static enum status remove_path(struct removal *removal, const char *path, struct err *err) {
    struct stat info;
    if (lstat(path, &info)) return OK;
    bool is_folder = S_ISDIR(info.st_mode);
    if ((is_folder ? rmdir(path) : unlink(path)) == 0) {
        if (S_ISREG(info.st_mode) && info.st_nlink == 1) {
            removal->num_bytes += (uint64_t)info.st_size;
        }
        return OK;
    }
    return err_set(err, ERR_IO, "cannot remove %s: %s", path, c_locale_strerror(errno));
}

// A folder with all that is in it; links are removed, not followed.
static enum status remove_tree(void *user_data, const char *path, const char *name,
                               struct err *err) {
    (void)name;
    struct stat info;
    enum status status = OK;
    if (lstat(path, &info)) return OK;
    if (S_ISDIR(info.st_mode)) status = for_each(path, remove_tree, user_data, err);
    return status ? status : remove_path(user_data, path, err);
}

// ERR_IO while a download holds one of the locks.
static enum status check_lock(void *user_data, const char *path, const char *name,
                              struct err *err) {
    (void)name;
    const struct removal *removal = user_data;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return OK;
    bool is_busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    if (!is_busy) return OK;
    return err_set(err, ERR_IO, "%s is being downloaded", removal->name->id);
}

static enum status note_used(void *user_data, const char *path, const char *name, struct err *err) {
    (void)name;
    struct removal *removal = user_data;
    char target[FILE_PATH_MAX];
    struct stat info;
    if (lstat(path, &info)) return OK;
    if (S_ISDIR(info.st_mode)) return for_each(path, note_used, removal, err);
    ssize_t len = readlink(path, target, sizeof target - 1);
    if (len <= 0) return OK;
    target[len] = '\0';
    const char *slash = strrchr(target, '/');
    return hub_files_add(&removal->used, slash ? slash + 1 : target, err);
}

static enum status remove_unused_blob(void *user_data, const char *path, const char *name,
                                      struct err *err) {
    struct removal *removal = user_data;
    return hub_files_find(&removal->used, name) ? OK : remove_path(removal, path, err);
}

static enum status remove_unused(struct removal *removal, struct err *err) {
    enum status status = for_each(removal->snapshots, note_used, removal, err);
    hub_files_sort(&removal->used);
    if (!status) status = for_each(removal->blobs, remove_unused_blob, removal, err);
    hub_files_fini(&removal->used);
    return status;
}

static enum status remove_ref(void *user_data, const char *path, const char *name,
                              struct err *err) {
    struct removal *removal = user_data;
    struct stat info;
    struct buf text = {0};
    (void)name;
    if (lstat(path, &info)) return OK;
    if (S_ISDIR(info.st_mode)) return for_each(path, remove_ref, removal, err);
    enum status status = file_read(&text, path, err);
    size_t len = strlen(removal->commit);
    bool is_it = !status && text.len >= len && memcmp(text.data, removal->commit, len) == 0;
    buf_fini(&text);
    if (is_it && unlink(path)) {
        status = err_set(err, ERR_IO, "cannot remove %s: %s", path, c_locale_strerror(errno));
    }
    return status;
}

static enum status remove_unfinished(struct removal *removal, const char *folder, struct err *err) {
    char unfinished[FILE_PATH_MAX], path[FILE_PATH_MAX];
    enum status status =
        file_join(unfinished, sizeof unfinished, folder, HUB_UNFINISHED_FOLDER, err);
    if (!status) status = file_join(path, sizeof path, unfinished, removal->commit, err);
    return status ? status : remove_path(removal, path, err);
}

static enum status remove_snapshot(struct removal *removal, const char *folder,
                                   const char *revision, struct err *err) {
    char commit[HUB_COMMIT_SIZE], path[FILE_PATH_MAX];
    if (hub_is_commit(revision)) {
        snprintf(commit, sizeof commit, "%s", revision);
    } else if (!hub_cache_read_ref(commit, folder, revision) || !hub_is_commit(commit)) {
        return err_set(err, ERR_IO, "%s has no revision %s", folder, revision);
    }
    enum status status = file_join(path, sizeof path, removal->snapshots, commit, err);
    if (!status && !file_is_folder(path)) {
        status = err_set(err, ERR_IO, "%s has no revision %s", folder, revision);
    }
    removal->commit = commit;
    if (!status) status = remove_tree(removal, path, commit, err);
    if (!status) status = for_each(removal->refs, remove_ref, removal, err);
    if (!status) status = remove_unfinished(removal, folder, err);
    removal->commit = NULL;
    return status ? status : remove_unused(removal, err);
}

static enum status remove_quant_of(void *user_data, const char *path, const char *name,
                                   struct err *err) {
    struct removal *removal = user_data;
    struct hub_files files = {0};
    (void)name;
    enum status status = hub_cache_list_files(&files, path, err);
    if (!status) removal->num_removed += hub_files_want_there(&files, removal->name->quant);
    for (size_t i = 0; i < files.count && !status; i++) {
        char file[FILE_PATH_MAX];
        if (!files.items[i].is_wanted) continue;
        status = file_join(file, sizeof file, path, files.items[i].name, err);
        if (!status) status = remove_path(removal, file, err);
    }
    hub_files_fini(&files);
    return status;
}

static enum status remove_quant(struct removal *removal, const char *folder, struct err *err) {
    enum status status = for_each(removal->snapshots, remove_quant_of, removal, err);
    if (!status && !removal->num_removed) {
        status = err_set(err, ERR_IO, "%s has no GGUF file of %s", folder, removal->name->quant);
    }
    return status ? status : remove_unused(removal, err);
}

enum status hub_models_remove(uint64_t *num_bytes, const struct hub_settings *settings,
                              const char *text, const char *revision, struct err *err) {
    struct hub_name name;
    char folder[FILE_PATH_MAX], locks[FILE_PATH_MAX], all[FILE_PATH_MAX];
    struct stat info;
    *num_bytes = 0;
    if (!hub_name_parse(&name, text)) {
        return err_set(err, ERR_INVALID, "%s is not the name of a model, such as Qwen/Qwen3-0.6B",
                       text);
    }
    if (revision && *name.quant) {
        return err_set(err, ERR_INVALID, "a GGUF file is removed from all revisions");
    }
    struct removal *removal = calloc(1, sizeof *removal);
    if (!removal) return err_nomem(err, "removal");
    removal->name = &name;
    enum status status = revision ? hub_revision_check(revision, err) : OK;
    if (!status) status = file_join(folder, sizeof folder, settings->cache, name.folder, err);
    if (!status) status = file_join(all, sizeof all, settings->cache, ".locks", err);
    if (!status) status = file_join(locks, sizeof locks, all, name.folder, err);
    if (!status) status = file_join(removal->blobs, FILE_PATH_MAX, folder, "blobs", err);
    if (!status) status = file_join(removal->snapshots, FILE_PATH_MAX, folder, "snapshots", err);
    if (!status) status = file_join(removal->refs, FILE_PATH_MAX, folder, "refs", err);
    // A link to a folder elsewhere is the user's, and is not followed.
    if (!status && (lstat(folder, &info) || !S_ISDIR(info.st_mode))) {
        status = err_set(err, ERR_IO, "%s does not have %s", settings->cache, name.id);
    }
    if (!status) status = for_each(locks, check_lock, removal, err);
    if (!status && *name.quant) {
        status = remove_quant(removal, folder, err);
    } else if (!status && revision) {
        status = remove_snapshot(removal, folder, revision, err);
    } else if (!status) {
        status = remove_tree(removal, folder, name.folder, err);
    }
    *num_bytes = removal->num_bytes;
    free(removal);
    return status;
}
