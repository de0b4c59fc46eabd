/* What the program nanovllm needs of the library to be a rank beside another process's engine. Not
 * public: both are of one version. */
#ifndef API_RANK_H
#define API_RANK_H

#include <stdint.h>

// As rank_worker_run (engine/ranks/rank_worker.h).
int api_rank_run(uint32_t rank, int fd, const char **message);

#endif
