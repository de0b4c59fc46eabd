/* Where a model lies that the user named and that is no folder here: in the Hugging Face cache, or
 * beside this program, which brings one. Only names are looked at. */
#ifndef CMD_MODEL_PLACE_H
#define CMD_MODEL_PLACE_H

#include <jansson.h>

#include "base/err.h"
#include "base/os/file.h"
#include "nanovllm.h"

// OK: something has that name, or nothing is known of it, and the library says what is wrong.
// ERR_IO, with the folder to give: the model is in one of those places. NULL is fine.
MUST_USE enum status model_place_check(const char *model, struct err *err);
// The folder of the models that lie beside this program; false: there is none.
bool model_place_bundled(char path[FILE_PATH_MAX]);
// The bundled model itself.
bool model_place_tiny(char path[FILE_PATH_MAX]);

/* Reads values from nvllm_inspect's description of a model. */

// The library's JSON, as text (nvllm_free) and parsed (json_decref); both the caller's, NULL on
// failure.
MUST_USE enum status model_info_read(char **text, json_t **info,
                                     const struct nvllm_engine_options *options, struct err *err);
// The same without the text.
MUST_USE enum status model_info_open(json_t **info, const struct nvllm_engine_options *options,
                                     struct err *err);
json_int_t model_info_int(const json_t *info, const char *key); // 0 when absent

#endif
