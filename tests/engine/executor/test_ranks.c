/* Engines of several processes: the same answers as of one, and what happens when a rank is lost.
 * The program nanovllm is in NANOVLLM_TEST_PROGRAM. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cpu/kernels.h"
#include "base/os/clock.h"
#include "support/children.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/temp_folder.h"

static struct nvllm_engine_options options_of(int32_t world_size) {
    struct nvllm_engine_options options = small_options();
    options.tensor_parallel_size = world_size;
    options.worker_program = getenv("NANOVLLM_TEST_PROGRAM");
    assert_non_null(options.worker_program);
    return options;
}

// The fastest instruction set that rounds nothing to bf16, so that a sum's order changes the last
// bits only.
static const char *exact_isa(void) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    if (table[CPU_ISA_AVX2].is_here) return table[CPU_ISA_AVX2].name;
    return table[table[CPU_ISA_NEON].is_here ? CPU_ISA_NEON : CPU_ISA_SCALAR].name;
}

// Requests that meet every part of sampling that ranks share out.
static struct nvllm_result *run_all(int32_t world_size, size_t *count) {
    static struct nvllm_sampling_params params[MIXED_PARAMS];
    static struct nvllm_request requests[8];
    struct nvllm_engine_options options = options_of(world_size);
    options.kv_cache_dtype = "float32";
    options.cpu_isa = exact_isa();
    mixed_params(params, 24);
    for (size_t i = 0; i < 8; i++) requests[i] = text_request(QUESTION, &params[i % MIXED_PARAMS]);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *results = NULL;
    struct nvllm_error error = {0};
    if (nvllm_engine_generate(engine, requests, 8, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    nvllm_engine_destroy(engine);
    *count = 8;
    return results;
}

static void test_same_tokens_as_one_process(void **state) {
    (void)state;
    size_t count = 0;
    struct nvllm_result *want = run_all(1, &count);
    for (int32_t world_size = 2; world_size <= 8; world_size *= 2) {
        struct nvllm_result *got = run_all(world_size, &count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(got[i].num_tokens, want[i].num_tokens);
            assert_memory_equal(got[i].token_ids, want[i].token_ids,
                                want[i].num_tokens * sizeof(int32_t));
        }
        nvllm_results_free(got, count);
    }
    nvllm_results_free(want, count);
    assert_no_children();
}

// Every rank adds in the same order, whoever comes first.
static void test_same_bits_from_run_to_run(void **state) {
    (void)state;
    size_t count = 0;
    struct nvllm_result *want = run_all(4, &count);
    struct nvllm_result *got = run_all(4, &count);
    for (size_t i = 0; i < count; i++) {
        size_t tops = want[i].num_top < 0 ? 0 : 1 + (size_t)want[i].num_top;
        assert_memory_equal(got[i].token_ids, want[i].token_ids,
                            want[i].num_tokens * sizeof(int32_t));
        if (!tops) continue;
        assert_memory_equal(got[i].logprobs, want[i].logprobs,
                            want[i].num_tokens * tops * sizeof *got[i].logprobs);
    }
    nvllm_results_free(want, count);
    nvllm_results_free(got, count);
}

// 8-bit keys and values: each rank scales those of its own heads, and a second request reads them
// from the prefix cache.
static void test_ranks_share_an_int8_cache(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2);
    options.kv_cache_dtype = "int8";
    struct nvllm_sampling_params params = greedy_params(16);
    params.logprobs = 0;
    struct nvllm_request request = text_request(QUESTION, &params);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *first = generate_one(engine, &request);
    struct nvllm_result *second = generate_one(engine, &request);
    assert_string_equal(first->text, "37 + 58 = 95.");
    assert_int_equal(first->num_cached_tokens, 0);
    assert_int_equal(second->num_cached_tokens, 16);
    assert_int_equal(second->num_tokens, first->num_tokens);
    assert_memory_equal(second->logprobs, first->logprobs,
                        first->num_tokens * sizeof *first->logprobs);
    nvllm_results_free(first, 1);
    nvllm_results_free(second, 1);
    nvllm_engine_destroy(engine);
    assert_no_children();
}

// Of a prompt's tokens: rank 0 gathers whole rows, whose first tokens are those that the ranks
// report together.
static void test_ranks_bring_whole_rows(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params[2] = {greedy_params(1), greedy_params(1)};
    params[0].prompt_logprobs = NVLLM_LOGPROBS_MAX;
    params[1].prompt_logprobs = NVLLM_LOGPROBS_ALL;
    struct nvllm_request requests[] = {text_request(QUESTION, &params[0]),
                                       text_request(QUESTION, &params[1])};
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(engine, requests, 2, &results, NULL, NULL), NVLLM_OK);
    size_t listed = 1 + NVLLM_LOGPROBS_MAX, whole = 1 + (size_t)results[1].num_prompt_top;
    assert_int_equal(whole, 4097);
    for (size_t i = 0; i + 1 < results[0].num_prompt_tokens; i++) {
        assert_memory_equal(results[1].prompt_logprobs + i * whole,
                            results[0].prompt_logprobs + i * listed,
                            listed * sizeof *results[0].prompt_logprobs);
    }
    nvllm_results_free(results, 2);
    nvllm_engine_destroy(engine);
    assert_no_children();
}

static void count_tokens(const struct nvllm_event *event, void *user_data) {
    int *num_events = user_data;
    (void)event;
    ++*num_events;
}

// Sends a signal to rank `rank` of four while they run, or while they wait for work.
static void check_lost(size_t rank, int signal_number, bool is_idle, const char *want) {
    struct nvllm_engine_options options = options_of(4);
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(200);
    params.ignore_eos = 1;
    struct nvllm_request request = text_request(QUESTION, &params);
    struct nvllm_error error = {0};
    int num_events = 0;
    request.on_event = count_tokens;
    request.user_data = &num_events;
    pid_t pids[8];
    assert_int_equal(children(pids, 8), 3);
    assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, &error), NVLLM_OK);
    while (!is_idle && num_events < 3)
        assert_int_equal(nvllm_engine_step(engine, &error), NVLLM_OK);
    kill(pids[rank - 1], signal_number);
    enum nvllm_status status = NVLLM_OK;
    while (!status && nvllm_engine_has_unfinished(engine)) {
        status = nvllm_engine_step(engine, &error);
    }
    assert_int_equal(status, NVLLM_ERR_DEVICE);
    if (!strstr(error.message, want)) fail_msg("\"%s\", want \"%s\"", error.message, want);
    assert_false(nvllm_engine_has_unfinished(engine));
    nvllm_engine_destroy(engine);
    assert_no_children();
}

static void test_a_rank_is_killed(void **state) {
    (void)state;
    check_lost(1, SIGKILL, false, "rank 1 was ended by signal 9 (Killed)");
    check_lost(2, SIGKILL, true, "rank 2 was ended by signal 9 (Killed)");
    check_lost(3, SIGTERM, false, "rank 3 was ended by signal 15");
}

static void test_a_rank_is_stopped(void **state) {
    (void)state;
    check_lost(1, SIGSTOP, false, "rank 1 was stopped by signal 19");
    check_lost(3, SIGSTOP, true, "rank 3 was stopped by signal 19");
}

static void expect_no_engine(const struct nvllm_engine_options *options, const char *want) {
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    assert_int_not_equal(nvllm_engine_create(&engine, options, &error), NVLLM_OK);
    assert_null(engine);
    if (!strstr(error.message, want)) fail_msg("\"%s\", want \"%s\"", error.message, want);
    assert_no_children();
}

static void test_programs_that_are_no_rank(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2);
    options.worker_program = "/nonexistent/nanovllm";
    expect_no_engine(&options, "cannot start /nonexistent/nanovllm");
    options.worker_program = "/bin/false";
    expect_no_engine(&options, "rank 1 has ended with exit status 1");
}

// The worker's program runs elsewhere, where the model's path leads nowhere.
static void test_a_rank_that_finds_no_model(void **state) {
    (void)state;
    struct temp_folder folder;
    char program[600], script[1200];
    temp_folder_create(&folder);
    snprintf(script, sizeof script, "#!/bin/sh\ncd %s && exec %s \"$@\"\n", folder.path,
             getenv("NANOVLLM_TEST_PROGRAM"));
    temp_folder_write(&folder, "elsewhere", script, strlen(script));
    snprintf(program, sizeof program, "%s/elsewhere", folder.path);
    assert_int_equal(chmod(program, 0700), 0);
    struct nvllm_engine_options options = options_of(2);
    options.worker_program = program;
    expect_no_engine(&options, "rank 1: models/tiny-qwen3 ");
    temp_folder_remove(&folder);
}

// A program such as a daemon has no standard descriptors, and its next files get their numbers.
static void test_a_program_without_standard_descriptors(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2);
    struct nvllm_sampling_params params = greedy_params(3);
    struct nvllm_request request = text_request("a", &params);
    struct nvllm_engine *engine = NULL;
    struct nvllm_error error = {0};
    int saved[3];
    fflush(stdout);
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        close(fd);
    }
    enum nvllm_status status = nvllm_engine_create(&engine, &options, &error);
    if (!status) status = nvllm_engine_add_request(engine, &request, NULL, &error);
    while (!status && nvllm_engine_has_unfinished(engine)) {
        status = nvllm_engine_step(engine, &error);
    }
    nvllm_engine_destroy(engine);
    for (int fd = 0; fd < 3; fd++) {
        if (saved[fd] >= 0) dup2(saved[fd], fd);
        if (saved[fd] >= 0) close(saved[fd]);
    }
    if (status) fail_msg("%s", error.message);
    assert_no_children();
}

static void test_no_shared_memory(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    expect_no_engine(&options, "bytes of shared memory for 2 ranks");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

static void test_what_cannot_be_shared(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(3);
    expect_no_engine(&options, "8 attention heads on 4 key/value heads cannot be shared evenly");
    options.tensor_parallel_size = 16;
    expect_no_engine(&options, "cannot be shared evenly by 16 ranks");
}

// What this process has in /dev/shm, in mappings, and open.
struct left {
    size_t num_files, num_shared, num_mapped;
};

// Files with that part in their names: other programs come and go in /dev/shm.
static size_t count_in(const char *folder, const char *part) {
    DIR *files = opendir(folder);
    assert_non_null(files);
    size_t count = 0;
    const struct dirent *file;
    while ((file = readdir(files))) count += strstr(file->d_name, part) != NULL;
    closedir(files);
    return count;
}

static struct left look(void) {
    struct left left = {.num_files = count_in("/proc/self/fd", ""),
                        .num_shared = count_in("/dev/shm", "nanovllm")};
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        left.num_mapped += strstr(line, "nanovllm ranks") != NULL;
    fclose(maps);
    return left;
}

// 100 starts, two engines at once and one after the other: nothing is left of any.
static void test_starts_and_stops(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of(2);
    const struct left before = look();
    for (int i = 0; i < 50; i++) {
        struct nvllm_engine *first = open_engine(&options), *second = open_engine(&options);
        struct nvllm_sampling_params params = greedy_params(4);
        struct nvllm_request request = text_request(QUESTION, &params);
        nvllm_results_free(generate_one(second, &request), 1);
        nvllm_results_free(generate_one(first, &request), 1);
        assert_int_equal(look().num_mapped, 2);
        nvllm_engine_destroy(first);
        nvllm_engine_destroy(second);
        assert_no_children();
        const struct left after = look();
        assert_int_equal(after.num_mapped, 0);
        assert_int_equal(after.num_files, before.num_files);
        assert_int_equal(after.num_shared, before.num_shared);
    }
}

// The kernel ends the workers with the process whose engine they belong to.
static void test_no_rank_outlives_its_engine(void **state) {
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t owner = fork();
    if (owner == 0) {
        struct nvllm_engine_options options = options_of(3);
        options.tensor_parallel_size = 2;
        open_engine(&options);
        pid_t worker = 0;
        if (children(&worker, 1) != 1 || write(fds[1], &worker, sizeof worker) < 0) _exit(1);
        for (;;) pause();
    }
    pid_t worker = 0;
    assert_int_equal(read(fds[0], &worker, sizeof worker), sizeof worker);
    kill(owner, SIGKILL);
    assert_int_equal(waitpid(owner, NULL, 0), owner);
    double deadline = clock_seconds() + 20;
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)worker);
    while (clock_seconds() < deadline) { // until it is gone, or its new parent has yet to reap it
        FILE *stat = fopen(path, "r");
        bool is_there = stat && fgets(line, sizeof line, stat);
        if (stat) fclose(stat);
        if (!is_there || strstr(line, ") Z")) break;
        usleep(10000);
    }
    assert_true(clock_seconds() < deadline);
    close(fds[0]);
    close(fds[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_tokens_as_one_process),
        cmocka_unit_test(test_same_bits_from_run_to_run),
        cmocka_unit_test(test_ranks_share_an_int8_cache),
        cmocka_unit_test(test_ranks_bring_whole_rows),
        cmocka_unit_test(test_a_rank_is_killed),
        cmocka_unit_test(test_a_rank_is_stopped),
        cmocka_unit_test(test_programs_that_are_no_rank),
        cmocka_unit_test(test_a_rank_that_finds_no_model),
        cmocka_unit_test(test_a_program_without_standard_descriptors),
        cmocka_unit_test(test_no_shared_memory),
        cmocka_unit_test(test_what_cannot_be_shared),
        cmocka_unit_test(test_starts_and_stops),
        cmocka_unit_test(test_no_rank_outlives_its_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
