/* What the server's loop costs for a streamed token, without a model: its thread's processor time.
 *
 *   bench_server_loop MODEL [PATH [STREAMS [TOKENS [STEP_MS [MEMBERS [SENDERS]]]]]]
 *
 * The server is the real one. Its engine is not: the functions that run it are replaced when this
 * program is linked (--wrap). A step gives each stream a token of a fixed text. It comes STEP_MS
 * after the step before, and not before the loop has handled that one. 0: as fast as the loop
 * takes them. MODEL's folder gives the tokenizer and the chat template. The clients are a thread
 * for each four cores, which open all streams and throw away what comes. PATH is that of the
 * requests (/v1/completions), MEMBERS are more members of their bodies:
 * '"logprobs":true,"top_logprobs":2'. SENDERS is the number of threads that send (0: the server
 * chooses it).
 *
 * With the URL of a running server in place of MODEL, http://127.0.0.1:PORT, this program is only
 * the clients. The time is then that from the first request to the end of the last stream.
 *
 * The time begins behind the second step and ends before the last, so no stream's head or end is
 * in it. The kernel's work for the writes is, and over loopback most of its work for the reader
 * too. The loop's time is that of its own thread. All threads' time has that of the clients, of the
 * engine's thread and of other senders besides. */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/os/cpu.h"
#include "nanovllm.h"
#include "server/loop/loop_queue.h"
#include "server/server.h"

enum {
    NUM_PIECES = 64,
    TOP_MAX = NVLLM_LOGPROBS_MAX,
    SECONDS_MAX = 120,
    READ_BYTES = 1 << 16,
    CORES_PER_CLIENT = 4,
    CLIENTS_MAX = 4,
};

static const char *const words[] = {" the",   " quick", " brown", " fox",
                                    " jumps", ",",      " over",  "\n"};

// An output of a request.
struct stream {
    struct stream *next;
    struct nvllm_event event;
    nvllm_event_fn on_event;
    void *user_data;
    uint32_t num_tokens_max;
    bool has_logprobs;
};

// Threads are many and the functions that are replaced know of no context, so this is the file's.
static struct bench {
    const char *path, *members;
    uint32_t num_streams, num_tokens, step_ms, num_senders;
    pthread_t client; // starts the others
    char url[128];
    // The engine.
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stream *added; // not yet stepped
    uint32_t num_added;
    bool is_awake, is_handled; // is_handled: the loop has handled the last step's messages
    struct stream *running; // the engine's thread alone
    struct timespec next_step;
    uint32_t num_steps;
    struct loop_message handled;
    // The loop's.
    double loop_begin, loop_end, user_begin, user_end, all_begin, all_end, begin, end;
} bench = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .is_handled = true};

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// Of the calling thread, without the kernel's work for it.
static double user_seconds(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0, "cannot read a thread's time");
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6;
}

// ---- the engine ----

// The function `name` in place of the library's.
#define WRAP(type, name, ...)                                                                      \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAP(enum nvllm_status, nvllm_engine_add_request, struct nvllm_engine *engine,
     const struct nvllm_request *request, uint64_t *request_id, struct nvllm_error *error) {
    (void)engine;
    (void)error;
    pthread_mutex_lock(&bench.lock);
    *request_id = ++bench.num_added;
    for (int32_t i = 0; i < request->sampling->n; i++) {
        struct stream *stream = calloc(1, sizeof *stream);
        CHECK(stream, "no memory");
        double now = seconds(CLOCK_MONOTONIC);
        stream->event = (struct nvllm_event){
            .request_id = *request_id,
            .index = (uint32_t)i,
            .num_outputs_left = 1,
            .stop_token_id = -1,
            .num_prompt_tokens = (uint32_t)request->num_prompt_token_ids,
            .times = {
                .arrival = now, .first_scheduled = now, .first_token = now, .last_token = now}};
        stream->on_event = request->on_event;
        stream->user_data = request->user_data;
        stream->num_tokens_max = (uint32_t)request->sampling->max_tokens;
        stream->has_logprobs = request->sampling->logprobs >= 0;
        stream->event.num_top = stream->has_logprobs ? (size_t)request->sampling->logprobs : 0;
        stream->next = bench.added;
        bench.added = stream;
    }
    pthread_cond_broadcast(&bench.changed);
    pthread_mutex_unlock(&bench.lock);
    return NVLLM_OK;
}

WRAP(int, nvllm_engine_has_unfinished, struct nvllm_engine *engine) {
    (void)engine;
    pthread_mutex_lock(&bench.lock);
    bool has_all = bench.num_added >= bench.num_streams && bench.added;
    pthread_mutex_unlock(&bench.lock);
    return has_all || bench.running;
}

WRAP(enum nvllm_status, nvllm_engine_wait, struct nvllm_engine *engine, double time,
     struct nvllm_error *error) {
    (void)engine;
    (void)time;
    (void)error;
    pthread_mutex_lock(&bench.lock);
    while (!bench.is_awake && !(bench.added && bench.num_added >= bench.num_streams)) {
        pthread_cond_wait(&bench.changed, &bench.lock);
    }
    bench.is_awake = false;
    pthread_mutex_unlock(&bench.lock);
    return NVLLM_OK;
}

WRAP(void, nvllm_engine_wake, struct nvllm_engine *engine) {
    (void)engine;
    pthread_mutex_lock(&bench.lock);
    bench.is_awake = true;
    pthread_cond_broadcast(&bench.changed);
    pthread_mutex_unlock(&bench.lock);
}

WRAP(int, nvllm_engine_abort, struct nvllm_engine *engine, uint64_t request_id) {
    (void)engine;
    (void)request_id;
    return 0; // a client that leaves early is a fault of this program, which then does not end
}

static void send_token(struct stream *stream) {
    static const struct nvllm_logprob row[1 + TOP_MAX] = {{.token_id = 5, .logprob = -0.25f}};
    struct nvllm_event *event = &stream->event;
    const char *word = words[event->num_generated_tokens % ARRAY_LEN(words)];
    const int32_t token_id = 100 + (int32_t)(event->num_generated_tokens % NUM_PIECES);
    const uint32_t text_end = (uint32_t)strlen(word);
    event->token_ids = &token_id;
    event->num_tokens = 1;
    event->num_generated_tokens++;
    event->text = word;
    event->text_len = text_end;
    event->text_ends = &text_end;
    event->logprobs = stream->has_logprobs ? row : NULL;
    event->times.last_token = seconds(CLOCK_MONOTONIC);
    if (event->num_generated_tokens == stream->num_tokens_max) {
        event->finish_reason = NVLLM_FINISH_LENGTH;
        event->num_outputs_left = 0;
    }
    stream->on_event(event, stream->user_data);
}

// Waits for the time of the next step.
static void wait_for_time(void) {
    struct timespec *at = &bench.next_step;
    if (!at->tv_sec) clock_gettime(CLOCK_MONOTONIC, at);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL);
    clock_gettime(CLOCK_MONOTONIC, at);
    at->tv_nsec += bench.step_ms * 1000000L;
    at->tv_sec += at->tv_nsec / 1000000000;
    at->tv_nsec %= 1000000000;
}

WRAP(enum nvllm_status, nvllm_engine_step, struct nvllm_engine *engine, struct nvllm_error *error) {
    (void)engine;
    (void)error;
    if (bench.step_ms) wait_for_time();
    pthread_mutex_lock(&bench.lock);
    while (!bench.is_handled) pthread_cond_wait(&bench.changed, &bench.lock);
    if (bench.added) {
        bench.running = bench.added;
        bench.added = NULL;
    }
    bench.is_handled = false;
    pthread_mutex_unlock(&bench.lock);
    for (struct stream **at = &bench.running; *at;) {
        struct stream *stream = *at;
        send_token(stream);
        if (stream->event.finish_reason) {
            *at = stream->next;
            free(stream);
        } else {
            at = &stream->next;
        }
    }
    return NVLLM_OK;
}

// ---- the loop ----

// On the loop's thread, behind the messages of a step. Their writes come after it.
static void handle_step(struct loop_message *message) {
    (void)message;
    bench.num_steps++;
    if (bench.num_steps == 2) {
        bench.user_begin = user_seconds();
        bench.loop_begin = seconds(CLOCK_THREAD_CPUTIME_ID);
        bench.all_begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
        bench.begin = seconds(CLOCK_MONOTONIC);
    } else if (bench.num_steps == bench.num_tokens - 1) {
        bench.user_end = user_seconds();
        bench.loop_end = seconds(CLOCK_THREAD_CPUTIME_ID);
        bench.all_end = seconds(CLOCK_PROCESS_CPUTIME_ID);
        bench.end = seconds(CLOCK_MONOTONIC);
    }
    pthread_mutex_lock(&bench.lock);
    bench.is_handled = true;
    pthread_cond_broadcast(&bench.changed);
    pthread_mutex_unlock(&bench.lock);
}

void __real_loop_queue_send(struct loop_queue *loop_queue, struct loop_message_list *list);
WRAP(void, loop_queue_send, struct loop_queue *loop_queue, struct loop_message_list *list) {
    if (list->first) {
        bench.handled.handle = handle_step;
        loop_message_list_add(list, &bench.handled);
    }
    __real_loop_queue_send(loop_queue, list);
}

// ---- the client ----

struct client {
    pthread_t thread;
    const struct addrinfo *address;
    const char *request;
    uint32_t num_streams;
    uint64_t num_bytes; // that it has read
};

static int open_stream(const struct client *client) {
    const struct addrinfo *address = client->address;
    int fd = socket(address->ai_family, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) == 0, "cannot connect");
    size_t len = strlen(client->request);
    CHECK(write(fd, client->request, len) == (ssize_t)len, "cannot write");
    return fd;
}

// False: the stream has ended, as it should.
static bool read_stream(struct client *client, int fd) {
    static const char last[] = "data: [DONE]\n\n\r\n0\r\n\r\n";
    char bytes[READ_BYTES];
    ssize_t len = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    CHECK(len > 0, "a stream has broken off");
    client->num_bytes += (uint64_t)len;
    bool is_other = strncmp(bench.path, "/v1/messages", 12) == 0 ||
                    strncmp(bench.path, "/v1/responses", 13) == 0;
    const char *end = is_other ? "\n\n\r\n0\r\n\r\n" : last;
    size_t end_len = strlen(end);
    return (size_t)len < end_len || memcmp(bytes + len - end_len, end, end_len) != 0;
}

static void *run_client(void *arg) {
    struct client *client = arg;
    int poll = epoll_create1(0);
    struct epoll_event events[256];
    for (uint32_t i = 0; i < client->num_streams; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = open_stream(client)};
        CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event) == 0, "cannot watch");
    }
    for (uint32_t num_open = client->num_streams; num_open;) {
        int count = epoll_wait(poll, events, ARRAY_LEN(events), SECONDS_MAX * 1000);
        CHECK(count > 0, "nothing has come for %d seconds", SECONDS_MAX);
        for (int i = 0; i < count; i++) {
            if (read_stream(client, events[i].data.fd)) continue;
            close(events[i].data.fd);
            num_open--;
        }
    }
    close(poll);
    return NULL;
}

// All streams. Returns how many bytes came.
static uint64_t run_all_clients(const struct addrinfo *address, const char *request) {
    struct client clients[CLIENTS_MAX];
    uint32_t count = (uint32_t)cpu_count() / CORES_PER_CLIENT;
    uint64_t num_bytes = 0;
    count = count < 1 ? 1 : count < CLIENTS_MAX ? count : CLIENTS_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t num_streams = bench.num_streams / count + (i < bench.num_streams % count);
        clients[i] =
            (struct client){.address = address, .request = request, .num_streams = num_streams};
        CHECK(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        num_bytes += clients[i].num_bytes;
    }
    return num_bytes;
}

static void report(uint64_t num_bytes) {
    double tokens = (double)bench.num_streams * (bench.num_tokens - 3);
    double loop = bench.loop_end - bench.loop_begin, wall = bench.end - bench.begin;
    printf("%s: %u streams, %u tokens each, %.0f bytes a token; loop %.2f us a token, "
           "%.2f of them outside the kernel, %.0f%% of a core; all threads %.2f us; %.0f tok/s\n",
           bench.path, bench.num_streams, bench.num_tokens,
           (double)num_bytes / (double)bench.num_streams / bench.num_tokens, loop / tokens * 1e6,
           (bench.user_end - bench.user_begin) / tokens * 1e6, loop / wall * 100,
           (bench.all_end - bench.all_begin) / tokens * 1e6, tokens / wall);
}

// Returns how many bytes came.
static uint64_t run_streams(const char *url) {
    bool is_chat = strcmp(bench.path, "/v1/completions") != 0;
    bool is_responses = strcmp(bench.path, "/v1/responses") == 0;
    const char *messages = "[{\"role\":\"user\",\"content\":\"Hello\"}]";
    char body[1024], request[2048];
    snprintf(body, sizeof body, "{\"stream\":true,\"%s\":%u,\"%s\":%s%s%s}",
             is_responses ? "max_output_tokens" : "max_tokens", bench.num_tokens,
             is_responses ? "input"
             : is_chat    ? "messages"
                          : "prompt",
             is_chat ? messages : "\"Hello\"", *bench.members ? "," : "", bench.members);
    snprintf(request, sizeof request,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             bench.path, strlen(body), body);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *address;
    CHECK(getaddrinfo("127.0.0.1", strrchr(url, ':') + 1, &hints, &address) == 0,
          "no address in %s", url);
    uint64_t num_bytes = run_all_clients(address, request);
    freeaddrinfo(address);
    return num_bytes;
}

static void *run_bench(void *arg) {
    (void)arg;
    report(run_streams(bench.url));
    kill(getpid(), SIGTERM);
    return NULL;
}

static void load_server(const char *url) {
    double begin = seconds(CLOCK_MONOTONIC);
    uint64_t num_bytes = run_streams(url);
    double wall = seconds(CLOCK_MONOTONIC) - begin;
    double tokens = (double)bench.num_streams * bench.num_tokens;
    printf("%s: %u streams, %u tokens each, %.0f bytes a token; %.0f tok/s\n", bench.path,
           bench.num_streams, bench.num_tokens, (double)num_bytes / tokens, tokens / wall);
}

static void on_ready(const char *url, void *user_data) {
    (void)user_data;
    snprintf(bench.url, sizeof bench.url, "%s", url);
    CHECK(pthread_create(&bench.client, NULL, run_bench, NULL) == 0, "no thread");
}

static void write_log(const char *line, size_t len, void *user_data) {
    (void)line;
    (void)len;
    (void)user_data;
}

static void raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static uint32_t read_number(const char *text) {
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    CHECK(*text && !*end && number <= 1000000, "%s is no number up to 1000000", text);
    return (uint32_t)number;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 8) {
        fprintf(stderr,
                "usage: bench_server_loop MODEL|URL [PATH [STREAMS [TOKENS [STEP_MS [MEMBERS "
                "[SENDERS]]]]]]\n");
        return 2;
    }
    bench.path = argc > 2 ? argv[2] : "/v1/completions";
    bench.num_streams = argc > 3 ? read_number(argv[3]) : 1024;
    bench.num_tokens = argc > 4 ? read_number(argv[4]) : 64;
    bench.step_ms = argc > 5 ? read_number(argv[5]) : 0;
    bench.members = argc > 6 ? argv[6] : "";
    bench.num_senders = argc > 7 ? read_number(argv[7]) : 0;
    CHECK(bench.num_streams && bench.num_tokens > 3, "no streams, or fewer than 4 tokens");
    raise_descriptors();
    if (strncmp(argv[1], "http://", 7) == 0) {
        load_server(argv[1]);
        return 0;
    }
    struct nvllm_engine_options engine_options = NVLLM_ENGINE_OPTIONS_INIT;
    struct nvllm_error error = {0};
    struct nvllm_engine *engine = NULL;
    engine_options.model = argv[1];
    if (nvllm_engine_create(&engine, &engine_options, &error)) {
        fprintf(stderr, "bench_server_loop: %s\n", error.message);
        return 1;
    }
    const char *const name = "model";
    const struct server_options options = {.host = "127.0.0.1",
                                           .model_names = &name,
                                           .num_model_names = 1,
                                           .model_path = argv[1],
                                           .tool_call_parser = "auto",
                                           .reasoning_parser = "auto",
                                           .connections_max = bench.num_streams + 16,
                                           .num_senders = bench.num_senders,
                                           .body_bytes_max = 1 << 20,
                                           .bodies_bytes_max = 1 << 28,
                                           .outputs_max = 64,
                                           .shutdown_seconds = 1,
                                           .ping_seconds = 15,
                                           .log = SERVER_LOG_NONE,
                                           .write_log = write_log,
                                           .on_ready = on_ready};
    struct server *server = NULL;
    struct err err = {0};
    enum status status = server_create(&server, &options, &err);
    if (!status) status = server_run(server, engine, &err);
    if (status) fprintf(stderr, "bench_server_loop: %s\n", err.message);
    if (bench.client) pthread_join(bench.client, NULL);
    server_destroy(server);
    nvllm_engine_destroy(engine);
    return status ? 1 : 0;
}
