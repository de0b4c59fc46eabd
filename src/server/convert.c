#include "server/convert.h"

#include <string.h>

#include "base/jread.h"

static bool is_text(const char *type) {
    static const char *const types[] = {"text", "input_text", "output_text"};
    for (size_t i = 0; type && i < ARRAY_LEN(types); i++) {
        if (strcmp(types[i], type) == 0) return true;
    }
    return false;
}

// Text blocks as chat completions have them: {"type": "text", "text": ...}.
static bool convert_blocks(struct call *call, const json_t *blocks, json_t *out,
                           const char *param) {
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *block = json_array_get(blocks, i);
        const char *type = json_string_value(json_object_get(block, "type"));
        json_t *text = json_object_get(block, "text");
        if (!is_text(type) || !json_is_string(text)) {
            return api_error_set(&call->error, 400, "unsupported", param,
                                 "%s has a part that is not text", param);
        }
        json_t *part = json_object();
        if (!part || json_object_set_new(part, "type", json_string("text")) ||
            json_object_set(part, "text", text) || json_array_append_new(out, part)) {
            return api_error_nomem(&call->error);
        }
    }
    return true;
}

bool convert_message(struct call *call, json_t *messages, const char *role, const json_t *content,
                     const char *param) {
    json_t *message = json_object(), *parts = NULL;
    bool is_good = message && json_object_set_new(message, "role", json_string(role)) == 0 &&
                   json_array_append_new(messages, message) == 0;
    if (!is_good) return api_error_nomem(&call->error);
    if (json_is_string(content)) {
        parts = json_stringn(json_string_value(content), json_string_length(content));
    } else if (json_is_array(content)) {
        parts = json_array();
        if (parts && !convert_blocks(call, content, parts, param)) {
            json_decref(parts);
            return false;
        }
    } else {
        return api_error_set(&call->error, 400, "invalid_type", param,
                             "%s has a content that is neither text nor a list", param);
    }
    return json_object_set_new(message, "content", parts) == 0 ? true
                                                               : api_error_nomem(&call->error);
}

bool convert_set_messages(struct call *call, json_t *messages) {
    return json_object_set_new(call->root, "messages", messages) == 0
               ? true
               : api_error_nomem(&call->error);
}
