#include "cmd/model/model_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "cmd/cli.h"
#include "cmd/model/downloading.h"
#include "cmd/terminal/interrupt.h"

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

// ERR_IO, with the path to give, for a model of ours that is elsewhere.
static enum status check_bundled(const char *model, struct err *err) {
    char path[FILE_PATH_MAX];
    if (access(model, F_OK) == 0 || !find_bundled(model, path)) return OK;
    return err_set(err, ERR_IO, "%s is not a folder here; nanovllm's own lies elsewhere: use -m %s",
                   model, path);
}

enum status model_place_find(struct model_place *place, struct nvllm_engine_options *options,
                             bool texts_only, struct err *err) {
    struct nvllm_error error = {0};
    char *path = NULL;
    struct downloading downloading;
    place->name = options->model;
    enum status status = check_bundled(options->model, err);
    if (status) return status;
    downloading_begin(&downloading, options->model);
    struct nvllm_engine_options own = *options;
    own.interrupt = &interrupt_question;
    own.download_progress = &downloading.callback;
    enum nvllm_status found = nvllm_model_find(&own, texts_only, &path, &error);
    downloading_end(&downloading, found == NVLLM_OK);
    status = cli_options_status(found, &error, err);
    if (status) return status;
    place->is_named = strcmp(path, options->model) != 0;
    snprintf(place->path, sizeof place->path, "%s", path);
    nvllm_free(path);
    options->model = place->path;
    options->revision = options->quant = NULL;
    return OK;
}

// ---- what it is ----

enum status model_info_read(char **text, json_t **info, const struct nvllm_engine_options *options,
                            struct err *err) {
    *text = NULL;
    *info = NULL;
    struct nvllm_error error = {0};
    cli_begin_device(options);
    enum status status = cli_options_status(nvllm_inspect(options, text, &error), &error, err);
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
