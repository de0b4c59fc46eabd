#include "comm/mpi_comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/os/clock.h"

enum {
    // Up to this size every rank sends its whole part to all. Of a larger sum each rank adds one
    // share, and sends it to all: that is less to send, but takes two exchanges.
    WHOLE_BYTES_MAX = 64 << 10,
    // Larger sums go chunk by chunk, which bounds the memory for what others send.
    CHUNK_BYTES_MAX = 4 << 20,
    ALIGN = 64,
};

// A message of one exchange.
struct message {
    bool is_incoming;
    uint32_t peer; // rank in the group
    void *data;
    size_t bytes;
    struct mpi_request request;
};

struct mpi_comm {
    struct comm base;
    struct mpi_comm_options options;
    char *partial; // [shape.partial_bytes]
    char *incoming; // [incoming_bytes]: what others send of a sum
    float *logits; // [shape.max_num_logits][this rank's slice]
    struct message *messages; // [max_messages] of the exchange under way
    size_t num_messages, max_messages;
};

static struct mpi_comm *mpi_of(struct comm *comm) {
    return (struct mpi_comm *)comm;
}

static uint32_t slice_of(const struct shm_comm_shape *shape, uint32_t rank) {
    return shape->vocab_start[rank + 1] - shape->vocab_start[rank];
}

static size_t aligned(size_t bytes) {
    return (bytes / ALIGN + 1) * ALIGN; // never 0
}

static size_t incoming_bytes(const struct shm_comm_shape *shape) {
    size_t world_size = shape->world_size;
    size_t whole = world_size * WHOLE_BYTES_MAX;
    // The last share has up to world_size - 1 elements more than the others.
    size_t shares = CHUNK_BYTES_MAX + world_size * world_size * sizeof(float);
    return aligned(whole > shares ? whole : shares);
}

static size_t widest_logits_bytes(const struct shm_comm_shape *shape) {
    uint32_t widest = 0;
    for (uint32_t rank = 0; rank < shape->world_size; rank++) {
        if (slice_of(shape, rank) > widest) widest = slice_of(shape, rank);
    }
    return shape->max_num_logits * widest * sizeof(float);
}

// Each row of logits comes from, or goes to, every other rank.
static size_t max_messages(const struct shm_comm_shape *shape) {
    return (size_t)shape->world_size * (shape->max_num_logits + 2) + 1; // + 1: never 0
}

size_t mpi_comm_bytes(const struct shm_comm_shape *shape) {
    return aligned(shape->partial_bytes) + incoming_bytes(shape) + widest_logits_bytes(shape) +
           max_messages(shape) * sizeof(struct message);
}

// ---- exchanges ----

static void add_message(struct mpi_comm *mpi, bool is_incoming, uint32_t peer, const void *data,
                        size_t bytes) {
    CHECK(mpi->num_messages < mpi->max_messages, "%zu messages", mpi->num_messages);
    mpi->messages[mpi->num_messages++] = (struct message){
        .is_incoming = is_incoming, .peer = peer, .data = (void *)(uintptr_t)data, .bytes = bytes};
}

static void begin_messages(struct mpi_comm *mpi) {
    const struct mpi_wire *wire = mpi->options.wire;
    for (size_t i = 0; i < mpi->num_messages; i++) {
        struct message *m = &mpi->messages[i];
        uint32_t process = mpi->options.first + m->peer;
        if (m->is_incoming) {
            wire->receive(m->data, m->bytes, process, MPI_CHANNEL_DATA, &m->request);
        } else {
            wire->send(m->data, m->bytes, process, MPI_CHANNEL_DATA, &m->request);
        }
    }
}

// mpirun ends all processes when one is gone. It does not notice one that is stopped, and a host
// that does not answer only after minutes.
static void warn_of_waiting(const struct mpi_comm *mpi, uint32_t peer, double seconds) {
    if (mpi->base.rank > 0) return; // rank 0 waits for the same one
    log_warning(
        "still waiting for rank %u, for %.0f seconds now: is its process stopped, or its host "
        "lost?",
        mpi->options.first + peer, seconds);
}

// A message cannot be taken back from MPI, so the processes end with it.
static void give_up(const struct mpi_comm *mpi, uint32_t peer, double seconds) {
    log_warning("rank %u has not answered for %.0f seconds, so all ranks end",
                mpi->options.first + peer, seconds);
    mpi->options.wire->end_all(1);
}

// All messages that were added are through when it returns.
static void exchange(struct mpi_comm *mpi) {
    struct mpi_pause pause = {.spin_seconds = mpi->options.spin_seconds};
    double warn_at = mpi->options.patience_seconds;
    double end_at = mpi->options.lost_seconds;
    if (mpi->base.rank > 0) end_at *= 1.1; // rank 0 ends first, for it alone says why
    begin_messages(mpi);
    for (size_t i = 0; i < mpi->num_messages; i++) {
        while (!mpi->options.wire->is_done(&mpi->messages[i].request)) {
            double waited = mpi_pause_wait(&pause);
            if (waited >= end_at) give_up(mpi, mpi->messages[i].peer, waited);
            if (waited < warn_at) continue;
            warn_of_waiting(mpi, mpi->messages[i].peer, waited);
            warn_at *= 10;
        }
    }
    mpi->num_messages = 0;
}

// ---- sums ----

static void *mpi_partial(struct comm *comm) {
    return mpi_of(comm)->partial;
}

static void sum(struct backend *backend, const void *const *parts, uint32_t num_parts, void *out,
                size_t count, bool is_first) {
    backend->peers->sum(backend, &(struct sum_args){.parts = parts,
                                                    .num_parts = num_parts,
                                                    .out = out,
                                                    .count = count,
                                                    .is_first = is_first});
}

// Every rank sends its part to all, and adds all.
static void add_whole(struct mpi_comm *mpi, struct backend *backend, void *residual, size_t count,
                      bool is_first) {
    size_t bytes = count * dtype_size(backend->activation_dtype);
    const void *parts[COMM_RANKS_MAX];
    for (uint32_t r = 0; r < mpi->base.world_size; r++) {
        parts[r] = r == mpi->base.rank ? mpi->partial : mpi->incoming + r * bytes;
        if (r == mpi->base.rank) continue;
        add_message(mpi, true, r, parts[r], bytes);
        add_message(mpi, false, r, mpi->partial, bytes);
    }
    exchange(mpi);
    sum(backend, parts, mpi->base.world_size, residual, count, is_first);
}

// Where rank `rank`'s share of a chunk begins; the last one also takes what does not divide.
static size_t share_start(const struct mpi_comm *mpi, size_t count, uint32_t rank) {
    uint32_t world_size = mpi->base.world_size;
    return rank == world_size ? count : count / world_size * rank;
}

// Of one chunk, which begins at `part` in this rank's partial.
static void add_chunk_in_shares(struct mpi_comm *mpi, struct backend *backend, char *part,
                                void *residual, size_t count, bool is_first) {
    size_t size = dtype_size(backend->activation_dtype);
    uint32_t rank = mpi->base.rank, world_size = mpi->base.world_size;
    size_t first = share_start(mpi, count, rank);
    size_t mine = share_start(mpi, count, rank + 1) - first;
    const void *parts[COMM_RANKS_MAX];
    for (uint32_t r = 0; r < world_size; r++) {
        size_t start = share_start(mpi, count, r), end = share_start(mpi, count, r + 1);
        parts[r] = r == rank ? part + first * size : mpi->incoming + r * mine * size;
        if (r == rank) continue;
        add_message(mpi, true, r, parts[r], mine * size);
        add_message(mpi, false, r, part + start * size, (end - start) * size);
    }
    exchange(mpi);
    sum(backend, parts, world_size, part + first * size, mine, true);
    for (uint32_t r = 0; r < world_size; r++) {
        size_t start = share_start(mpi, count, r), end = share_start(mpi, count, r + 1);
        if (r == rank) continue;
        add_message(mpi, true, r, part + start * size, (end - start) * size);
        add_message(mpi, false, r, part + first * size, mine * size);
    }
    exchange(mpi);
    const void *all = part;
    sum(backend, &all, 1, residual, count, is_first);
}

static void mpi_reduce_add(struct comm *comm, struct backend *backend,
                           const struct reduce_add_args *args) {
    struct mpi_comm *mpi = mpi_of(comm);
    size_t size = dtype_size(backend->activation_dtype);
    size_t count = (size_t)args->rows * args->cols;
    void *residual = args->residual;
    bool is_first = args->is_first;
    CHECK(count * size <= mpi->options.shape.partial_bytes, "%zu elements", count);
    if (count * size <= WHOLE_BYTES_MAX) {
        add_whole(mpi, backend, residual, count, is_first);
        return;
    }
    size_t chunk = CHUNK_BYTES_MAX / size;
    for (size_t first = 0; first < count; first += chunk) {
        size_t left = count - first;
        add_chunk_in_shares(mpi, backend, mpi->partial + first * size,
                            (char *)residual + first * size, left < chunk ? left : chunk, is_first);
    }
}

// ---- sampling ----

static float *mpi_logits(struct comm *comm) {
    return mpi_of(comm)->logits;
}

static void mpi_gather_rows(struct comm *comm, struct backend *backend, const uint32_t *owners,
                            uint32_t num_rows, float *out) {
    struct mpi_comm *mpi = mpi_of(comm);
    const struct shm_comm_shape *shape = &mpi->options.shape;
    const uint32_t *start = shape->vocab_start;
    uint32_t rank = comm->rank, mine = slice_of(shape, rank);
    (void)backend; // a CPU's: logits are host memory
    for (uint32_t i = 0; i < num_rows; i++) {
        const float *logits = mpi->logits + (size_t)i * mine;
        if (owners[i] != rank) {
            add_message(mpi, false, owners[i], logits, mine * sizeof *logits);
            continue;
        }
        memcpy(out + start[rank], logits, mine * sizeof *logits);
        for (uint32_t r = 0; r < comm->world_size; r++) {
            if (r == rank) continue;
            add_message(mpi, true, r, out + start[r], slice_of(shape, r) * sizeof *out);
        }
        out += start[comm->world_size];
    }
    exchange(mpi);
}

static void mpi_share_results(struct comm *comm, const uint32_t *owners, uint32_t num_rows,
                              void *results, size_t size) {
    struct mpi_comm *mpi = mpi_of(comm);
    for (uint32_t i = 0; i < num_rows; i++) {
        char *result = (char *)results + i * size;
        if (owners[i] != comm->rank) {
            add_message(mpi, true, owners[i], result, size);
            continue;
        }
        for (uint32_t r = 0; r < comm->world_size; r++) {
            if (r != comm->rank) add_message(mpi, false, r, result, size);
        }
    }
    exchange(mpi);
}

static void mpi_barrier(struct comm *comm) {
    struct mpi_comm *mpi = mpi_of(comm);
    for (uint32_t r = 0; r < comm->world_size; r++) {
        if (r == comm->rank) continue;
        add_message(mpi, true, r, mpi->incoming, 0);
        add_message(mpi, false, r, mpi->incoming, 0);
    }
    exchange(mpi);
}

void mpi_comm_gather(struct comm *comm, void *all, size_t bytes) {
    struct mpi_comm *mpi = mpi_of(comm);
    char *parts = all;
    for (uint32_t r = 0; r < comm->world_size; r++) {
        if (r == comm->rank) continue;
        add_message(mpi, true, r, parts + r * bytes, bytes);
        add_message(mpi, false, r, parts + comm->rank * bytes, bytes);
    }
    exchange(mpi);
}

void mpi_comm_end(struct comm *comm, double lost_seconds) {
    mpi_of(comm)->options.lost_seconds = lost_seconds;
    mpi_barrier(comm);
}

static uint64_t mpi_minimum(struct comm *comm, uint64_t value) {
    uint64_t values[COMM_RANKS_MAX];
    values[comm->rank] = value;
    mpi_comm_gather(comm, values, sizeof *values);
    for (uint32_t r = 0; r < comm->world_size; r++) {
        if (values[r] < value) value = values[r];
    }
    return value;
}

// mpirun ends all processes when one is lost.
static bool mpi_has_failed(const struct comm *comm) {
    (void)comm;
    return false;
}

static const struct comm_ops mpi_ops = {
    .destroy = mpi_comm_destroy,
    .partial = mpi_partial,
    .reduce_add = mpi_reduce_add,
    .logits = mpi_logits,
    .gather_rows = mpi_gather_rows,
    .share_results = mpi_share_results,
    .barrier = mpi_barrier,
    .minimum = mpi_minimum,
    .has_failed = mpi_has_failed,
};

enum status mpi_comm_create(struct comm **out, const struct mpi_comm_options *options,
                            struct err *err) {
    const struct shm_comm_shape *shape = &options->shape;
    struct mpi_comm *mpi = calloc(1, sizeof *mpi);
    *out = NULL;
    if (!mpi) return err_nomem(err, "ranks");
    *mpi = (struct mpi_comm){
        .base = {.rank = options->rank, .world_size = options->world_size, .ops = &mpi_ops},
        .options = *options,
        .partial = aligned_alloc(ALIGN, aligned(shape->partial_bytes)),
        .incoming = aligned_alloc(ALIGN, incoming_bytes(shape)),
        .logits = aligned_alloc(ALIGN, aligned(widest_logits_bytes(shape))),
        .messages = calloc(max_messages(shape), sizeof *mpi->messages),
        .max_messages = max_messages(shape),
    };
    if (mpi->partial && mpi->incoming && mpi->logits && mpi->messages) {
        *out = &mpi->base;
        return OK;
    }
    mpi_comm_destroy(&mpi->base);
    return err_nomem(err, "ranks");
}

void mpi_comm_destroy(struct comm *comm) {
    if (!comm) return;
    struct mpi_comm *mpi = mpi_of(comm);
    free(mpi->partial);
    free(mpi->incoming);
    free(mpi->logits);
    free(mpi->messages);
    free(mpi);
}
