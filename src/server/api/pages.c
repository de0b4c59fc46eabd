#include <jansson.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/c_locale.h"
#include "checkpoint/checkpoint.h"
#include "server/api/endpoints.h"
#include "server/loop/api.h"
#include "server/observe/engine_room.h"
#include "server/page/web_page.h"
#include "text/chat/chat.h"

// ---- the tokenizer ----

json_t *tokenizer_info_read(const char *model_path) {
    static const char name[] = "tokenizer_config.json";
    struct checkpoint *checkpoint = NULL;
    struct document_name what;
    bool present = false;
    struct buf text = {0};
    json_t *info = NULL;
    enum status status = checkpoint_open(&checkpoint, model_path, NULL);
    if (!status) status = checkpoint_find(checkpoint, name, &what, &present, NULL);
    if (!status && present) status = checkpoint_read(checkpoint, name, &text, NULL);
    checkpoint_close(checkpoint);
    if (!status && !present) return json_object();
    // As a request: integers may have any length, as model_max_length often has.
    if (!status) status = jread_request(&info, text.data, text.len, name, NULL);
    buf_fini(&text);
    if (!status && jread_is_object(info)) return info;
    json_decref(info);
    return NULL;
}

static bool is_hidden(const char *name) {
    static const char *const names[] = {"vocab_file", "merges_file", "tokenizer_file",
                                        "name_or_path", "chat_template"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

// The template of chats without tools, as text or null.
static void tokenizer_info_write_template(const struct api *api, struct json_out *out) {
    // The public handle is the template's own struct (api/chat.c).
    const struct chat_template *own = (const struct chat_template *)api->chat_template;
    size_t len = 0;
    const char *source = own ? chat_template_source(own, false, &len) : NULL;
    if (source) {
        json_out_string(out, source, len);
    } else {
        json_out_raw(out, "null");
    }
}

// {"tokenizer_class":...}, without members that name files, and with the template in use.
static void tokenizer_info_write(const struct api *api, struct json_out *out) {
    json_t *config = api->tokenizer_config;
    const char *name;
    json_t *value;
    json_out_raw(out, "{\"chat_template\":");
    tokenizer_info_write_template(api, out);
    // What transformers takes for a tokenizer.json alone.
    if (!json_object_get(config, "tokenizer_class")) {
        json_out_raw(out, ",\"tokenizer_class\":\"PreTrainedTokenizerFast\"");
    }
    json_object_foreach(config, name, value) {
        if (is_hidden(name)) continue;
        json_out_raw(out, ",");
        json_out_cstring(out, name);
        json_out_raw(out, ":");
        json_out_value(out, value);
    }
    json_out_raw(out, "}");
}

// A special token of the file, such as "eos_token", as text or null.
static void tokenizer_info_write_token(const struct api *api, const char *name,
                                       struct json_out *out) {
    const json_t *token = json_object_get(api->tokenizer_config, name);
    // Older files have an object.
    if (jread_is_object(token)) token = json_object_get(token, "content");
    json_out_value(out, json_is_string(token) ? token : json_null());
}

// ---- pages ----

static struct json_out *begin(struct api *api) {
    json_out_clear(&api->scratch);
    return &api->scratch;
}

static void reply_state(struct api *api, const struct request_info *info, struct http_conn *conn,
                        const char *why_not) {
    struct json_out *out = begin(api);
    if (!why_not) {
        json_out_raw(out, "{\"status\":\"ok\"}");
        request_info_reply_json(api, info, conn, 200, out);
        return;
    }
    struct api_error error = {.retry_after = 5};
    api_error_set(&error, 503, "unavailable", NULL, "%s", why_not);
    request_info_reply_error(api, info, conn, &error);
}

void page_health(struct api *api, const struct request_info *info, struct http_conn *conn,
                 const char *name) {
    (void)name;
    reply_state(api, info, conn, api->has_failed ? "the engine has failed" : NULL);
}

void page_live(struct api *api, const struct request_info *info, struct http_conn *conn,
               const char *name) {
    (void)name;
    reply_state(api, info, conn, NULL);
}

void page_ready(struct api *api, const struct request_info *info, struct http_conn *conn,
                const char *name) {
    (void)name;
    reply_state(api, info, conn,
                api->has_failed                    ? "the engine has failed"
                : api->is_draining                 ? "the server is shutting down"
                : engine_room_is_paused(api->room) ? "the engine is paused"
                                                   : NULL);
}

void page_version(struct api *api, const struct request_info *info, struct http_conn *conn,
                  const char *name) {
    (void)name;
    struct json_out *out = begin(api);
    json_out_rawf(out, "{\"version\":\"%s\"}", nvllm_version());
    request_info_reply_json(api, info, conn, 200, out);
}

static void write_model(const struct api *api, const char *name, struct json_out *out) {
    json_out_raw(out, "{\"id\":");
    json_out_cstring(out, name);
    json_out_rawf(out, ",\"object\":\"model\",\"created\":%llu,\"owned_by\":\"nanovllm\",\"root\":",
                  (unsigned long long)api->started);
    json_out_cstring(out, api_model_name(api));
    json_out_rawf(out, ",\"parent\":null,\"max_model_len\":%u}", api->max_model_len);
}

void page_models(struct api *api, const struct request_info *info, struct http_conn *conn,
                 const char *name) {
    (void)name;
    struct json_out *out = begin(api);
    json_out_raw(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < api->options->num_model_names; i++) {
        if (i) json_out_raw(out, ",");
        write_model(api, api->options->model_names[i], out);
    }
    json_out_raw(out, "]}");
    request_info_reply_json(api, info, conn, 200, out);
}

// The parameters of a request that sets none, under llama-server's names.
static void write_default_sampling(const struct api *api, struct json_out *out) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    nvllm_engine_default_sampling(api->engine, &params);
#define DIGITS_FLOAT 7
#define DIGITS_INT 10
#define MEMBER(type, name, ...) {#name, DIGITS_##type, (double)params.name},
    const struct {
        const char *name;
        int digits;
        double value;
    } members[] = {NVLLM_MODEL_PARAMS(MEMBER) NVLLM_SAMPLER_PARAMS(MEMBER)};
    json_out_raw(out, "\"params\":");
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const char *name = members[i].name;
        if (strcmp(name, "repetition_penalty") == 0) name = "repeat_penalty";
        json_out_rawf(out, "%c\"%s\":%.*g", i ? ',' : '{', name, members[i].digits,
                      members[i].value);
    }
    json_out_raw(out, "}");
}

// llama-server's, as far as it has a meaning here.
void page_props(struct api *api, const struct request_info *info, struct http_conn *conn,
                const char *name) {
    (void)name;
    struct json_out *out = begin(api);
    json_out_rawf(out, "{\"default_generation_settings\":{\"n_ctx\":%u,", api->max_model_len);
    write_default_sampling(api, out);
    json_out_rawf(out, "},\"total_slots\":%u", api->options->outputs_max);
    json_out_raw(out, ",\"model_alias\":");
    json_out_cstring(out, api_model_name(api));
    json_out_raw(out, ",\"chat_template\":");
    tokenizer_info_write_template(api, out);
    json_out_raw(out, ",\"bos_token\":");
    tokenizer_info_write_token(api, "bos_token", out);
    json_out_raw(out, ",\"eos_token\":");
    tokenizer_info_write_token(api, "eos_token", out);
    json_out_rawf(out,
                  ",\"modalities\":{\"vision\":false,\"audio\":false},\"is_sleeping\":false,"
                  "\"build_info\":\"nanovllm %s\"}",
                  nvllm_version());
    request_info_reply_json(api, info, conn, 200, out);
}

void page_tokenizer_info(struct api *api, const struct request_info *info, struct http_conn *conn,
                         const char *name) {
    (void)name;
    struct json_out *out = begin(api);
    if (api->tokenizer_config) {
        tokenizer_info_write(api, out);
        request_info_reply_json(api, info, conn, 200, out);
        return;
    }
    struct api_error error = {0};
    api_error_set(&error, 404, "not_found", NULL,
                  "tokenizer_config.json of the model is no JSON object that can be read");
    request_info_reply_error(api, info, conn, &error);
}

void page_openapi(struct api *api, const struct request_info *info, struct http_conn *conn,
                  const char *name) {
    (void)name;
    request_info_reply(api, info, conn, 200, "application/json", NULL, asset_openapi_json.bytes,
                       asset_openapi_json.len);
}

// Clients write the / of a model's name as it is or as %2F.
static void decode_name(const char *name, char *out, size_t size) {
    size_t len = 0;
    while (*name && *name != '?' && len + 1 < size) {
        int high = name[0] == '%' ? c_locale_hex_value(name[1]) : -1;
        int low = high >= 0 ? c_locale_hex_value(name[2]) : -1;
        bool is_code = low >= 0 && (high || low);
        out[len++] = is_code ? (char)(high * 16 + low) : *name;
        name += is_code ? 3 : 1;
    }
    out[len] = '\0';
}

void page_model(struct api *api, const struct request_info *info, struct http_conn *conn,
                const char *name) {
    char decoded[512];
    decode_name(name, decoded, sizeof decoded);
    struct json_out *out = begin(api);
    struct api_error error = {0};
    if (api_check_model(api, decoded, &error)) {
        write_model(api, decoded, out);
        request_info_reply_json(api, info, conn, 200, out);
        return;
    }
    request_info_reply_error(api, info, conn, &error);
}

void page_metrics(struct api *api, const struct request_info *info, struct http_conn *conn,
                  const char *name) {
    (void)name;
    struct json_out *out = begin(api);
    struct metrics_now now = {.stats = NVLLM_STATS_INIT,
                              .model_name = api_model_name(api),
                              .num_connections = http_server_num_connections(api->http),
                              .num_unanswered = http_server_num_unanswered(api->http),
                              .num_calls = api->num_requests,
                              .bodies_bytes = http_server_bodies_bytes(api->http)};
    nvllm_engine_stats(api->engine, &now.stats);
    metrics_write(api->metrics, &now, out);
    request_info_reply(api, info, conn, 200, "text/plain; version=0.0.4; charset=utf-8", NULL,
                       out->buf.data, out->buf.len);
}

// The object in tokenizer_config.json of the model's folder; an empty one where there is none.
// NULL: it cannot be read. The caller's.
json_t *tokenizer_info_read(const char *model_path);
