/* Between the public API's types and ours. */
#ifndef API_CONVERT_H
#define API_CONVERT_H

#include "base/err.h"
#include "nanovllm.h"

// Copies a fault to the caller's struct (may be NULL) and returns it as the public enum.
enum nvllm_status api_error(struct nvllm_error *out, enum status status, const struct err *err);

#endif
