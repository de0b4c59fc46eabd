/* Shared by the measurements of a device's ops: memory with random numbers, and the median time of
 * a call. A fault ends the program with a sentence. */
#ifndef BENCH_DEVICE_WORK_H
#define BENCH_DEVICE_WORK_H

#include <stdio.h>

#include "backend/backend.h"

enum {
    WORK_COPIES_MAX = 8, // most copies of an op's weights
    WORK_CHUNK = 1 << 20, // random numbers that activations repeat; noise has at least as many
};

struct bench {
    struct backend *backend;
    FILE *csv; // or NULL
    uint16_t *noise; // bf16 [num_noise]
    size_t num_noise;
    uint32_t shrink; // shapes are divided by it
};

// The memory and arguments of an op; work_end frees them. Calls take `linears` or `experts` in
// turn.
struct work {
    struct bench *bench;
    struct linear *linears[WORK_COPIES_MAX];
    struct experts *experts[WORK_COPIES_MAX];
    uint32_t num_copies;
    struct kv_cache *cache;
    void *memory[16]; // dev, everything from work_take
    int num_memory;
    union {
        struct linear_args linear;
        struct project_in_args project_in;
        struct project_out_args project_out;
        struct rms_norm_args norm;
        struct silu_mul_args silu;
        struct experts_args experts;
        struct sample_args sample;
        struct attention_args attention;
    } args;
    struct step step; // of attention
};

// Calls an op of `w` once. `number` counts the calls, so that they take weights in turn.
typedef void (*work_call)(struct work *w, uint32_t number);

void work_stop(const char *why); // prints it to stderr and exits with 1
// Fills bench->noise, which the caller has allocated.
void work_make_noise(struct bench *bench);
// Device memory that belongs to `w`.
void *work_take(struct work *w, size_t bytes); // zeroed
void *work_activations(struct work *w, size_t count); // random, of the device's activation type
void *work_floats(struct work *w, size_t count, float value);
void work_put(struct work *w, void *dev, const void *host, size_t bytes); // copies, and waits
void work_weights_finish(struct work *w); // waits until all linears and experts are on the device
void work_end(struct work *w); // frees all that belongs to it

// Prints the median time of a call and its rates. bytes, flops: what the op cannot do without.
void work_measure(struct work *w, work_call call, const char *op, const char *shape, double bytes,
                  double flops);

#endif
