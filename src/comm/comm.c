#include "comm/comm.h"

#include "base/check.h"

struct comm comm_single(void) {
    return (struct comm){.rank = 0, .world_size = 1};
}

// Groups of several ranks cannot be made yet: everybody has comm_single().
static void check_single(const struct comm *comm) {
    CHECK(comm->world_size == 1, "world_size=%u", comm->world_size);
}

void comm_all_reduce(const struct comm *comm, struct backend *backend, void *buffer, size_t count) {
    (void)backend;
    (void)buffer;
    (void)count;
    check_single(comm);
}

void comm_all_gather(const struct comm *comm, struct backend *backend, const float *part,
                     float *whole, size_t rows, size_t cols) {
    (void)backend;
    (void)rows;
    (void)cols;
    check_single(comm);
    CHECK(part == whole, "one rank's part is the whole");
}
