/* Sets, checks and describes parameters by the tables of nanovllm.h, for the command line and JSON.
 *
 * Setters take JSON text. A boolean may also be 1 or 0, and null puts the field back to its
 * default. Where a string is wanted (stop), text that is not JSON is the string itself, unless it
 * looks like a broken list, map or quoted string. String options are taken as they are, unquoted,
 * and borrowed.
 *
 * A setter puts lists behind params->owned. They move with the struct, and are freed by fini or
 * when the same list is set again. A copy of the struct with owned = NULL borrows them. */
#ifndef ENGINE_PARAMS_H
#define ENGINE_PARAMS_H

#include <jansson.h>

#include "base/err.h"
#include "nanovllm.h"

// PARAMS_MAX_logit_bias: the largest number of entries of this list.
#define PARAMS_LIST_MAX(type, name, entries_min, entries_max, ...) PARAMS_MAX_##name = entries_max,

enum {
    NVLLM_LIST_PARAMS(PARAMS_LIST_MAX)
    // Longest value as JSON text. The second is for allowed_token_ids and bad_words.
    PARAMS_TEXT_BYTES_MAX = 128 << 10,
    PARAMS_LONG_TEXT_BYTES_MAX = 4 << 20,
};

const struct nvllm_param *params_sampling(size_t index); // NULL past the end
const struct nvllm_param *params_engine_option(size_t index); // NULL past the end
// nvllm_sampling_param_default, nvllm_engine_option_default.
const char *params_sampling_default(size_t index);
const char *params_engine_option_default(size_t index);

// nvllm_sampling_params_set and nvllm_engine_options_set, with our err. On failure nothing is
// changed.
MUST_USE enum status params_set_sampling(struct nvllm_sampling_params *params, const char *name,
                                         const char *value, struct err *err);
// The same for a value that is parsed already, by jread_request.
MUST_USE enum status params_set_sampling_json(struct nvllm_sampling_params *params,
                                              const char *name, const json_t *value,
                                              struct err *err);
MUST_USE enum status params_set_engine_option(struct nvllm_engine_options *options,
                                              const char *name, const char *value, struct err *err);
void params_fini_sampling(struct nvllm_sampling_params *params);

// Checks ranges, choices and list lengths of every field. A field at its default passes, also an
// unset one. So does a NULL string that has choices: it means the default.
MUST_USE enum status params_check_sampling(const struct nvllm_sampling_params *params,
                                           struct err *err);
// Also checks what the table cannot say. A model must be named, block_size must be a multiple of
// 16, and the number of every KV slot must fit in 31 bits.
MUST_USE enum status params_check_engine_options(const struct nvllm_engine_options *options,
                                                 struct err *err);

#endif
