/* A rank beside rank 0: a process that loads its slice of the model and runs the steps it is told.
 * nano-vllm: ModelRunner.loop and its shared memory. */
#ifndef ENGINE_RANKS_RANK_WORKER_H
#define ENGINE_RANKS_RANK_WORKER_H

#include <stdint.h>

enum { RANK_WORKER_FD = 3 }; // the descriptor at which a worker finds the shared memory

// Runs rank `rank` on the shared memory at RANK_WORKER_FD until it is told to quit. Returns the exit status of the process: 0, or 1 with a sentence in *message, where nobody else can
// be told of it. Ends the process without a word when rank 0 has ended.
int rank_worker_run(uint32_t rank, const char **message);

#endif
