/* `nanovllm rank NUMBER`, which is not for people: an engine with tensor_parallel_size above 1 starts
 * its other processes so. */
#include <stdlib.h>

#include "api/rank.h"
#include "cmd/cli.h"

enum { RANK_FD = 3, RANKS_MAX = 64 };

int cmd_rank(int argc, char **argv) {
    char *end = NULL;
    long rank = argc == 1 ? strtol(argv[0], &end, 10) : 0;
    if (rank < 1 || rank >= RANKS_MAX || *end) {
        cli_error("the command rank is for engines that start their own processes");
        return CLI_USAGE;
    }
    const char *message = NULL;
    int exit_code = api_rank_run((uint32_t)rank, RANK_FD, &message);
    return message ? cli_error("rank %ld: %s", rank, message) : exit_code;
}
