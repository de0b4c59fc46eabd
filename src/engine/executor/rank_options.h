/* Engine options as bytes, for processes of the same version of the library: the struct, and behind
 * it its strings. */
#ifndef ENGINE_EXECUTOR_RANK_OPTIONS_H
#define ENGINE_EXECUTOR_RANK_OPTIONS_H

#include <stddef.h>

#include "nanovllm.h"

size_t rank_options_bytes(struct nvllm_engine_options options);
void rank_options_write(char *out, struct nvllm_engine_options options); // [rank_options_bytes]
// Strings are borrowed from `bytes`. There is no interrupt.
void rank_options_read(const char *bytes, struct nvllm_engine_options *out);

#endif
