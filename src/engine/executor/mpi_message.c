#include "engine/executor/mpi_message.h"

#include <math.h>
#include <xxhash.h>

#include "comm/device_comm.h"
#include "comm/mpi_comm.h"
#include "engine/plan/rank_layout.h"

enum status mpi_message_fingerprint(const struct engine_plan *plan, uint64_t *out,
                                    struct err *err) {
    struct buf config = {0};
    struct weights *weights = NULL;
    enum status status = checkpoint_read(plan->checkpoint, "config.json", &config, err);
    if (!status) status = engine_plan_open_weights(plan, &weights, err);
    if (!status) status = weights_fingerprint(weights, out, err);
    if (!status) *out = XXH3_64bits_withSeed(config.data, config.len, *out);
    weights_close(weights);
    buf_fini(&config);
    return status;
}

enum status mpi_message_comm(const struct engine_plan *plan, const struct mpi_wire *wire,
                             const struct mpi_world *world, uint32_t first, struct comm **out,
                             struct err *err) {
    struct backend *backend = plan->backend;
    struct mpi_comm_options options = {
        .wire = wire,
        .rank = plan->rank,
        .world_size = plan->world_size,
        .first = first,
        .spin_seconds = mpi_spin_seconds(world),
        .patience_seconds = MPI_COMM_PATIENCE_SECONDS,
        .lost_seconds = MPI_COMM_LOST_SECONDS,
    };
    if (!backend->collective) {
        options.shape = rank_layout_comm_shape(plan);
        return mpi_comm_create(out, &options, err);
    }
    // Hosts of devices meet while one of them loads or times kernels, which takes its time. Their
    // end has a deadline (device_comm_end).
    options.patience_seconds = options.lost_seconds = HUGE_VAL;
    options.shape.world_size = plan->world_size;
    struct comm *hosts = NULL;
    struct collective_spec spec;
    rank_layout_collective_spec(plan, &spec);
    enum status status = mpi_comm_create(&hosts, &options, err);
    if (status) return status;
    const struct device_comm_options device = {.backend = backend, .spec = &spec, .hosts = hosts};
    status = device_comm_create(out, &device, err);
    if (status) comm_destroy(hosts);
    return status;
}
