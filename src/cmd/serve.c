/* `nanovllm serve`: options and the engine around the server in src/server. The port is taken
 * before the model is loaded, which may take long. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "base/log.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/write_whole.h"
#include "base/text/buf.h"
#include "cmd/cli.h"
#include "cmd/model/model_place.h"
#include "server/chat/tool_format.h"
#include "server/loop/request_info.h"
#include "server/server.h"

#define BLANKS " \t\v\f"

enum { DESCRIPTORS_SPARE = 128 }; // beside connections: the model's files, logs

struct list {
    json_t *json; // of strings
    const char **items; // [count], borrowed from json
    size_t count;
};

struct serve {
    struct nvllm_engine_options engine_options;
    struct model_place place;
    const char *host, *log, *engine_room, *unknown_members, *tool_call_parser, *reasoning_parser;
    int32_t page;
    int32_t port, max_connections, max_body_mib, max_bodies_mib;
    double request_timeout, shutdown_timeout, ping_interval;
    const char *api_key_file, *uds, *ssl_certfile, *ssl_keyfile; // NULL: none
    struct buf key_file_text;
    struct list api_keys, model_names, allowed_hosts;
    struct trace trace;
    struct nvllm_engine *engine;
    struct server_options server_options;
    struct server *server;
    struct log_writer log_writer; // of the library's lines
    bool is_loading, is_ready;
    double start;
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"host", NVLLM_PARAM_STRING, offsetof(struct serve, host), 0, 0, NULL,
         "address to listen on, 0.0.0.0 is all of IPv4; default 127.0.0.1, this machine alone"},
        {"port", NVLLM_PARAM_INT, offsetof(struct serve, port), 0, 65535, NULL,
         "port to listen on, 0 is any free one; default 8000"},
        {"uds", NVLLM_PARAM_STRING, offsetof(struct serve, uds), 0, 0, NULL,
         "path of a Unix socket to listen on in place of --host and --port; default none"},
        {"ssl_certfile", NVLLM_PARAM_STRING, offsetof(struct serve, ssl_certfile), 0, 0, NULL,
         "certificate in PEM, with its chain, for TLS; default none"},
        {"ssl_keyfile", NVLLM_PARAM_STRING, offsetof(struct serve, ssl_keyfile), 0, 0, NULL,
         "its key in PEM; default: in the certificate's file"},
        {"api_key_file", NVLLM_PARAM_STRING, offsetof(struct serve, api_key_file), 0, 0, NULL,
         "file with API keys, one a line, # begins a comment; default none"},
        {"tool_call_parser", NVLLM_PARAM_STRING, offsetof(struct serve, tool_call_parser), 0, 0,
         NULL,
         "format of tool calls: hermes, llama3_json, mistral, mistral_args, harmony, glm45, "
         "minimax_m2, qwen3_xml, gemma4, hunyuan_a13b, nemotron_json, deepseek_v3, deepseek_v31, "
         "kimi_k2, pythonic, llama4_pythonic, lfm2, cohere_command3, cohere_command4; none leaves "
         "them in the text; default auto, by the chat template"},
        {"reasoning_parser", NVLLM_PARAM_STRING, offsetof(struct serve, reasoning_parser), 0, 0,
         "auto|none", "none leaves a model's reasoning in the text; default auto"},
        {"max_connections", NVLLM_PARAM_INT, offsetof(struct serve, max_connections), 1, 65536,
         NULL, "largest number of connections, others wait until one ends; default 2048"},
        {"max_body_mib", NVLLM_PARAM_INT, offsetof(struct serve, max_body_mib), 1, 1024, NULL,
         "largest size of a request's body, in MiB; default 32"},
        {"unknown_members", NVLLM_PARAM_STRING, offsetof(struct serve, unknown_members), 0, 0,
         "warn|refuse",
         "members of a request that are not known, such as temprature: warn names them in the log "
         "and in the header X-Ignored-Members, refuse answers 400; default warn"},
        {"max_bodies_mib", NVLLM_PARAM_INT, offsetof(struct serve, max_bodies_mib), 1, 1 << 20,
         NULL,
         "largest size of the bodies of all requests that are being read, in MiB, --max-body-mib "
         "at "
         "least; others get 503; default 256"},
        {"request_timeout", NVLLM_PARAM_DOUBLE, offsetof(struct serve, request_timeout), 0, 1e6,
         NULL, "seconds that a request may take altogether, 0 is no limit; default 0"},
        {"ping_interval", NVLLM_PARAM_DOUBLE, offsetof(struct serve, ping_interval), 0.1, 3600,
         NULL, "seconds of silence after which a stream has a comment, : ping; default 15"},
        {"shutdown_timeout", NVLLM_PARAM_DOUBLE, offsetof(struct serve, shutdown_timeout), 0, 86400,
         NULL,
         "seconds that requests have to end after SIGTERM before they are aborted; default 30"},
        {"log", NVLLM_PARAM_STRING, offsetof(struct serve, log), 0, 0, "text|json|none",
         "a line on standard error for each request; default text"},
        {"page", NVLLM_PARAM_BOOL, offsetof(struct serve, page), 0, 1, NULL,
         "a page for browsers at /: a chat, and the engine room; default on"},
        {"engine_room", NVLLM_PARAM_STRING, offsetof(struct serve, engine_room), 0, 0,
         "off|view|control",
         "view shows the engine's blocks and sequences, with everybody's tokens, to all who may "
         "ask; control also lets them pause it; default off"},
        {"trace", NVLLM_PARAM_STRING, offsetof(struct serve, trace.path), 0, 0, NULL, TRACE_HELP},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const struct nvllm_param *list_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"served_model_name", NVLLM_PARAM_STRINGS, offsetof(struct serve, model_names), 0, 0, NULL,
         "name of the model for clients, the first is in answers; default: the folder's name"},
        {"api_key", NVLLM_PARAM_STRINGS, offsetof(struct serve, api_keys), 0, 0, NULL,
         "key that clients must send; also in the environment, NANOVLLM_API_KEY; default none"},
        {"allowed_hosts", NVLLM_PARAM_STRINGS, offsetof(struct serve, allowed_hosts), 0, 0, NULL,
         "name that the header Host may have beside this machine's; checked if there is no key and "
         "the address is this machine's; default none"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static enum status fill_list(struct list *list, const char *name, struct err *err) {
    list->count = json_array_size(list->json);
    free(list->items);
    list->items = calloc(list->count + 1, sizeof *list->items);
    if (!list->items) return err_nomem(err, "options");
    for (size_t i = 0; i < list->count; i++) {
        list->items[i] = json_string_value(json_array_get(list->json, i));
        if (!list->items[i] || !list->items[i][0]) {
            return err_set(err, ERR_INVALID, "%s is empty, want a text", name);
        }
    }
    return OK;
}

static enum status set_list(void *target, const char *name, const char *value, struct err *err) {
    for (size_t i = 0;; i++) {
        const struct nvllm_param *row = list_option(i);
        if (!row) return err_set(err, ERR_INVALID, "unknown option %s", name);
        if (strcmp(row->name, name) != 0) continue;
        struct list *list = (struct list *)(void *)((char *)target + row->offset);
        json_decref(list->json);
        list->json = NULL;
        enum status status = jread_text(&list->json, value, strlen(value), "the value", err);
        return status ? status : fill_list(list, row->name, err);
    }
}

// Adds to the JSON alone: fill_list follows the last item.
static enum status add_item(struct list *list, const char *text, size_t len, struct err *err) {
    if (!list->json) list->json = json_array();
    if (json_array_append_new(list->json, json_stringn(text, len)) == 0) return OK;
    return err_set(err, ERR_INVALID, "it is not UTF-8");
}

static enum status add_only_item(struct list *list, const char *text, struct err *err) {
    enum status status = add_item(list, text, strlen(text), err);
    return status ? status : fill_list(list, "it", err);
}

static const char details[] =
    "Serves the model over HTTP in OpenAI's form: /v1/chat/completions,\n"
    "/v1/completions, /v1/responses, /v1/models, Anthropic's /v1/messages, and beside\n"
    "them /tokenize, /detokenize, /apply-template, /health, /ready, /version and\n"
    "/metrics; at / a page for browsers. doc/serving.md has all.\n";

static const char epilogue[] =
    "SIGTERM and Ctrl-C end it: requests in work go on until --shutdown-timeout, new\n"
    "ones are refused. A second signal ends it at once.\n"
    "\n"
    "Example:\n"
    "  nanovllm serve -m Qwen3-0.6B\n"
    "  curl http://127.0.0.1:8000/v1/chat/completions \\\n"
    "    -H 'Content-Type: application/json' \\\n"
    "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'\n";

// ---- options ----

// HTTP takes the blanks around a field's value away, so such a key would let nobody in.
static enum status check_keys(const struct list *keys, struct err *err) {
    for (size_t i = 0; i < keys->count; i++) {
        const char *key = keys->items[i];
        if (!strchr(BLANKS, key[0]) && !strchr(BLANKS, key[strlen(key) - 1])) continue;
        return err_set(
            err, ERR_INVALID,
            "an API key (--api-key, NANOVLLM_API_KEY) begins or ends with a blank, which "
            "no client can send");
    }
    return OK;
}

static enum status read_keys(struct serve *serve, struct err *err) {
    const char *key = getenv("NANOVLLM_API_KEY");
    enum status status = OK;
    if (key && *key) status = add_only_item(&serve->api_keys, key, err);
    if (status) return err_prefix(err, status, "NANOVLLM_API_KEY");
    status = check_keys(&serve->api_keys, err);
    if (status) return status;
    if (!serve->api_key_file) return OK;
    status = file_read(&serve->key_file_text, serve->api_key_file, err);
    if (status) return status;
    size_t before = serve->api_keys.count;
    char *rest = serve->key_file_text.data, *line;
    if (strlen(rest) != serve->key_file_text.len) {
        return err_set(err, ERR_FORMAT, "%s: it has a NUL byte", serve->api_key_file);
    }
    // Blanks around a key are none of it, and a line that begins with # is a comment.
    while (!status && (line = strtok_r(rest, "\r\n", &rest))) {
        line += strspn(line, BLANKS);
        size_t len = strlen(line);
        while (len && strchr(BLANKS, line[len - 1])) len--;
        if (len && line[0] != '#') status = add_item(&serve->api_keys, line, len, err);
    }
    if (!status) status = fill_list(&serve->api_keys, "it", err);
    if (!status && serve->api_keys.count == before) {
        status = err_set(err, ERR_FORMAT, "it has no key");
    }
    return status ? err_prefix(err, status, "%s", serve->api_key_file) : OK;
}

// A model by its name is served by it, another by the last part of its path.
static enum status name_model(struct serve *serve, struct err *err) {
    if (serve->model_names.count) return OK;
    if (serve->place.is_named) return add_only_item(&serve->model_names, serve->place.name, err);
    char *path = realpath(serve->engine_options.model, NULL);
    const char *from = path ? path : serve->engine_options.model;
    const char *slash = strrchr(from, '/');
    const char *name = slash && slash[1] ? slash + 1 : from;
    enum status status = add_only_item(&serve->model_names, name, err);
    free(path);
    return status ? err_prefix(err, status, "--served-model-name") : OK;
}

static bool is_own_address(const char *host) {
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

// ---- what the server calls ----

// A log that nobody reads must not stop the server: a pipe that is full loses the line.
static void write_log(const char *line, size_t len, void *user_data) {
    (void)user_data;
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT)) write_whole(STDERR_FILENO, line, len);
}

static void on_ready(const char *url, void *user_data) {
    struct serve *serve = user_data;
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(serve->engine, &stats);
    uint64_t num_tokens = stats.num_kv_blocks / stats.num_kv_groups * (uint64_t)stats.block_size;
    serve->is_ready = true;
    server_log_say(&serve->server_options,
                   "serving %s at %s after %d ms: context %u tokens, KV cache %llu tokens, seed "
                   "%lld",
                   serve->model_names.items[0], url, (int)((clock_seconds() - serve->start) * 1e3),
                   stats.max_model_len, (unsigned long long)num_tokens,
                   (long long)serve->engine_options.seed);
}

static void on_loaded(uint64_t num_loaded, uint64_t num_parameters, void *user_data) {
    (void)num_loaded;
    struct serve *serve = user_data;
    if (serve->is_loading) return;
    serve->is_loading = true;
    char sentence[256];
    loading_sentence(sentence, sizeof sentence, serve->model_names.items[0], num_parameters);
    server_log_say(&serve->server_options, "%s", sentence);
}

// Puts the library's warnings into the server's log.
static void on_library_line(const char *sentence, void *user_data) {
    const struct serve *serve = user_data;
    server_log_say(&serve->server_options, "%s", sentence);
}

// ---- the run ----

// A connection is a descriptor; the system's usual limit of 1024 is fewer than we may have.
static void raise_descriptors(const struct serve *serve) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)serve->max_connections + DESCRIPTORS_SPARE;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); // if it fails, accepting waits for descriptors
}

static void set_log(struct serve *serve) {
    struct server_options *options = &serve->server_options;
    options->log = strcmp(serve->log, "json") == 0   ? SERVER_LOG_JSON
                   : strcmp(serve->log, "none") == 0 ? SERVER_LOG_NONE
                                                     : SERVER_LOG_TEXT;
    options->write_log = write_log;
    options->user_data = serve;
}

static enum status make_server(struct serve *serve, struct err *err) {
    enum server_log log = serve->server_options.log;
    serve->server_options = (struct server_options){
        .host = serve->host,
        .port = (uint16_t)serve->port,
        .unix_path = serve->uds,
        .tls_cert_path = serve->ssl_certfile,
        .tls_key_path = serve->ssl_keyfile,
        .api_keys = serve->api_keys.items,
        .num_api_keys = serve->api_keys.count,
        .model_names = serve->model_names.items,
        .num_model_names = serve->model_names.count,
        .allowed_hosts = serve->allowed_hosts.items,
        .num_allowed_hosts = serve->allowed_hosts.count,
        .model_path = serve->engine_options.model,
        .chat_template_path = serve->engine_options.chat_template,
        .tool_call_parser = serve->tool_call_parser,
        .reasoning_parser = serve->reasoning_parser,
        .connections_max = (uint32_t)serve->max_connections,
        .body_bytes_max = (size_t)serve->max_body_mib << 20,
        .bodies_bytes_max = (size_t)serve->max_bodies_mib << 20,
        .refuses_unknown = strcmp(serve->unknown_members, "refuse") == 0,
        .outputs_max = (uint32_t)serve->engine_options.max_num_seqs,
        .request_seconds = serve->request_timeout,
        .shutdown_seconds = serve->shutdown_timeout,
        .ping_seconds = serve->ping_interval,
        .log = log,
        .has_page = serve->page,
        .engine_room = strcmp(serve->engine_room, "control") == 0 ? ENGINE_ROOM_CONTROL
                       : strcmp(serve->engine_room, "view") == 0  ? ENGINE_ROOM_VIEW
                                                                  : ENGINE_ROOM_OFF,
        .write_log = write_log,
        .on_ready = on_ready,
        .user_data = serve};
    return server_create(&serve->server, &serve->server_options, err);
}

// Refuses an engine room that others could open without a key, since it shows what everybody wrote.
// Refuses --trace beside it, because an engine has one observer, and several engines, whose blocks
// have the same numbers.
static enum status check_engine_room(const struct serve *serve, struct err *err) {
    if (strcmp(serve->engine_room, "off") == 0) return OK;
    if (serve->trace.path) {
        return err_set(err, ERR_INVALID,
                       "--engine-room and --trace both observe the engine: give one of them");
    }
    int engines = serve->engine_options.data_parallel_size;
    if (engines > 1) {
        return err_set(err, ERR_UNSUPPORTED,
                       "--engine-room shows the blocks of one engine, and --data-parallel-size %d "
                       "makes %d: leave one of the two out",
                       engines, engines);
    }
    if (serve->api_keys.count || is_own_address(serve->host)) return OK;
    return err_set(err, ERR_INVALID,
                   "--engine-room shows everybody's prompts: with --host %s it needs an API key",
                   serve->host);
}

// Makes the engine. On a terminal a bar shows the load, and the library writes its lines itself.
// Elsewhere both go into the log.
static enum status make_engine(struct serve *serve, struct err *err) {
    struct nvllm_engine_options options = serve->engine_options;
    const struct nvllm_load_progress progress = {.on_loaded = on_loaded, .user_data = serve};
    serve->log_writer = (struct log_writer){.write = on_library_line, .user_data = serve};
    bool draws = serve->server_options.log != SERVER_LOG_JSON && isatty(STDERR_FILENO);
    if (!draws) {
        options.load_progress = &progress;
        log_set_writer(&serve->log_writer);
    }
    return cli_engine_create(&serve->engine, &options, serve->place.name, err);
}

static enum status run(struct serve *serve, struct err *err) {
    enum status status = read_keys(serve, err);
    if (!status) status = check_engine_room(serve, err);
    if (!status) {
        status = model_place_find(&serve->place, &serve->engine_options, false, err);
    }
    if (!status) status = name_model(serve, err);
    if (!status) status = make_server(serve, err);
    if (!status) status = trace_open(&serve->trace, serve->engine_options.model, err);
    if (status) return status;
    if (!serve->uds && !is_own_address(serve->host) && !serve->api_keys.count) {
        server_log_say(&serve->server_options,
                       "warning: everybody who reaches this machine may use the model: no API key");
    }
    raise_descriptors(serve);
    status = make_engine(serve, err);
    if (!status) status = trace_begin(&serve->trace, serve->engine, err);
    if (!status) status = server_run(serve->server, serve->engine, err);
    struct err close_err = {0};
    enum status close_status = trace_close(&serve->trace, serve->engine, &close_err);
    if (!status && close_status) *err = close_err;
    return status ? status : close_status;
}

static bool is_parser(const char *name) {
    return strcmp(name, "auto") == 0 || strcmp(name, "none") == 0 || tool_format_find(name);
}

static int serve_model(struct serve *serve, const struct options *options) {
    if (!serve->engine_options.model)
        return cli_usage_error(options, "no model given: use -m MODEL");
    if (options->num_args) {
        return cli_usage_error(options, "unexpected argument %s", options->args[0]);
    }
    if (serve->engine_options.skip_tokenizer_init) {
        return cli_usage_error(options, "--skip-tokenizer-init: a server answers with text");
    }
    if (!is_parser(serve->tool_call_parser)) {
        return cli_usage_error(
            options,
            "--tool-call-parser is %s, want auto, none, hermes, llama3_json, "
            "mistral, mistral_args, harmony, glm45, minimax_m2, qwen3_xml, gemma4, hunyuan_a13b, "
            "nemotron_json, deepseek_v3, deepseek_v31, kimi_k2, pythonic, llama4_pythonic, lfm2, "
            "cohere_command3 or cohere_command4",
            serve->tool_call_parser);
    }
    if (serve->ssl_keyfile && !serve->ssl_certfile) {
        return cli_usage_error(options, "--ssl-keyfile: there is no --ssl-certfile");
    }
    struct err err = {0};
    set_log(serve);
    if (!run(serve, &err)) return CLI_OK;
    bool is_log_line = serve->is_ready || serve->server_options.log == SERVER_LOG_JSON;
    if (!is_log_line) return cli_error("%s", err.message);
    server_log_say(&serve->server_options, "%s", err.message);
    return CLI_FAILED;
}

static void free_list(struct list *list) {
    json_decref(list->json);
    free(list->items);
}

int cmd_serve(int argc, char **argv) {
    struct serve serve = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT,
                          .host = "127.0.0.1",
                          .log = "text",
                          .tool_call_parser = "auto",
                          .reasoning_parser = "auto",
                          .engine_room = "off",
                          .unknown_members = "warn",
                          .page = 1,
                          .port = 8000,
                          .max_connections = 2048,
                          .max_body_mib = 32,
                          .max_bodies_mib = 256,
                          .shutdown_timeout = 30,
                          .ping_interval = 15,
                          .start = clock_seconds()};
    serve.engine_options.target_itl = "auto"; // streams wait for their tokens
    const struct option_group groups[] = {
        {.title = "Server", .row = own_option, .target = &serve},
        {.title = "Names and keys (each may be given several times)",
         .row = list_option,
         .set = set_list,
         .target = &serve},
        cli_drawn_engine_group(&serve.engine_options),
    };
    struct options options = {.command = "serve",
                              .synopsis = "-m MODEL [options]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (cli_parse(&options, argc, argv, &exit_code)) exit_code = serve_model(&serve, &options);
    server_destroy(serve.server);
    nvllm_engine_destroy(serve.engine);
    log_set_writer(NULL);
    trace_abandon(&serve.trace);
    buf_fini(&serve.key_file_text);
    free_list(&serve.api_keys);
    free_list(&serve.model_names);
    free_list(&serve.allowed_hosts);
    return exit_code;
}
