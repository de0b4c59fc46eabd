/* Keys of config.json of which an architecture supports one value alone. */
#ifndef CHECKPOINT_ONLY_VALUES_H
#define CHECKPOINT_ONLY_VALUES_H

#include <jansson.h>

#include "base/err.h"

// ERR_UNSUPPORTED names a key with another value. A key that is missing or null is fine.
MUST_USE enum status only_values_check(const json_t *root, const char *architecture,
                                       const char *what, struct err *err);

#endif
