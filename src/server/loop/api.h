/* What all endpoints share: the engine, the threads around it, names and limits. Made by server.c;
 * the loop's thread owns all that may change. */
#ifndef SERVER_API_H
#define SERVER_API_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/json/json_out.h"
#include "nanovllm.h"
#include "server/http/http_conn.h"
#include "server/loop/engine_thread.h"
#include "server/loop/loop_queue.h"
#include "server/loop/metrics.h"
#include "server/loop/server_options.h"
#include "server/loop/work_pool.h"

struct api_error;
struct api_request;
struct tool_format;
struct engine_room;
TAILQ_HEAD(api_request_list, api_request);

struct api {
    // Constant while the server runs; any thread.
    const struct server_options *options;
    struct nvllm_engine *engine;
    const struct nvllm_tokenizer *tokenizer;
    const struct nvllm_chat_template *chat_template; // NULL: there is none, chat_fault says why
    struct nvllm_error chat_fault;
    bool reads_tools; // the template shows them
    const struct tool_format *tool_format; // in which calls are found; NULL: they stay text
    bool calls_in_special; // the mark of calls is a special token
    // Whether these texts of tool_format are one added token each, special or not.
    bool mark_is_token, end_mark_is_token, after_name_is_token;
    bool splits_reasoning;
    bool thinks_in_special; // the tags of reasoning are special tokens
    json_t *tokenizer_config; // tokenizer_config.json; NULL: it cannot be read
    uint32_t max_model_len;
    uint32_t vocab_size;
    uint64_t started; // seconds since 1970: "created" of the models
    struct loop_queue *loop_queue;
    struct work_pool *pool;
    struct engine_thread *engine_thread;
    struct engine_room *room; // NULL: off
    // The loop's thread.
    struct http_server *http;
    struct api_request_list requests; // API requests that are not freed
    uint32_t num_requests;
    struct metrics *metrics; // has a part for the engine's thread
    bool is_draining; // no new generation
    bool has_failed; // the engine is lost
    void (*on_requests_ended)(struct api *api); // the last API request was freed
    struct json_out scratch;
    struct json_out log_line;
};

// Derives the chat capabilities from the template, the tokenizer and the options. `chat_template`
// may be NULL.
void api_set_chat(struct api *api, const struct nvllm_chat_template *chat_template);
// False, with an error that lists the served names: none of them is `name`. NULL is the first one.
bool api_check_model(const struct api *api, const char *name, struct api_error *error);
// The name that answers carry where the request has none.
const char *api_model_name(const struct api *api);
uint64_t api_unix_time(void); // seconds

#endif
