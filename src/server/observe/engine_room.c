#include "server/observe/engine_room.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/json_out.h"
#include "server/loop/body.h"
#include "server/observe/engine_pause.h"
#include "server/observe/engine_view.h"

// ---- as JSON ----

struct room_now {
    const struct view_news *news;
    struct nvllm_stats stats;
    bool is_paused;
    uint32_t num_blocks, block_size; // of blocks that are shown
    const char
        *request_ids[VIEW_SEQUENCES_MAX]; // of news->sequences, as in the log; NULL: not known
};

// One letter a block, in the order of enum view_block_state.
static const char letters[] = "fcups";
static const char *const names[] = {"free", "cached", "used", "published", "shared"};

// "stats":{...}
static void write_stats(struct json_out *out, const struct nvllm_stats *stats) {
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"num_steps", stats->num_steps},
        {"num_prefill_tokens", stats->num_prefill_tokens},
        {"num_decode_tokens", stats->num_decode_tokens},
        {"num_generated_tokens", stats->num_generated_tokens},
        {"num_draft_tokens", stats->num_draft_tokens},
        {"num_accepted_tokens", stats->num_accepted_tokens},
        {"num_cached_tokens", stats->num_cached_tokens},
        {"num_preemptions", stats->num_preemptions},
        {"num_requests_added", stats->num_requests_added},
        {"num_requests_finished", stats->num_requests_finished},
        {"num_running", stats->num_running},
        {"num_waiting", stats->num_waiting},
        {"num_kv_blocks", stats->num_kv_blocks},
        {"num_kv_blocks_used", stats->num_kv_blocks_used},
        {"num_kv_blocks_peak", stats->num_kv_blocks_peak},
        {"block_size", stats->block_size},
        {"max_model_len", stats->max_model_len},
    };
    json_out_raw(out, "\"stats\":{");
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_out_rawf(out, "%s\"%s\":%llu", i ? "," : "", members[i].name,
                      (unsigned long long)members[i].value);
    }
    json_out_raw(out, "}");
}

// All blocks as one string of letters; those that are neither free nor full are listed beside.
static void write_whole(struct json_out *out, const struct room_now *now) {
    const struct view_news *news = now->news;
    json_out_rawf(out, "\"num_blocks\":%u,\"block_size\":%u,\"blocks\":\"", now->num_blocks,
                  now->block_size);
    size_t start = out->buf.len;
    if (!out->status) out->status = buf_reserve(&out->buf, now->num_blocks + 1, NULL);
    if (out->status) return;
    for (uint32_t id = 0, i = 0; id < now->num_blocks; id++) {
        bool is_listed = i < news->num_changed && news->blocks[i].id == id;
        out->buf.data[start + id] = letters[is_listed ? news->blocks[i].state : VIEW_FREE];
        i += is_listed;
    }
    out->buf.len += now->num_blocks;
    out->buf.data[out->buf.len] = '\0';
    json_out_raw(out, "\",\"fills\":[");
    const char *comma = "";
    for (uint32_t i = 0; i < news->num_changed; i++) {
        const struct view_block *block = &news->blocks[i];
        if (block->num_tokens == now->block_size) continue;
        json_out_rawf(out, "%s%u,%u", comma, block->id, block->num_tokens);
        comma = ",";
    }
    json_out_raw(out, "],");
}

static void write_changes(struct json_out *out, const struct view_news *news) {
    json_out_raw(out, "\"changed\":[");
    for (uint32_t i = 0; i < news->num_changed; i++) {
        const struct view_block *block = &news->blocks[i];
        json_out_rawf(out, "%s%u,\"%c\",%u", i ? "," : "", block->id, letters[block->state],
                      block->num_tokens);
    }
    json_out_raw(out, "],");
}

static void write_steps(struct json_out *out, const struct view_news *news) {
    json_out_raw(out, "\"steps\":[");
    for (uint32_t i = 0; i < news->num_steps; i++) {
        const struct view_step *step = &news->steps[i];
        json_out_rawf(out,
                      "%s{\"number\":%llu,\"end\":%.4f,\"schedule_ms\":%.3f,\"model_ms\":%.3f,"
                      "\"output_ms\":%.3f,\"prefill\":%u,\"decode\":%u,\"seqs\":%u,"
                      "\"preempted\":%u}",
                      i ? "," : "", (unsigned long long)step->number, step->end,
                      (double)step->schedule_ms, (double)step->model_ms, (double)step->output_ms,
                      step->num_prefill_tokens, step->num_decode_tokens, step->num_seqs,
                      step->num_preempted);
    }
    json_out_raw(out, "],");
}

static void write_sequence(struct json_out *out, const struct view_sequence *sequence,
                           const char *request_id) {
    const struct nvllm_sequence *seq = &sequence->seq;
    json_out_rawf(out,
                  "{\"id\":%llu,\"request\":%llu,\"index\":%u,\"is_running\":%s,\"prompt\":%u,"
                  "\"tokens\":%u,\"computed\":%u,\"cached\":%u,\"step_tokens\":%u,"
                  "\"is_prefill\":%s,\"blocks\":[",
                  (unsigned long long)seq->sequence_id, (unsigned long long)seq->request_id,
                  seq->index, seq->is_running ? "true" : "false", seq->num_prompt_tokens,
                  seq->num_tokens, seq->num_computed_tokens, seq->num_cached_tokens,
                  sequence->num_step_tokens, sequence->is_prefill ? "true" : "false");
    for (uint32_t i = 0; i < seq->num_blocks; i++) {
        json_out_rawf(out, "%s%u", i ? "," : "", seq->block_table[i]);
    }
    json_out_raw(out, "],\"request_id\":");
    if (request_id) {
        json_out_string(out, request_id, strlen(request_id));
    } else {
        json_out_raw(out, "null");
    }
    json_out_raw(out, "}");
}

// One server-sent event: `state` has the whole picture, `step` what changed.
static void write_event(struct json_out *out, const struct room_now *now) {
    const struct view_news *news = now->news;
    json_out_raw(out, news->is_whole ? "event: state\ndata: {" : "event: step\ndata: {");
    if (news->is_whole) {
        write_whole(out, now);
    } else {
        write_changes(out, news);
    }
    write_steps(out, news);
    json_out_rawf(out, "\"is_paused\":%s,\"num_running\":%u,\"num_waiting\":%u,\"sequences\":[",
                  now->is_paused ? "true" : "false", news->num_running, news->num_waiting);
    for (uint32_t i = 0; i < news->num_sequences; i++) {
        if (i) json_out_raw(out, ",");
        write_sequence(out, &news->sequences[i], now->request_ids[i]);
    }
    json_out_raw(out, "],");
    write_stats(out, &now->stats);
    json_out_raw(out, "}\n\n");
}

static void write_text(struct json_out *out, const struct nvllm_tokenizer *tokenizer,
                       const int32_t *ids, size_t num_ids) {
    char *text = NULL;
    size_t len = 0;
    nvllm_tokenizer_decode(tokenizer, ids, num_ids, NVLLM_DECODE_SKIP_UNKNOWN, &text, &len, NULL);
    json_out_string(out, text ? text : "", text ? len : 0);
    nvllm_free(text);
}

// tokens: [block_size], -1: not known.
static void write_block(struct json_out *out, const struct view_block *block, const int32_t *tokens,
                        uint32_t block_size, const struct nvllm_tokenizer *tokenizer) {
    uint32_t count = block->num_tokens < block_size ? block->num_tokens : block_size;
    json_out_rawf(out,
                  "{\"block_id\":%u,\"state\":\"%s\",\"num_holders\":%u,\"num_tokens\":%u,"
                  "\"block_size\":%u,\"tokens\":[",
                  block->id, names[block->state], block->num_holders, block->num_tokens,
                  block_size);
    for (uint32_t i = 0; i < count; i++) {
        json_out_rawf(out, "%s{\"id\":%d,\"text\":", i ? "," : "", tokens[i]);
        if (tokens[i] < 0) {
            json_out_raw(out, "null");
        } else {
            write_text(out, tokenizer, &tokens[i], 1);
        }
        json_out_raw(out, "}");
    }
    uint32_t first = 0; // what was computed before anybody watched is not known
    while (first < count && tokens[first] < 0) first++;
    json_out_raw(out, "],\"text\":");
    write_text(out, tokenizer, tokens + first, count - first);
    json_out_raw(out, "}");
}

// ---- viewers ----

struct viewer {
    struct http_conn *conn; // NULL: nobody
    struct request_info info;
    bool needs_whole; // it has no picture, or missed a part of it
};

struct engine_room {
    struct api *api;
    struct engine_view *view;
    struct engine_pause *pause;
    struct event *timer; // runs while somebody watches
    struct viewer viewers[ROOM_VIEWERS_MAX];
    atomic_uint num_viewers; // written by the loop
    bool was_paused; // as the viewers were told last
    bool is_closed;
    struct json_out out;
    int32_t *tokens; // [block_size]
};

// ---- birth and death ----

static void on_timer(evutil_socket_t fd, short what, void *arg);

struct engine_room *engine_room_create(struct api *api, struct event_base *base) {
    struct engine_room *room = calloc(1, sizeof *room);
    if (!room) return NULL;
    room->api = api;
    room->view = engine_view_create(api->engine);
    room->pause = engine_pause_create();
    room->timer = event_new(base, -1, EV_PERSIST, on_timer, room);
    if (room->view) room->tokens = calloc(engine_view_block_size(room->view), sizeof *room->tokens);
    if (room->view && room->pause && room->timer && room->tokens) return room;
    engine_room_destroy(room);
    return NULL;
}

void engine_room_destroy(struct engine_room *room) {
    if (!room) return;
    engine_view_destroy(room->view);
    engine_pause_destroy(room->pause);
    if (room->timer) event_free(room->timer);
    json_out_fini(&room->out);
    free(room->tokens);
    free(room);
}

bool engine_room_may_step(struct engine_room *room, bool has_work) {
    engine_view_attend(room->view);
    if (engine_pause_may_step(room->pause, has_work)) return true;
    engine_view_look(room->view);
    return false;
}

bool engine_room_is_paused(struct engine_room *room) {
    return room && engine_pause_is_on(room->pause);
}

// ---- viewers ----

static void begin_to_watch(struct engine_room *room) {
    const struct timeval period = {.tv_usec = ROOM_EVENT_MS * 1000};
    event_add(room->timer, &period);
}

static void remove_viewer(struct engine_room *room, struct viewer *viewer) {
    request_info_log(room->api, &viewer->info, 200);
    viewer->conn = NULL;
    if (atomic_fetch_sub(&room->num_viewers, 1) > 1) return;
    event_del(room->timer);
    engine_view_unwatch(room->view);
    engine_pause_end(room->pause);
}

void engine_room_gone(struct engine_room *room, struct http_conn *conn) {
    for (size_t i = 0; room && i < ROOM_VIEWERS_MAX; i++) {
        if (room->viewers[i].conn == conn) remove_viewer(room, &room->viewers[i]);
    }
}

void engine_room_close(struct engine_room *room) {
    if (!room) return;
    room->is_closed = true;
    engine_pause_end(room->pause);
    for (size_t i = 0; i < ROOM_VIEWERS_MAX; i++) {
        struct http_conn *conn = room->viewers[i].conn;
        if (!conn) continue;
        remove_viewer(room, &room->viewers[i]);
        http_conn_stream_end(conn);
    }
}

// A viewer that cannot take the event has to be sent the whole picture later.
static void send_event(struct engine_room *room, struct viewer *viewer, bool is_whole) {
    if (http_conn_num_unsent(viewer->conn) > ROOM_UNSENT_BYTES_MAX) {
        viewer->needs_whole = true;
        return;
    }
    if (viewer->needs_whole && !is_whole) return;
    viewer->needs_whole = false;
    // A connection that ends here tells engine_room_gone.
    http_conn_stream_write(viewer->conn, room->out.buf.data, room->out.buf.len);
}

static bool wants_whole(const struct engine_room *room) {
    for (size_t i = 0; i < ROOM_VIEWERS_MAX; i++) {
        const struct viewer *viewer = &room->viewers[i];
        if (viewer->conn && viewer->needs_whole &&
            http_conn_num_unsent(viewer->conn) <= ROOM_UNSENT_BYTES_MAX) {
            return true;
        }
    }
    return false;
}

// NULL: its API request is gone.
static const char *find_request_id(const struct api *api, uint64_t engine_id) {
    const struct api_request *request;
    TAILQ_FOREACH(request, &api->requests, link) {
        for (uint32_t i = 0; i < atomic_load(&request->num_added); i++) {
            if (request->prompts[i].engine_id == engine_id) return request->info.request_id;
        }
    }
    return NULL;
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    struct engine_room *room = arg;
    bool is_paused = engine_pause_is_on(room->pause);
    bool wants = wants_whole(room);
    if (is_paused != room->was_paused) wants = true;
    const struct view_news *news = engine_view_take(room->view, wants);
    if (!news->is_new) return;
    room->was_paused = is_paused;
    struct room_now now = {.news = news,
                           .stats = NVLLM_STATS_INIT,
                           .is_paused = is_paused,
                           .num_blocks = engine_view_num_blocks(room->view),
                           .block_size = engine_view_block_size(room->view)};
    nvllm_engine_stats(room->api->engine, &now.stats);
    for (uint32_t i = 0; i < news->num_sequences; i++) {
        now.request_ids[i] = find_request_id(room->api, news->sequences[i].seq.request_id);
    }
    json_out_clear(&room->out);
    write_event(&room->out, &now);
    for (size_t i = 0; i < ROOM_VIEWERS_MAX; i++) {
        struct viewer *viewer = &room->viewers[i];
        if (room->out.status) viewer->needs_whole = true; // no memory: the event is lost
        if (viewer->conn && !room->out.status) send_event(room, viewer, news->is_whole);
    }
}

// ---- pages ----

// NULL: it is off, and error is set.
static struct engine_room *find_room(const struct api *api, struct api_error *error) {
    if (!api->room) {
        api_error_set(
            error, 403, "engine_room_off", NULL,
            "the engine room is off: start the server with --engine-room view or control");
    }
    return api->room;
}

static struct viewer *find_seat(struct engine_room *room, struct api_error *error) {
    struct err err = {0};
    if (room->is_closed) {
        api_error_set(error, 503, "shutting_down", NULL, "the server is shutting down");
        return NULL;
    }
    if (engine_view_watch(room->view, &err)) {
        api_error_nomem(error);
        return NULL;
    }
    for (size_t i = 0; i < ROOM_VIEWERS_MAX; i++) {
        if (!room->viewers[i].conn) return &room->viewers[i];
    }
    error->retry_after = 5;
    api_error_set(error, 503, "too_many_viewers", NULL, "%d others watch already, and no more may",
                  ROOM_VIEWERS_MAX);
    return NULL;
}

void page_engine_events(struct api *api, const struct request_info *info, struct http_conn *conn,
                        const char *name) {
    (void)name;
    struct api_error error = {0};
    struct engine_room *room = find_room(api, &error);
    if (room && strcmp(info->method, "HEAD") == 0) {
        request_info_reply(api, info, conn, 200, "text/event-stream; charset=utf-8", NULL, NULL, 0);
        return;
    }
    struct viewer *viewer = room ? find_seat(room, &error) : NULL;
    if (!viewer) {
        request_info_reply_error(api, info, conn, &error);
        return;
    }
    *viewer = (struct viewer){.conn = conn, .info = *info, .needs_whole = true};
    if (atomic_fetch_add(&room->num_viewers, 1) == 0) begin_to_watch(room);
    request_info_stream_begin(info, conn);
}

void page_engine_state(struct api *api, const struct request_info *info, struct http_conn *conn,
                       const char *name) {
    (void)name;
    static const char *const modes[] = {"off", "view", "control"};
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    nvllm_engine_stats(api->engine, &stats);
    struct json_out *out = &api->scratch;
    json_out_clear(out);
    json_out_rawf(out, "{\"engine_room\":\"%s\",\"is_paused\":%s,\"num_viewers\":%u,",
                  modes[api->options->engine_room],
                  engine_room_is_paused(api->room) ? "true" : "false",
                  api->room ? atomic_load(&api->room->num_viewers) : 0);
    write_stats(out, &stats);
    json_out_raw(out, "}");
    request_info_reply_json(api, info, conn, 200, out);
}

// Digits only: anything else is no block.
static bool read_id(const char *name, uint32_t *id) {
    uint64_t value = 0;
    size_t len = strcspn(name, "?");
    for (size_t i = 0; i < len && i < 10; i++) {
        if (name[i] < '0' || name[i] > '9') return false;
        value = value * 10 + (uint64_t)(name[i] - '0');
    }
    *id = (uint32_t)value;
    return len && len <= 9;
}

void page_engine_block(struct api *api, const struct request_info *info, struct http_conn *conn,
                       const char *name) {
    struct api_error error = {0};
    struct engine_room *room = find_room(api, &error);
    struct view_block block = {0};
    uint32_t id = 0;
    bool is_good = room != NULL;
    if (is_good && !atomic_load(&room->num_viewers)) {
        is_good = api_error_set(&error, 409, "nobody_watches", NULL,
                                "blocks are known only while somebody reads /engine/events");
    }
    if (is_good &&
        !(read_id(name, &id) && engine_view_block(room->view, id, &block, room->tokens))) {
        is_good = api_error_set(&error, 404, "not_found", NULL, "there is no such block");
    }
    if (!is_good) {
        request_info_reply_error(api, info, conn, &error);
        return;
    }
    struct json_out *out = &api->scratch;
    json_out_clear(out);
    write_block(out, &block, room->tokens, engine_view_block_size(room->view), api->tokenizer);
    request_info_reply_json(api, info, conn, 200, out);
}

// ---- control: on the pool ----

static bool act(struct api_request *request, struct engine_pause *pause, const char *action,
                uint32_t num_steps) {
    if (action && strcmp(action, "pause") == 0) {
        engine_pause_begin(pause);
    } else if (action && strcmp(action, "step") == 0) {
        engine_pause_allow(pause, num_steps);
    } else if (action && strcmp(action, "resume") == 0) {
        engine_pause_end(pause);
    } else {
        return api_error_invalid(&request->error, "action", "action must be pause, step or resume");
    }
    return true;
}

static bool prepare_control(struct api_request *request) {
    struct api *api = request->api;
    const char *action = NULL;
    int64_t num_steps = 1;
    request->answers_at_once = true;
    struct engine_room *room = find_room(api, &request->error);
    if (!room) return false;
    if (api->options->engine_room != ENGINE_ROOM_CONTROL) {
        return api_error_set(&request->error, 403, "engine_room_view", NULL,
                             "this server's engine room only shows the engine: start it with "
                             "--engine-room control to pause it");
    }
    if (!body_parse(request) || !body_string(request, "action", &action) ||
        !body_int(request, "steps", 1, ROOM_STEPS_MAX, &num_steps)) {
        return false;
    }
    if (!atomic_load(&room->num_viewers)) {
        return api_error_set(&request->error, 409, "nobody_watches", NULL,
                             "only who reads /engine/events may pause the engine: it goes on when "
                             "the last one leaves");
    }
    if (!act(request, room->pause, action, (uint32_t)num_steps)) return false;
    // The last viewer may have left after it was counted: then nobody else would end the pause.
    if (!atomic_load(&room->num_viewers)) engine_pause_end(room->pause);
    json_out_rawf(&request->result, "{\"is_paused\":%s}",
                  engine_pause_is_on(room->pause) ? "true" : "false");
    return true;
}

const struct endpoint endpoint_engine_control = {.id_prefix = "room-", .prepare = prepare_control};
