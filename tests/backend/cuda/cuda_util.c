#include "backend/cuda/cuda_util.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum { GUARD_BYTES = 512, GUARD_VALUE = 0xa5, SKIPPED = 77, TESTS_MAX = 32 };

void *test_alloc(size_t bytes) {
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) abort();
    return memory;
}

static void synchronize(struct backend *backend) {
    struct err err = {0};
    if (backend->ops->synchronize(backend, &err)) fail_msg("%s", err.message);
}

// Copies `host` [bytes] to the device. NULL: every byte is 0xff.
struct tensor tensor_raw(struct backend *backend, const void *host, size_t bytes) {
    size_t all = bytes + 2 * GUARD_BYTES;
    unsigned char *image = test_alloc(all);
    void *base = NULL;
    struct err err = {0};
    if (backend->ops->alloc(backend, all, &base, &err)) fail_msg("%s", err.message);
    memset(image, GUARD_VALUE, all);
    if (host) {
        memcpy(image + GUARD_BYTES, host, bytes);
    } else {
        memset(image + GUARD_BYTES, 0xff, bytes);
    }
    backend->ops->upload(backend, base, image, all);
    synchronize(backend);
    free(image);
    return (struct tensor){(char *)base + GUARD_BYTES, backend, bytes};
}

struct tensor tensor_of(struct backend *backend, const float *values, size_t count) {
    if (backend->activation_dtype == DTYPE_F32) {
        return tensor_raw(backend, values, count * sizeof *values);
    }
    uint16_t *rounded = test_alloc(count * sizeof *rounded);
    for (size_t i = 0; i < count; i++) rounded[i] = f32_to_bf16(values[i]);
    struct tensor tensor = tensor_raw(backend, rounded, count * sizeof *rounded);
    free(rounded);
    return tensor;
}

struct tensor tensor_nan(struct backend *backend, size_t count) {
    return tensor_raw(backend, NULL, count * dtype_size(backend->activation_dtype));
}

void tensor_read_raw(const struct tensor *tensor, void *host) {
    struct backend *backend = tensor->backend;
    backend->ops->download(backend, host, tensor->dev, tensor->bytes);
    synchronize(backend);
}

float *tensor_read(const struct tensor *tensor) {
    size_t element = dtype_size(tensor->backend->activation_dtype);
    size_t count = tensor->bytes / element;
    float *values = test_alloc(count * sizeof *values);
    if (element == sizeof *values) {
        tensor_read_raw(tensor, values);
        return values;
    }
    uint16_t *rounded = test_alloc(tensor->bytes);
    tensor_read_raw(tensor, rounded);
    for (size_t i = 0; i < count; i++) values[i] = bf16_to_f32(rounded[i]);
    free(rounded);
    return values;
}

void tensor_free(struct tensor *tensor) {
    struct backend *backend = tensor->backend;
    char *base = (char *)tensor->dev - GUARD_BYTES;
    unsigned char before[GUARD_BYTES], after[GUARD_BYTES];
    backend->ops->download(backend, before, base, GUARD_BYTES);
    backend->ops->download(backend, after, (char *)tensor->dev + tensor->bytes, GUARD_BYTES);
    synchronize(backend);
    backend->ops->release(backend, base);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (before[i] != GUARD_VALUE) {
            fail_msg("byte %zu before a tensor of %zu was written", GUARD_BYTES - i, tensor->bytes);
        }
        if (after[i] != GUARD_VALUE) {
            fail_msg("byte %zu behind a tensor of %zu was written", i, tensor->bytes);
        }
    }
    *tensor = (struct tensor){0};
}

void round_to_bf16(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) values[i] = bf16_to_f32(f32_to_bf16(values[i]));
}

float *bf16_values(struct ops_rng *rng, size_t count, float scale) {
    float *values = test_alloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = scale * ops_rng_float(rng);
    round_to_bf16(values, count);
    return values;
}

struct linear *linear_of(struct backend *backend, const struct linear_spec *spec) {
    struct linear *linear = NULL;
    struct err err = {0};
    enum status status = backend->ops->linear_create(backend, spec, &linear, &err);
    if (!status && backend->queue) status = backend->queue->weights_finish(backend, SIZE_MAX, &err);
    if (status) fail_msg("%s", err.message);
    return linear;
}

int device_pair_run(int argc, char **argv, const char *group, const struct CMUnitTest *tests,
                    size_t num_tests) {
    // Freed tensors stay in the heap: clearing their pages anew took a third of the time.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    struct CMUnitTest with_state[TESTS_MAX];
    struct device_pair pair = {0};
    struct err err = {0};
    struct backend_options options = {
        .device = "cpu", .cpu_isa = "scalar", .weight_dtype = DTYPE_BF16};
    if (num_tests > TESTS_MAX || backend_create(&pair.scalar, &options, &err)) abort();
    options.device = argc > 1 ? argv[1] : "cuda";
    options.cpu_isa = "auto";
    enum status status = backend_create(&pair.device, &options, &err);
    if (status) {
        print_message("skipped all of %s: %s\n", group, err.message);
        backend_destroy(pair.scalar);
        return status == ERR_UNSUPPORTED || status == ERR_DEVICE ? SKIPPED : 1;
    }
    print_message("%s on %s\n", group, pair.device->description);
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    for (size_t i = 0; i < num_tests; i++) {
        with_state[i] = tests[i];
        with_state[i].initial_state = &pair;
    }
    int failed = _cmocka_run_group_tests(group, with_state, num_tests, NULL, NULL);
    backend_destroy(pair.device);
    backend_destroy(pair.scalar);
    return failed;
}
