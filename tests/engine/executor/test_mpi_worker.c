/* Processes that mpirun has started, over a wire whose messages are written here. A rank loads one
 * engine and ends; the floating-point mode of the program must not reach what the load computes.
 * Process 0 does not wait for ever for the end of another that is stopped. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/executor/mpi_executor.h"
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
    uint32_t num_reports;
    uint32_t num_asked; // while it loads
    bool has_odd_mode; // in one of these
} wire_state;

static void wire_send(const void *data, size_t bytes, uint32_t to, enum mpi_channel channel,
                      struct mpi_request *request) {
    assert_int_equal(to, 0);
    assert_int_equal(channel, MPI_CHANNEL_REPORTS);
    assert_int_equal(bytes, sizeof wire_state.report);
    memcpy(&wire_state.report, data, bytes);
    wire_state.num_reports++;
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
    if (wire_state.num_received == 1 && !wire_state.num_reports) {
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
    assert_int_equal(wire_state.num_reports, 2); // loaded; about to end
    assert_true(wire_state.num_asked > 10);
    assert_false(wire_state.has_odd_mode);
    if (!is_kept) return; // valgrind's processor has no such mode
    assert_true(after == ODD_FLOAT_MODE); // it is the program's
}

// What process 0 does when it ends three processes, of which one may be stopped.
static struct {
    uint32_t stopped; // by rank; 0: none is
    uint32_t num_told, num_heard;
    bool has_left;
    jmp_buf ended;
} leave_state;

static void leave_send(const void *data, size_t bytes, uint32_t to, enum mpi_channel channel,
                       struct mpi_request *request) {
    const struct mpi_command *command = data;
    assert_int_equal(bytes, sizeof *command);
    assert_int_equal(command->kind, MPI_COMMAND_EXIT);
    assert_int_equal(channel, MPI_CHANNEL_COMMANDS);
    assert_int_equal(to, ++leave_state.num_told);
    *request = (struct mpi_request){0};
}

static void leave_receive(void *data, size_t bytes, uint32_t from, enum mpi_channel channel,
                          struct mpi_request *request) {
    (void)data;
    assert_int_equal(bytes, sizeof(struct mpi_report));
    assert_int_equal(channel, MPI_CHANNEL_REPORTS);
    assert_int_equal(from, ++leave_state.num_heard);
    *request = (struct mpi_request){.words = {from == leave_state.stopped}};
}

static bool leave_is_done(struct mpi_request *request) {
    return !request->words[0];
}

static void leave_stop(void) {
    assert_int_equal(leave_state.num_heard, 2);
    leave_state.has_left = true;
}

static void leave_end_all(int exit_status) {
    longjmp(leave_state.ended, exit_status);
}

// True: all processes were ended.
static bool leave_with_stopped(uint32_t stopped) {
    static const struct mpi_wire wire = {.version = MPI_WIRE_VERSION,
                                         .send = leave_send,
                                         .receive = leave_receive,
                                         .is_done = leave_is_done,
                                         .stop = leave_stop,
                                         .end_all = leave_end_all};
    static const struct mpi_world world = {.size = 3, .num_on_host = 3, .num_sharing = 1};
    leave_state.stopped = stopped;
    leave_state.num_told = leave_state.num_heard = 0;
    leave_state.has_left = false;
    if (setjmp(leave_state.ended)) return true;
    mpi_executor_leave(&wire, &world, 0.01);
    return false;
}

static void test_the_end_does_not_wait_for_a_stopped_process(void **state) {
    (void)state;
    assert_false(leave_with_stopped(0));
    assert_true(leave_state.has_left);
    for (uint32_t rank = 1; rank <= 2; rank++) {
        assert_true(leave_with_stopped(rank));
        assert_int_equal(leave_state.num_told, 2);
        assert_false(leave_state.has_left);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_load_has_the_default_float_mode),
        cmocka_unit_test(test_the_end_does_not_wait_for_a_stopped_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
