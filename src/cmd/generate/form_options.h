/* The flags that give the output a form: --json-schema FILE, --regex, --choice and --grammar FILE.
 * They set structured_outputs, whose other members --structured-outputs takes. */
#ifndef CMD_FORM_OPTIONS_H
#define CMD_FORM_OPTIONS_H

#include "cmd/cli.h"

struct option_group form_options(struct nvllm_sampling_params *params);

// The output must fit the JSON schema of a file, whatever form it had before. On failure, also
// where the schema cannot be enforced, nothing changes.
MUST_USE enum status form_set_schema(struct nvllm_sampling_params *params, const char *path,
                                     struct err *err);
MUST_USE enum status form_remove(struct nvllm_sampling_params *params, struct err *err);

#endif
