#include "hub/hub.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "hub/hub_cache.h"

// Whether the text is a path, and not the name of a model elsewhere.
static bool is_path(struct hub_name *name, const char *model) {
    struct stat info;
    return lstat(model, &info) == 0 || !hub_name_parse(name, model);
}

static enum status copy_path(char path[FILE_PATH_MAX], const struct hub_request *request,
                             struct err *err) {
    const char *extra = request->revision ? "revision" : request->quant ? "quant" : NULL;
    if (extra) {
        return err_set(err, ERR_INVALID, "%s is for a model by its name, and %s is a path", extra,
                       request->model);
    }
    int len = snprintf(path, FILE_PATH_MAX, "%s", request->model);
    if (len < FILE_PATH_MAX) return OK;
    return err_set(err, ERR_INVALID, "path too long: %.64s...", request->model);
}

static enum status read_wish(struct hub_wish *wish, const struct hub_name *name,
                             const struct hub_request *request, struct err *err) {
    bool has_quant = request->quant && *request->quant;
    *wish = (struct hub_wish){.name = name,
                              .revision = request->revision,
                              .quant = has_quant ? request->quant : name->quant,
                              .want = request->want};
    if (has_quant && *name->quant && strcmp(request->quant, name->quant) != 0) {
        return err_set(err, ERR_INVALID, "%s names %s, and quant is %s", request->model,
                       name->quant, request->quant);
    }
    return wish->revision ? hub_revision_check(wish->revision, err) : OK;
}

// The model is not in the cache, and is not to be downloaded.
static enum status refuse(const struct hub_settings *settings, const struct hub_request *request,
                          const struct err *missing, struct err *err) {
    const char *how = settings->is_offline      ? "HF_HUB_OFFLINE forbids to download it"
                      : hub_download_is_built() ? "nanovllm pull downloads it"
                                                : "hf download brings it there";
    return err_set(err, ERR_IO, "%s is not a folder, and not in the Hugging Face cache (%s); %s",
                   request->model, missing->message, how);
}

static enum status download(char path[FILE_PATH_MAX], struct hub_settings *settings,
                            const struct hub_wish *wish, const struct hub_watch *watch,
                            struct err *err) {
    struct err missing = {0};
    bool is_found = false;
    enum status status = hub_download(settings, wish, watch, err);
    if (!status) status = hub_cache_find(path, &is_found, settings, wish, &missing);
    if (status && err && missing.status) *err = missing;
    if (status || is_found) return status;
    return err_set(err, ERR_IO, "%s was downloaded, but %s", wish->name->id, missing.message);
}

enum status hub_find(char path[FILE_PATH_MAX], const struct hub_request *request,
                     const struct hub_watch *watch, struct err *err) {
    struct hub_name name;
    struct hub_wish wish;
    struct hub_settings settings;
    struct err missing = {0};
    bool is_found = false;
    if (is_path(&name, request->model)) return copy_path(path, request, err);
    enum status status = read_wish(&wish, &name, request, err);
    if (!status) status = hub_settings_read(&settings, err);
    if (!status) status = hub_cache_find(path, &is_found, &settings, &wish, &missing);
    if (status && err && missing.status) *err = missing;
    if (status || is_found) return status;
    if (!request->download || settings.is_offline) return refuse(&settings, request, &missing, err);
    return download(path, &settings, &wish, watch, err);
}

enum status hub_pull(char path[FILE_PATH_MAX], bool *is_new, const struct hub_request *request,
                     const struct hub_watch *watch, struct err *err) {
    struct hub_name name;
    struct hub_wish wish;
    struct hub_settings settings;
    struct err missing = {0};
    char before[FILE_PATH_MAX];
    bool is_found = false;
    *is_new = false;
    if (!hub_name_parse(&name, request->model)) {
        return err_set(err, ERR_INVALID, "%s is not the name of a model, such as Qwen/Qwen3-0.6B",
                       request->model);
    }
    enum status status = read_wish(&wish, &name, request, err);
    if (!status) status = hub_settings_read(&settings, err);
    if (status) return status;
    if (settings.is_offline) {
        return err_set(err, ERR_IO, "HF_HUB_OFFLINE forbids to download %s", name.id);
    }
    status = hub_cache_find(before, &is_found, &settings, &wish, &missing);
    if (status) {
        if (err) *err = missing;
        return status;
    }
    status = download(path, &settings, &wish, watch, err);
    *is_new = !status && (!is_found || strcmp(before, path) != 0);
    return status;
}
