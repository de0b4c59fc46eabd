/* The sampling parameters that are lists (stop, stop_token_ids, logit_bias ...): from JSON to
 * memory behind params->owned, and their checks. Used by params.c only. */
#ifndef ENGINE_PARAMS_LIST_H
#define ENGINE_PARAMS_LIST_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "nanovllm.h"

enum { PARAMS_EXCERPT_MAX = 64 };

// A value that a parameter is set to. At least one of the two is there.
struct params_value {
    const json_t *json; // NULL: the text is no JSON
    const char *text; // NULL: it came parsed
};

// The start of `text` for an error sentence: whole characters, "..." where it was cut.
void params_excerpt(char out[PARAMS_EXCERPT_MAX], const char *text);
// "NAME is VALUE, want `want`", with an excerpt of the value's text.
MUST_USE enum status params_refuse(const char *name, const struct params_value *value,
                                   const char *want, struct err *err);

bool params_is_list(const struct nvllm_param *param);
size_t params_text_max(const struct nvllm_param *param); // bytes of a value as JSON

// Sets the list that `param` describes. On failure nothing is changed.
MUST_USE enum status params_list_set(struct nvllm_sampling_params *params,
                                     const struct nvllm_param *param,
                                     const struct params_value *value, struct err *err);
MUST_USE enum status params_list_check(const struct nvllm_sampling_params *params,
                                       const struct nvllm_param *param, struct err *err);
void params_list_free_owned(void *owned); // NULL is fine

#endif
