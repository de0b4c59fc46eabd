/* A thread that runs jobs one by one, beside its owner: those of the least rank first, and of equal
 * ones the oldest. It sleeps while there are none. */
#ifndef BASE_BACKGROUND_H
#define BASE_BACKGROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct background;

// On the thread. `job`: the bytes of background_add, during the call.
typedef void (*background_fn)(void *context, const void *job);

// Each job has `job_bytes`. NULL: there is no memory or no thread.
struct background *background_create(background_fn run, void *context, size_t job_bytes);
// Returns when the job that runs has ended. The others are dropped. It has no deadline, because a
// job may use what its owner frees next: so each job must end by itself. NULL is fine.
void background_destroy(struct background *background);

// Copies the job. False: there is no memory, and the job is not added.
bool background_add(struct background *background, uint32_t rank, const void *job);
// No job begins for so long, from now on; whatever an earlier call said. The one that runs goes on.
void background_pause(struct background *background, double seconds);
// How many jobs have not ended.
uint32_t background_num_left(struct background *background);
// Returns when all jobs have ended. It has no deadline: each job ends by itself, and a pause lasts
// as long as it says. Jobs must not wait for the thread that calls this.
void background_wait(struct background *background);

#endif
