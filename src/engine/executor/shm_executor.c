#include "engine/executor/shm_executor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "base/os/cpu.h"
#include "base/text/c_locale.h"
#include "base/thread/thread_start.h"
#include "engine/executor/executor_internal.h"
#include "engine/executor/rank_segment.h"
#include "engine/executor/shm_worker.h"
#include "engine/executor/warm_up.h"

enum {
    POLL_MS = 100, // how often to look for stopped workers: a pidfd does not report a stop
    QUIT_MS = 2000, // time that workers have to end by themselves
    BLAME_MS = 300, // time that the watch has to notice a lost rank
};

// How often the caller is asked whether to end while other ranks load.
static const double ask_seconds = 0.02;

struct worker {
    // Readable once it has ended; -1: not started, or reaped. Unlike its process id it never names
    // another process, whoever reaps it.
    int pidfd;
};

struct shm_executor {
    struct executor base;
    struct rank_segment *segment;
    int segment_fd;
    struct backend *backend;
    bool is_registered; // the segment, with the device
    const char *program; // borrowed until the workers are started
    double spin_seconds;

    pthread_t watch;
    bool is_watched;
    int stop_fd; // readable once the workers are to end
    struct wakeup started; // signalled when the watch has started all workers, or failed to

    struct worker workers[COMM_RANKS_MAX]; // by rank, [0] unused; only the watch touches them

    pthread_mutex_t mutex; // for what follows
    bool has_started;
    bool is_ready; // all have loaded and take commands
    enum status status;
    struct err failure;
};

static struct shm_executor *shm_of(struct executor *executor) {
    return (struct shm_executor *)executor;
}

// Nobody waits for anybody from now on.
static void end_waiting(struct shm_executor *shm) {
    barrier_fail(&shm->segment->barrier);
    if (shm->base.comm) comm_stop_waiting(shm->base.comm);
    wakeup_signal(&shm->segment->reported);
}

// Records a failure; only the first one counts. From then on no rank waits for another.
static void fail(struct shm_executor *shm, enum status status, const struct err *why) {
    pthread_mutex_lock(&shm->mutex);
    if (!shm->status) {
        shm->status = status;
        shm->failure = *why;
    }
    pthread_mutex_unlock(&shm->mutex);
    end_waiting(shm);
}

// ---- the watch: starts workers, waits for one to end, reaps them ----

static enum status spawn(struct shm_executor *shm, uint32_t rank, struct err *err) {
    char rank_text[16];
    snprintf(rank_text, sizeof rank_text, "%u", rank);
    char command[] = "rank";
    char *argv[] = {(char *)(uintptr_t)shm->program, command, rank_text, NULL};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    // A process group of its own: a terminal's Ctrl-C is for rank 0 to handle.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (fcntl(STDERR_FILENO, F_GETFD) < 0) {
        posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    }
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, shm->segment_fd, SHM_WORKER_FD);
    posix_spawn_file_actions_addclosefrom_np(&files, SHM_WORKER_FD + 1);
    pid_t pid;
    int error = posix_spawnp(&pid, shm->program, &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error) {
        return err_set(err, ERR_IO, "cannot start %s, the program of the other ranks: %s",
                       shm->program, c_locale_strerror(error));
    }
    shm->workers[rank].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (shm->workers[rank].pidfd >= 0) return OK;
    error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0); // killed, so it ends
    return err_set(err, ERR_IO, "cannot watch rank %u: %s", rank, c_locale_strerror(error));
}

static void set_started(struct shm_executor *shm) {
    pthread_mutex_lock(&shm->mutex);
    shm->has_started = true;
    pthread_mutex_unlock(&shm->mutex);
    wakeup_signal(&shm->started);
}

// Says why a worker ended. One that failed has left the reason in its report.
static enum status describe_end(const struct shm_executor *shm, uint32_t rank,
                                const siginfo_t *info, struct err *err) {
    const struct rank_report *report = &shm->segment->reports[rank];
    if (atomic_load(&report->stage) == RANK_FAILED) {
        return err_set(err, report->status, "rank %u: %s", rank, report->message);
    }
    if (info->si_code == CLD_EXITED) {
        return err_set(err, ERR_DEVICE, "rank %u has ended with exit status %d", rank,
                       info->si_status);
    }
    return err_set(err, ERR_DEVICE, "rank %u was ended by signal %d (%s)", rank, info->si_status,
                   sigdescr_np(info->si_status));
}

static void forget(struct worker *worker) {
    if (worker->pidfd >= 0) close(worker->pidfd);
    worker->pidfd = -1;
}

// Looks once at a worker. True: it has ended or was stopped, and *err says which.
static bool look_at(struct shm_executor *shm, uint32_t rank, enum status *status, struct err *err) {
    struct worker *worker = &shm->workers[rank];
    siginfo_t info = {0};
    int failed = waitid(P_PIDFD, (id_t)worker->pidfd, &info, WEXITED | WSTOPPED | WNOHANG);
    if (failed && errno == ECHILD) { // the program around us has reaped it
        forget(worker);
        *status = err_set(err, ERR_DEVICE, "rank %u has ended", rank);
        return true;
    }
    if (failed || !info.si_pid) return false;
    if (info.si_code == CLD_STOPPED) {
        *status = err_set(err, ERR_DEVICE, "rank %u was stopped by signal %d (%s)", rank,
                          info.si_status, sigdescr_np(info.si_status));
        return true;
    }
    forget(worker);
    *status = describe_end(shm, rank, &info, err);
    return true;
}

// Returns true when a worker is gone, and false when all are to end.
static bool watch_workers(struct shm_executor *shm) {
    struct pollfd fds[COMM_RANKS_MAX];
    uint32_t world_size = shm->segment->world_size;
    fds[0] = (struct pollfd){.fd = shm->stop_fd, .events = POLLIN};
    for (uint32_t rank = 1; rank < world_size; rank++) {
        fds[rank] = (struct pollfd){.fd = shm->workers[rank].pidfd, .events = POLLIN};
    }
    for (;;) {
        if (poll(fds, world_size, POLL_MS) > 0 && fds[0].revents) return false;
        for (uint32_t rank = 1; rank < world_size; rank++) {
            struct err why = {0};
            enum status status;
            if (!look_at(shm, rank, &status, &why)) continue;
            fail(shm, status, &why);
            return true;
        }
    }
}

// Waits for each worker until the deadline, then kills it.
static void end_workers(struct shm_executor *shm, double deadline) {
    for (uint32_t rank = 1; rank < shm->segment->world_size; rank++) {
        struct worker *worker = &shm->workers[rank];
        double left = deadline - clock_seconds();
        struct pollfd fd = {.fd = worker->pidfd, .events = POLLIN};
        if (worker->pidfd < 0) continue;
        if (left <= 0 || poll(&fd, 1, (int)(left * 1e3)) <= 0) {
            (void)syscall(SYS_pidfd_send_signal, worker->pidfd, SIGKILL, NULL, 0);
        }
        siginfo_t info;
        (void)waitid(P_PIDFD, (id_t)worker->pidfd, &info, WEXITED);
        forget(worker);
    }
}

static void *watch_main(void *arg) {
    struct shm_executor *shm = arg;
    struct err why = {0};
    enum status status = OK;
    for (uint32_t rank = 1; rank < shm->segment->world_size && !status; rank++) {
        status = spawn(shm, rank, &why);
    }
    if (status) fail(shm, status, &why);
    set_started(shm);
    bool is_lost = status || watch_workers(shm);
    pthread_mutex_lock(&shm->mutex);
    bool hears = !is_lost && shm->is_ready;
    pthread_mutex_unlock(&shm->mutex);
    end_workers(shm, hears ? clock_seconds() + QUIT_MS * 1e-3 : 0);
    end_waiting(shm); // for a worker that did not end by itself
    return NULL;
}

// ---- the engine's thread ----

static enum status shm_check(struct executor *executor, struct err *err) {
    struct shm_executor *shm = shm_of(executor);
    pthread_mutex_lock(&shm->mutex);
    enum status status = shm->status;
    if (status && err) *err = shm->failure;
    pthread_mutex_unlock(&shm->mutex);
    return status;
}

// Without a deadline: the watch first starts the workers, and says so whether it could or not.
static void wait_started(struct shm_executor *shm) {
    for (;;) {
        unsigned seen = wakeup_count(&shm->started);
        pthread_mutex_lock(&shm->mutex);
        bool has_started = shm->has_started;
        pthread_mutex_unlock(&shm->mutex);
        if (has_started) return;
        wakeup_wait(&shm->started, seen, 0);
    }
}

static enum status start_watch(struct shm_executor *shm, struct err *err) {
    int error = thread_start(&shm->watch, NULL, watch_main, shm);
    if (error)
        return err_set(err, ERR_NOMEM, "cannot start a thread for the ranks: %s",
                       c_locale_strerror(error));
    shm->is_watched = true;
    wait_started(shm);
    return shm_check(&shm->base, err);
}

// An error of rank 0 may be the first sign of a lost rank; the watch knows soon.
static enum status shm_blame(struct executor *executor, enum status status, struct err *err) {
    for (int i = 0; i < BLAME_MS; i++) {
        enum status lost = shm_check(executor, err);
        if (lost) return lost;
        if (status != ERR_DEVICE) break;
        poll(NULL, 0, 1);
    }
    return status;
}

static enum status shm_wait_ready(struct executor *executor, const struct interrupt *interrupt,
                                  struct err *err) {
    struct shm_executor *shm = shm_of(executor);
    for (uint32_t rank = 1; rank < shm->segment->world_size;) {
        unsigned seen = wakeup_count(&shm->segment->reported);
        enum status status = shm_check(executor, err);
        if (status || (status = interrupt_check(interrupt, err))) return status;
        if (atomic_load(&shm->segment->reports[rank].stage) == RANK_READY) {
            rank++;
        } else {
            (void)wakeup_wait_for(&shm->segment->reported, seen, 0, ask_seconds);
        }
    }
    pthread_mutex_lock(&shm->mutex);
    shm->is_ready = true;
    pthread_mutex_unlock(&shm->mutex);
    enum status status = comm_connect(executor->comm, err);
    return status ? shm_blame(executor, status, err) : OK;
}

static struct batch_header *shm_batch(struct executor *executor, uint32_t slot) {
    return rank_segment_batch(shm_of(executor)->segment, slot);
}

// Waits until every worker has done `count` commands, or one is lost.
static void wait_done(struct shm_executor *shm, uint32_t count) {
    struct rank_segment *segment = shm->segment;
    for (uint32_t rank = 1; rank < segment->world_size;) {
        atomic_uint *num_done = &segment->reports[rank].num_done;
        if (atomic_load(num_done) - count < UINT32_MAX / 2) { // it is not behind
            rank++;
            continue;
        }
        atomic_store(&segment->is_awaited, 1);
        unsigned seen = wakeup_count(&segment->reported);
        bool is_behind = atomic_load(num_done) - count >= UINT32_MAX / 2;
        if (!comm_is_alive(shm->base.comm)) return;
        if (is_behind) wakeup_wait(&segment->reported, seen, shm->spin_seconds);
        atomic_store(&segment->is_awaited, 0);
    }
}

// Waits until the next command's place is free, and returns it.
static struct rank_command *next_command(struct shm_executor *shm, uint32_t *place) {
    uint32_t number = wakeup_count(&shm->segment->posted);
    wait_done(shm, number + 1 - RANK_COMMANDS);
    *place = number % RANK_COMMANDS;
    return &shm->segment->commands[*place];
}

static void post(struct shm_executor *shm, struct rank_command command) {
    uint32_t place;
    *next_command(shm, &place) = command;
    wakeup_signal(&shm->segment->posted);
}

static enum status shm_launch(struct executor *executor, const struct batch *batch, uint32_t slot,
                              struct model_runner_times *times, struct err *err) {
    post(shm_of(executor), (struct rank_command){.kind = RANK_LAUNCH, .slot = slot});
    enum status status = model_runner_launch(executor->runner, batch->header, slot, times, err);
    return status ? status : shm_check(executor, err);
}

static enum status shm_sample(struct executor *executor, const struct batch *batch, uint32_t slot,
                              struct model_runner_times *times, struct err *err) {
    post(shm_of(executor), (struct rank_command){.kind = RANK_SAMPLE, .slot = slot});
    enum status status = model_runner_sample(executor->runner, batch->header, slot, times, err);
    return status ? status : shm_check(executor, err);
}

static enum status shm_wait(struct executor *executor, uint32_t slot,
                            const struct sample_result **results,
                            const struct sample_result **prompt_results, struct err *err) {
    enum status status = model_runner_wait(executor->runner, slot, results, prompt_results, err);
    // Ranks that waited for a lost one went on without its part.
    return status ? status : shm_check(executor, err);
}

static enum status shm_warm_up(struct executor *executor, struct batch *batch, struct err *err) {
    struct shm_executor *shm = shm_of(executor);
    // On CPUs there is nothing to do.
    if (shm->backend->queue) post(shm, (struct rank_command){.kind = RANK_WARM_UP});
    enum status status = warm_up_run(executor->plan, executor->runner, batch, err);
    return status ? shm_blame(executor, status, err) : OK;
}

static void shm_begin_counts(struct executor *executor, uint32_t slot, const int32_t *ids,
                             uint32_t num_prompt, uint32_t num_ids) {
    struct shm_executor *shm = shm_of(executor);
    uint32_t place;
    *next_command(shm, &place) = (struct rank_command){
        .kind = RANK_BEGIN_COUNTS, .slot = slot, .num_prompt = num_prompt, .num_ids = num_ids};
    memcpy(rank_segment_ids(shm->segment, place), ids, num_ids * sizeof *ids);
    wakeup_signal(&shm->segment->posted);
    model_runner_begin_counts(executor->runner, slot, ids, num_prompt, num_ids);
}

static void shm_stop(struct executor *executor) {
    struct shm_executor *shm = shm_of(executor);
    if (shm->is_watched) {
        // From here on the watch's deadline runs: it ends what next_command waits for.
        const uint64_t one = 1;
        if (write(shm->stop_fd, &one, sizeof one) < 0) CHECK(errno == EAGAIN, "errno=%d", errno);
        // A worker's device may wait for a step that rank 0 could not launch.
        if (shm->backend->queue) end_waiting(shm);
        post(shm, (struct rank_command){.kind = RANK_QUIT});
        pthread_join(shm->watch, NULL); // it ends by its deadline
    }
    comm_destroy(executor->comm);
    const struct backend_queue *queue = shm->backend->queue;
    if (queue && shm->is_registered) queue->unregister_host(shm->backend, shm->segment);
    rank_segment_close(shm->segment);
    if (shm->segment_fd >= 0) close(shm->segment_fd);
    if (shm->stop_fd >= 0) close(shm->stop_fd);
    pthread_mutex_destroy(&shm->mutex);
    free(shm);
}

static const struct executor_ops shm_ops = {
    .wait_ready = shm_wait_ready,
    .batch = shm_batch,
    .warm_up = shm_warm_up,
    .begin_counts = shm_begin_counts,
    .launch = shm_launch,
    .sample = shm_sample,
    .wait = shm_wait,
    .check = shm_check,
    .blame = shm_blame,
    .stop = shm_stop,
};

static enum status register_segment(struct shm_executor *shm, struct err *err) {
    struct backend *backend = shm->backend;
    if (!backend->queue) return OK;
    enum status status =
        backend->queue->register_host(backend, shm->segment, shm->segment->layout.size_bytes, err);
    shm->is_registered = !status;
    return status;
}

enum status shm_executor_create(struct executor **out, const struct engine_plan *plan,
                                const struct nvllm_engine_options *options, struct err *err) {
    struct shm_executor *shm = calloc(1, sizeof *shm);
    if (!shm) return err_nomem(err, "ranks");
    shm->base.ops = &shm_ops;
    shm->program = options->worker_program;
    shm->segment_fd = shm->stop_fd = -1;
    shm->backend = plan->backend;
    shm->spin_seconds = barrier_spin_seconds(plan->world_size);
    pthread_mutex_init(&shm->mutex, NULL);
    for (uint32_t rank = 0; rank < COMM_RANKS_MAX; rank++) shm->workers[rank].pidfd = -1;
    struct nvllm_engine_options theirs = *options;
    if (!plan->fills_memory) theirs.num_kvcache_blocks = (int32_t)plan->scheduler.num_blocks;
    enum status status = rank_segment_create(&shm->segment, &shm->segment_fd, plan, &theirs, err);
    if (!status) status = register_segment(shm, err);
    if (!status) status = rank_segment_comm(shm->segment, 0, plan->backend, &shm->base.comm, err);
    if (!status) {
        shm->stop_fd = eventfd(0, EFD_CLOEXEC);
        if (shm->stop_fd < 0) {
            status = err_set(err, ERR_IO, "cannot watch ranks: %s", c_locale_strerror(errno));
        }
    }
    if (!status) status = start_watch(shm, err);
    if (status) {
        shm_stop(&shm->base);
        return status;
    }
    shm->base.shared_results = rank_segment_results(shm->segment);
    *out = &shm->base;
    return OK;
}
