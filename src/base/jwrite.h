/* Writing JSON as text. What jansson does itself loses data when memory runs out: json_dumps leaves
 * out keys and says nothing, json_copy members (2.14); json_object_update into a new object does
 * not. */
#ifndef BASE_JWRITE_H
#define BASE_JWRITE_H

#include <jansson.h>

#include "base/buf.h"

// Appends `value` to `out`; `flags` are json_dumps's. ERR_NOMEM is the only fault, and leaves `out`
// as long as before; `what` names the text in it.
MUST_USE enum status jwrite(struct buf *out, const json_t *value, size_t flags, const char *what,
                            struct err *err);

#endif
