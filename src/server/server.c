#include "server/server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/os/clock.h"
#include "base/os/cpu.h"
#include "server/api/endpoints.h"
#include "server/http/listen.h"
#include "server/http/tls.h"
#include "server/loop/api.h"
#include "server/loop/api_request.h"
#include "server/loop/request_info.h"
#include "server/observe/engine_room.h"
#include "server/route.h"

enum {
    POOL_THREADS = 4,
    // CPUs that the affinity mask and the cgroups leave. The loop's thread is one of the senders. A
    // machine of few CPUs has none to spare for others.
    CPUS_PER_SENDER = 4,
    SENDERS_MAX = 4,
};
#define FLUSH_SECONDS 2.0 // for the last answers to be read
#define ABORT_SECONDS 5.0 // for the engine to end what was aborted

struct server {
    struct server_options options;
    int fd; // the listening socket; -1: http has it
    bool has_unix_file; // which is to be removed
    struct tls *tls; // NULL: none
    struct buf url;
    struct event_base *base;
    struct event *signals[2];
    struct event *timer; // of the end
    struct event *deadline; // asks now and then which requests take too long; NULL: any may
    struct api api;
    double flush_until; // 0: the last answers are not out
    enum status result;
    struct err err;
};

// ---- the end ----

static void arm(struct server *server, double seconds) {
    const struct timeval time = clock_timeval(seconds);
    event_add(server->timer, &time);
}

// All answers are written; their readers get some time to read them.
static void begin_flush(struct server *server) {
    if (server->flush_until > 0) return;
    server->flush_until = clock_seconds() + FLUSH_SECONDS;
    arm(server, 0);
}

static void begin_drain(struct server *server, double seconds) {
    if (server->api.is_draining) return;
    server->api.is_draining = true;
    engine_room_close(server->api.room);
    http_server_drain(server->api.http);
    if (server->api.num_requests) {
        arm(server, seconds);
    } else {
        begin_flush(server);
    }
}

static void on_requests_ended(struct api *api) {
    struct server *server = (struct server *)(void *)((char *)api - offsetof(struct server, api));
    if (api->is_draining) begin_flush(server);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct server *server = arg;
    struct api *api = &server->api;
    if (server->flush_until > 0) {
        http_server_drain(api->http); // those that are idle now
        bool is_over = clock_seconds() >= server->flush_until;
        if (is_over || !http_server_num_connections(api->http)) {
            event_base_loopbreak(server->base);
        } else {
            arm(server, 0.02);
        }
        return;
    }
    struct api_request *request;
    server_log_say(&server->options, "the time is over: %u request%s aborted",
                   (unsigned)api->num_requests, api->num_requests == 1 ? " is" : "s are");
    TAILQ_FOREACH(request, &api->requests, link) api_request_cancel(request);
    server->flush_until = clock_seconds() + ABORT_SECONDS;
    arm(server, 0.02);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct server *server = arg;
    api_request_expire(&server->api, clock_seconds() - server->options.request_seconds);
}

// The first one. From now on signals have their default effect.
static void on_signal(evutil_socket_t number, short what, void *arg) {
    (void)what;
    struct server *server = arg;
    unsigned num_requests = (unsigned)server->api.num_requests;
    if (num_requests) {
        const char *name = number == SIGINT ? "Ctrl-C" : "signal";
        server_log_say(&server->options,
                       "stopping: waiting up to %g seconds for %u request%s; a second %s ends at "
                       "once",
                       server->options.shutdown_seconds, num_requests, num_requests == 1 ? "" : "s",
                       name);
    }
    for (size_t i = 0; i < ARRAY_LEN(server->signals); i++) event_del(server->signals[i]);
    begin_drain(server, server->options.shutdown_seconds);
}

static void on_engine_failed(const char *sentence, void *user_data) {
    struct server *server = user_data;
    server->result = err_set(&server->err, ERR_DEVICE, "the engine has failed: %s", sentence);
    server->api.has_failed = true;
    api_request_fail_all(&server->api);
    server->api.is_draining = true;
    engine_room_close(server->api.room);
    http_server_drain(server->api.http);
    begin_flush(server);
}

static void on_step(uint64_t num_tokens, void *user_data) {
    struct server *server = user_data;
    metrics_step(server->api.metrics, num_tokens);
}

static bool may_step(bool has_work, void *user_data) {
    struct server *server = user_data;
    return !server->api.room || engine_room_may_step(server->api.room, has_work);
}

// ---- start ----

static enum status open_socket(struct server *server, struct err *err) {
    const struct server_options *options = &server->options;
    if (!options->unix_path) {
        const char *scheme = server->tls ? "https" : "http";
        return listen_open(&server->fd, options->host, options->port, scheme, &server->url, err);
    }
    enum status status = listen_open_unix(&server->fd, options->unix_path, &server->url, err);
    server->has_unix_file = !status;
    return status;
}

enum status server_create(struct server **out, const struct server_options *options,
                          struct err *err) {
    struct server *server = calloc(1, sizeof *server);
    if (!server) return err_nomem(err, "server");
    server->options = *options;
    server->api.options = &server->options;
    TAILQ_INIT(&server->api.requests);
    server->fd = -1;
    enum status status = OK;
    if (options->tls_cert_path) {
        status = tls_create(&server->tls, options->tls_cert_path, options->tls_key_path, err);
    }
    if (!status) status = open_socket(server, err);
    if (status) {
        server_destroy(server);
        return status;
    }
    *out = server;
    return OK;
}

// Ten times in the time that a request has, at least once a second, at most a thousand times.
static enum status make_deadline(struct server *server, struct err *err) {
    double period = server->options.request_seconds / 10;
    if (period < 0.001) period = 0.001;
    if (period > 1) period = 1;
    const struct timeval time = clock_timeval(period);
    server->deadline = event_new(server->base, -1, EV_PERSIST, on_deadline, server);
    bool is_good = server->deadline && event_add(server->deadline, &time) == 0;
    return is_good ? OK : err_nomem(err, "event loop");
}

static enum status make_loop(struct server *server, struct err *err) {
    static const int numbers[] = {SIGTERM, SIGINT};
    struct event_config *config = event_config_new();
    if (config) event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
    server->base = config ? event_base_new_with_config(config) : NULL;
    if (config) event_config_free(config);
    if (!server->base) return err_nomem(err, "event loop");
    server->timer = evtimer_new(server->base, on_timer, server);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        server->signals[i] = evsignal_new(server->base, numbers[i], on_signal, server);
        if (!server->signals[i] || event_add(server->signals[i], NULL)) {
            return err_nomem(err, "event loop");
        }
    }
    if (!server->timer) return err_nomem(err, "event loop");
    return server->options.request_seconds > 0 ? make_deadline(server, err) : OK;
}

static uint32_t num_senders(const struct server_options *options) {
    uint32_t count = (uint32_t)cpu_count() / CPUS_PER_SENDER;
    if (options->num_senders) return options->num_senders;
    return count < 1 ? 1 : count < SENDERS_MAX ? count : SENDERS_MAX;
}

static enum status make_http(struct server *server, struct err *err) {
    const struct server_options *options = &server->options;
    size_t body_bytes = options->body_bytes_max, bodies_bytes = options->bodies_bytes_max;
    const struct http_limits limits = {.connections_max = options->connections_max,
                                       .body_bytes_max = body_bytes,
                                       .bodies_bytes_max =
                                           bodies_bytes > body_bytes ? bodies_bytes : body_bytes,
                                       .ping_seconds = options->ping_seconds,
                                       .num_senders = num_senders(options)};
    const struct http_handler handler = {.on_head = route_on_head,
                                         .on_request = route_on_request,
                                         .on_full = route_on_full,
                                         .on_gone = route_on_gone,
                                         .on_fault = route_on_fault,
                                         .user_data = &server->api};
    enum status status = http_server_create(&server->api.http, server->base, server->fd,
                                            server->tls, &limits, &handler, err);
    if (!status) server->fd = -1;
    return status;
}

static enum status start(struct server *server, struct nvllm_engine *engine, struct err *err) {
    struct api *api = &server->api;
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(engine, &stats);
    api->engine = engine;
    api->tokenizer = nvllm_engine_tokenizer(engine);
    api->vocab_size = stats.vocab_size;
    api->max_model_len = stats.max_model_len;
    api->started = api_unix_time();
    api->on_requests_ended = on_requests_ended;
    if (!api->tokenizer) return err_set(err, ERR_INVALID, "a server needs the model's tokenizer");
    api_set_chat(api, nvllm_engine_chat_template(engine, &api->chat_fault));
    const char *model_path = server->options.model_path;
    api->tokenizer_config = model_path ? tokenizer_info_read(model_path) : NULL;
    enum status status = make_loop(server, err);
    if (status) return status;
    api->metrics = metrics_create(api->max_model_len);
    api->loop_queue = loop_queue_create(server->base);
    if (!api->metrics || !api->loop_queue) return err_nomem(err, "server");
    if (server->options.engine_room && !(api->room = engine_room_create(api, server->base))) {
        return err_nomem(err, "engine room");
    }
    status = make_http(server, err);
    if (!status) status = work_pool_create(&api->pool, POOL_THREADS, err);
    if (status) return status;
    const struct engine_thread_options options = {.engine = engine,
                                                  .loop_queue = api->loop_queue,
                                                  .on_step = on_step,
                                                  .may_step = may_step,
                                                  .on_failed = on_engine_failed,
                                                  .user_data = server};
    return engine_thread_start(&api->engine_thread, &options, err);
}

// Clients first, so that their requests are aborted; then those who work on them.
static void stop(struct server *server) {
    struct api *api = &server->api;
    api->is_draining = true;
    server->flush_until = clock_seconds();
    engine_room_close(api->room);
    http_server_destroy(api->http);
    api->http = NULL;
    work_pool_destroy(api->pool);
    if (api->engine_thread) engine_thread_stop(api->engine_thread);
    loop_queue_destroy(api->loop_queue);
    engine_room_destroy(api->room);
    engine_thread_destroy(api->engine_thread);
    api_request_free_all(api);
    metrics_destroy(api->metrics);
    json_decref(api->tokenizer_config);
    json_out_fini(&api->scratch);
    json_out_fini(&api->log_line);
    for (size_t i = 0; i < ARRAY_LEN(server->signals); i++) {
        if (server->signals[i]) event_free(server->signals[i]);
    }
    if (server->timer) event_free(server->timer);
    if (server->deadline) event_free(server->deadline);
    if (server->base) event_base_free(server->base);
}

enum status server_run(struct server *server, struct nvllm_engine *engine, struct err *err) {
    enum status status = start(server, engine, err);
    if (!status) {
        http_server_start(server->api.http);
        server->options.on_ready(server->url.data, server->options.user_data);
        event_base_dispatch(server->base);
        status = server->result;
        if (status && err) *err = server->err;
    }
    stop(server);
    return status;
}

void server_destroy(struct server *server) {
    if (!server) return;
    if (server->fd >= 0) close(server->fd);
    if (server->has_unix_file) unlink(server->options.unix_path);
    tls_destroy(server->tls);
    buf_fini(&server->url);
    free(server);
}
