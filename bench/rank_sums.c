/* The sum over ranks that a layer takes twice, with the RMS norm after it, inside a recorded step:
 * each size over peer memory and over NCCL. Starts a process for each GPU.
 *   bench_rank_sums [RANKS [HIDDEN]]      defaults: 2 4096
 * Prints CSV: bytes of a rank's part, rows, microseconds with p2p, microseconds with nccl. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/os/clock.h"

enum { ROWS_MAX = 16384, SUMS = 73, ROUNDS = 20, PAGE = 4096, RANKS_MAX = 8, NUM_SIZES = 15 };

// What the processes share.
struct shared {
    _Alignas(PAGE) char cards[2][RANKS_MAX][COLLECTIVE_CARD_BYTES];
    atomic_uint num_arrived[64];
    _Alignas(PAGE) uint32_t has_failed;
    char rest[PAGE - sizeof(uint32_t)];
};

struct rank {
    struct shared *shared;
    uint32_t rank, world_size, hidden, num_meetings;
    struct backend *backend;
    void *residual, *out, *norm;
};

static void check(enum status status, const struct err *err) {
    if (!status) return;
    fprintf(stderr, "bench_rank_sums: %s\n", err->message);
    exit(1);
}

static void meet(struct rank *r) {
    atomic_uint *arrived = &r->shared->num_arrived[r->num_meetings++];
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < r->world_size) usleep(100);
}

static struct collective *connect_ranks(struct rank *r, enum collective_kind kind) {
    struct collective_spec spec = {.kind = kind,
                                   .is_one_host = true,
                                   .rank = r->rank,
                                   .world_size = r->world_size,
                                   .hidden = r->hidden,
                                   .max_num_tokens = ROWS_MAX,
                                   .max_num_logits = 1,
                                   .has_failed = &r->shared->has_failed};
    for (uint32_t i = 0; i <= r->world_size; i++) spec.vocab_start[i] = i * 64;
    char(*cards)[COLLECTIVE_CARD_BYTES] = r->shared->cards[kind == COLLECTIVE_LIBRARY];
    const struct backend_collective *ops = r->backend->collective;
    struct collective *collective = NULL;
    struct err err = {0};
    check(ops->create(r->backend, &spec, &collective, cards[r->rank], &err), &err);
    meet(r);
    check(ops->connect(r->backend, collective, cards, &err), &err);
    meet(r);
    return collective;
}

// Microseconds of a sum, the least of the rounds.
static double measure(struct rank *r, struct collective *collective, uint32_t rows) {
    const struct backend_queue *queue = r->backend->queue;
    const struct reduce_add_args args = {.residual = r->residual,
                                         .norm = r->norm,
                                         .out = r->out,
                                         .rows = rows,
                                         .cols = r->hidden,
                                         .eps = 1e-6f};
    struct backend_graph *graph = NULL;
    struct err err = {0};
    r->backend->collective->reduce_add(r->backend, collective, &args); // loads the kernel
    check(r->backend->ops->synchronize(r->backend, &err), &err);
    check(queue->graph_begin(r->backend, &err), &err);
    for (int i = 0; i < SUMS; i++) {
        r->backend->collective->reduce_add(r->backend, collective, &args);
    }
    check(queue->graph_end(r->backend, &graph, &err), &err);
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_seconds();
        queue->graph_launch(r->backend, graph);
        check(r->backend->ops->synchronize(r->backend, &err), &err);
        double seconds = clock_seconds() - start;
        if (i && seconds < best) best = seconds;
    }
    queue->graph_destroy(r->backend, graph);
    return best / SUMS * 1e6;
}

static void run(struct rank *r) {
    struct err err = {0};
    const struct backend_options options = {
        .device = "cuda", .cpu_isa = "auto", .weight_dtype = DTYPE_BF16, .rank_on_host = r->rank};
    check(backend_create(&r->backend, &options, &err), &err);
    const struct backend_ops *ops = r->backend->ops;
    size_t bytes = (size_t)ROWS_MAX * r->hidden * sizeof(uint16_t);
    check(r->backend->queue->register_host(r->backend, r->shared, sizeof *r->shared, &err), &err);
    check(ops->alloc(r->backend, bytes, &r->residual, &err), &err);
    check(ops->alloc(r->backend, bytes, &r->out, &err), &err);
    check(ops->alloc(r->backend, r->hidden * sizeof(float), &r->norm, &err), &err);
    double us[2][NUM_SIZES] = {0};
    for (int kind = 0; kind < 2; kind++) {
        struct collective *collective =
            connect_ranks(r, kind ? COLLECTIVE_LIBRARY : COLLECTIVE_P2P);
        for (int i = 0; i < NUM_SIZES; i++) us[kind][i] = measure(r, collective, 1u << i);
        meet(r);
        r->backend->collective->destroy(r->backend, collective);
    }
    if (r->rank == 0) {
        printf("bytes,rows,p2p_us,nccl_us\n");
        for (int i = 0; i < NUM_SIZES; i++) {
            printf("%zu,%u,%.2f,%.2f\n", ((size_t)r->hidden * sizeof(uint16_t)) << i, 1u << i,
                   us[0][i], us[1][i]);
        }
    }
    ops->release(r->backend, r->residual);
    ops->release(r->backend, r->out);
    ops->release(r->backend, r->norm);
    r->backend->queue->unregister_host(r->backend, r->shared);
    backend_destroy(r->backend);
}

int main(int argc, char **argv) {
    struct rank r = {.world_size = argc > 1 ? (uint32_t)atoi(argv[1]) : 2,
                     .hidden = argc > 2 ? (uint32_t)atoi(argv[2]) : 4096};
    if (r.world_size < 2 || r.world_size > RANKS_MAX || r.hidden < 8 || r.hidden % 8) {
        fprintf(stderr, "bench_rank_sums [RANKS, 2 to %d [HIDDEN, a multiple of 8]]\n", RANKS_MAX);
        return 2;
    }
    r.shared =
        mmap(NULL, sizeof *r.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r.shared == MAP_FAILED) return 1;
    for (uint32_t rank = 1; rank < r.world_size; rank++) {
        if (fork()) continue;
        r.rank = rank;
        break;
    }
    run(&r);
    if (r.rank) return 0;
    int status = 0, num_failed = 0;
    while (wait(&status) > 0) num_failed += status != 0;
    return num_failed != 0;
}
