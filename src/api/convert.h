/* Converts between the public API's types and ours. */
#ifndef API_CONVERT_H
#define API_CONVERT_H

#include "base/err.h"
#include "nanovllm.h"

// Copies an error to the caller's struct (may be NULL) and returns its public status.
enum nvllm_status api_error(struct nvllm_error *out, enum status status, const struct err *err);

// ERR_INVALID: `given` is NULL, or its first field, struct_size, is not a known size.
MUST_USE enum status api_check_size(const void *given, size_t known_size, const char *what,
                                    struct err *err);
// The same for a request and its sampling parameters.
MUST_USE enum status api_check_request(const struct nvllm_request *request, struct err *err);

#endif
