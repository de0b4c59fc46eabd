/* POST /tokenize, /detokenize and /apply-template: a text's token ids, the text of ids, and a
 * chat's prompt. They take vLLM's members and llama-server's. */
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/utf8.h"
#include "server/api/chat_body.h"
#include "server/api/endpoints.h"
#include "server/api/request_params.h"
#include "server/loop/body.h"
#include "text/tokenizer/tokenizer.h"

// vLLM's name of a text, llama-server's, and a chat: one of them.
static bool check_one_input(struct api_request *request) {
    static const char *const keys[] = {"prompt", "content", "messages"};
    const char *given = NULL;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (!body_get(request, keys[i])) continue;
        if (given) {
            return api_error_invalid(&request->error, keys[i],
                                     "%s and %s are given, want one of them", given, keys[i]);
        }
        given = keys[i];
    }
    if (given) return true;
    return api_error_invalid(&request->error, "prompt", "prompt, content and messages are missing");
}

static bool encode_text(struct api_request *request, struct prompt *prompt) {
    const char *key = body_get(request, "prompt") ? "prompt" : "content";
    const json_t *text = body_get(request, key);
    // vLLM adds special tokens unless told, llama-server only when told.
    bool add_special_tokens = key[0] == 'p';
    if (!body_bool(request, "add_special_tokens", &add_special_tokens) ||
        !body_bool(request, "add_special", &add_special_tokens)) {
        return false;
    }
    if (!json_is_string(text)) return body_wrong_type(request, key, text, "a string");
    return api_request_encode(request, prompt, json_string_value(text), json_string_length(text),
                              add_special_tokens, key);
}

// The public handle is the tokenizer's own struct (api/nanovllm.c).
static const struct tokenizer *tokenizer_of(const struct api_request *request) {
    return (const struct tokenizer *)request->api->tokenizer;
}

static void write_strings(struct api_request *request, const struct prompt *prompt,
                          struct json_out *out) {
    json_out_raw(out, "[");
    for (size_t i = 0; i < prompt->num_ids && api_request_is_wanted(request); i++) {
        size_t len;
        const char *text = tokenizer_token_text(tokenizer_of(request), prompt->ids[i], &len);
        if (i) json_out_raw(out, ",");
        json_out_string(out, text, len);
    }
    json_out_raw(out, "]");
}

// llama-server's with_pieces: {"id", "piece"}, where a piece that is no UTF-8 is a list of bytes.
static void write_pieces(struct api_request *request, const struct prompt *prompt,
                         struct json_out *out) {
    json_out_raw(out, "[");
    for (size_t i = 0; i < prompt->num_ids && api_request_is_wanted(request); i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer_of(request), prompt->ids[i], &len);
        json_out_rawf(out, "%s{\"id\":%d,\"piece\":", i ? "," : "", prompt->ids[i]);
        if (utf8_valid_prefix(bytes, len) == len) {
            json_out_string(out, bytes, len);
        } else {
            json_out_raw(out, "[");
            for (size_t b = 0; b < len; b++) {
                json_out_rawf(out, b ? ",%u" : "%u", (unsigned)(unsigned char)bytes[b]);
            }
            json_out_raw(out, "]");
        }
        json_out_raw(out, "}");
    }
    json_out_raw(out, "]");
}

static bool prepare_tokenize(struct api_request *request) {
    bool with_strings = false, with_pieces = false, parse_special = true;
    if (!body_parse(request) || !request_params_model(request) ||
        !body_bool(request, "return_token_strs", &with_strings) ||
        !body_bool(request, "with_pieces", &with_pieces) ||
        !body_bool(request, "parse_special", &parse_special) || !check_one_input(request)) {
        return false;
    }
    if (!parse_special) {
        return request_params_unsupported(request, "parse_special",
                                          "text whose special tokens are no tokens");
    }
    if (!api_request_make_prompts(request, 1)) return false;
    struct prompt *prompt = &request->prompts[0];
    bool is_chat = body_get(request, "messages") != NULL;
    bool is_good = is_chat ? chat_body_check(request) && chat_body_encode(request, prompt)
                           : encode_text(request, prompt);
    if (is_good) {
        struct json_out *out = &request->result;
        json_out_rawf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":", prompt->num_ids,
                      request->api->max_model_len);
        if (with_pieces) {
            write_pieces(request, prompt, out);
        } else {
            json_out_ids(out, prompt->ids, prompt->num_ids);
        }
        json_out_raw(out, ",\"token_strs\":");
        if (with_strings) {
            write_strings(request, prompt, out);
        } else {
            json_out_raw(out, "null");
        }
        json_out_raw(out, "}");
    }
    request->answers_at_once = true;
    return is_good;
}

static bool read_tokens(struct api_request *request, int32_t **ids, size_t *count) {
    const json_t *tokens = body_get(request, "tokens");
    if (!tokens) return api_error_invalid(&request->error, "tokens", "tokens is missing");
    if (!json_is_array(tokens)) return body_wrong_type(request, "tokens", tokens, "a list");
    *count = json_array_size(tokens);
    *ids = malloc((*count ? *count : 1) * sizeof **ids);
    if (!*ids) return api_error_nomem(&request->error);
    for (size_t i = 0; i < *count; i++) {
        const json_t *id = json_array_get(tokens, i);
        bool fits = json_is_integer(id) && json_integer_value(id) >= 0 &&
                    json_integer_value(id) <= INT32_MAX;
        if (!fits) {
            return api_error_invalid(&request->error, "tokens",
                                     "tokens has an item that is no token id of the vocabulary");
        }
        (*ids)[i] = (int32_t)json_integer_value(id);
    }
    return true;
}

static bool prepare_detokenize(struct api_request *request) {
    int32_t *ids = NULL;
    size_t count = 0, len = 0;
    char *text = NULL;
    struct nvllm_error fault = {0};
    bool is_good =
        body_parse(request) && request_params_model(request) && read_tokens(request, &ids, &count);
    if (is_good) {
        enum nvllm_status status =
            nvllm_tokenizer_decode(request->api->tokenizer, ids, count, 0, &text, &len, &fault);
        is_good = api_error_library(&request->error, status, &fault, "tokens");
    }
    if (is_good) {
        // The first name is vLLM's, the second llama-server's.
        json_out_raw(&request->result, "{\"prompt\":");
        json_out_string(&request->result, text, len);
        json_out_raw(&request->result, ",\"content\":");
        json_out_string(&request->result, text, len);
        json_out_raw(&request->result, "}");
    }
    nvllm_free(text);
    free(ids);
    request->answers_at_once = true;
    return is_good;
}

static bool prepare_apply_template(struct api_request *request) {
    struct buf text = {0};
    bool is_good = body_parse(request) && request_params_model(request) &&
                   chat_body_check(request) && chat_body_render(request, &text);
    if (is_good) {
        json_out_raw(&request->result, "{\"prompt\":");
        json_out_string(&request->result, text.data, text.len);
        json_out_raw(&request->result, "}");
    }
    buf_fini(&text);
    request->answers_at_once = true;
    return is_good;
}

const struct endpoint endpoint_tokenize = {.id_prefix = "tok-", .prepare = prepare_tokenize};
const struct endpoint endpoint_detokenize = {.id_prefix = "detok-", .prepare = prepare_detokenize};
const struct endpoint endpoint_apply_template = {.id_prefix = "tmpl-",
                                                 .prepare = prepare_apply_template};
