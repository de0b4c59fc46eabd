#include "comm/device_comm.h"

#include <stdlib.h>

#include "comm/mpi_comm.h"

struct device_comm {
    struct comm base;
    struct backend *backend;
    struct collective *collective;
    struct barrier *barrier; // NULL: the hosts have no memory in common, but
    struct comm *hosts; // NULL: they have
    void *cards; // [world_size][COLLECTIVE_CARD_BYTES]
    atomic_uint *has_failed; // in registered memory
};

static struct device_comm *device_of(const struct comm *comm) {
    return (struct device_comm *)(uintptr_t)comm;
}

static void device_destroy(struct comm *comm) {
    struct device_comm *device = device_of(comm);
    device->backend->collective->destroy(device->backend, device->collective);
    if (!device->barrier) { // what create has allocated
        backend_release_host(device->backend, device->has_failed);
        free(device->cards);
    }
    mpi_comm_destroy(device->hosts);
    free(device);
}

static bool device_has_failed(const struct comm *comm) {
    return atomic_load(device_of(comm)->has_failed) != 0;
}

static void meet(struct device_comm *device) {
    if (device->hosts) {
        comm_barrier(device->hosts);
        return;
    }
    uint32_t world_size = device->base.world_size;
    barrier_wait(device->barrier, world_size, barrier_spin_seconds(world_size));
}

// Every rank has written its card before it loaded.
static enum status device_connect(struct comm *comm, struct err *err) {
    struct device_comm *device = device_of(comm);
    meet(device);
    if (device->hosts) mpi_comm_gather(device->hosts, device->cards, COLLECTIVE_CARD_BYTES);
    if (!device_has_failed(comm)) {
        enum status status = device->backend->collective->connect(
            device->backend, device->collective, device->cards, err);
        if (status) return status;
        meet(device);
    }
    if (!device_has_failed(comm)) return OK;
    return err_set(err, ERR_DEVICE, "another rank was lost");
}

static void device_stop_waiting(struct comm *comm) {
    struct device_comm *device = device_of(comm);
    device->backend->collective->stop_waiting(device->collective);
}

static struct collective *device_collective(struct comm *comm) {
    return device_of(comm)->collective;
}

static void *device_partial(struct comm *comm) {
    struct device_comm *device = device_of(comm);
    return device->backend->collective->partial(device->collective);
}

static void device_reduce_add(struct comm *comm, struct backend *backend,
                              const struct reduce_add_args *args) {
    backend->collective->reduce_add(backend, device_of(comm)->collective, args);
}

static float *device_logits(struct comm *comm) {
    struct device_comm *device = device_of(comm);
    return device->backend->collective->logits(device->collective);
}

static void device_gather_logits(struct comm *comm, struct backend *backend, uint32_t row,
                                 float *out) {
    backend->collective->gather_logits(backend, device_of(comm)->collective, row, out);
}

static void device_barrier(struct comm *comm) {
    struct device_comm *device = device_of(comm);
    device->backend->collective->barrier(device->backend, device->collective);
}

static uint64_t device_minimum(struct comm *comm, uint64_t value) {
    struct device_comm *device = device_of(comm);
    if (device->hosts) return comm_minimum(device->hosts, value);
    return barrier_minimum(device->barrier, comm->rank, comm->world_size,
                           barrier_spin_seconds(comm->world_size), value);
}

static const struct comm_ops device_ops = {
    .destroy = device_destroy,
    .connect = device_connect,
    .stop_waiting = device_stop_waiting,
    .collective = device_collective,
    .partial = device_partial,
    .reduce_add = device_reduce_add,
    .logits = device_logits,
    .gather_logits = device_gather_logits,
    .barrier = device_barrier,
    .minimum = device_minimum,
    .has_failed = device_has_failed,
};

// What ranks that share memory have there.
static enum status allocate(struct device_comm *device, struct err *err) {
    void *word = NULL;
    enum status status =
        backend_alloc_host(device->backend, sizeof *device->has_failed, &word, err);
    if (status) return status;
    device->has_failed = word;
    atomic_init(device->has_failed, 0);
    device->cards = calloc(device->base.world_size, COLLECTIVE_CARD_BYTES);
    return device->cards ? OK : err_nomem(err, "ranks");
}

enum status device_comm_create(struct comm **out, const struct device_comm_options *options,
                               struct err *err) {
    *out = NULL;
    struct device_comm *device = calloc(1, sizeof *device);
    if (!device) return err_nomem(err, "ranks");
    struct collective_spec spec = *options->spec;
    *device = (struct device_comm){
        .base = {.rank = spec.rank, .world_size = spec.world_size, .ops = &device_ops},
        .backend = options->backend,
        .barrier = options->barrier,
        .cards = options->cards,
    };
    enum status status = OK;
    if (options->hosts) {
        status = allocate(device, err);
    } else {
        device->has_failed = &device->barrier->has_failed;
    }
    if (!status) {
        spec.has_failed = device->has_failed;
        char *card = (char *)device->cards + (size_t)spec.rank * COLLECTIVE_CARD_BYTES;
        status = device->backend->collective->create(device->backend, &spec, &device->collective,
                                                     card, err);
    }
    if (status) {
        device_destroy(&device->base);
        return status;
    }
    device->hosts = options->hosts;
    *out = &device->base;
    return OK;
}

void device_comm_end(struct comm *comm, double lost_seconds) {
    mpi_comm_end(device_of(comm)->hosts, lost_seconds);
}
