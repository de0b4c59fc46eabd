#include "checkpoint/tensors/tensor_hash.h"

#include <string.h>
#include <xxhash.h>

enum { SAMPLES = 8, SAMPLE_BYTES = 64 };

enum status tensor_hash(const struct tensor *t, uint64_t *hash, struct err *err) {
    const uint64_t type = t->dtype;
    char buffer[SAMPLE_BYTES];
    *hash = XXH3_64bits_withSeed(t->name, strlen(t->name), *hash);
    *hash = XXH3_64bits_withSeed(&type, sizeof type, *hash);
    *hash = XXH3_64bits_withSeed(t->shape, t->rank * sizeof *t->shape, *hash);
    size_t len = t->size_bytes < sizeof buffer ? t->size_bytes : sizeof buffer;
    for (uint64_t i = 0; i < SAMPLES && len; i++) {
        uint64_t offset = (t->size_bytes - len) / (SAMPLES - 1) * i;
        const void *bytes = byte_source_get(&t->source, offset, len, buffer, err);
        if (!bytes) return ERR_IO;
        *hash = XXH3_64bits_withSeed(bytes, len, *hash);
    }
    return OK;
}
