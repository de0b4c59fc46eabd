/* Reads values from nvllm_inspect's description of a model. */
#ifndef CMD_MODEL_INFO_H
#define CMD_MODEL_INFO_H

#include <jansson.h>

#include "base/err.h"
#include "nanovllm.h"

// The library's JSON, as text (nvllm_free) and parsed (json_decref); both the caller's, NULL on
// failure.
MUST_USE enum status model_info_read(char **text, json_t **info,
                                     const struct nvllm_engine_options *options, struct err *err);
// The same without the text.
MUST_USE enum status model_info_open(json_t **info, const struct nvllm_engine_options *options,
                                     struct err *err);
json_int_t model_info_int(const json_t *info, const char *key); // 0 when absent

#endif
