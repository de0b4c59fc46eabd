/* Writing JSON answers piece by piece. A fault (out of memory) sticks: what follows does nothing,
 * and the end asks once. All-zero is empty. */
#ifndef SERVER_JSON_OUT_H
#define SERVER_JSON_OUT_H

#include <jansson.h>
#include <stdint.h>

#include "base/text/buf.h"

struct json_out {
    struct buf buf;
    enum status status;
};

void json_out_clear(struct json_out *out); // keeps the allocation
void json_out_fini(struct json_out *out);
void json_out_check(struct json_out *out, enum status status); // a fault of what is to be written
// Appends `list`, which has what stands between [ and ], as a JSON list. `list` is empty after it.
void json_out_take_list(struct json_out *out, struct json_out *list);
void json_out_raw(struct json_out *out, const char *text);
void json_out_bytes(struct json_out *out, const char *bytes, size_t len); // as they are
void json_out_uint(struct json_out *out, uint64_t value);
void json_out_rawf(struct json_out *out, const char *format, ...) PRINTF_LIKE(2, 3);
void json_out_string(struct json_out *out, const char *text, size_t len);
void json_out_cstring(struct json_out *out, const char *text); // NULL: null
void json_out_float(struct json_out *out, float value);
void json_out_floats(struct json_out *out, const float *values, size_t count); // a list
// The bytes [len] as a string in base64 (RFC 4648).
void json_out_base64(struct json_out *out, const void *bytes, size_t len);
void json_out_ids(struct json_out *out, const int32_t *ids, size_t num_ids);
void json_out_value(struct json_out *out, const json_t *value);

#endif
