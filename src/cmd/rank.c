/* `nanovllm rank NUMBER`, an internal command: an engine with tensor_parallel_size above 1 starts
 * its worker processes with it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api/rank.h"
#include "base/compiler.h"
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

// ---- under mpirun ----

// What launchers tell the processes that they start.
static const struct {
    const char *size, *rank;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, // Open MPI's mpirun
    {"PMI_SIZE", "PMI_RANK"}, // MPICH's, and Slurm's with --mpi=pmi2
    {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"}, // Slurm's with --mpi=pmix
};

static bool is_number_above(const char *text, long least) {
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : 0;
    return end && end != text && !*end && number > least;
}

// The rank that a launcher gave this process; NULL: no launcher has started it.
static const char *rank_by_launcher(void) {
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        const char *rank = getenv(launchers[i].rank);
        if (is_number_above(getenv(launchers[i].size), 1) && is_number_above(rank, -1)) return rank;
    }
    return NULL;
}

bool mpirun_is_there(void) {
    return rank_by_launcher() != NULL;
}

bool mpirun_join(int *exit_code) {
    uint32_t rank = 0;
    struct nvllm_error error = {0};
    *exit_code = CLI_FAILED;
    if (api_rank_join(&rank, &error)) { // each process for itself: one says so
        if (strcmp(rank_by_launcher(), "0") == 0) cli_error("%s", error.message);
        return false;
    }
    if (!rank) return true;
    if (!api_rank_work(&error)) {
        *exit_code = CLI_OK;
        return false;
    }
    cli_error("rank %u: %s", rank, error.message);
    api_rank_abort(CLI_FAILED);
    return false;
}

void mpirun_leave(void) {
    api_rank_leave();
}
