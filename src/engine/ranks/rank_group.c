#include "engine/ranks/rank_group.h"

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

#include "base/c_locale.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "engine/ranks/mpi_group.h"
#include "engine/ranks/rank_worker.h"

enum {
    POLL_MS = 100, // how often to look for stopped workers: a pidfd does not report a stop
    QUIT_MS = 2000, // time that workers have to end by themselves
    BLAME_MS = 300, // time that the watch has to notice a lost rank
};

struct worker {
    // Readable once it has ended; -1: not started, or reaped. Unlike its process id it never names
    // another process, whoever reaps it.
    int pidfd;
};

struct rank_group {
    struct mpi_group *mpi; // mpirun has started the ranks, and nothing else here is used; NULL: not

    struct rank_segment *segment;
    int segment_fd;
    struct backend *backend;
    bool is_registered; // the segment, with the device
    struct comm *comm;
    const char *program; // borrowed until the workers are started
    double spin_seconds;

    pthread_t watch;
    bool is_watched;
    int stop_fd; // readable once the workers are to end
    struct bell started; // rung when the watch has started all workers, or failed to

    struct worker workers[COMM_RANKS_MAX]; // by rank, [0] unused; only the watch touches them

    pthread_mutex_t mutex; // for what follows
    bool has_started;
    bool is_ready; // all have loaded and take commands
    enum status status;
    struct err failure;
};

// Nobody waits for anybody from now on.
static void end_waiting(struct rank_group *group) {
    meeting_fail(&group->segment->meeting);
    if (group->comm) comm_stop_waiting(group->comm);
    bell_ring(&group->segment->reported);
}

// Records a failure; only the group's first one counts. From then on no rank waits for another.
static void fail(struct rank_group *group, enum status status, const struct err *why) {
    pthread_mutex_lock(&group->mutex);
    if (!group->status) {
        group->status = status;
        group->failure = *why;
    }
    pthread_mutex_unlock(&group->mutex);
    end_waiting(group);
}

// ---- the watch: starts workers, waits for one to end, reaps them ----

static enum status spawn(struct rank_group *group, uint32_t rank, struct err *err) {
    char rank_text[16];
    snprintf(rank_text, sizeof rank_text, "%u", rank);
    char command[] = "rank";
    char *argv[] = {(char *)(uintptr_t)group->program, command, rank_text, NULL};
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
    posix_spawn_file_actions_adddup2(&files, group->segment_fd, RANK_WORKER_FD);
    posix_spawn_file_actions_addclosefrom_np(&files, RANK_WORKER_FD + 1);
    pid_t pid;
    int error = posix_spawnp(&pid, group->program, &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error) {
        return err_set(err, ERR_IO, "cannot start %s, the program of the other ranks: %s",
                       group->program, c_locale_strerror(error));
    }
    group->workers[rank].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (group->workers[rank].pidfd >= 0) return OK;
    error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return err_set(err, ERR_IO, "cannot watch rank %u: %s", rank, c_locale_strerror(error));
}

static void set_started(struct rank_group *group) {
    pthread_mutex_lock(&group->mutex);
    group->has_started = true;
    pthread_mutex_unlock(&group->mutex);
    bell_ring(&group->started);
}

// Says why a worker ended. One that failed has left the reason in its report.
static enum status describe_end(const struct rank_group *group, uint32_t rank,
                                const siginfo_t *info, struct err *err) {
    const struct rank_report *report = &group->segment->reports[rank];
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
static bool look_at(struct rank_group *group, uint32_t rank, enum status *status, struct err *err) {
    struct worker *worker = &group->workers[rank];
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
    *status = describe_end(group, rank, &info, err);
    return true;
}

// Returns true when a worker is gone, and false when all are to end.
static bool watch_workers(struct rank_group *group) {
    struct pollfd fds[COMM_RANKS_MAX];
    uint32_t world_size = group->segment->world_size;
    fds[0] = (struct pollfd){.fd = group->stop_fd, .events = POLLIN};
    for (uint32_t rank = 1; rank < world_size; rank++) {
        fds[rank] = (struct pollfd){.fd = group->workers[rank].pidfd, .events = POLLIN};
    }
    for (;;) {
        if (poll(fds, world_size, POLL_MS) > 0 && fds[0].revents) return false;
        for (uint32_t rank = 1; rank < world_size; rank++) {
            struct err why = {0};
            enum status status;
            if (!look_at(group, rank, &status, &why)) continue;
            fail(group, status, &why);
            return true;
        }
    }
}

// Waits for each worker until the deadline, then kills it.
static void end_workers(struct rank_group *group, double deadline) {
    for (uint32_t rank = 1; rank < group->segment->world_size; rank++) {
        struct worker *worker = &group->workers[rank];
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
    struct rank_group *group = arg;
    struct err why = {0};
    enum status status = OK;
    for (uint32_t rank = 1; rank < group->segment->world_size && !status; rank++) {
        status = spawn(group, rank, &why);
    }
    if (status) fail(group, status, &why);
    set_started(group);
    bool is_lost = status || watch_workers(group);
    pthread_mutex_lock(&group->mutex);
    bool hears = !is_lost && group->is_ready;
    pthread_mutex_unlock(&group->mutex);
    end_workers(group, hears ? clock_seconds() + QUIT_MS * 1e-3 : 0);
    return NULL;
}

// ---- the engine's thread ----

static void wait_started(struct rank_group *group) {
    for (;;) {
        unsigned seen = bell_count(&group->started);
        pthread_mutex_lock(&group->mutex);
        bool has_started = group->has_started;
        pthread_mutex_unlock(&group->mutex);
        if (has_started) return;
        bell_wait(&group->started, seen, 0);
    }
}

static enum status start_watch(struct rank_group *group, struct err *err) {
    sigset_t all, before; // the program's signals are for the program's own threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&group->watch, NULL, watch_main, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return err_set(err, ERR_NOMEM, "cannot start a thread for the ranks: %s",
                       c_locale_strerror(error));
    group->is_watched = true;
    wait_started(group);
    return rank_group_check(group, err);
}

enum status rank_group_start(struct rank_group **out, const struct engine_plan *plan,
                             const struct nvllm_engine_options *options, const char *program,
                             struct err *err) {
    *out = NULL;
    struct rank_group *group = calloc(1, sizeof *group);
    if (!group) return err_nomem(err, "ranks");
    group->program = program;
    group->segment_fd = group->stop_fd = -1;
    pthread_mutex_init(&group->mutex, NULL);
    for (uint32_t rank = 0; rank < COMM_RANKS_MAX; rank++) group->workers[rank].pidfd = -1;
    if (mpi_group_is_wanted(options)) {
        enum status started = mpi_group_start(&group->mpi, plan, options, err);
        if (started) {
            free(group);
            return started;
        }
        *out = group;
        return OK;
    }
    struct nvllm_engine_options theirs = *options;
    if (!plan->fills_memory) theirs.num_kvcache_blocks = (int32_t)plan->scheduler.num_blocks;
    enum status status =
        rank_segment_create(&group->segment, &group->segment_fd, plan, &theirs, err);
    if (status) goto fail;
    group->spin_seconds = meeting_spin_seconds(plan->world_size);
    group->backend = plan->backend;
    if (plan->backend->queue) {
        status = plan->backend->queue->register_host(plan->backend, group->segment,
                                                     group->segment->size_bytes, err);
        if (status) goto fail;
        group->is_registered = true;
    }
    status = rank_segment_comm(group->segment, 0, plan->backend, &group->comm, err);
    if (status) goto fail;
    group->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (group->stop_fd < 0) {
        status = err_set(err, ERR_IO, "cannot watch ranks: %s", c_locale_strerror(errno));
        goto fail;
    }
    if ((status = start_watch(group, err))) goto fail;
    *out = group;
    return OK;
fail:
    rank_group_stop(group);
    return status;
}

enum status rank_group_check(struct rank_group *group, struct err *err) {
    if (group->mpi) return mpi_group_check(group->mpi, err);
    pthread_mutex_lock(&group->mutex);
    enum status status = group->status;
    if (status && err) *err = group->failure;
    pthread_mutex_unlock(&group->mutex);
    return status;
}

enum status rank_group_wait_ready(struct rank_group *group, struct err *err) {
    if (group->mpi) return mpi_group_wait_ready(group->mpi, err);
    for (uint32_t rank = 1; rank < group->segment->world_size;) {
        unsigned seen = bell_count(&group->segment->reported);
        enum status status = rank_group_check(group, err);
        if (status) return status;
        if (atomic_load(&group->segment->reports[rank].stage) == RANK_READY) {
            rank++;
        } else {
            bell_wait(&group->segment->reported, seen, 0);
        }
    }
    pthread_mutex_lock(&group->mutex);
    group->is_ready = true;
    pthread_mutex_unlock(&group->mutex);
    enum status status = comm_connect(group->comm, err);
    return status ? rank_group_blame(group, status, err) : OK;
}

enum status rank_group_blame(struct rank_group *group, enum status status, struct err *err) {
    if (group->mpi) return mpi_group_blame(group->mpi, status, err);
    // An error of rank 0 may be the first sign of a lost rank; the watch knows soon.
    for (int i = 0; i < BLAME_MS; i++) {
        enum status lost = rank_group_check(group, err);
        if (lost) return lost;
        if (status != ERR_DEVICE) break;
        poll(NULL, 0, 1);
    }
    return status;
}

struct comm *rank_group_comm(struct rank_group *group) {
    return group->mpi ? mpi_group_comm(group->mpi) : group->comm;
}

struct batch_header *rank_group_batch(struct rank_group *group, uint32_t slot) {
    if (group->mpi) return mpi_group_batch(group->mpi, slot);
    return rank_segment_batch(group->segment, slot);
}

struct sample_result *rank_group_results(struct rank_group *group) {
    if (group->mpi) return mpi_group_results(group->mpi);
    return rank_segment_results(group->segment);
}

// Waits until every worker has done `count` commands, or the group has failed.
static void wait_done(struct rank_group *group, uint32_t count) {
    struct rank_segment *segment = group->segment;
    for (uint32_t rank = 1; rank < segment->world_size;) {
        atomic_uint *num_done = &segment->reports[rank].num_done;
        if (atomic_load(num_done) - count < UINT32_MAX / 2) { // it is not behind
            rank++;
            continue;
        }
        atomic_store(&segment->is_awaited, 1);
        unsigned seen = bell_count(&segment->reported);
        bool is_behind = atomic_load(num_done) - count >= UINT32_MAX / 2;
        if (!comm_is_alive(group->comm)) return;
        if (is_behind) bell_wait(&segment->reported, seen, group->spin_seconds);
        atomic_store(&segment->is_awaited, 0);
    }
}

// Waits until the next command's place is free, and returns it.
static struct rank_command *next_command(struct rank_group *group, uint32_t *place) {
    uint32_t number = bell_count(&group->segment->posted);
    wait_done(group, number + 1 - RANK_COMMANDS);
    *place = number % RANK_COMMANDS;
    return &group->segment->commands[*place];
}

void rank_group_launch(struct rank_group *group, uint32_t slot) {
    if (group->mpi) {
        mpi_group_launch(group->mpi, slot);
        return;
    }
    uint32_t place;
    *next_command(group, &place) = (struct rank_command){.kind = RANK_LAUNCH, .slot = slot};
    bell_ring(&group->segment->posted);
}

void rank_group_warm_up(struct rank_group *group) {
    uint32_t place;
    if (group->mpi) {
        mpi_group_warm_up(group->mpi);
        return;
    }
    if (!group->backend->queue) return; // there is nothing to do
    *next_command(group, &place) = (struct rank_command){.kind = RANK_WARM_UP};
    bell_ring(&group->segment->posted);
}

void rank_group_begin_counts(struct rank_group *group, uint32_t slot, const int32_t *ids,
                             uint32_t num_prompt, uint32_t num_ids) {
    if (group->mpi) {
        mpi_group_begin_counts(group->mpi, slot, ids, num_prompt, num_ids);
        return;
    }
    uint32_t place;
    *next_command(group, &place) = (struct rank_command){
        .kind = RANK_BEGIN_COUNTS, .slot = slot, .num_prompt = num_prompt, .num_ids = num_ids};
    memcpy(rank_segment_ids(group->segment, place), ids, num_ids * sizeof *ids);
    bell_ring(&group->segment->posted);
}

void rank_group_wait_step(struct rank_group *group, const struct model_runner *runner,
                          uint32_t slot) {
    if (group->mpi) mpi_group_wait_step(group->mpi, runner, slot);
}

void rank_group_wait_warm(struct rank_group *group, struct engine_plan *plan) {
    mpi_group_wait_warm(group->mpi, plan);
}

void rank_group_wait_results(struct rank_group *group, uint32_t slot,
                             const struct sample_result **results,
                             const struct sample_result **prompt_results) {
    mpi_group_wait_results(group->mpi, slot, results, prompt_results);
}

void rank_group_stop(struct rank_group *group) {
    if (!group) return;
    mpi_group_stop(group->mpi);
    if (group->is_watched) {
        // A worker's device may wait for a step that rank 0 could not launch.
        if (group->backend->queue) end_waiting(group);
        uint32_t place;
        *next_command(group, &place) = (struct rank_command){.kind = RANK_QUIT};
        bell_ring(&group->segment->posted);
        const uint64_t one = 1;
        if (write(group->stop_fd, &one, sizeof one) < 0) CHECK(errno == EAGAIN, "errno=%d", errno);
        pthread_join(group->watch, NULL);
    }
    comm_destroy(group->comm);
    if (group->is_registered) {
        group->backend->queue->unregister_host(group->backend, group->segment);
    }
    rank_segment_close(group->segment);
    if (group->segment_fd >= 0) close(group->segment_fd);
    if (group->stop_fd >= 0) close(group->stop_fd);
    pthread_mutex_destroy(&group->mutex);
    free(group);
}
