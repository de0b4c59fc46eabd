/* Whether a backend's KV cache can have an element type. */
#ifndef BACKEND_KV_CACHE_DTYPE_H
#define BACKEND_KV_CACHE_DTYPE_H

#include "backend/backend.h"

static inline bool backend_has_kv_cache_dtype(const struct backend *backend, enum dtype dtype) {
    return dtype == backend->kv_cache_dtype || backend->kv_cache_dtypes >> dtype & 1;
}

#endif
