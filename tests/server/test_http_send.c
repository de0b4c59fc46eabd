// Many connections are written to at once: several threads send, and each client gets its bytes, in
// order, also one that reads late and after one that has left.
#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/text/buf.h"
#include "server/http/http_conn.h"
#include "support/cmocka_all.h"

enum {
    CLIENTS = 100,
    STEPS = 40,
    LATE = 7, // the client that reads nothing until the last step
    GONE = 70, // the one that leaves before it
    LONG_BYTES = 20000, // of each of LATE's lines: together more than the kernel takes
    KERNEL_BYTES = 32000, // of a socket's buffer
    HELP_SECONDS = 20, // in which another thread must have sent something
};

struct fixture {
    struct event_base *base;
    struct http_server *http;
    struct sockaddr_in address;
    struct http_conn *conns[CLIENTS];
    uint32_t num_conns, num_steps, num_gone;
    struct event *step;
    sem_t is_written; // the last step is
    atomic_bool is_over; // all clients have ended
    char *long_line;
};

struct client {
    pthread_t thread;
    struct fixture *fixture;
    uint32_t index;
    struct buf body; // without the chunks' sizes
};

// ---- who sends ----

static pthread_t loop_thread;
static sem_t has_helped;
static atomic_uint num_helps, num_own;
static atomic_bool waits_for_help;

// In place of libc's.
ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    if (!pthread_equal(pthread_self(), loop_thread)) {
        if (atomic_fetch_add(&num_helps, 1) == 0) sem_post(&has_helped);
    } else if (atomic_load(&waits_for_help)) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += HELP_SECONDS;
        sem_timedwait(&has_helped, &end);
        atomic_store(&waits_for_help, false);
    }
    atomic_fetch_add(&num_own, pthread_equal(pthread_self(), loop_thread));
    return sendto(fd, bytes, len, flags, NULL, 0);
}

// ---- the server ----

static uint32_t index_of(struct http_conn *conn) {
    const struct http_request *request = http_conn_request(conn);
    return (uint32_t)strtoul(request->text.data + request->target + 1, NULL, 10);
}

static void on_request(struct http_conn *conn, void *user_data) {
    struct fixture *fixture = user_data;
    uint32_t index = index_of(conn);
    fixture->conns[index] = conn;
    http_conn_set_data(conn, &fixture->conns[index]);
    assert_true(http_conn_stream_begin(conn, NULL));
    if (++fixture->num_conns == CLIENTS) event_active(fixture->step, 0, 0);
}

static void on_head(struct http_conn *conn, void *user_data) {
    (void)conn;
    (void)user_data;
}

static void on_gone(struct http_conn *conn, void *user_data) {
    struct fixture *fixture = user_data;
    struct http_conn **place = http_conn_data(conn);
    *place = NULL;
    fixture->num_gone++;
}

static void on_fault(struct http_conn *conn, int status, const char *sentence, void *user_data) {
    (void)conn;
    (void)user_data;
    fail_msg("%d %s", status, sentence);
}

static void make_line(char *line, size_t size, uint32_t index, uint32_t step) {
    snprintf(line, size, "client %u, step %u\n", index, step);
}

static void write_line(struct fixture *fixture, uint32_t index) {
    char line[64];
    struct http_conn *conn = fixture->conns[index];
    make_line(line, sizeof line, index, fixture->num_steps);
    if (!conn || !http_conn_stream_write(conn, line, strlen(line))) return;
    if (index == LATE) http_conn_stream_write(conn, fixture->long_line, LONG_BYTES);
}

static void on_step(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct fixture *fixture = arg;
    const struct timeval soon = {.tv_usec = 1000};
    if (atomic_load(&fixture->is_over)) {
        event_base_loopbreak(fixture->base);
        return;
    }
    event_add(fixture->step, &soon);
    if (fixture->num_steps == STEPS) return;
    if (fixture->num_steps == STEPS / 2 && !fixture->num_gone) return; // it will be
    if (fixture->num_steps == 0) atomic_store(&waits_for_help, true);
    for (uint32_t i = 0; i < CLIENTS; i++) write_line(fixture, i);
    if (++fixture->num_steps < STEPS) return;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (fixture->conns[i]) http_conn_stream_end(fixture->conns[i]);
    }
    sem_post(&fixture->is_written);
}

static void start(struct fixture *fixture) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    socklen_t len = sizeof fixture->address;
    fixture->address.sin_family = AF_INET;
    fixture->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int size = KERNEL_BYTES; // connections inherit it
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&fixture->address, len), 0);
    assert_int_equal(listen(fd, CLIENTS), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&fixture->address, &len), 0);
    const struct http_limits limits = {.connections_max = CLIENTS,
                                       .body_bytes_max = 1 << 10,
                                       .bodies_bytes_max = 1 << 20,
                                       .ping_seconds = 60,
                                       .num_senders = 4};
    const struct http_handler handler = {.on_head = on_head,
                                         .on_request = on_request,
                                         .on_gone = on_gone,
                                         .on_fault = on_fault,
                                         .user_data = fixture};
    fixture->base = event_base_new();
    fixture->step = evtimer_new(fixture->base, on_step, fixture);
    assert_int_equal(
        http_server_create(&fixture->http, fixture->base, fd, NULL, &limits, &handler, NULL), OK);
    assert_int_equal(sem_init(&fixture->is_written, 0, 0), 0);
    fixture->long_line = malloc(LONG_BYTES);
    assert_non_null(fixture->long_line);
    memset(fixture->long_line, 'x', LONG_BYTES - 1);
    fixture->long_line[LONG_BYTES - 1] = '\n';
    http_server_start(fixture->http);
}

// ---- the clients ----

static void read_line(FILE *from, char *line, int size) {
    assert_non_null(fgets(line, size, from));
}

static void read_chunks(FILE *from, struct buf *body) {
    char line[256];
    do {
        read_line(from, line, sizeof line);
    } while (strcmp(line, "\r\n") != 0);
    for (;;) {
        read_line(from, line, sizeof line);
        size_t len = strtoul(line, NULL, 16);
        char *bytes = malloc(len + 2);
        assert_non_null(bytes);
        assert_int_equal(fread(bytes, 1, len + 2, from), len + 2);
        assert_int_equal(buf_append(body, bytes, len, NULL), OK);
        free(bytes);
        if (!len) return;
    }
}

static void *run_client(void *arg) {
    struct client *client = arg;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char request[64];
    const int size = KERNEL_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    int len = snprintf(request, sizeof request, "GET /%u HTTP/1.1\r\nHost: localhost\r\n\r\n",
                       client->index);
    assert_int_equal(
        connect(fd, (struct sockaddr *)&client->fixture->address, sizeof client->fixture->address),
        0);
    assert_int_equal(write(fd, request, (size_t)len), len);
    if (client->index == LATE) sem_wait(&client->fixture->is_written);
    FILE *from = fdopen(fd, "r");
    if (client->index == GONE) {
        char line[256];
        read_line(from, line, sizeof line);
    } else {
        read_chunks(from, &client->body);
    }
    fclose(from);
    return NULL;
}

static void check_body(const struct fixture *fixture, struct client *client) {
    struct buf want = {0};
    char line[64];
    for (uint32_t step = 0; step < STEPS; step++) {
        make_line(line, sizeof line, client->index, step);
        assert_int_equal(buf_append(&want, line, strlen(line), NULL), OK);
        if (client->index != LATE) continue;
        assert_int_equal(buf_append(&want, fixture->long_line, LONG_BYTES, NULL), OK);
    }
    assert_int_equal(client->body.len, want.len);
    assert_memory_equal(client->body.data, want.data, want.len);
    buf_fini(&want);
}

static void *wait_for_clients(void *arg) {
    struct client *clients = arg;
    for (uint32_t i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    atomic_store(&clients->fixture->is_over, true);
    return NULL;
}

static void test_threads_send(void **state) {
    (void)state;
    static struct fixture fixture;
    static struct client clients[CLIENTS];
    pthread_t joiner;
    assert_int_equal(sem_init(&has_helped, 0, 0), 0);
    loop_thread = pthread_self();
    start(&fixture);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.fixture = &fixture, .index = i};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    assert_int_equal(pthread_create(&joiner, NULL, wait_for_clients, clients), 0);
    event_base_dispatch(fixture.base);
    pthread_join(joiner, NULL);

    assert_true(atomic_load(&num_helps) > 0);
    assert_true(atomic_load(&num_own) > 0);
    assert_int_equal(fixture.num_gone, 1);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (i != GONE) check_body(&fixture, &clients[i]);
        buf_fini(&clients[i].body);
    }
    http_server_destroy(fixture.http);
    event_free(fixture.step);
    event_base_free(fixture.base);
    free(fixture.long_line);
}

// Stacks larger than any address space: no thread can be started.
static void test_a_thread_that_cannot_start_is_said(void **state) {
    (void)state;
    struct event_base *base = event_base_new();
    struct http_server *http = NULL;
    struct err err = {0};
    const struct http_limits limits = {.connections_max = 1, .num_senders = 2};
    const struct http_handler handler = {.on_head = on_head};
    pthread_attr_t usual, huge;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 60), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    enum status status = http_server_create(&http, base, -1, NULL, &limits, &handler, &err);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(status, ERR_NOMEM);
    assert_non_null(strstr(err.message, "thread 1 of 2 could not be started"));
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    event_base_free(base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_send),
        cmocka_unit_test(test_a_thread_that_cannot_start_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
