/* A rank beside rank 0: a process that loads its slice of the model and runs the steps it is told.
 * nano-vllm: ModelRunner.loop and its shared memory. */
#ifndef ENGINE_EXECUTOR_SHM_WORKER_H
#define ENGINE_EXECUTOR_SHM_WORKER_H

#include <stdint.h>

enum { SHM_WORKER_FD = 3 }; // the descriptor at which a worker finds the shared memory

// Runs rank `rank` on the shared memory at SHM_WORKER_FD until it is told to quit. Returns the
// exit status for the process. *message is NULL, or the fault where rank 0 could not be told of it.
// When rank 0 ends, the kernel kills this process.
int shm_worker_run(uint32_t rank, const char **message);

#endif
