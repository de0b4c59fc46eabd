/* Shared by the tests of the CUDA backend's ops: each runs the same calls, through the ops table
 * alone, on the CPU's scalar kernels and on the device under test, and compares.
 *
 * Inputs are rounded to bfloat16 first, so both start from the same numbers; what differs is what
 * the device rounds on the way. A value rounded to bfloat16 (8 bits) just above a power of two is off
 * by at most 2^-8 of itself, uniformly, others by less: each rounding adds at most 2^-16 / 3 = 5.1e-6
 * on average to the error measure (ops_nmse), and 2^-16 where there are few numbers. Bounds count the
 * roundings. */
#ifndef CUDA_UTIL_H
#define CUDA_UTIL_H

#include "backend/ops_util.h"

#define BF16_NMSE 5.1e-6 // of one rounding

struct device_pair {
    struct backend *scalar; // the CPU's
    struct backend *device; // under test
};

// Device memory between guard bytes. Made and read with a synchronize, so host memory is free at
// once. tensor_free fails the test when a guard byte changed.
struct tensor {
    void *dev;
    struct backend *backend;
    size_t bytes;
};
struct tensor tensor_raw(struct backend *backend, const void *host, size_t bytes);
// Of the backend's activation type, which must be able to hold the numbers.
struct tensor tensor_of(struct backend *backend, const float *values, size_t count);
struct tensor tensor_nan(struct backend *backend, size_t count); // every byte 0xff
void tensor_read_raw(const struct tensor *tensor, void *host); // [bytes]
float *tensor_read(const struct tensor *tensor); // of the activation type; the caller frees it
void tensor_free(struct tensor *tensor);

void round_to_bf16(float *values, size_t count);
// Uniform in [-scale, scale), rounded.
float *bf16_values(struct ops_rng *rng, size_t count, float scale);
void *test_alloc(size_t bytes); // zeroed; aborts when memory is out

// Stacks `num_parts` parts; fails the test where it cannot.
struct linear *linear_of(struct backend *backend, const struct linear_spec *spec);

// Runs the tests with a struct device_pair as their state. The device is argv[1], else "cuda"; 77,
// which ctest counts as skipped, where it is not there.
int device_pair_run(int argc, char **argv, const char *group, const struct CMUnitTest *tests,
                    size_t num_tests);

#endif
