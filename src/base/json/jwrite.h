/* Writing JSON as text. jansson 2.14's own functions lose data when memory runs out: json_dumps
 * silently leaves out keys, json_copy members. To copy, use json_object_update into a new object,
 * which does not. */
#ifndef BASE_JWRITE_H
#define BASE_JWRITE_H

#include <jansson.h>

#include "base/text/buf.h"

// Appends `value` to `out`; `flags` are those of json_dumps. ERR_NOMEM is the only fault: `out`
// keeps its length, and `what` names the text in the message.
MUST_USE enum status jwrite(struct buf *out, const json_t *value, size_t flags, const char *what,
                            struct err *err);

#endif
