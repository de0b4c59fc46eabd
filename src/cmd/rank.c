/* `nanovllm rank NUMBER`, an internal command: an engine with tensor_parallel_size above 1 starts
 * its worker processes with it. */
#include <limits.h>
#include <stdlib.h>

#include "api/rank.h"
#include "cmd/cli.h"

int cmd_rank(int argc, char **argv) {
    char *end = NULL;
    long rank = argc == 1 ? strtol(argv[0], &end, 10) : 0;
    if (rank < 1 || rank > INT_MAX || *end) {
        cli_error("rank is an internal command: engines start their worker processes with it");
        return CLI_USAGE;
    }
    const char *message = NULL;
    int exit_code = api_rank_run((uint32_t)rank, &message);
    return message ? cli_error("rank %ld: %s", rank, message) : exit_code;
}
