/* Where the model lies that the user named: a path, a model of the Hugging Face cache, or one
 * beside this program, which brings one. */
#ifndef CMD_MODEL_PLACE_H
#define CMD_MODEL_PLACE_H

#include <jansson.h>

#include "base/err.h"
#include "base/os/file.h"
#include "nanovllm.h"

struct model_place {
    const char *name; // as the user gave it, borrowed
    bool is_named; // the name is no path, and `path` is where it lies
    char path[FILE_PATH_MAX];
};

// Finds the place of options->model, and downloads it there where the options say so. The options
// then have that path, which lies in *place. texts_only: its weights are not read.
MUST_USE enum status model_place_find(struct model_place *place,
                                      struct nvllm_engine_options *options, bool texts_only,
                                      struct err *err);
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
