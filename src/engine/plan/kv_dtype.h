/* The option kv_cache_dtype. */
#ifndef ENGINE_KV_DTYPE_H
#define ENGINE_KV_DTYPE_H

#include "backend/backend.h"

// `name` has been checked against the option's choices. ERR_UNSUPPORTED names those of the device.
MUST_USE enum status kv_dtype_choose(enum dtype *dtype, const struct backend *backend,
                                     const char *name, struct err *err);

#endif
