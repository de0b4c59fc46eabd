/* Finds the fastest of several ways to compute the same, in few runs, because a first start waits
 * for it. It knows ways only by number: the caller runs them and returns the time. */
#ifndef BACKEND_CUDA_GEMM_CONTEST_H
#define BACKEND_CUDA_GEMM_CONTEST_H

#include <stdbool.h>

enum { GEMM_WAYS_MAX = 224 };

#define GEMM_NEVER_MS 1e30f // time of a way that does not run

struct gemm_contest {
    int num_ways; // earlier ways win ties within the noise
    // Runs long enough to reach the device's power limit: total times count, not the least.
    bool is_long;
    float late_ms[GEMM_WAYS_MAX]; // cost of a run besides its own time
    // Returns the milliseconds of `count` runs of a way, back to back.
    float (*run)(void *context, int way, int count);
    void *context;
};

// Returns the winner's number. -1: no way runs.
int gemm_contest_winner(const struct gemm_contest *contest);

#endif
