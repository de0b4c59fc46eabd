#include "api/rank.h"

#include "engine/ranks/rank_worker.h"

int api_rank_run(uint32_t rank, int fd, const char **message) {
    return rank_worker_run(rank, fd, message);
}
