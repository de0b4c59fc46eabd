/* The safetensors reader over arbitrary bytes, twice: as a whole file, and as a header behind its
 * right length and before some data, since few random files get past the length. What is accepted
 * must be inside the bytes and found by its name. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DATA_BYTES = 64 };

static void parse(const uint8_t *bytes, size_t size) {
    struct safetensors *file = NULL;
    struct err err = {0};
    if (safetensors_parse(&file, bytes, size, "input", &err) != OK) {
        CHECK(err.message[0] && strlen(err.message) < sizeof err.message, "%s", "no message");
        return;
    }
    volatile uint8_t sum = 0; // reads every byte that was handed out
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *tensor = safetensors_at(file, i);
        const uint8_t *first = tensor->source.data;
        CHECK(first >= bytes && first + tensor->size_bytes <= bytes + size, "i=%zu", i);
        CHECK(safetensors_find(file, tensor->name) == tensor, "i=%zu", i);
        uint64_t count = dtype_size(tensor->dtype);
        for (uint32_t k = 0; k < tensor->rank; k++) count *= tensor->shape[k];
        CHECK(count == tensor->size_bytes, "i=%zu", i);
        for (size_t k = 0; k < tensor->size_bytes; k++) sum = (uint8_t)(sum + first[k]);
    }
    safetensors_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    parse(data, size);
    size_t total = 8 + size + DATA_BYTES;
    uint8_t *framed = calloc(1, total);
    if (!framed) return 0;
    for (int i = 0; i < 8; i++) framed[i] = (uint8_t)((uint64_t)size >> (8 * i));
    if (size) memcpy(framed + 8, data, size);
    parse(framed, total);
    free(framed);
    return 0;
}
