/* The description is JSON because it is for people and scripts first (inspect --json); the bench
 * reads the two numbers it needs from it like any other client. */
#include "cmd/model_info.h"

#include <string.h>

#include "base/jread.h"
#include "cmd/cli.h"

enum status model_info_open(json_t **info, const struct nvllm_engine_options *options,
                            struct err *err) {
    *info = NULL;
    struct nvllm_error error = {0};
    char *text = NULL;
    enum status status = cli_status(nvllm_inspect(options, &text, &error), &error, err);
    if (status) return status;
    status = jread_text(info, text, strlen(text), "the model's description", err);
    nvllm_free(text);
    return status;
}

json_int_t model_info_int(const json_t *info, const char *key) {
    return json_integer_value(json_object_get(info, key));
}
