/* The plug-in nanovllm-mpi.so: mpi_wire.h over an MPI library. It links nothing of nanovllm. Any
 * error of MPI ends all processes, which is MPI's default. */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi_wire.h"

// Our own, so that no message of the program around us is mistaken for one of ours.
static MPI_Comm group = MPI_COMM_NULL;
static struct mpi_world joined;
static bool is_ours; // MPI was started here, and is to be stopped here
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // MPI may allow one thread at a time only

_Static_assert(sizeof(MPI_Request) <= sizeof(struct mpi_request), "a request fits");

// How many ranks of this host may run on one of this rank's cores, at most.
static uint32_t count_sharing(MPI_Comm host, uint32_t num_on_host) {
    cpu_set_t mine, *all = calloc(num_on_host, sizeof *all);
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    if (!all) {
        MPI_Abort(group, 1);
        return 1;
    }
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, host);
    uint32_t most = 1;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mine)) continue;
        uint32_t count = 0;
        for (uint32_t rank = 0; rank < num_on_host; rank++)
            count += CPU_ISSET(cpu, &all[rank]) != 0;
        if (count > most) most = count;
    }
    free(all);
    return most;
}

static const char *join(void) {
    int is_initialized = 0, thread_level = MPI_THREAD_SINGLE, rank, size, rank_on_host, num_on_host,
        first, last;
    MPI_Initialized(&is_initialized);
    if (is_initialized) {
        MPI_Query_thread(&thread_level);
    } else {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &thread_level)) {
            return "MPI cannot be started";
        }
        is_ours = true;
    }
    if (thread_level < MPI_THREAD_SERIALIZED) return "this MPI allows no threads";
    MPI_Comm_dup(MPI_COMM_WORLD, &group);
    MPI_Comm_rank(group, &rank);
    MPI_Comm_size(group, &size);
    MPI_Comm host;
    MPI_Comm_split_type(group, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank_on_host);
    MPI_Comm_size(host, &num_on_host);
    MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, host);
    MPI_Allreduce(&rank, &last, 1, MPI_INT, MPI_MAX, host);
    joined = (struct mpi_world){.rank = (uint32_t)rank,
                                .size = (uint32_t)size,
                                .rank_on_host = (uint32_t)rank_on_host,
                                .num_on_host = (uint32_t)num_on_host,
                                .first_on_host = (uint32_t)first,
                                .last_on_host = (uint32_t)last,
                                .num_sharing = count_sharing(host, (uint32_t)num_on_host)};
    MPI_Comm_free(&host);
    return NULL;
}

static const char *start(struct mpi_world *world) {
    const char *fault = NULL;
    pthread_mutex_lock(&mutex);
    if (group == MPI_COMM_NULL) fault = join();
    *world = joined;
    pthread_mutex_unlock(&mutex);
    return fault;
}

static void put(struct mpi_request *request, MPI_Request handle) {
    memset(request, 0, sizeof *request);
    if (handle != MPI_REQUEST_NULL) memcpy(request, &handle, sizeof handle);
}

static MPI_Request get(const struct mpi_request *request) {
    static const struct mpi_request none;
    MPI_Request handle = MPI_REQUEST_NULL;
    if (memcmp(request, &none, sizeof none) != 0) memcpy(&handle, request, sizeof handle);
    return handle;
}

static void check_bytes(size_t bytes) {
    if (bytes > INT_MAX) MPI_Abort(group, 1); // callers send in chunks
}

static void send(const void *data, size_t bytes, uint32_t to, enum mpi_channel channel,
                 struct mpi_request *request) {
    MPI_Request handle;
    check_bytes(bytes);
    pthread_mutex_lock(&mutex);
    MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, (int)channel, group, &handle);
    pthread_mutex_unlock(&mutex);
    put(request, handle); // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): is_done waits for it
}

static void receive(void *data, size_t bytes, uint32_t from, enum mpi_channel channel,
                    struct mpi_request *request) {
    MPI_Request handle;
    check_bytes(bytes);
    pthread_mutex_lock(&mutex);
    MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, (int)channel, group, &handle);
    pthread_mutex_unlock(&mutex);
    put(request, handle); // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): is_done waits for it
}

static bool is_done(struct mpi_request *request) {
    int done = 0;
    MPI_Request handle = get(request);
    pthread_mutex_lock(&mutex);
    MPI_Test(&handle, &done, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&mutex);
    put(request, handle);
    return done != 0;
}

static bool has_message(uint32_t from, enum mpi_channel channel, size_t *bytes) {
    int found = 0, count = 0;
    MPI_Status status;
    pthread_mutex_lock(&mutex);
    MPI_Iprobe((int)from, (int)channel, group, &found, &status);
    if (found) MPI_Get_count(&status, MPI_BYTE, &count);
    pthread_mutex_unlock(&mutex);
    *bytes = (size_t)count;
    return found != 0;
}

static void stop(void) {
    pthread_mutex_lock(&mutex);
    if (group != MPI_COMM_NULL) MPI_Comm_free(&group);
    if (is_ours) MPI_Finalize();
    pthread_mutex_unlock(&mutex);
}

static void end_all(int exit_status) {
    MPI_Abort(group, exit_status);
}

__attribute__((visibility("default"))) const struct mpi_wire *nanovllm_mpi_wire(void);

const struct mpi_wire *nanovllm_mpi_wire(void) {
    static const struct mpi_wire wire = {
        .version = MPI_WIRE_VERSION,
        .start = start,
        .send = send,
        .receive = receive,
        .is_done = is_done,
        .has_message = has_message,
        .stop = stop,
        .end_all = end_all,
    };
    return &wire;
}
