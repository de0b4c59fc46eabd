/* An error as a client gets it: OpenAI's object with all four members, and its HTTP status. */
#ifndef SERVER_API_ERROR_H
#define SERVER_API_ERROR_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/json/json_out.h"
#include "nanovllm.h"

struct api_error {
    int status; // HTTP's; 0: none
    const char *code; // "model_not_found"; NULL: null
    char param[64]; // the member of the request that is at fault; "": null
    int retry_after; // seconds; 0: not said
    char message[640];
};

// Writes the error and returns false, so that a check reads `return api_error_set(...)`. The first
// error stays. `param` may be NULL.
bool api_error_set(struct api_error *error, int status, const char *code, const char *param,
                   const char *format, ...) PRINTF_LIKE(5, 6);
// 400 invalid_request_error.
bool api_error_invalid(struct api_error *error, const char *param, const char *format, ...)
    PRINTF_LIKE(3, 4);
// What the library refused; OK is no error, and true. `param` (may be NULL) where the fault is the
// request's.
bool api_error_library(struct api_error *error, enum nvllm_status status,
                       const struct nvllm_error *fault, const char *param);
bool api_error_nomem(struct api_error *error);
// {"error": {...}}
void api_error_write(struct json_out *out, const struct api_error *error);
// {"message": ..., "type": ..., "param": ..., "code": ...}
void api_error_write_object(struct json_out *out, const struct api_error *error);
const char *api_error_type(const struct api_error *error); // "invalid_request_error"

#endif
