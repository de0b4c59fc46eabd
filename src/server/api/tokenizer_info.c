#include "server/api/tokenizer_info.h"

#include <string.h>

#include "base/json/jread.h"
#include "checkpoint/checkpoint.h"
#include "text/chat/chat.h"

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

void tokenizer_info_write_template(const struct api *api, struct json_out *out) {
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

void tokenizer_info_write(const struct api *api, struct json_out *out) {
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

void tokenizer_info_write_token(const struct api *api, const char *name, struct json_out *out) {
    const json_t *token = json_object_get(api->tokenizer_config, name);
    // Older files have an object.
    if (jread_is_object(token)) token = json_object_get(token, "content");
    json_out_value(out, json_is_string(token) ? token : json_null());
}
