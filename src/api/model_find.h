/* Models by name, for the functions of the public API that open one. */
#ifndef API_MODEL_FIND_H
#define API_MODEL_FIND_H

#include "base/err.h"
#include "base/os/file.h"
#include "hub/hub_files.h"
#include "nanovllm.h"

// Puts the place of options->model into `path`, as nvllm_model_find.
MUST_USE enum status api_model_find(char path[FILE_PATH_MAX],
                                    const struct nvllm_engine_options *options, enum hub_want want,
                                    struct err *err);
// The same in the options, which borrow `path`.
MUST_USE enum status api_model_place(struct nvllm_engine_options *options, char path[FILE_PATH_MAX],
                                     enum hub_want want, struct err *err);
// The same for a model of which only the texts are opened, and which is not downloaded.
MUST_USE enum status api_model_find_texts(char path[FILE_PATH_MAX], const char *model,
                                          struct err *err);

#endif
