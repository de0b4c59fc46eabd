/* The one table of names, types, ranges and help behind the C structs, the command line and JSON. */
#ifndef ENGINE_PARAMS_H
#define ENGINE_PARAMS_H

#include "base/err.h"
#include "nanovllm.h"

const struct nvllm_param *params_sampling(size_t index);       // NULL past the end
const struct nvllm_param *params_engine_option(size_t index);  // NULL past the end

// nvllm_sampling_params_set and nvllm_engine_options_set, with our err.
MUST_USE enum status params_set_sampling(struct nvllm_sampling_params *params, const char *name,
                                         const char *value, struct err *err);
MUST_USE enum status params_set_engine_option(struct nvllm_engine_options *options,
                                              const char *name, const char *value, struct err *err);
void params_fini_sampling(struct nvllm_sampling_params *params);

// Ranges, choices and list lengths of every field of a struct; unset values pass.
MUST_USE enum status params_check_sampling(const struct nvllm_sampling_params *params,
                                           struct err *err);
MUST_USE enum status params_check_engine_options(const struct nvllm_engine_options *options,
                                                 struct err *err);

#endif
