#include "comm/comm.h"

#include "base/check.h"

struct comm comm_single(void) {
    return (struct comm){.rank = 0, .world_size = 1};
}

void comm_destroy(struct comm *comm) {
    if (comm && comm->ops && comm->ops->destroy) comm->ops->destroy(comm);
}

enum status comm_connect(struct comm *comm, struct err *err) {
    return comm->ops && comm->ops->connect ? comm->ops->connect(comm, err) : OK;
}

void comm_stop_waiting(struct comm *comm) {
    if (comm->ops && comm->ops->stop_waiting) comm->ops->stop_waiting(comm);
}

struct collective *comm_collective(struct comm *comm) {
    return comm->ops && comm->ops->collective ? comm->ops->collective(comm) : NULL;
}

void *comm_partial(struct comm *comm) {
    CHECK(comm->ops, "the group of one has no partial sums, rank=%u", comm->rank);
    return comm->ops->partial(comm);
}

void comm_reduce_add(struct comm *comm, struct backend *backend,
                     const struct reduce_add_args *args) {
    CHECK(comm->ops, "the group of one has nothing to add, rank=%u", comm->rank);
    comm->ops->reduce_add(comm, backend, args);
    if (!args->norm || comm->ops->collective) return;
    backend->ops->rms_norm(backend, &(struct rms_norm_args){.x = args->residual,
                                                            .weight = args->norm,
                                                            .out = args->out,
                                                            .rows = args->rows,
                                                            .cols = args->cols,
                                                            .eps = args->eps});
}

float *comm_logits(struct comm *comm) {
    CHECK(comm->ops, "the group of one keeps its own logits, rank=%u", comm->rank);
    return comm->ops->logits(comm);
}

void comm_gather_logits(struct comm *comm, struct backend *backend, uint32_t row, float *out) {
    CHECK(comm->ops, "the group of one keeps its own logits, rank=%u", comm->rank);
    CHECK(comm->ops->gather_logits, "this comm gathers rows on all ranks, rank=%u", comm->rank);
    comm->ops->gather_logits(comm, backend, row, out);
}

void comm_gather_rows(struct comm *comm, struct backend *backend, const uint32_t *owners,
                      uint32_t num_rows, uint32_t vocab_size, float *out) {
    if (comm->ops->gather_rows) {
        comm->ops->gather_rows(comm, backend, owners, num_rows, out);
        return;
    }
    comm_barrier(comm); // all logits are there
    for (uint32_t i = 0; i < num_rows; i++) {
        if (owners[i] != comm->rank) continue;
        comm_gather_logits(comm, backend, i, out);
        out += vocab_size;
    }
}

void comm_share_results(struct comm *comm, const uint32_t *owners, uint32_t num_rows, void *results,
                        size_t size) {
    if (comm->ops->share_results) {
        comm->ops->share_results(comm, owners, num_rows, results, size);
    } else {
        comm_barrier(comm);
    }
}

void comm_barrier(struct comm *comm) {
    if (comm->ops) comm->ops->barrier(comm);
}

uint64_t comm_minimum(struct comm *comm, uint64_t value) {
    if (!comm->ops) return value;
    CHECK(comm->ops->minimum, "this comm has no minimum, rank=%u", comm->rank);
    return comm->ops->minimum(comm, value);
}

bool comm_is_alive(const struct comm *comm) {
    return !comm->ops || !comm->ops->has_failed(comm);
}
