/* Sums, logits and results between ranks that send messages: threads here, whose wire is a table of
 * letters. The bits are those of ranks that share memory. Also what the hosts of devices tell each
 * other. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/device_list.h"
#include "base/os/clock.h"
#include "comm/device_comm.h"
#include "comm/mpi_comm.h"
#include "support/captured.h"
#include "support/cmocka_all.h"

enum { RANKS_MAX = 5, VOCAB = 70, ROWS = 9, RESULT_BYTES = 24 };

// ---- a wire between threads ----

struct letter {
    struct letter *next;
    size_t bytes;
    char data[];
};

// A request: word 0 is 1 (sent: nothing to wait for) or the address of what is to be received.
struct incoming {
    uint32_t from, to;
    void *data;
    size_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct letter *letters[RANKS_MAX][RANKS_MAX]; // [from][to], the oldest first
static _Thread_local uint32_t this_rank;
static atomic_int num_sent;

static const char *fake_start(struct mpi_world *world) {
    *world = (struct mpi_world){0};
    return NULL;
}

static void fake_send(const void *data, size_t bytes, uint32_t to, enum mpi_channel channel,
                      struct mpi_request *request) {
    struct letter *letter = malloc(sizeof *letter + bytes);
    assert_non_null(letter);
    assert_int_equal(channel, MPI_CHANNEL_DATA);
    letter->next = NULL;
    letter->bytes = bytes;
    if (bytes) memcpy(letter->data, data, bytes);
    pthread_mutex_lock(&mutex);
    struct letter **at = &letters[this_rank][to];
    while (*at) at = &(*at)->next;
    *at = letter;
    pthread_mutex_unlock(&mutex);
    atomic_fetch_add(&num_sent, 1);
    *request = (struct mpi_request){{1}};
}

static void fake_receive(void *data, size_t bytes, uint32_t from, enum mpi_channel channel,
                         struct mpi_request *request) {
    struct incoming *incoming = malloc(sizeof *incoming);
    assert_non_null(incoming);
    assert_int_equal(channel, MPI_CHANNEL_DATA);
    *incoming = (struct incoming){from, this_rank, data, bytes};
    *request = (struct mpi_request){{(uint64_t)(uintptr_t)incoming}};
}

static bool fake_is_done(struct mpi_request *request) {
    if (request->words[0] <= 1) {
        *request = (struct mpi_request){0};
        return true;
    }
    struct incoming *incoming = (struct incoming *)(uintptr_t)request->words[0];
    pthread_mutex_lock(&mutex);
    struct letter *letter = letters[incoming->from][incoming->to];
    if (letter) letters[incoming->from][incoming->to] = letter->next;
    pthread_mutex_unlock(&mutex);
    if (!letter) return false;
    assert_int_equal(letter->bytes, incoming->bytes);
    if (letter->bytes) memcpy(incoming->data, letter->data, letter->bytes);
    free(letter);
    free(incoming);
    *request = (struct mpi_request){0};
    return true;
}

enum { LOST = 2 }; // the rank that answers once all others have given up

static atomic_int num_ends;

// Returns once that rank has answered, so that the test can end.
static void fake_end_all(int exit_status) {
    bool has_answered = false;
    assert_int_equal(exit_status, 1);
    atomic_fetch_add(&num_ends, 1);
    while (!has_answered) {
        pthread_mutex_lock(&mutex);
        has_answered = letters[LOST][this_rank] != NULL;
        pthread_mutex_unlock(&mutex);
        usleep(1000);
    }
}

static const struct mpi_wire fake_wire = {.version = MPI_WIRE_VERSION,
                                          .start = fake_start,
                                          .send = fake_send,
                                          .receive = fake_receive,
                                          .is_done = fake_is_done,
                                          .end_all = fake_end_all};

// ---- ranks as threads ----

struct rank {
    uint32_t rank, world_size;
    size_t count; // elements of the sum
    void (*run)(struct rank *rank);
    struct comm *comm;
    struct backend *backend;
    float *residual; // [count]
};

static struct shm_comm_shape shape_of(uint32_t world_size, size_t count) {
    struct shm_comm_shape shape = {
        .world_size = world_size,
        .partial_bytes = count * sizeof(float),
        .max_num_logits = ROWS,
    };
    // Slices of unlike sizes.
    for (uint32_t r = 0; r < world_size; r++) shape.vocab_start[r] = r * 7;
    shape.vocab_start[world_size] = VOCAB;
    return shape;
}

static double lost_seconds = 1e9;

static void *rank_main(void *arg) {
    struct rank *rank = arg;
    const struct mpi_comm_options options = {
        .wire = &fake_wire,
        .rank = rank->rank,
        .world_size = rank->world_size,
        .patience_seconds = 0.02,
        .lost_seconds = lost_seconds,
        .shape = shape_of(rank->world_size, rank->count),
    };
    const struct backend_options cpu = {
        .device = "cpu", .cpu_isa = "scalar", .threads = 1, .weight_dtype = DTYPE_F32};
    this_rank = rank->rank;
    assert_int_equal(backend_create(&rank->backend, &cpu, NULL), OK);
    assert_int_equal(mpi_comm_create(&rank->comm, &options, NULL), OK);
    rank->run(rank);
    mpi_comm_destroy(rank->comm);
    backend_destroy(rank->backend);
    return NULL;
}

static void run_ranks(uint32_t world_size, size_t count, void (*run)(struct rank *rank)) {
    struct rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    for (uint32_t r = 0; r < world_size; r++) {
        ranks[r] = (struct rank){.rank = r, .world_size = world_size, .count = count, .run = run};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < world_size; r++) pthread_join(threads[r], NULL);
    for (uint32_t from = 0; from < world_size; from++) {
        for (uint32_t to = 0; to < world_size; to++) assert_null(letters[from][to]);
    }
}

// ---- tests ----

// Numbers whose sum depends on the order in which they are added.
static float part(uint32_t rank, size_t i, int turn) {
    float scale = rank % 2 ? 1e-3f : 1e3f;
    return scale * ((float)((i * 31 + rank * 17 + (size_t)turn * 7) % 101) - 50.0f);
}

static void check_sums(struct rank *rank) {
    float *residual = malloc(rank->count * sizeof *residual);
    assert_non_null(residual);
    float want = 0;
    for (int turn = 0; turn < 2; turn++) {
        float *mine = comm_partial(rank->comm);
        for (size_t i = 0; i < rank->count; i++) mine[i] = part(rank->rank, i, turn);
        comm_reduce_add(rank->comm, rank->backend,
                        &(struct reduce_add_args){.residual = residual,
                                                  .rows = 1,
                                                  .cols = (uint32_t)rank->count,
                                                  .is_first = turn == 0});
    }
    for (size_t i = 0; i < rank->count; i++) {
        for (int turn = 0; turn < 2; turn++) {
            float sum = part(0, i, turn);
            for (uint32_t r = 1; r < rank->world_size; r++) sum += part(r, i, turn);
            want = turn ? want + sum : sum;
        }
        if (residual[i] != want) {
            fail_msg("element %zu of %zu: %g, want %g", i, rank->count, (double)residual[i],
                     (double)want);
        }
    }
    free(residual);
}

static void test_sums_in_the_order_of_the_ranks(void **state) {
    (void)state;
    // One element, whole parts at their longest, shares that do not divide, several pieces.
    static const size_t counts[] = {1, 100, 16384, 16385, 40003, (1 << 20) + 16 * 1024 + 5};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (uint32_t world_size = 2; world_size <= RANKS_MAX; world_size++) {
            run_ranks(world_size, counts[i], check_sums);
        }
    }
}

static float logit(uint32_t row, uint32_t id) {
    return (float)(row * 1000 + id);
}

static uint32_t owner_of(uint32_t row, uint32_t world_size) {
    return row % 3 == 2 ? 0 : row * 5 % world_size;
}

static void check_rows(struct rank *rank) {
    const struct shm_comm_shape shape = shape_of(rank->world_size, rank->count);
    uint32_t start = shape.vocab_start[rank->rank], end = shape.vocab_start[rank->rank + 1];
    float *mine = comm_logits(rank->comm), rows[ROWS][VOCAB];
    uint32_t owners[ROWS], count = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        owners[row] = owner_of(row, rank->world_size);
        for (uint32_t id = start; id < end; id++) {
            mine[row * (end - start) + id - start] = logit(row, id);
        }
    }
    comm_gather_rows(rank->comm, rank->backend, owners, ROWS, VOCAB, rows[0]);
    for (uint32_t row = 0; row < ROWS; row++) {
        if (owners[row] != rank->rank) continue;
        for (uint32_t id = 0; id < VOCAB; id++) {
            assert_true(rows[count][id] == logit(row, id));
        }
        count++;
    }
    char results[ROWS][RESULT_BYTES] = {0};
    for (uint32_t row = 0; row < ROWS; row++) {
        if (owners[row] == rank->rank) memset(results[row], (int)row + 1, RESULT_BYTES);
    }
    comm_share_results(rank->comm, owners, ROWS, results, RESULT_BYTES);
    for (uint32_t row = 0; row < ROWS; row++) {
        for (size_t i = 0; i < RESULT_BYTES; i++) assert_int_equal(results[row][i], row + 1);
    }
}

static void test_rows_go_to_their_owners_and_results_to_all(void **state) {
    (void)state;
    for (uint32_t world_size = 2; world_size <= RANKS_MAX; world_size++) {
        run_ranks(world_size, 100, check_rows);
    }
}

static atomic_int num_arrived;

static void arrive(struct rank *rank) {
    usleep(rank->rank * 2000);
    atomic_fetch_add(&num_arrived, 1);
    comm_barrier(rank->comm);
    assert_int_equal(atomic_load(&num_arrived), (int)rank->world_size);
}

static void test_a_barrier_waits_for_all(void **state) {
    (void)state;
    atomic_store(&num_arrived, 0);
    run_ranks(4, 1, arrive);
}

static void be_late(struct rank *rank) {
    if (rank->rank == 2) usleep(200000);
    comm_barrier(rank->comm);
}

// Rank 0 alone says whom it waits for, and goes on waiting.
static void test_a_rank_that_does_not_answer_is_named(void **state) {
    (void)state;
    struct captured captured;
    captured_begin(&captured, false);
    run_ranks(3, 1, be_late);
    captured_end(&captured);
    assert_non_null(strstr(captured.text, "still waiting for rank 2, for 0 seconds now"));
    assert_null(strstr(captured.text, "rank 1"));
    assert_int_equal(atomic_load(&num_ends), 0);
}

static void be_lost(struct rank *rank) {
    while (rank->rank == LOST && atomic_load(&num_ends) < RANKS_MAX - 1) usleep(1000);
    comm_barrier(rank->comm);
}

static void test_a_rank_that_never_answers_ends_all(void **state) {
    (void)state;
    struct captured captured;
    lost_seconds = 0.05;
    captured_begin(&captured, false);
    run_ranks(RANKS_MAX, 1, be_lost);
    captured_end(&captured);
    lost_seconds = 1e9;
    assert_non_null(
        strstr(captured.text, "rank 2 has not answered for 0 seconds, so all ranks end"));
}

static void find_minimum(struct rank *rank) {
    for (uint64_t lowest = 0; lowest < rank->world_size; lowest++) {
        uint64_t mine = 1000 + (rank->rank == lowest ? 0 : 5 + rank->rank);
        assert_int_equal(comm_minimum(rank->comm, mine), 1000);
    }
}

static void test_the_minimum_is_of_all(void **state) {
    (void)state;
    for (uint32_t world_size = 2; world_size <= RANKS_MAX; world_size++) {
        run_ranks(world_size, 1, find_minimum);
    }
}

// ---- devices, whose hosts send messages ----

struct collective {
    struct collective_spec spec;
    bool is_connected;
};

static enum status fake_create(struct backend *backend, const struct collective_spec *spec,
                               struct collective **out, void *card, struct err *err) {
    (void)backend;
    if (spec->hidden == 0) return err_set(err, ERR_UNSUPPORTED, "no such collective");
    struct collective *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->spec = *spec;
    memset(card, (int)spec->rank + 1, COLLECTIVE_CARD_BYTES);
    *out = c;
    return OK;
}

static enum status fake_connect(struct backend *backend, struct collective *c, const void *cards,
                                struct err *err) {
    (void)backend;
    (void)err;
    const unsigned char *bytes = cards;
    for (size_t i = 0; i < c->spec.world_size * (size_t)COLLECTIVE_CARD_BYTES; i++) {
        assert_int_equal(bytes[i], i / COLLECTIVE_CARD_BYTES + 1);
    }
    assert_int_equal(*(const uint32_t *)c->spec.has_failed, 0);
    c->is_connected = true;
    return OK;
}

static void fake_destroy(struct backend *backend, struct collective *c) {
    (void)backend;
    free(c);
}

static const struct backend_collective fake_collective = {
    .create = fake_create, .connect = fake_connect, .destroy = fake_destroy};

static void connect_devices(struct rank *rank) {
    struct backend backend = {.collective = &fake_collective};
    struct collective_spec spec = {.rank = rank->rank, .world_size = rank->world_size};
    const struct device_comm_options options = {
        .backend = &backend, .spec = &spec, .hosts = rank->comm};
    struct comm *comm = NULL;
    assert_int_equal(device_comm_create(&comm, &options, NULL), ERR_UNSUPPORTED);
    assert_null(comm);
    spec.hidden = 8;
    assert_int_equal(device_comm_create(&comm, &options, NULL), OK);
    rank->comm = NULL; // taken
    assert_int_equal(comm_connect(comm, NULL), OK);
    assert_true(comm_collective(comm)->is_connected);
    assert_int_equal(comm_minimum(comm, 7 + rank->rank), 7);
    assert_true(comm_is_alive(comm));
    comm_destroy(comm);
}

static void end_without_one(struct rank *rank) {
    struct backend backend = {.collective = &fake_collective};
    struct collective_spec spec = {.rank = rank->rank, .world_size = rank->world_size, .hidden = 8};
    const struct device_comm_options options = {
        .backend = &backend, .spec = &spec, .hosts = rank->comm};
    struct comm *comm = NULL;
    assert_int_equal(device_comm_create(&comm, &options, NULL), OK);
    rank->comm = NULL; // taken
    assert_int_equal(comm_connect(comm, NULL), OK);
    double deadline = clock_seconds() + 20;
    while (rank->rank == LOST && atomic_load(&num_ends) < RANKS_MAX - 1 &&
           clock_seconds() < deadline) {
        usleep(1000);
    }
    device_comm_end(comm, 0.05);
    comm_destroy(comm);
}

// They wait without a deadline before, while they load.
static void test_the_end_of_devices_has_a_deadline(void **state) {
    (void)state;
    struct captured captured;
    atomic_store(&num_ends, 0);
    captured_begin(&captured, false);
    run_ranks(RANKS_MAX, 1, end_without_one);
    captured_end(&captured);
    assert_int_equal(atomic_load(&num_ends), RANKS_MAX - 1);
    assert_non_null(
        strstr(captured.text, "rank 2 has not answered for 0 seconds, so all ranks end"));
}

static void test_devices_get_each_others_cards(void **state) {
    (void)state;
    for (uint32_t world_size = 2; world_size <= RANKS_MAX; world_size++) {
        run_ranks(world_size, 1, connect_devices);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_in_the_order_of_the_ranks),
        cmocka_unit_test(test_rows_go_to_their_owners_and_results_to_all),
        cmocka_unit_test(test_a_barrier_waits_for_all),
        cmocka_unit_test(test_the_minimum_is_of_all),
        cmocka_unit_test(test_devices_get_each_others_cards),
        cmocka_unit_test(test_a_rank_that_does_not_answer_is_named),
        cmocka_unit_test(test_a_rank_that_never_answers_ends_all),
        cmocka_unit_test(test_the_end_of_devices_has_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
