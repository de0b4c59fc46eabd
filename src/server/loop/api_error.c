#include "server/loop/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/sentence.h"

PRINTF_LIKE(5, 0)
static void set(struct api_error *error, int status, const char *code, const char *param,
                const char *format, va_list args) {
    if (error->status) return;
    error->status = status;
    error->code = code;
    if (param) snprintf(error->param, sizeof error->param, "%s", param);
    sentence_format(error->message, sizeof error->message, format, args);
}

bool api_error_set(struct api_error *error, int status, const char *code, const char *param,
                   const char *format, ...) {
    va_list args;
    va_start(args, format);
    set(error, status, code, param, format, args);
    va_end(args);
    return false;
}

bool api_error_invalid(struct api_error *error, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set(error, 400, "invalid_value", param, format, args);
    va_end(args);
    return false;
}

bool api_error_nomem(struct api_error *error) {
    error->retry_after = 1;
    return api_error_set(error, 503, "out_of_memory", NULL, "the server has no memory for this");
}

bool api_error_library(struct api_error *error, enum nvllm_status status,
                       const struct nvllm_error *fault, const char *param) {
    switch (status) {
    case NVLLM_OK:
        return true;
    case NVLLM_ERR_INVALID:
    case NVLLM_ERR_FORMAT:
    case NVLLM_ERR_UNSUPPORTED:
        return api_error_invalid(error, param, "%s", fault->message);
    case NVLLM_ERR_CAPACITY:
        error->retry_after = 1;
        return api_error_set(error, 503, "queue_full", NULL, "%s", fault->message);
    case NVLLM_ERR_NOMEM:
        return api_error_nomem(error);
    case NVLLM_ERR_INTERRUPTED:
        return api_error_set(error, 503, "cancelled", NULL, "the request was cancelled");
    case NVLLM_ERR_IO:
    case NVLLM_ERR_DEVICE:
        break;
    }
    return api_error_set(error, 500, "engine_failed", NULL, "the engine has failed");
}

const char *api_error_type(const struct api_error *error) {
    switch (error->status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 503:
        return "unavailable_error";
    default:
        return error->status >= 500 && error->status != 501 ? "server_error"
                                                            : "invalid_request_error";
    }
}

void api_error_write_object(struct json_out *out, const struct api_error *error) {
    json_out_raw(out, "{\"message\":");
    json_out_cstring(out, error->message);
    json_out_rawf(out, ",\"type\":\"%s\",\"param\":", api_error_type(error));
    json_out_cstring(out, error->param[0] ? error->param : NULL);
    json_out_raw(out, ",\"code\":");
    json_out_cstring(out, error->code);
    json_out_raw(out, "}");
}

void api_error_write(struct json_out *out, const struct api_error *error) {
    json_out_raw(out, "{\"error\":");
    api_error_write_object(out, error);
    json_out_raw(out, "}");
}
