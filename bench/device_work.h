/* What measuring an op of a device takes: memory with random numbers, and the median time of a
 * call. A fault ends the program with a sentence. */
#ifndef BENCH_DEVICE_WORK_H
#define BENCH_DEVICE_WORK_H

#include <stdio.h>

#include "backend/backend.h"

enum {
    WORK_COPIES_MAX = 8, // of weights
    WORK_PIECE =
        1 << 20, // random numbers of activations, over and over; noise has as many at least
};

struct bench {
    struct backend *backend;
    FILE *csv; // or NULL
    uint16_t *noise; // bf16 [num_noise]
    size_t num_noise;
    uint32_t shrink; // shapes are divided by it
};

// What an op works on: freed by work_end. Of `linears` and so on one per call in turn.
struct work {
    struct bench *bench;
    struct linear *linears[WORK_COPIES_MAX];
    struct experts *experts[WORK_COPIES_MAX];
    uint32_t num_copies;
    struct kv_cache *cache;
    void *memory[16]; // dev, all that was taken
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
    struct step step; // of the attention
};

// Calls an op of `w` once; `number` counts calls, to take weights in turn.
typedef void (*work_call)(struct work *w, uint32_t number);

void work_stop(const char *why);
// Fills noise, which the caller allocated.
void work_make_noise(struct bench *bench);
// The memory is the work's, on the device.
void *work_take(struct work *w, size_t bytes); // zeroed
void work_put(struct work *w, void *dev, const void *host, size_t bytes);
void *work_activations(struct work *w, size_t count); // random, of the device's activation type
void *work_floats(struct work *w, size_t count, float value);
void work_weights_finish(struct work *w); // after linears or experts were made: they have arrived
void work_end(struct work *w); // frees all that it has

// Prints the median time of a call, and the rates that follow from what it cannot do without.
void work_measure(struct work *w, work_call call, const char *op, const char *shape, double bytes,
                  double flops);

#endif
