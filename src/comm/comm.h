/* Where ranks of a tensor-parallel group meet. With one rank every function is a no-op.
 * Buffers are device memory of `backend`, in its activation type unless said otherwise; the
 * operations are ordered with the ops on the backend's stream. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

struct comm {
    uint32_t rank;
    uint32_t world_size;
};

// The group of one.
struct comm comm_single(void);
// buffer[i] = sum over ranks of buffer[i], i < count.
void comm_all_reduce(const struct comm *comm, struct backend *backend, void *buffer, size_t count);
// Columns of all ranks side by side, in rank order, float32: part [rows][this rank's columns] to
// whole [rows][cols]. With one rank they are the same memory.
void comm_all_gather(const struct comm *comm, struct backend *backend, const float *part,
                     float *whole, size_t rows, size_t cols);

#endif
