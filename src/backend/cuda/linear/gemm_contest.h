/* Which of several ways to compute the same is the fastest, found in few runs, for a first start waits
 * for them. Knows nothing of ways but a number: the caller runs them and says how long they took. */
#ifndef BACKEND_CUDA_GEMM_CONTEST_H
#define BACKEND_CUDA_GEMM_CONTEST_H

#include <stdbool.h>

enum { GEMM_WAYS_MAX = 16 };

#define GEMM_NEVER_MS 1e30f // of a way that does not run

struct gemm_contest {
    int num_ways; // those that come first win ties within the noise
    bool is_long; // so long that the device runs into its power limit: whole times count
    float late_ms[GEMM_WAYS_MAX]; // what a run costs beside its own time
    // Milliseconds of `count` runs of a way, one behind the other.
    float (*run)(void *context, int way, int count);
    void *context;
};

// The winner; -1: none runs.
int gemm_contest_winner(const struct gemm_contest *contest);

#endif
