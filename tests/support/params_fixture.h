/* Setting sampling parameters by name, for tests of the parameter table. */
#ifndef TESTS_SUPPORT_PARAMS_FIXTURE_H
#define TESTS_SUPPORT_PARAMS_FIXTURE_H

#include "engine/params/params.h"

extern const struct nvllm_sampling_params params_defaults;

size_t param_size(enum nvllm_param_type type); // bytes of a field
void set_ok(struct nvllm_sampling_params *params, const char *name, const char *value);
// Refused with exactly this sentence, and the parameters are as before.
void set_refused(const char *name, const char *value, const char *sentence);
void assert_defaults(const struct nvllm_sampling_params *params);

#endif
