/* The tensors of a folder, in model.safetensors or in the shards of model.safetensors.index.json.
 *
 * As in transformers, a folder with both files uses model.safetensors, and the index is not read.
 * An index must agree with its shards: each listed tensor is in the named shard, and each tensor of
 * a shard is listed for that shard. The index's "metadata" is not used. The index file is read,
 * checked against the shards and closed. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "base/log.h"
#include "base/os/map.h"
#include "checkpoint/checkpoint_form.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/safetensors.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

struct folder_tensors {
    struct tensor_set base;
    char *path; // of the folder
    struct safetensors **files; // [num_files]
    size_t num_files;
};

// The index file while the shards are opened.
struct shard_index {
    char path[FILE_PATH_MAX];
    json_t *root;
    json_t *weight_map; // {tensor: shard}, in root
    struct strmap by_shard; // shard's name -> index into folder_tensors.files
};

// A shard must be a file of this folder: a downloaded index must not name files elsewhere.
static bool is_plain_file_name(const char *name) {
    return name[0] && !strpbrk(name, "/\\") && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static enum status open_single(struct folder_tensors *folder, const char *path, struct err *err) {
    folder->files = calloc(1, sizeof(struct safetensors *));
    if (!folder->files) return err_nomem(err, "checkpoint files");
    enum status status = safetensors_open(&folder->files[0], path, err);
    if (!status) folder->num_files = 1;
    return status;
}

static enum status read_index(struct shard_index *index, struct err *err) {
    enum status status = jread_file(&index->root, index->path, err);
    if (status) return status;
    if (!json_is_object(index->root)) {
        return err_set(err, ERR_FORMAT, "%s is %s, want an object with \"weight_map\"", index->path,
                       jread_type_name(index->root));
    }
    index->weight_map = json_object_get(index->root, "weight_map");
    if (!json_is_object(index->weight_map)) {
        return err_set(err, ERR_FORMAT, "%s: \"weight_map\" is %s, want an object", index->path,
                       jread_type_name(index->weight_map));
    }
    if (json_object_size(index->weight_map)) return OK;
    return err_set(err, ERR_FORMAT, "%s: \"weight_map\" is empty", index->path);
}

// Opens the shard that the index gives for `tensor`, unless it is open.
static enum status open_shard(struct folder_tensors *folder, struct shard_index *index,
                              const char *tensor, const json_t *value, struct err *err) {
    const char *shard = json_string_value(value);
    if (!shard || !is_plain_file_name(shard)) {
        return err_set(err, ERR_FORMAT,
                       "%s: the shard of tensor \"%.150s\" is %s%.100s%s, want the name of a file "
                       "in the same folder",
                       index->path, tensor, shard ? "\"" : "",
                       shard ? shard : jread_type_name(value), shard ? "\"" : "");
    }
    uint32_t known;
    if (strmap_get(&index->by_shard, shard, strlen(shard), &known)) return OK;
    char path[FILE_PATH_MAX];
    enum status status = file_join(path, sizeof path, folder->path, shard, err);
    bool present = false;
    if (!status) status = file_is_present(path, &present, err);
    if (status) return status;
    if (!present) {
        return err_set(err, ERR_IO, "shard %s is missing: %s places tensor \"%.150s\" in it", path,
                       INDEX_NAME, tensor);
    }
    size_t number = folder->num_files;
    status = strmap_put(&index->by_shard, shard, strlen(shard), (uint32_t)number, NULL, err);
    if (!status) status = safetensors_open(&folder->files[number], path, err);
    if (!status) folder->num_files++;
    return status;
}

// Checks that each tensor of a shard is listed for that shard, and each listed tensor is in its
// shard.
static enum status check_index(const struct folder_tensors *folder, const struct shard_index *index,
                               struct err *err) {
    for (size_t i = 0; i < folder->num_files; i++) {
        const struct safetensors *file = folder->files[i];
        for (size_t k = 0; k < safetensors_count(file); k++) {
            const char *name = safetensors_at(file, k)->name;
            const char *shard = json_string_value(json_object_get(index->weight_map, name));
            uint32_t number;
            if (!shard) {
                return err_set(err, ERR_FORMAT,
                               "%s has the tensor \"%.200s\", which %s does not list",
                               safetensors_path(file), name, INDEX_NAME);
            }
            if (strmap_get(&index->by_shard, shard, strlen(shard), &number) && number == i)
                continue;
            return err_set(err, ERR_FORMAT,
                           "%s has the tensor \"%.150s\", which %s places in %.100s",
                           safetensors_path(file), name, INDEX_NAME, shard);
        }
    }
    const char *name;
    json_t *value;
    json_object_foreach(index->weight_map, name, value) {
        const char *shard = json_string_value(value);
        uint32_t number = 0;
        bool known = strmap_get(&index->by_shard, shard, strlen(shard), &number);
        CHECK(known, "shard=%s", shard);
        if (safetensors_find(folder->files[number], name)) continue;
        return err_set(err, ERR_FORMAT,
                       "%s does not have the tensor \"%.200s\", which %s places in it",
                       safetensors_path(folder->files[number]), name, INDEX_NAME);
    }
    return OK;
}

static enum status open_shards(struct folder_tensors *folder, struct shard_index *index,
                               struct err *err) {
    enum status status = read_index(index, err);
    if (status) return status;
    // There cannot be more shards than tensors.
    folder->files = calloc(json_object_size(index->weight_map), sizeof(struct safetensors *));
    if (!folder->files) return err_nomem(err, "checkpoint files");
    const char *name;
    json_t *value;
    json_object_foreach(index->weight_map, name, value) {
        status = open_shard(folder, index, name, value, err);
        if (status) return status;
    }
    return check_index(folder, index, err);
}

// The error of a folder without either file. It names the weights that the folder has instead,
// because the user has to act on those.
static enum status explain_no_weights(const char *folder, struct err *err) {
    char found[256];
    if (model_folder_find(folder, ".safetensors", found, sizeof found)) {
        return err_set(err, ERR_IO,
                       "%s has no %s; it has %s, but no %s that says which tensor is in which file",
                       folder, SINGLE_NAME, found, INDEX_NAME);
    }
    enum status status = model_folder_explain(folder, SINGLE_NAME, err);
    if (status) return status;
    return err_set(err, ERR_IO, "%s has no weights: it has neither %s nor %s", folder, SINGLE_NAME,
                   INDEX_NAME);
}

static enum status open_files(struct folder_tensors *folder, struct err *err) {
    char path[FILE_PATH_MAX];
    struct shard_index index = {0};
    enum status status = file_join(path, sizeof path, folder->path, SINGLE_NAME, err);
    if (!status) {
        status = file_join(index.path, sizeof index.path, folder->path, INDEX_NAME, err);
    }
    bool single = false, sharded = false;
    if (!status) status = file_is_present(path, &single, err);
    if (status) return status;
    if (single) {
        if (file_exists(index.path)) log_info("%s is used, %s is not read", path, INDEX_NAME);
        return open_single(folder, path, err);
    }
    status = file_is_present(index.path, &sharded, err);
    if (status) return status;
    if (!sharded) return explain_no_weights(folder->path, err);
    status = open_shards(folder, &index, err);
    strmap_fini(&index.by_shard);
    json_decref(index.root);
    return status;
}

static enum status list_tensors(struct folder_tensors *folder, struct err *err) {
    struct tensor_set *set = &folder->base;
    size_t count = 0;
    for (size_t i = 0; i < folder->num_files; i++) count += safetensors_count(folder->files[i]);
    set->tensors = calloc(count ? count : 1, sizeof *set->tensors);
    if (!set->tensors) return err_nomem(err, "tensor list");
    for (size_t i = 0; i < folder->num_files; i++) {
        const struct safetensors *file = folder->files[i];
        for (size_t k = 0; k < safetensors_count(file); k++) {
            set->tensors[set->count++] = safetensors_at(file, k);
        }
    }
    set->place = folder->num_files == 1 ? safetensors_path(folder->files[0]) : folder->path;
    return OK;
}

static enum status check_unchanged(const struct tensor_set *set, struct err *err) {
    const struct folder_tensors *folder = (const struct folder_tensors *)set;
    enum status status = OK;
    for (size_t i = 0; i < folder->num_files && !status; i++) {
        status = safetensors_check_unchanged(folder->files[i], err);
    }
    return status;
}

static void close_tensors(struct tensor_set *set) {
    struct folder_tensors *folder = (struct folder_tensors *)set;
    for (size_t i = 0; i < folder->num_files; i++) safetensors_close(folder->files[i]);
    free(folder->files);
    free(set->tensors);
    free(folder->path);
    free(folder);
}

enum status folder_tensors_open(const char *folder, struct tensor_set **out, struct err *err) {
    *out = NULL;
    struct folder_tensors *opened = calloc(1, sizeof *opened);
    if (!opened) return err_nomem(err, "weights");
    opened->base.check_unchanged = check_unchanged;
    opened->base.close = close_tensors;
    opened->path = strdup(folder);
    enum status status = opened->path ? open_files(opened, err) : err_nomem(err, "weights");
    if (!status) status = list_tensors(opened, err);
    if (status) {
        close_tensors(&opened->base);
        return status;
    }
    *out = &opened->base;
    return OK;
}
