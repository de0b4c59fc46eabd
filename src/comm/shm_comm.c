#include "comm/shm_comm.h"

#include <stdlib.h>

#include "base/check.h"

enum {
    ALIGN = 64,
    // Up to this size every rank adds the whole sum. In a larger sum each rank adds one share, and
    // then all copy the shares. That reads 2 parts instead of world_size, but takes two barriers.
    WHOLE_BYTES_MAX = 64 << 10,
};

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t slice_of(const struct shm_comm_shape *shape, uint32_t rank) {
    return shape->vocab_start[rank + 1] - shape->vocab_start[rank];
}

static size_t logits_bytes(const struct shm_comm_shape *shape) {
    uint32_t widest = 0;
    for (uint32_t rank = 0; rank < shape->world_size; rank++) {
        if (slice_of(shape, rank) > widest) widest = slice_of(shape, rank);
    }
    return aligned(shape->max_num_logits * widest * sizeof(float));
}

size_t shm_comm_rank_bytes(const struct shm_comm_shape *shape) {
    return 2 * aligned(shape->partial_bytes) + logits_bytes(shape);
}

struct shm_comm {
    struct comm base;
    struct shm_comm_shape shape;
    struct barrier *barrier;
    // Each rank has two, used in turn: fast ranks write one while slow ranks still read the other.
    char *partial[2][COMM_RANKS_MAX];
    float *logits[COMM_RANKS_MAX]; // [max_num_logits][the rank's slice]
    uint32_t turn;
    double spin_seconds;
};

static struct shm_comm *shm_of(struct comm *comm) {
    return (struct shm_comm *)comm;
}

static void shm_barrier(struct comm *comm) {
    struct shm_comm *shm = shm_of(comm);
    barrier_wait(shm->barrier, comm->world_size, shm->spin_seconds);
}

static void *shm_partial(struct comm *comm) {
    struct shm_comm *shm = shm_of(comm);
    return shm->partial[shm->turn][comm->rank];
}

// Adds elements [first, first + count) of the parts of `num_parts` ranks from `rank` on to `out`.
static void add(struct shm_comm *shm, struct backend *backend, uint32_t rank, uint32_t num_parts,
                size_t first, size_t count, void *out, bool is_first) {
    size_t size = dtype_size(backend->activation_dtype);
    const void *parts[COMM_RANKS_MAX];
    for (uint32_t i = 0; i < num_parts; i++) {
        parts[i] = shm->partial[shm->turn][rank + i] + first * size;
    }
    backend->peers->sum(backend, &(struct sum_args){.parts = parts,
                                                    .num_parts = num_parts,
                                                    .out = out,
                                                    .count = count,
                                                    .is_first = is_first});
}

// The first element of the share that `rank` adds. Shares begin at multiples of 16 elements, so
// that no two ranks write to one cache line.
static size_t share_start(size_t count, uint32_t rank, uint32_t world_size) {
    size_t start = count / world_size * rank / 16 * 16;
    return rank == world_size ? count : start;
}

static void add_in_shares(struct shm_comm *shm, struct backend *backend, char *residual,
                          size_t count, bool is_first) {
    uint32_t rank = shm->base.rank, world_size = shm->base.world_size;
    size_t size = dtype_size(backend->activation_dtype);
    size_t first = share_start(count, rank, world_size);
    size_t end = share_start(count, rank + 1, world_size);
    // In place: the others read only their own shares of this rank's part.
    char *mine = shm->partial[shm->turn][rank];
    add(shm, backend, 0, world_size, first, end - first, mine + first * size, true);
    shm_barrier(&shm->base);
    for (uint32_t r = 0; r < world_size; r++) {
        first = share_start(count, r, world_size);
        end = share_start(count, r + 1, world_size);
        add(shm, backend, r, 1, first, end - first, residual + first * size, is_first);
    }
}

static void shm_reduce_add(struct comm *comm, struct backend *backend,
                           const struct reduce_add_args *args) {
    struct shm_comm *shm = shm_of(comm);
    size_t count = (size_t)args->rows * args->cols;
    size_t bytes = count * dtype_size(backend->activation_dtype);
    CHECK(bytes <= shm->shape.partial_bytes, "%zu > %zu", bytes, shm->shape.partial_bytes);
    shm_barrier(comm);
    if (bytes <= WHOLE_BYTES_MAX) {
        add(shm, backend, 0, comm->world_size, 0, count, args->residual, args->is_first);
    } else {
        add_in_shares(shm, backend, args->residual, count, args->is_first);
    }
    shm->turn ^= 1;
}

static float *shm_logits(struct comm *comm) {
    return shm_of(comm)->logits[comm->rank];
}

static void shm_gather_logits(struct comm *comm, struct backend *backend, uint32_t row,
                              float *out) {
    struct shm_comm *shm = shm_of(comm);
    for (uint32_t rank = 0; rank < comm->world_size; rank++) {
        uint32_t count = slice_of(&shm->shape, rank);
        const void *part = shm->logits[rank] + (size_t)row * count;
        backend->peers->sum(backend, &(struct sum_args){.parts = &part,
                                                        .num_parts = 1,
                                                        .out = out + shm->shape.vocab_start[rank],
                                                        .count = count,
                                                        .is_first = true});
    }
}

static uint64_t shm_minimum(struct comm *comm, uint64_t value) {
    struct shm_comm *shm = shm_of(comm);
    return barrier_minimum(shm->barrier, comm->rank, comm->world_size, shm->spin_seconds, value);
}

static bool shm_has_failed(const struct comm *comm) {
    const struct shm_comm *shm = (const struct shm_comm *)comm;
    return atomic_load(&shm->barrier->has_failed) != 0;
}

static void shm_destroy(struct comm *comm) {
    free(comm);
}

static const struct comm_ops shm_ops = {
    .destroy = shm_destroy,
    .partial = shm_partial,
    .reduce_add = shm_reduce_add,
    .logits = shm_logits,
    .gather_logits = shm_gather_logits,
    .barrier = shm_barrier,
    .minimum = shm_minimum,
    .has_failed = shm_has_failed,
};

enum status shm_comm_create(struct comm **out, const struct shm_comm_shape *shape, uint32_t rank,
                            struct barrier *barrier, void *memory, struct err *err) {
    CHECK(shape->world_size > 1 && shape->world_size <= COMM_RANKS_MAX, "world_size=%u",
          shape->world_size);
    struct shm_comm *comm = malloc(sizeof *comm);
    *out = NULL;
    if (!comm) return err_nomem(err, "ranks");
    *comm = (struct shm_comm){
        .base = {.rank = rank, .world_size = shape->world_size, .ops = &shm_ops},
        .shape = *shape,
        .barrier = barrier,
        .spin_seconds = barrier_spin_seconds(shape->world_size),
    };
    char *at = memory;
    for (uint32_t r = 0; r < shape->world_size; r++) {
        for (uint32_t turn = 0; turn < 2; turn++, at += aligned(shape->partial_bytes)) {
            comm->partial[turn][r] = at;
        }
        comm->logits[r] = (float *)(void *)at;
        at += logits_bytes(shape);
    }
    *out = &comm->base;
    return OK;
}
