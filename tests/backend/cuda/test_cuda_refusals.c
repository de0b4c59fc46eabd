// What CUDA refuses of a launch is reported by the next wait, whatever came between. Each test has
// a backend of its own, because after a failure one runs nothing more. test_cuda_launch tries
// without a GPU what launchers do.
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

static struct backend *own_backend(void) {
    struct backend *backend = NULL;
    struct err err = {0};
    const struct backend_options options = {.device = "cuda", .weight_dtype = DTYPE_BF16};
    if (backend_create(&backend, &options, &err)) fail_msg("%s", err.message);
    return backend;
}

static void expect_failure(enum status status, const struct err *err, const char *text) {
    assert_int_equal(status, ERR_DEVICE);
    if (!strstr(err->message, text)) fail_msg("%s", err->message);
}

static void expect_reported(struct backend *backend, const char *text) {
    struct err err = {0};
    expect_failure(backend->ops->synchronize(backend, &err), &err, text);
    backend_destroy(backend);
}

// A launch that CUDA refuses: it has no block.
static void launch_nothing(struct backend *backend) {
    const struct gather_rows_args none = {.rows = 0, .cols = 64};
    cuda_gather_rows_launch(&none, cuda_backend_of(backend)->stream);
}

// A kernel with an eighth of a byte of shared memory for each token.
static void launch_sort(struct backend *backend, uint32_t num_tokens) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct experts_args args = {.num_tokens = num_tokens, .top_k = 1};
    const struct cuda_experts_view view = {.shape = {.num_experts = 64}};
    const struct cuda_experts_scratch scratch = {0};
    cuda_experts_sort_launch(&args, &view, &scratch, 64, &cuda->info, cuda->stream);
}

// CUDA refuses what the kernel asks for, and the kernel is not launched.
static void ask_for_too_much(struct backend *backend) {
    cuda_backend_of(backend)->info.shared_bytes_max = 1 << 24;
    launch_sort(backend, 400000);
}

static void test_a_launch_that_needs_too_much_memory_is_reported(void **state) {
    (void)state;
    struct backend *backend = own_backend();
    launch_sort(backend, 1 << 23);
    expect_reported(backend, "a kernel could not be started");
}

static void test_memory_beyond_the_devices_is_reported(void **state) {
    (void)state;
    struct backend *backend = own_backend();
    ask_for_too_much(backend);
    expect_reported(backend, "shared memory for a kernel: invalid argument");
}

// Asking whether the device is busy clears CUDA's last error.
static void test_questions_in_between_lose_nothing(void **state) {
    (void)state;
    enum { BYTES = 256 << 20, COPIES = 64 };
    struct backend *backend = own_backend();
    struct err err = {0};
    void *memory = NULL;
    struct backend_event *event = NULL;
    if (backend->ops->alloc(backend, BYTES, &memory, &err) ||
        backend->queue->event_create(backend, &event, &err)) {
        fail_msg("%s", err.message);
    }
    for (int i = 0; i < COPIES; i++) {
        cuda_copy_launch(memory, (char *)memory + BYTES / 2, BYTES / 2,
                         cuda_backend_of(backend)->stream);
    }
    backend->queue->event_record(backend, event);
    launch_nothing(backend);
    (void)backend->queue->event_is_done(backend, event);
    expect_failure(backend->queue->event_wait(backend, event, &err), &err,
                   "a kernel could not be started");
    backend->queue->event_destroy(backend, event);
    backend->ops->release(backend, memory);
    backend_destroy(backend);
}

static void test_a_recording_without_one_of_its_kernels_is_refused(void **state) {
    (void)state;
    struct backend *backend = own_backend();
    struct backend_graph *graph = NULL;
    struct err err = {0};
    if (backend->queue->graph_begin(backend, &err)) fail_msg("%s", err.message);
    ask_for_too_much(backend);
    expect_failure(backend->queue->graph_end(backend, &graph, &err), &err,
                   "shared memory for a kernel");
    assert_null(graph);
    backend_destroy(backend);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_launch_that_needs_too_much_memory_is_reported),
        cmocka_unit_test(test_memory_beyond_the_devices_is_reported),
        cmocka_unit_test(test_questions_in_between_lose_nothing),
        cmocka_unit_test(test_a_recording_without_one_of_its_kernels_is_refused),
    };
    return device_pair_run(argc, argv, "cuda refusals", tests, ARRAY_LEN(tests));
}
