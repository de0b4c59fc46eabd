#include "comm/comm.h"

#include "base/check.h"

struct comm comm_single(void) {
    return (struct comm){.rank = 0, .world_size = 1};
}

void *comm_partial(struct comm *comm) {
    CHECK(comm->ops, "the group of one has no partial sums, rank=%u", comm->rank);
    return comm->ops->partial(comm);
}

void comm_reduce_add(struct comm *comm, struct backend *backend, void *residual, size_t count,
                     bool is_first) {
    CHECK(comm->ops, "the group of one has nothing to add, rank=%u", comm->rank);
    comm->ops->reduce_add(comm, backend, residual, count, is_first);
}

float *comm_logits(struct comm *comm) {
    CHECK(comm->ops, "the group of one keeps its own logits, rank=%u", comm->rank);
    return comm->ops->logits(comm);
}

void comm_gather_logits(struct comm *comm, struct backend *backend, uint32_t row, float *out) {
    CHECK(comm->ops, "the group of one keeps its own logits, rank=%u", comm->rank);
    comm->ops->gather_logits(comm, backend, row, out);
}

void comm_barrier(struct comm *comm) {
    if (comm->ops) comm->ops->barrier(comm);
}

bool comm_is_alive(const struct comm *comm) {
    return !comm->ops || !comm->ops->has_failed(comm);
}
