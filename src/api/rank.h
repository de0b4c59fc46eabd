/* What the program nanovllm calls to run ranks of an engine. It is not public, because program and
 * library must be of the same version. */
#ifndef API_RANK_H
#define API_RANK_H

#include <stdint.h>

#include "nanovllm.h"

// Runs one rank of another process's engine: see shm_worker_run in engine/executor/shm_worker.h.
int api_rank_run(uint32_t rank, const char **message);

// ---- under mpirun ----

// Joins the processes that mpirun has started.
enum nvllm_status api_rank_join(uint32_t *rank, struct nvllm_error *error);
// Rank 0's last call, when its engines are destroyed: the others end.
void api_rank_leave(void);
// The other ranks' call: works for rank 0 until it leaves. After an error the other ranks wait for
// this one, so the process must end them (api_rank_abort).
enum nvllm_status api_rank_work(struct nvllm_error *error);
// Ends all processes at once.
void api_rank_abort(int exit_status);

#endif
