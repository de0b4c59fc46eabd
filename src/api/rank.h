/* The program nanovllm calls this to run one rank of another process's engine. It is not public,
 * because program and library must be of the same version. */
#ifndef API_RANK_H
#define API_RANK_H

#include <stdint.h>

// See rank_worker_run in engine/ranks/rank_worker.h.
int api_rank_run(uint32_t rank, const char **message);

#endif
