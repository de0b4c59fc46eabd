#include "api/rank.h"

#include "api/convert.h"
#include "base/log.h"
#include "engine/executor/mpi_executor.h"
#include "engine/executor/mpi_worker.h"
#include "engine/executor/shm_worker.h"

int api_rank_run(uint32_t rank, const char **message) {
    return shm_worker_run(rank, message);
}

enum nvllm_status api_rank_join(uint32_t *rank, struct nvllm_error *error) {
    const struct mpi_wire *wire;
    struct mpi_world world = {0};
    struct err err = {0};
    enum status status = mpi_wire_open(&wire, &world, &err);
    *rank = world.rank;
    return api_error(error, status, &err);
}

void api_rank_leave(void) {
    const struct mpi_wire *wire;
    struct mpi_world world;
    if (!mpi_wire_open(&wire, &world, NULL)) {
        mpi_executor_leave(wire, &world, MPI_PATIENCE_SECONDS);
    }
}

enum nvllm_status api_rank_work(struct nvllm_error *error) {
    const struct mpi_wire *wire;
    struct mpi_world world;
    struct err err = {0};
    log_set_level(LOG_QUIET); // rank 0 says what there is to say
    enum status status = mpi_wire_open(&wire, &world, &err);
    if (!status) status = mpi_worker_run(wire, &world, &err);
    if (!status) wire->stop();
    return api_error(error, status, &err);
}

void api_rank_abort(int exit_status) {
    const struct mpi_wire *wire;
    struct mpi_world world;
    if (!mpi_wire_open(&wire, &world, NULL)) wire->end_all(exit_status);
}
