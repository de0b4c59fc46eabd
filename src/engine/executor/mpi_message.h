/* What rank 0 and the others say to each other where mpirun has started them (mpi_executor.h,
 * mpi_worker.h). Commands and reports go between processes of one build on like machines: they are
 * structs as they lie in memory. The first command of an engine says of which version they are. */
#ifndef ENGINE_EXECUTOR_MPI_MESSAGE_H
#define ENGINE_EXECUTOR_MPI_MESSAGE_H

#include "comm/comm.h"
#include "comm/mpi_wire.h"
#include "engine/plan/engine_plan.h"
#include "engine/step/batch.h"
#include "nanovllm.h"

enum mpi_command_kind {
    MPI_COMMAND_START, // an engine; the payload: its options (rank_options.h)
    // Of ranks with devices:
    MPI_COMMAND_CONNECT, // comm_connect: all have loaded
    MPI_COMMAND_WARM_UP, // warm_up_run
    // Of all:
    MPI_COMMAND_LAUNCH, // the payload: the flat batch, without late masks
    MPI_COMMAND_SAMPLE, // the payload: all masks of the batch launched last, which had late ones
    MPI_COMMAND_BEGIN_COUNTS, // the payload: token ids [num_ids]
    MPI_COMMAND_QUIT, // the engine ends
    MPI_COMMAND_EXIT, // so does the process
};

struct mpi_command {
    _Alignas(16) uint32_t kind; // enum mpi_command_kind
    uint32_t slot;
    uint32_t num_prompt, num_ids; // of MPI_COMMAND_BEGIN_COUNTS
    // Of MPI_COMMAND_START:
    uint32_t version[3]; // of the library, and the sizes of its structs
    uint32_t options_bytes, batch_header_bytes;
    uint32_t first, world_size; // of the group: its rank 0, of mpirun's processes, and its size
    uint64_t fingerprint; // of the model, as rank 0 has it
    // The payload follows.
};

// From each rank to process 0, once for each engine: whether its slice is loaded. Where process 0
// has no rank of the group, the group's rank 0 sends another one when the ranks are warm. The last
// one answers MPI_COMMAND_EXIT.
struct mpi_report {
    enum status status;
    uint32_t num_blocks; // of the KV cache
    char message[sizeof((struct err *)0)->message];
};

// Of config.json and the weights. ERR_IO and others as weights_open.
MUST_USE enum status mpi_message_fingerprint(const struct engine_plan *plan, uint64_t *out,
                                             struct err *err);
// Where the ranks of the plan meet. `first`: the group's rank 0, of mpirun's processes.
MUST_USE enum status mpi_message_comm(const struct engine_plan *plan, const struct mpi_wire *wire,
                                      const struct mpi_world *world, uint32_t first,
                                      struct comm **out, struct err *err);

#endif
