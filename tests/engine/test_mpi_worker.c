/* A rank that mpirun has started, over a wire whose messages are written here: one engine is loaded
 * and ended. The floating-point mode of the program must not reach what the load computes. */
#include <stdlib.h>
#include <string.h>

#include "engine/executor/mpi_message.h"
#include "engine/executor/mpi_worker.h"
#include "engine/executor/rank_options.h"
#include "support/cmocka_all.h"
#include "support/odd_float_mode.h"

enum { COMMAND_BYTES_MAX = 4096 };

// What process 0 says, and what it hears.
static struct {
    char start[COMMAND_BYTES_MAX]; // [start_bytes] the first command; then QUIT, then EXIT
    size_t start_bytes;
    uint32_t num_received;
    struct mpi_report report;
    bool has_report;
    uint32_t num_asked; // while it loads
    bool has_odd_mode; // in one of these
} wire_state;

static void wire_send(const void *data, size_t bytes, uint32_t to, enum mpi_channel channel,
                      struct mpi_request *request) {
    assert_int_equal(to, 0);
    assert_int_equal(channel, MPI_CHANNEL_REPORTS);
    assert_int_equal(bytes, sizeof wire_state.report);
    memcpy(&wire_state.report, data, bytes);
    wire_state.has_report = true;
    *request = (struct mpi_request){0};
}

static void wire_receive(void *data, size_t bytes, uint32_t from, enum mpi_channel channel,
                         struct mpi_request *request) {
    const struct mpi_command end = {.kind = wire_state.num_received == 1 ? MPI_COMMAND_QUIT
                                                                         : MPI_COMMAND_EXIT};
    assert_int_equal(from, 0);
    assert_int_equal(channel, MPI_CHANNEL_COMMANDS);
    memcpy(data, wire_state.num_received ? (const void *)&end : wire_state.start, bytes);
    wire_state.num_received++;
    *request = (struct mpi_request){0};
}

static bool wire_is_done(struct mpi_request *request) {
    (void)request;
    return true;
}

// The load asks before each matrix whether it is to end, on the thread that loads.
static bool wire_has_message(uint32_t from, enum mpi_channel channel, size_t *bytes) {
    (void)from;
    (void)channel;
    if (wire_state.num_received == 1 && !wire_state.has_report) {
        wire_state.num_asked++;
        wire_state.has_odd_mode |= float_mode_get() != FLOAT_MODE_DEFAULT;
        return false;
    }
    *bytes = wire_state.num_received ? sizeof(struct mpi_command) : wire_state.start_bytes;
    return true;
}

static const struct mpi_wire fake_wire = {.version = MPI_WIRE_VERSION,
                                          .send = wire_send,
                                          .receive = wire_receive,
                                          .is_done = wire_is_done,
                                          .has_message = wire_has_message};

static uint64_t fingerprint_of(const struct nvllm_engine_options *options) {
    struct engine_plan plan = {0};
    uint64_t fingerprint = 0;
    assert_int_equal(engine_plan_make(&plan, options, 0, 0, NULL), OK);
    assert_int_equal(mpi_message_fingerprint(&plan, &fingerprint, NULL), OK);
    engine_plan_fini(&plan);
    return fingerprint;
}

static void test_a_load_has_the_default_float_mode(void **state) {
    (void)state;
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "models/tiny-qwen3";
    options.device = "cpu";
    options.threads = 1;
    options.max_model_len = 256;
    options.num_kvcache_blocks = 64;
    const struct mpi_command start = {
        .kind = MPI_COMMAND_START,
        .version = {NVLLM_VERSION_MAJOR, NVLLM_VERSION_MINOR, NVLLM_VERSION_PATCH},
        .options_bytes = sizeof options,
        .batch_header_bytes = sizeof(struct batch_header),
        .first = 1,
        .world_size = 1,
        .fingerprint = fingerprint_of(&options),
    };
    wire_state.start_bytes = sizeof start + rank_options_bytes(options);
    assert_true(wire_state.start_bytes <= COMMAND_BYTES_MAX);
    memcpy(wire_state.start, &start, sizeof start);
    rank_options_write(wire_state.start + sizeof start, options);

    const struct mpi_world world = {.rank = 1, .size = 2, .num_on_host = 2, .num_sharing = 1};
    struct err err = {0};
    uint64_t before = float_mode_get();
    float_mode_set(ODD_FLOAT_MODE);
    bool is_kept = float_mode_get() == ODD_FLOAT_MODE;
    enum status status = mpi_worker_run(&fake_wire, &world, &err);
    uint64_t after = float_mode_get();
    float_mode_set(before);
    if (status) fail_msg("%s", err.message);
    assert_int_equal(wire_state.report.status, OK);
    assert_int_equal(wire_state.num_received, 3);
    assert_true(wire_state.num_asked > 10);
    assert_false(wire_state.has_odd_mode);
    if (!is_kept) return; // valgrind's processor has no such mode
    assert_true(after == ODD_FLOAT_MODE); // it is the program's
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_load_has_the_default_float_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
