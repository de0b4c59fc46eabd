/* The memory that the ranks of one engine share, and what rank 0 tells the others through it.
 *
 * Rank 0 is the process of the caller. It alone schedules, and builds the flat batches in this
 * memory. So nothing is copied to a worker: a command says which of the two batches to run. Workers
 * make the same plan as rank 0 from the same options, and allocate nothing afterwards.
 *
 * The memory is an anonymous file (memfd): it has no name that could be taken, or be left over. */
#ifndef ENGINE_EXECUTOR_RANK_SEGMENT_H
#define ENGINE_EXECUTOR_RANK_SEGMENT_H

#include "base/thread/wakeup.h"
#include "comm/device_comm.h"
#include "engine/plan/rank_layout.h"

enum rank_command_kind {
    RANK_LAUNCH, // model_runner_launch of the batch `slot`
    RANK_SAMPLE, // model_runner_sample of the batch `slot`
    RANK_BEGIN_COUNTS, // model_runner_begin_counts of `slot`
    RANK_WARM_UP, // warm_up_run
    RANK_QUIT,
};

struct rank_command {
    enum rank_command_kind kind;
    uint32_t slot;
    uint32_t num_prompt, num_ids; // of RANK_BEGIN_COUNTS; its ids are at rank_segment_ids
};

enum rank_stage {
    RANK_STARTING,
    RANK_READY, // its weights are loaded
    RANK_FAILED, // `status` and `message` say why; the process is about to end
};

// What a rank tells the others.
struct rank_report {
    CACHE_ALIGNED atomic_uint stage; // enum rank_stage
    atomic_uint num_done; // commands
    enum status status;
    char message[sizeof((struct err *)0)->message];
};

struct rank_segment {
    uint32_t version[3]; // of the library that made it, and the size of its structs:
    size_t segment_struct_bytes, options_struct_bytes;
    uint32_t engine; // number of the engine
    uint32_t world_size;
    int32_t parent; // process id of rank 0
    struct rank_layout layout;

    struct barrier barrier;
    CACHE_ALIGNED struct wakeup posted; // counts the commands
    CACHE_ALIGNED struct wakeup
        reported; // a stage changed, or rank 0 waits for num_done and it did
    atomic_uint is_awaited; // rank 0 waits for num_done
    struct rank_command commands[RANK_COMMANDS]; // command number n: [n % RANK_COMMANDS]
    struct rank_report reports[COMM_RANKS_MAX]; // by rank; rank 0 has none
};

// A new segment for the plan of rank 0, with the options in it that workers are to use. *fd is open
// on it, closed on exec. ERR_NOMEM: there is not enough shared memory.
MUST_USE enum status rank_segment_create(struct rank_segment **out, int *fd,
                                         const struct engine_plan *plan,
                                         const struct nvllm_engine_options *options,
                                         struct err *err);
// Maps the segment that rank 0 made. ERR_UNSUPPORTED: another version of the library made it.
MUST_USE enum status rank_segment_open(struct rank_segment **out, int fd, struct err *err);
void rank_segment_close(struct rank_segment *segment); // NULL is fine

// The options in the segment; strings are borrowed from it.
void rank_segment_options(const struct rank_segment *segment, struct nvllm_engine_options *out);
struct batch_header *rank_segment_batch(struct rank_segment *segment, uint32_t slot);
// Of ranks on CPUs, which share out the rows to sample; NULL: of ranks with devices.
struct sample_result *rank_segment_results(struct rank_segment *segment);
int32_t *rank_segment_ids(struct rank_segment *segment, uint32_t command);
// Where this rank meets the others: on its backend's device, or in the segment.
MUST_USE enum status rank_segment_comm(struct rank_segment *segment, uint32_t rank,
                                       struct backend *backend, struct comm **out, struct err *err);

#endif
