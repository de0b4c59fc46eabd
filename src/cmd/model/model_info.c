/* The library describes a model as JSON, for people and scripts (inspect --json). bench and chat
 * read the numbers they need from the same JSON. */
#include "cmd/model/model_info.h"

#include <string.h>

#include "base/json/jread.h"
#include "cmd/cli.h"
#include "cmd/model/model_place.h"

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
