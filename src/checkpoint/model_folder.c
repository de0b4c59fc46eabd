#include "checkpoint/model_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/os/file.h"

#define HOW_TO_GET "nanovllm pull Qwen/Qwen3-0.6B"

static const struct {
    const char *suffix;
    const char *what;
    const char *advice; // for a folder that has such a file
} others[] = {
    {".bin", "PyTorch's format", "convert the checkpoint to safetensors"},
    {".pth", "PyTorch's format", "convert the checkpoint to safetensors"},
    {".pt", "PyTorch's format", "convert the checkpoint to safetensors"},
    {".ckpt", "PyTorch's format", "convert the checkpoint to safetensors"},
    {".gguf", "llama.cpp's format", "give that file"},
    {".onnx", "ONNX's format", "get the safetensors checkpoint"},
};

// The index into `others` for a name; ARRAY_LEN(others): none.
static size_t find_other(const char *name) {
    size_t i = 0;
    while (i < ARRAY_LEN(others) && !file_name_ends(name, others[i].suffix)) i++;
    return i;
}

bool model_folder_is_other_format(const char *name) {
    return find_other(name) < ARRAY_LEN(others);
}

enum status model_folder_check(const char *path, struct err *err) {
    if (file_is_folder(path)) return OK;
    bool present = false;
    enum status status = file_is_present(path, &present, err);
    if (status) return status;
    size_t other = find_other(path);
    if (present && other < ARRAY_LEN(others)) {
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s is a file of %s, which is not read; want a folder of safetensors: " HOW_TO_GET,
            path, others[other].what);
    }
    if (present) {
        return err_set(err, ERR_IO,
                       "%s is not a folder; want the one with config.json and *.safetensors", path);
    }
    return err_set(err, ERR_IO, "%s is not a folder; this gets a model: " HOW_TO_GET, path);
}

bool model_folder_find(const char *folder, const char *suffix, char *name, size_t size) {
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *item; dir && (item = readdir(dir));) {
        if (!file_name_ends(item->d_name, suffix)) continue;
        if (found && strcmp(item->d_name, name) > 0) continue; // of a model's parts the first
        snprintf(name, size, "%s", item->d_name);
        found = true;
    }
    if (dir) closedir(dir);
    return found;
}

// "<snapshots>/<name>", where that has a config.json.
static bool join_model(char model[FILE_PATH_MAX], const char *snapshots, const char *name) {
    char config[FILE_PATH_MAX];
    return !file_join(model, FILE_PATH_MAX, snapshots, name, NULL) &&
           !file_join(config, sizeof config, model, "config.json", NULL) && file_exists(config);
}

// The commit that `main` of the cached model is.
static bool read_main(const char *folder, char commit[64]) {
    char path[FILE_PATH_MAX];
    if (file_join(path, sizeof path, folder, "refs/main", NULL) || !file_exists(path)) return false;
    struct file file;
    if (file_open(&file, path, NULL)) return false;
    size_t len = file.size < 63 ? (size_t)file.size : 63;
    bool is_read = !file_read_at(&file, 0, commit, len, NULL);
    file_close(&file);
    commit[is_read ? strspn(commit, "0123456789abcdef") : 0] = '\0';
    return commit[0] != '\0';
}

bool model_folder_snapshot(const char *folder, char path[FILE_PATH_MAX]) {
    char snapshots[FILE_PATH_MAX], model[FILE_PATH_MAX], commit[64] = "";
    if (file_join(snapshots, sizeof snapshots, folder, "snapshots", NULL)) return false;
    if (read_main(folder, commit) && join_model(path, snapshots, commit)) return true;
    size_t num_found = 0;
    DIR *dir = opendir(snapshots);
    for (struct dirent *item; dir && (item = readdir(dir));) {
        if (item->d_name[0] == '.' || !join_model(model, snapshots, item->d_name)) continue;
        memcpy(path, model, sizeof model);
        num_found++;
    }
    if (dir) closedir(dir);
    return num_found == 1;
}

enum status model_folder_explain(const char *folder, const char *wanted, struct err *err) {
    char found[256], path[FILE_PATH_MAX];
    if (model_folder_find(folder, "adapter_config.json", found, sizeof found)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has no %s; it is a LoRA adapter (adapter_config.json), which is not run "
                       "beside its model: merge the two (merge_and_unload of peft), save that with "
                       "its tokenizer, and give the new folder",
                       folder, wanted);
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (!model_folder_find(folder, others[i].suffix, found, sizeof found)) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s has no %s; it has %s, which is %s: %s", folder,
                       wanted, found, others[i].what, others[i].advice);
    }
    if (!model_folder_snapshot(folder, path)) return OK;
    return err_set(err, ERR_IO, "%s has no %s; the model is in %s", folder, wanted, path);
}
