// A server whose memory runs out at any place of a request: that request ends, with an answer or a
// closed connection, and the next one is served. Runs the whole server in this process, on the
// bundled model.
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/server.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

enum { ANSWER_BYTES_MAX = 1 << 16, SECONDS = 20, STRIDE = 400 };

struct fixture {
    struct nvllm_engine *engine;
    struct server *server;
    pthread_t thread;
    uint16_t port;
    enum status status;
};

static void ignore_line(const char *line, size_t len, void *user_data) {
    (void)line;
    (void)len;
    (void)user_data;
}

static void note_port(const char *url, void *user_data) {
    struct fixture *fixture = user_data;
    unsigned port = 0;
    const char *at = strrchr(url, ':');
    if (at && sscanf(at + 1, "%u", &port) == 1) {
        __atomic_store_n(&fixture->port, (uint16_t)port, __ATOMIC_RELEASE);
    }
}

static void *serve(void *arg) {
    struct fixture *fixture = arg;
    fixture->status = server_run(fixture->server, fixture->engine, NULL);
    return NULL;
}

static int start(void **state) {
    static struct fixture fixture;
    static const char *const names[] = {"tiny"};
    struct nvllm_engine_options engine = NVLLM_ENGINE_OPTIONS_INIT;
    engine.model = "models/tiny-qwen3";
    engine.chat_template = "tests/reference/data/chat-templates/chatml-tools.jinja"; // shows calls
    engine.threads = 1;
    engine.max_model_len = 256;
    engine.num_kvcache_blocks = 64;
    assert_int_equal(nvllm_engine_create(&fixture.engine, &engine, NULL), NVLLM_OK);
    static struct server_options options = {.host = "127.0.0.1",
                                            .model_names = names,
                                            .num_model_names = 1,
                                            .tool_call_parser = "hermes",
                                            .reasoning_parser = "auto",
                                            .connections_max = 16,
                                            .body_bytes_max = 1 << 20,
                                            .outputs_max = 16,
                                            .ping_seconds = 15,
                                            .log = SERVER_LOG_JSON,
                                            .write_log = ignore_line,
                                            .on_ready = note_port,
                                            .user_data = &fixture};
    assert_int_equal(server_create(&fixture.server, &options, NULL), OK);
    assert_int_equal(pthread_create(&fixture.thread, NULL, serve, &fixture), 0);
    while (!__atomic_load_n(&fixture.port, __ATOMIC_ACQUIRE)) usleep(1000);
    *state = &fixture;
    return 0;
}

static int stop(void **state) {
    struct fixture *fixture = *state;
    kill(getpid(), SIGTERM);
    pthread_join(fixture->thread, NULL);
    assert_int_equal(fixture->status, OK);
    server_destroy(fixture->server);
    nvllm_engine_destroy(fixture->engine);
    return 0;
}

static int connect_to(const struct fixture *fixture) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct timeval time = {.tv_sec = SECONDS};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(fixture->port),
                                        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

// Sends a request without an allocation of its own. `more` is a field of the head.
static void send_request(int fd, const char *path, const char *body, const char *more) {
    static char request[4096];
    int len =
        snprintf(request, sizeof request,
                 "%s %s HTTP/1.1\r\nHost: localhost\r\n%s"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 body ? "POST" : "GET", path, more, body ? strlen(body) : 0, body ? body : "");
    assert_true(len > 0 && (size_t)len < sizeof request);
    assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
}

// All that comes up to the connection's end; "": nothing.
static const char *receive_rest(int fd) {
    static char answer[ANSWER_BYTES_MAX];
    size_t got = 0;
    ssize_t part;
    while ((part = recv(fd, answer + got, sizeof answer - 1 - got, 0)) > 0) got += (size_t)part;
    bool hangs = part < 0 && errno == EAGAIN;
    close(fd);
    answer[got] = '\0';
    if (hangs) fail_msg("no end of: %s", answer);
    return answer;
}

static const char *ask(const struct fixture *fixture, const char *path, const char *body) {
    int fd = connect_to(fixture);
    send_request(fd, path, body, "Connection: close\r\n");
    return receive_rest(fd);
}

// The n-th allocation fails. The connection has had an answer before: libevent 2.1 does not say
// that it could not make one whole.
static const char *ask_failing(const struct fixture *fixture, const char *path, const char *body,
                               size_t n) {
    char first[256];
    int fd = connect_to(fixture);
    send_request(fd, "/live", NULL, "");
    assert_true(recv(fd, first, sizeof first, 0) > 0);
    alloc_hook_fail_at(n, false);
    send_request(fd, path, body, "Connection: close\r\n");
    return receive_rest(fd);
}

static bool begins(const char *text, const char *begin) {
    return strncmp(text, begin, strlen(begin)) == 0;
}

// What a client may get when memory runs out: nothing, an error, a stream that says so or breaks
// off, or the answer that it gets with memory, which always has `len` bytes.
static bool check_answer(const char *answer, const char *wanted, size_t len, size_t n) {
    bool is_whole = begins(answer, "HTTP/1.1 200") && strstr(answer, wanted) != NULL;
    bool has_error = strstr(answer, "\"out_of_memory\"") || strstr(answer, "overloaded");
    bool is_good = has_error ||
                   (is_whole ? strlen(answer) == len : !*answer || begins(answer, "HTTP/1.1 200"));
    if (!is_good)
        fail_msg("allocation %zu: %zu bytes, want %zu: %s", n, strlen(answer), len, answer);
    return is_whole && !has_error;
}

static void check_rest(const struct fixture *fixture) {
    const char *metrics = ask(fixture, "/metrics", NULL);
    assert_true(begins(metrics, "HTTP/1.1 200"));
    assert_non_null(
        strstr(metrics, "nanovllm:calls_in_flight{engine=\"0\",model_name=\"tiny\"} 0\n"));
}

// Each allocation of the request fails in turn; far ones less often.
static void sweep(const struct fixture *fixture, const char *path, const char *body,
                  const char *wanted) {
    ask(fixture, path,
        body); // from now on the prompt is cached, and the answer tells how much of it
    const char *answer = ask(fixture, path, body);
    if (!strstr(answer, wanted)) fail_msg("no %s in %.1000s", wanted, answer);
    size_t num_failed = 0, num_errors = 0, len = strlen(answer);
    for (size_t n = 1;; n += 1 + n / STRIDE) {
        answer = ask_failing(fixture, path, body, n);
        bool has_failed = alloc_hook_has_failed();
        alloc_hook_disarm();
        if (!has_failed) break;
        num_failed++;
        num_errors += !check_answer(answer, wanted, len, n);
        assert_true(begins(ask(fixture, "/health", NULL), "HTTP/1.1 200"));
    }
    assert_true(num_failed > 20);
    assert_true(num_errors > 5);
    answer = ask(fixture, path, body);
    assert_non_null(strstr(answer, wanted));
    check_rest(fixture);
}

static void test_chat_stream(void **state) {
    sweep(*state, "/v1/chat/completions",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": true, \"n\": 2,"
          "\"max_tokens\": 3, \"logprobs\": true, \"top_logprobs\": 2, \"ignore_eos\": true, "
          "\"temperature\": 0}",
          "data: [DONE]\n\n\r\n0\r\n\r\n");
}

static void test_completion(void **state) {
    sweep(*state, "/v1/completions",
          "{\"prompt\": [\"Once\", [5, 6, 7]], \"max_tokens\": 2, \"echo\": true, \"logprobs\": 1,"
          "\"stop\": [\"zzz\"], \"prompt_logprobs\": 1, \"ignore_eos\": true, \"temperature\": 0}",
          "\"finish_reason\":\"length\"");
}

static void test_other_shapes(void **state) {
    sweep(*state, "/v1/responses",
          "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": "
          "\"Hi\"}]}, {\"type\": \"function_call\", \"call_id\": \"1\", \"name\": \"f\"},"
          "{\"type\": \"function_call_output\", \"call_id\": \"1\", \"output\": \"x\"}],"
          "\"max_output_tokens\": 2, \"stream\": true, \"ignore_eos\": true, \"temperature\": 0}",
          "event: response.incomplete");
    sweep(*state, "/v1/messages",
          "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
          "\"Hi\"}]}], \"max_tokens\": 2, \"stop_sequences\": [\"zzz\"], \"ignore_eos\": true, "
          "\"temperature\": 0}",
          "\"stop_reason\":\"max_tokens\"");
}

static void test_tokens(void **state) {
    sweep(*state, "/tokenize", "{\"prompt\": \"Once upon\", \"return_token_strs\": true}",
          "\"count\"");
    sweep(*state, "/v1/messages/count_tokens",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", "\"input_tokens\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_stream),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests_name("server_alloc", tests, start, stop);
}
