/* What of MPI is used: messages between two processes that mpirun has started.
 *
 * MPI's types differ from library to library, so a small plug-in (mpi_plugin.c) is compiled against
 * one, and opened only where ranks are started by mpirun. A plain run loads nothing of MPI, and
 * starts on machines that have none.
 *
 * Everything is plain sends and receives. Sums are added by us, in the order of the ranks: MPI's
 * own reductions may add in any order. */
#ifndef COMM_MPI_WIRE_H
#define COMM_MPI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { MPI_WIRE_VERSION = 2 }; // of the struct that the plug-in fills

// Messages of one kind between two processes arrive in the order in which they were sent.
enum mpi_channel {
    MPI_CHANNEL_COMMANDS,
    MPI_CHANNEL_REPORTS,
    MPI_CHANNEL_RESULTS,
    MPI_CHANNEL_DATA,
};

struct mpi_world {
    uint32_t rank, size; // of this process, and how many mpirun has started
    uint32_t rank_on_host, num_on_host; // among those on this process's host
    uint32_t first_on_host, last_on_host; // of them, by rank
    // Of these, how many may run on the same cores as this one; mpirun binds processes to cores.
    uint32_t num_sharing;
};

// Of a message that is on its way; all-zero: there is none.
struct mpi_request {
    uint64_t words[2];
};

// The plug-in's calls. None blocks but start and stop. Any thread may make them.
struct mpi_wire {
    uint32_t version;
    // Joins the other processes; later calls only fill *world. NULL, or a sentence that says why
    // not.
    const char *(*start)(struct mpi_world *world);
    // `data` stays as it is, or is not read, until is_done.
    void (*send)(const void *data, size_t bytes, uint32_t to, enum mpi_channel channel,
                 struct mpi_request *request);
    void (*receive)(void *data, size_t bytes, uint32_t from, enum mpi_channel channel,
                    struct mpi_request *request);
    // True, and the request all-zero, once the message is through.
    bool (*is_done)(struct mpi_request *request);
    // Whether a message has come, and how long it is.
    bool (*has_message)(uint32_t from, enum mpi_channel channel, size_t *bytes);
    // Leaves the others. All processes must call it, and nobody anything afterwards.
    void (*stop)(void);
    // Ends all processes at once, and does not return.
    void (*end_all)(int exit_status);
};

// The plug-in exports a function of this type by this name.
typedef const struct mpi_wire *(*mpi_wire_fn)(void);
#define MPI_WIRE_FUNCTION "nanovllm_mpi_wire"

// Opens the plug-in and starts. ERR_UNSUPPORTED: there is none.
MUST_USE enum status mpi_wire_open(const struct mpi_wire **out, struct mpi_world *world,
                                   struct err *err);

// Waits for messages: spins at first, for `spin_seconds`, then sleeps in between.
struct mpi_pause {
    double spin_seconds;
    double waited; // seconds, without those in which this process was stopped
    double last; // clock_seconds of the last call
};
// Between two looks. Returns pause->waited. *pause starts with spin_seconds alone.
double mpi_pause_wait(struct mpi_pause *pause);
// How long waiting for messages should spin.
double mpi_spin_seconds(const struct mpi_world *world);

#endif
