#include "server/api/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/buf.h"
#include "server/loop/body.h"

static bool is_id_list(const json_t *value) {
    return json_is_array(value) && json_is_integer(json_array_get(value, 0));
}

static bool is_list(const json_t *member) {
    return json_is_array(member) && !is_id_list(member);
}

const json_t *prompts_item(const json_t *member, size_t i) {
    return is_list(member) ? json_array_get(member, i) : member;
}

static bool read_ids(struct api_request *request, struct prompt *prompt, const json_t *list,
                     const char *key) {
    size_t count = json_array_size(list);
    prompt->ids = malloc((count ? count : 1) * sizeof *prompt->ids);
    if (!prompt->ids) return api_error_nomem(&request->error);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);
        bool fits = json_is_integer(id) && json_integer_value(id) >= 0 &&
                    json_integer_value(id) < request->api->vocab_size;
        if (!fits) {
            return api_error_invalid(&request->error, key,
                                     "%s has an item that is no token id of the vocabulary", key);
        }
        prompt->ids[i] = (int32_t)json_integer_value(id);
    }
    prompt->num_ids = count;
    return true;
}

static bool read_text(struct api_request *request, struct prompt *prompt, const json_t *value,
                      const struct prompts_options *options) {
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    struct buf whole = {0};
    if (options->prefix) {
        if (buf_append(&whole, options->prefix, strlen(options->prefix), NULL) ||
            buf_append(&whole, text, len, NULL)) {
            buf_fini(&whole);
            return api_error_nomem(&request->error);
        }
        text = whole.data ? whole.data : "";
        len = whole.len;
    }
    bool is_good =
        api_request_encode(request, prompt, text, len, options->add_special_tokens, options->key);
    buf_fini(&whole);
    return is_good;
}

static bool read_prompt(struct api_request *request, struct prompt *prompt, const json_t *value,
                        const struct prompts_options *options) {
    const char *key = options->key;
    if (json_is_string(value)) {
        if (!read_text(request, prompt, value, options)) return false;
    } else if (is_id_list(value) && options->prefix) {
        return api_error_invalid(&request->error, "prompt_name",
                                 "prompt_name goes before a text, not before token ids");
    } else if (is_id_list(value)) {
        if (!read_ids(request, prompt, value, key)) return false;
    } else {
        return api_error_invalid(&request->error, key,
                                 "%s is neither text nor token ids, nor a list of these", key);
    }
    if (prompt->num_ids) return true;
    return api_error_invalid(&request->error, key, "%s is empty", key);
}

bool prompts_read(struct api_request *request, const struct prompts_options *options) {
    const char *key = options->key;
    const json_t *member = body_get(request, key);
    if (!member) return api_error_invalid(&request->error, key, "%s is missing", key);
    size_t count = is_list(member) ? json_array_size(member) : 1;
    if (!count) return api_error_invalid(&request->error, key, "%s is empty", key);
    if (request->sampling.n == 1 && count > options->most) {
        return api_error_invalid(&request->error, key, "%s has %zu texts, want at most %zu", key,
                                 count, options->most);
    }
    if (count > options->most / (uint32_t)request->sampling.n) {
        return api_error_invalid(&request->error, key,
                                 "%s has %zu prompts and n is %d, want at most %zu outputs", key,
                                 count, request->sampling.n, options->most);
    }
    if (!api_request_make_prompts(request, (uint32_t)count)) return false;
    for (size_t i = 0; i < count; i++) {
        if (!read_prompt(request, &request->prompts[i], prompts_item(member, i), options)) {
            return false;
        }
    }
    return true;
}
