#include "cmd/model/model_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "checkpoint/model_folder.h"
#include "cmd/cli.h"

// huggingface_hub's rules for the folder of its cache.
static bool hub_cache(char *path, size_t size) {
    const char *hub = getenv("HF_HUB_CACHE"), *hf = getenv("HF_HOME");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len = -1;
    if (hub && *hub) {
        len = snprintf(path, size, "%s", hub);
    } else if (hf && *hf) {
        len = snprintf(path, size, "%s/hub", hf);
    } else if (cache && *cache) {
        len = snprintf(path, size, "%s/huggingface/hub", cache);
    } else if (home && *home) {
        len = snprintf(path, size, "%s/.cache/huggingface/hub", home);
    }
    return len > 0 && (size_t)len < size;
}

// The folder of "organisation/name" in the cache is models--organisation--name.
static bool find_cached(const char *model, char path[FILE_PATH_MAX]) {
    char folder[FILE_PATH_MAX], weights[256];
    const char *slash = strchr(model, '/');
    if (!slash || strchr(slash + 1, '/') || model[0] == '.' || !hub_cache(folder, sizeof folder)) {
        return false;
    }
    size_t len = strlen(folder);
    int more = snprintf(folder + len, sizeof folder - len, "/models--%.*s--%s",
                        (int)(slash - model), model, slash + 1);
    return more > 0 && (size_t)more < sizeof folder - len && model_folder_snapshot(folder, path) &&
           model_folder_find(path, ".safetensors", weights, sizeof weights);
}

// What lies beside this program under this name: installed with it, in a wheel, or in the source
// that it was built from.
static bool find_beside(const char *name, char path[FILE_PATH_MAX]) {
    static const char *const places[] = {"../share/nanovllm", ".", "../.."};
    char own[FILE_PATH_MAX], candidate[FILE_PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", own, sizeof own - 1);
    if (len > 0) {
        own[len] = '\0';
    } else if (!realpath((const char *)(uintptr_t)getauxval(AT_EXECFN), own)) { // without /proc
        return false;
    }
    *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        len = snprintf(candidate, sizeof candidate, "%s/%s/%s", own, places[i], name);
        if (len > 0 && (size_t)len < sizeof candidate && file_is_folder(candidate) &&
            realpath(candidate, path)) {
            return true;
        }
    }
    return false;
}

bool model_place_bundled(char path[FILE_PATH_MAX]) {
    return find_beside("models", path);
}

bool model_place_tiny(char path[FILE_PATH_MAX]) {
    return find_beside("models/tiny-qwen3", path);
}

// "tiny-qwen3", "models/tiny-qwen3" in any folder, and "bench/configs/NAME".
static bool find_bundled(const char *model, char path[FILE_PATH_MAX]) {
    char name[FILE_PATH_MAX];
    const char *slash = strrchr(model, '/');
    int len = snprintf(name, sizeof name, "models/%s", slash ? slash + 1 : model);
    if (len <= (int)strlen("models/") || (size_t)len >= sizeof name) return false;
    bool is_config = strncmp(model, "bench/configs/", strlen("bench/configs/")) == 0;
    return find_beside(is_config ? model : name, path);
}

enum status model_place_check(const char *model, struct err *err) {
    char path[FILE_PATH_MAX];
    if (!model || access(model, F_OK) == 0) return OK;
    if (find_cached(model, path)) {
        return err_set(err, ERR_IO,
                       "%s is not a folder; the Hugging Face cache has the model: use -m %s", model,
                       path);
    }
    if (find_bundled(model, path)) {
        return err_set(err, ERR_IO,
                       "%s is not a folder here; nanovllm's own lies elsewhere: use -m %s", model,
                       path);
    }
    return OK;
}

// ---- what it is ----

enum status model_info_read(char **text, json_t **info, const struct nvllm_engine_options *options,
                            struct err *err) {
    *text = NULL;
    *info = NULL;
    struct nvllm_error error = {0};
    enum status status = model_place_check(options->model, err);
    if (!status) status = cli_options_status(nvllm_inspect(options, text, &error), &error, err);
    if (status) return status;
    status = jread_text(info, *text, strlen(*text), "the model's description", err);
    if (!status) return OK;
    nvllm_free(*text);
    *text = NULL;
    return status;
}

enum status model_info_open(json_t **info, const struct nvllm_engine_options *options,
                            struct err *err) {
    char *text;
    enum status status = model_info_read(&text, info, options, err);
    nvllm_free(text);
    return status;
}

json_int_t model_info_int(const json_t *info, const char *key) {
    return json_integer_value(json_object_get(info, key));
}
