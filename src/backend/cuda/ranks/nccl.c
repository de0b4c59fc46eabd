#include "backend/cuda/ranks/nccl.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "base/text/c_locale.h"
#include "base/thread/thread_start.h"

enum {
    CALLS_END_MS = 1000, // most time that calls have to return before their communicator is freed
    START_POLL_MS = 1,
};

static enum status error_of(const struct nccl *nccl, int result, const char *what,
                            struct err *err) {
    return err_set(err, ERR_DEVICE, "NCCL: %s: %s", what, nccl->library.error_string(result));
}

enum status nccl_open(struct nccl *nccl, struct err *err) {
    return nccl_library_open(&nccl->library, err);
}

enum status nccl_make_id(struct nccl *nccl, struct nccl_id *id, struct err *err) {
    int result = nccl->library.get_unique_id(id);
    return result ? error_of(nccl, result, "making a group", err) : OK;
}

// ---- the start ----

enum start_state { START_RUNS, START_DONE, START_ABANDONED };

// NCCL waits for ranks that are lost for ever, and its start cannot be interrupted. So it runs on a
// thread of its own, which is left behind then, with this.
struct start {
    struct nccl_library library;
    struct nccl_id id;
    int rank, world_size, device;
    atomic_int state; // enum start_state
    int result;
    struct nccl_communicator *communicator;
};

static void *start_main(void *arg) {
    struct start *start = arg;
    (void)cudaSetDevice(start->device); // of this thread; NCCL reports a device that cannot be used
    start->result =
        start->library.init_rank(&start->communicator, start->world_size, start->id, start->rank);
    if (atomic_exchange(&start->state, START_DONE) != START_ABANDONED) return NULL;
    if (!start->result) start->library.end(start->communicator);
    free(start);
    return NULL;
}

static int create_thread(struct start *start) {
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);
    if (error) return error;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = thread_start(&thread, &attributes, start_main, start);
    pthread_attr_destroy(&attributes);
    return error;
}

enum status nccl_connect(struct nccl *nccl, const struct nccl_id *id, uint32_t rank,
                         uint32_t world_size, const atomic_uint *has_failed, struct err *err) {
    struct start *start = calloc(1, sizeof *start);
    if (!start) return err_nomem(err, "NCCL");
    *start = (struct start){
        .library = nccl->library, .id = *id, .rank = (int)rank, .world_size = (int)world_size};
    (void)cudaGetDevice(&start->device);
    int error = create_thread(start);
    if (error) {
        free(start);
        return err_set(err, ERR_NOMEM, "cannot start a thread for NCCL: %s",
                       c_locale_strerror(error));
    }
    while (atomic_load(&start->state) == START_RUNS) {
        if (atomic_load(has_failed) &&
            atomic_exchange(&start->state, START_ABANDONED) == START_RUNS) {
            return err_set(err, ERR_DEVICE, "another rank was lost while NCCL connected the ranks");
        }
        poll(NULL, 0, START_POLL_MS);
    }
    int result = start->result;
    if (!result) atomic_store(&nccl->communicator, start->communicator);
    free(start);
    return result ? error_of(nccl, result, "connecting ranks", err) : OK;
}

void nccl_close(struct nccl *nccl) {
    nccl_stop_waiting(nccl); // the regular end, ncclCommDestroy, would wait for all ranks
    nccl_library_close(&nccl->library);
}

void nccl_stop_waiting(struct nccl *nccl) {
    struct nccl_communicator *communicator = atomic_exchange(&nccl->communicator, NULL);
    if (!communicator) return;
    // library.end frees the communicator, so calls that use it get time to return. A call that
    // waits for a lost rank returns only because of library.end.
    for (int i = 0; i < CALLS_END_MS && atomic_load(&nccl->num_calls); i++) poll(NULL, 0, 1);
    nccl->library.end(communicator);
}

// NULL: a rank is lost, and results are not used. Else end_call must follow.
static struct nccl_communicator *begin_call(struct nccl *nccl) {
    // In this order: either this call sees NULL, or nccl_stop_waiting sees this call.
    atomic_fetch_add(&nccl->num_calls, 1);
    struct nccl_communicator *communicator = atomic_load(&nccl->communicator);
    if (!communicator) atomic_fetch_sub(&nccl->num_calls, 1);
    return communicator;
}

static void end_call(struct nccl *nccl) {
    atomic_fetch_sub(&nccl->num_calls, 1);
}

static void check(struct nccl *nccl, struct cuda_backend *cuda, int result, const char *what) {
    if (!result) return;
    char text[200];
    snprintf(text, sizeof text, "NCCL: %s: %s", what, nccl->library.error_string(result));
    cuda_fail(cuda, text);
}

void nccl_sum(struct nccl *nccl, struct cuda_backend *cuda, void *values, size_t count) {
    struct nccl_communicator *communicator = begin_call(nccl);
    if (!communicator) return;
    int result = nccl->library.all_reduce(values, values, count, NCCL_BFLOAT16, NCCL_SUM,
                                          communicator, cuda->stream);
    end_call(nccl);
    check(nccl, cuda, result, "a sum over ranks");
}

void nccl_gather(struct nccl *nccl, struct cuda_backend *cuda, const float *from, float *to,
                 size_t count) {
    struct nccl_communicator *communicator = begin_call(nccl);
    if (!communicator) return;
    int result =
        nccl->library.all_gather(from, to, count, NCCL_FLOAT32, communicator, cuda->stream);
    end_call(nccl);
    check(nccl, cuda, result, "gathering logits");
}
