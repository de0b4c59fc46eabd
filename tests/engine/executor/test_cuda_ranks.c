/* Engines of two ranks, each on a GPU of its own, or both on the only one: the same bits in every
 * run, recorded or not, and what happens when a rank is lost. Each test runs in a process of its
 * own, because a lost rank may break the device for its process. The program nanovllm is in
 * NANOVLLM_TEST_PROGRAM. Without a GPU it exits with 77, which ctest counts as skipped. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/compiler.h"
#include "base/os/clock.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

enum { SKIPPED = 77, NUM_REQUESTS = 12, LONG_PROMPT = 230, TIME_LIMIT_S = 60 };

static const char *comm = "auto"; // how the ranks reach each other
static const char *device = "cuda:0,1";

static struct nvllm_engine_options options_of(int32_t world_size) {
    struct nvllm_engine_options options = small_options();
    options.device = world_size > 1 ? device : "cuda:0";
    options.comm = comm;
    options.tensor_parallel_size = world_size;
    options.num_kvcache_blocks = 256;
    options.worker_program = getenv("NANOVLLM_TEST_PROGRAM");
    return options;
}

// Runs `test` in a process that must end well, and in time: a hang is a failure.
static void in_child(void (*test)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(TIME_LIMIT_S);
        test();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void fail_child(const char *what) {
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

static void expect(bool holds, const char *what) {
    if (!holds) fail_child(what);
}

static struct nvllm_engine *open_or_end(const struct nvllm_engine_options *options) {
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_create(&engine, options, &error)) fail_child(error.message);
    return engine;
}

// Requests that meet every part of sampling.
static struct nvllm_result *run_all(const struct nvllm_engine_options *options) {
    static struct nvllm_sampling_params params[6];
    static struct nvllm_request requests[NUM_REQUESTS];
    mixed_params(params, 24);
    for (size_t i = MIXED_PARAMS; i < ARRAY_LEN(params); i++) params[i] = greedy_params(24);
    params[2].prompt_logprobs = 2;
    params[4].temperature = 1;
    params[4].top_k = 30;
    params[4].seed = 6;
    params[5].temperature = 1;
    params[5].seed = 7;
    for (size_t i = 0; i < NUM_REQUESTS; i++) {
        requests[i] = text_request(QUESTION, &params[i % ARRAY_LEN(params)]);
    }
    struct nvllm_engine *engine = open_or_end(options);
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, requests, NUM_REQUESTS, &results, NULL, &error)) {
        fail_child(error.message);
    }
    nvllm_engine_destroy(engine);
    return results;
}

static void expect_equal(const struct nvllm_result *got, const struct nvllm_result *want) {
    for (size_t i = 0; i < NUM_REQUESTS; i++) {
        size_t tops = want[i].num_top < 0 ? 0 : 1 + (size_t)want[i].num_top;
        expect(got[i].num_tokens == want[i].num_tokens, "other numbers of tokens");
        expect(memcmp(got[i].token_ids, want[i].token_ids, want[i].num_tokens * sizeof(int32_t)) ==
                   0,
               "other tokens");
        if (!tops) continue;
        expect(memcmp(got[i].logprobs, want[i].logprobs,
                      want[i].num_tokens * tops * sizeof *got[i].logprobs) == 0,
               "other log-probabilities");
    }
}

// What the first engine times as the fastest, the others take: on both ranks.
static void run_twice(void) {
    struct nvllm_engine_options options = options_of(2);
    char folder[] = "/tmp/nanovllm-ranks-XXXXXX", file[64];
    expect(mkdtemp(folder) != NULL, "no folder");
    options.cache_dir = folder;
    nvllm_results_free(run_all(&options), NUM_REQUESTS);
    struct nvllm_result *want = run_all(&options);
    struct nvllm_result *again = run_all(&options);
    expect_equal(again, want);
    options.enforce_eager = 1;
    options.async_scheduling = "off";
    struct nvllm_result *eager = run_all(&options);
    expect_equal(eager, want);
    snprintf(file, sizeof file, "%s/gemm.txt", folder);
    unlink(file);
    rmdir(folder);
}

static void test_same_bits(void **state) {
    (void)state;
    in_child(run_twice);
}

// Greedy tokens of one GPU; the question's answer is never a close choice.
static void compare_with_one(void) {
    struct nvllm_engine_options options = options_of(2);
    struct nvllm_result *two = run_all(&options);
    options = options_of(1);
    struct nvllm_result *one = run_all(&options);
    for (size_t i = 0; i < NUM_REQUESTS; i += 6) {
        expect(one[i].num_tokens == two[i].num_tokens &&
                   memcmp(one[i].token_ids, two[i].token_ids,
                          one[i].num_tokens * sizeof(int32_t)) == 0,
               "other greedy tokens than one GPU's");
    }
}

static void test_same_tokens_as_one_gpu(void **state) {
    (void)state;
    in_child(compare_with_one);
}

static void start_and_stop(void) {
    struct nvllm_engine_options options = options_of(2);
    for (int i = 0; i < 3; i++) {
        struct nvllm_engine *first = open_or_end(&options), *second = open_or_end(&options);
        struct nvllm_sampling_params params = greedy_params(4);
        struct nvllm_request request = text_request(QUESTION, &params);
        nvllm_results_free(generate_one(second, &request), 1);
        nvllm_results_free(generate_one(first, &request), 1);
        nvllm_engine_destroy(first);
        nvllm_engine_destroy(second);
    }
    expect(waitpid(-1, NULL, WNOHANG) == -1, "a rank is left");
}

static void test_starts_and_stops(void **state) {
    (void)state;
    in_child(start_and_stop);
}

// ---- a rank is lost ----

// The worker of this process; 0: there is none yet.
static pid_t find_worker(void) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int pid = 0;
    while (tasks && !pid && (entry = readdir(tasks))) {
        char list[300];
        snprintf(list, sizeof list, "/proc/self/task/%s/children", entry->d_name);
        FILE *file = fopen(list, "r");
        if (!file) continue;
        if (fscanf(file, "%d", &pid) != 1) pid = 0;
        fclose(file);
    }
    if (tasks) closedir(tasks);
    return (pid_t)pid;
}

// Whether a child runs its program. Before that it shares our memory, and who starts it waits.
static bool runs_program(pid_t pid) {
    char path[64], own[512], its[512];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    ssize_t own_size = readlink("/proc/self/exe", own, sizeof own);
    ssize_t its_size = readlink(path, its, sizeof its);
    return its_size > 0 && (its_size != own_size || memcmp(its, own, (size_t)own_size) != 0);
}

// Who is to be sent what, and when.
static struct loss {
    int signal_number;
    double after_seconds; // of the worker's start; below 0: by the engine's thread
    int after_events; // the engine's thread: so many tokens are there
    double lost_at;
} loss;

static void lose(void) {
    loss.lost_at = clock_seconds();
    pid_t worker = find_worker();
    expect(worker > 0,
           "the worker has ended by itself"); // to 0 the signal would go to this program
    kill(worker, loss.signal_number);
}

static void *lose_later(void *arg) {
    (void)arg;
    while (!runs_program(find_worker())) usleep(1000);
    usleep((useconds_t)(loss.after_seconds * 1e6));
    lose();
    return NULL;
}

static void count_tokens(const struct nvllm_event *event, void *user_data) {
    int *num_events = user_data;
    (void)event;
    ++*num_events;
}

static void expect_lost(const struct nvllm_error *error) {
    const char *want = loss.signal_number == SIGSTOP ? "rank 1 was stopped by signal 19"
                                                     : "rank 1 was ended by signal 9 (Killed)";
    fprintf(stderr, "    %.0f ms later: %s\n", (clock_seconds() - loss.lost_at) * 1e3,
            error->message);
    expect(strstr(error->message, want) != NULL, "another sentence");
}

static void add_long_request(struct nvllm_engine *engine, int *num_events) {
    static int32_t prompt[LONG_PROMPT];
    static struct nvllm_sampling_params params;
    struct nvllm_error error = {0};
    for (int i = 0; i < LONG_PROMPT; i++) prompt[i] = 300 + i * 7 % 500;
    params = greedy_params(20);
    params.ignore_eos = 1;
    struct nvllm_request request = ids_request(prompt, LONG_PROMPT, &params);
    request.on_event = count_tokens;
    request.user_data = num_events;
    if (nvllm_engine_add_request(engine, &request, NULL, &error)) fail_child(error.message);
}

static void run_lost(void) {
    struct nvllm_engine_options options = options_of(2);
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    bool is_other_thread = loss.after_seconds >= 0;
    pthread_t thread;
    if (is_other_thread) pthread_create(&thread, NULL, lose_later, NULL);
    enum nvllm_status status = nvllm_engine_create(&engine, &options, &error);
    expect(!status || is_other_thread, error.message);
    int num_events = 0;
    bool is_lost = false;
    while (!status) {
        if (!nvllm_engine_has_unfinished(engine)) add_long_request(engine, &num_events);
        if (!is_other_thread && !is_lost && num_events >= loss.after_events) {
            lose();
            is_lost = true;
        }
        status = nvllm_engine_step(engine, &error);
    }
    expect_lost(&error);
    nvllm_engine_destroy(engine);
    if (is_other_thread) pthread_join(thread, NULL);
    expect(find_worker() == 0, "the worker is left");
}

static void test_a_rank_is_lost(void **state) {
    (void)state;
    static const int signals[] = {SIGKILL, SIGSTOP};
    static const double seconds[] = {0, 0.2, 0.5, 0.8, 1.2, 2};
    static const int events[] = {0, 5, 25};
    for (size_t s = 0; s < ARRAY_LEN(signals); s++) {
        for (size_t i = 0; i < ARRAY_LEN(seconds); i++) {
            loss = (struct loss){.signal_number = signals[s], .after_seconds = seconds[i]};
            in_child(run_lost);
        }
        for (size_t i = 0; i < ARRAY_LEN(events); i++) {
            loss = (struct loss){
                .signal_number = signals[s], .after_seconds = -1, .after_events = events[i]};
            in_child(run_lost);
        }
    }
}

// In a process of its own: a process that has used a GPU must not fork.
static bool has_gpu(uint32_t number) {
    pid_t child = fork();
    if (child == 0) {
        const struct backend_options options = {
            .device = "cuda",
            .cpu_isa = "auto",
            .weight_dtype = DTYPE_BF16,
            .rank_on_host = number,
        };
        struct backend *backend = NULL;
        struct err err = {0};
        enum status status = backend_create(&backend, &options, &err);
        if (status) fprintf(stderr, "%s\n", err.message);
        _exit(status != OK);
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

// test_cuda_ranks [p2p|nccl [PATTERN]]: only tests whose names match
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens_as_one_gpu),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_starts_and_stops),
        cmocka_unit_test(test_a_rank_is_lost),
    };
    if (argc > 1) comm = argv[1];
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    if (!has_gpu(0)) return SKIPPED;
    if (!has_gpu(1)) {
        device = "cuda:0,0";
        if (strcmp(comm, "nccl") == 0) return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
