#include "api/rank.h"

#include "engine/ranks/rank_worker.h"

int api_rank_run(uint32_t rank, const char **message) {
    return rank_worker_run(rank, message);
}
