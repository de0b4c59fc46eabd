/* The flags that give the output a form: --json-schema FILE, --regex, --choice and --grammar FILE.
 * They set structured_outputs, whose other members --structured-outputs takes. */
#ifndef CMD_FORM_OPTIONS_H
#define CMD_FORM_OPTIONS_H

#include "cmd/cli.h"

struct option_group form_options(struct nvllm_sampling_params *params);

#endif
