/* Shared by the tests of the CUDA backend's ops. Each test makes the same calls, through the ops
 * table alone, on the CPU's scalar kernels and on the device under test, and compares.
 *
 * Inputs are rounded to bfloat16 first, so both start from the same numbers and differ only by the
 * device's roundings. A value rounded to bfloat16 (8 bits) that is just above a power of two is off
 * by at most 2^-8 of itself, uniformly; others by less. So each rounding adds at most 2^-16 / 3 =
 * 5.1e-6 on average to the error measure (ops_nmse), and 2^-16 if there are few numbers. Bounds
 * count the roundings. */
#ifndef CUDA_UTIL_H
#define CUDA_UTIL_H

#include "backend/ops_util.h"

#define BF16_NMSE 5.1e-6 // of one rounding

struct device_pair {
    struct backend *scalar; // of the CPU
    struct backend *device; // under test
};

// Device memory between guard bytes. Creating and reading it synchronize, so the host memory may be
// freed at once. tensor_free fails the test if a guard byte changed.
struct tensor {
    void *dev;
    struct backend *backend;
    size_t bytes;
};
struct tensor tensor_raw(struct backend *backend, const void *host, size_t bytes);
// Of the backend's activation type. The values must be representable in it.
struct tensor tensor_of(struct backend *backend, const float *values, size_t count);
struct tensor tensor_nan(struct backend *backend, size_t count); // every byte 0xff
void tensor_read_raw(const struct tensor *tensor, void *host); // [bytes]
// Converted from the activation type; the caller frees it.
float *tensor_read(const struct tensor *tensor);
void tensor_free(struct tensor *tensor);

void round_to_bf16(float *values, size_t count);
// Uniform in [-scale, scale), rounded to bfloat16.
float *bf16_values(struct ops_rng *rng, size_t count, float scale);
void *test_alloc(size_t bytes); // zeroed; aborts if there is no memory

// Makes a linear of `num_parts` stacked parts. Fails the test if that fails.
struct linear *linear_of(struct backend *backend, const struct linear_spec *spec);

// Runs the tests with a struct device_pair as their state. The device is argv[1], else "cuda".
// argv[2]: only tests whose names match.
// Returns 77, which ctest counts as skipped, if the device is not available.
int device_pair_run(int argc, char **argv, const char *group, const struct CMUnitTest *tests,
                    size_t num_tests);

#endif
