#include "api/model_find.h"

#include <string.h>

#include "api/convert.h"
#include "engine/llm_engine.h"
#include "hub/hub.h"

static void forward_progress(const struct hub_progress *progress, void *user_data) {
    const struct nvllm_download_progress *callback = user_data;
    const struct nvllm_download download = {.num_bytes = progress->num_bytes,
                                            .total_bytes = progress->total_bytes,
                                            .num_files = progress->num_files,
                                            .total_files = progress->total_files};
    callback->on_downloaded(&download, callback->user_data);
}

enum status api_model_find(char path[FILE_PATH_MAX], const struct nvllm_engine_options *options,
                           enum hub_want want, struct err *err) {
    if (!options->model || !*options->model) {
        return err_set(err, ERR_INVALID, "model is not set, want the folder of a checkpoint");
    }
    // Random weights need no files.
    bool is_dummy = options->load_format && strcmp(options->load_format, "dummy") == 0;
    const struct hub_request request = {.model = options->model,
                                        .revision = options->revision,
                                        .quant = options->quant,
                                        .want = is_dummy ? HUB_WANT_TEXTS : want,
                                        .download = options->download != 0};
    const struct interrupt interrupt = llm_engine_interrupt(options->interrupt);
    struct nvllm_download_progress progress = {0};
    if (options->download_progress) progress = *options->download_progress;
    const struct hub_watch watch = {.interrupt = &interrupt,
                                    .on_progress = progress.on_downloaded ? forward_progress : NULL,
                                    .user_data = &progress};
    return hub_find(path, &request, &watch, err);
}

enum status api_model_place(struct nvllm_engine_options *options, char path[FILE_PATH_MAX],
                            enum hub_want want, struct err *err) {
    enum status status = api_model_find(path, options, want, err);
    if (status) return status;
    options->model = path;
    options->revision = options->quant = NULL;
    return OK;
}

enum status api_model_find_texts(char path[FILE_PATH_MAX], const char *model, struct err *err) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = model;
    return api_model_find(path, &options, HUB_WANT_TEXTS, err);
}

enum nvllm_status nvllm_model_find(const struct nvllm_engine_options *options, int texts_only,
                                   char **path, struct nvllm_error *error) {
    struct err err = {0};
    char place[FILE_PATH_MAX];
    *path = NULL;
    enum status status = api_check_size(options, sizeof *options, "nvllm_engine_options", &err);
    enum hub_want want = texts_only ? HUB_WANT_TEXTS : HUB_WANT_MODEL;
    if (!status) status = api_model_find(place, options, want, &err);
    if (!status && !(*path = strdup(place))) status = err_nomem(&err, "model");
    return api_error(error, status, &err);
}
