#include "engine/plan/kv_dtype.h"

#include <stdio.h>
#include <string.h>

#include "backend/kv_cache_dtype.h"
#include "base/compiler.h"

static const struct {
    const char *name; // as the option has it
    enum dtype dtype;
} kv_cache_dtypes[] = {
    {"bfloat16", DTYPE_BF16}, {"float32", DTYPE_F32}, {"int8", DTYPE_I8}, {"fp8", DTYPE_F8_E4M3}};

static enum dtype kv_cache_dtype_of(const char *name) {
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(kv_cache_dtypes) && strcmp(name, kv_cache_dtypes[i].name) != 0) i++;
    return kv_cache_dtypes[i].dtype;
}

enum status kv_dtype_choose(enum dtype *dtype, const struct backend *backend, const char *name,
                            struct err *err) {
    char text[64] = "";
    *dtype = backend->kv_cache_dtype;
    if (strcmp(name, "auto") == 0) return OK;
    *dtype = kv_cache_dtype_of(name);
    if (backend_has_kv_cache_dtype(backend, *dtype)) return OK;
    for (size_t i = 0, length = 0; i < ARRAY_LEN(kv_cache_dtypes); i++) {
        if (!backend_has_kv_cache_dtype(backend, kv_cache_dtypes[i].dtype)) continue;
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", length ? ", " : "",
                                   kv_cache_dtypes[i].name);
    }
    return err_set(err, ERR_UNSUPPORTED, "kv_cache_dtype is %s, but the device %s supports only %s",
                   name, backend->name, text);
}
