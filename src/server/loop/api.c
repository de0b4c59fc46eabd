#include "server/loop/api.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/encode.h"
#include "api/parsed.h"
#include "server/chat/tool_format.h"
#include "server/loop/api_error.h"
#include "text/chat/think.h"

// Chooses the format of tool calls by the template's source, unless an option names it.
static const struct tool_format *choose_format(const struct api *api, const char *source,
                                               size_t len) {
    const char *name = api->options->tool_call_parser;
    if (strcmp(name, "auto") != 0) return tool_format_find(name); // "none": NULL
    return source ? tool_format_of_template(source, len) : NULL;
}

// A special token adds no text unless it is asked for.
static bool is_special(const struct nvllm_tokenizer *tokenizer, const char *text) {
    int32_t *ids = NULL;
    size_t count = 0, len = 1;
    char *decoded = NULL;
    if (nvllm_tokenizer_encode(tokenizer, text, strlen(text), 0, NULL, &ids, &count, NULL)) {
        return false;
    }
    bool is_one =
        count == 1 &&
        !nvllm_tokenizer_decode(tokenizer, ids, 1, NVLLM_DECODE_SKIP_SPECIAL, &decoded, &len, NULL);
    nvllm_free(ids);
    nvllm_free(decoded);
    return is_one && len == 0;
}

static bool is_token(const struct api *api, const char *text) {
    return text && api_tokenizer_has_added(api->tokenizer, text, api->vocab_size);
}

void api_set_chat(struct api *api, const struct nvllm_chat_template *chat_template) {
    size_t len = 0;
    const char *source = chat_template ? api_chat_source(chat_template, true, &len) : NULL;
    api->chat_template = chat_template;
    api->reads_tools = chat_template && api_chat_reads_tools(chat_template);
    api->tool_format = choose_format(api, source, len);
    const struct tool_format *format = api->tool_format;
    api->calls_in_special = format && is_special(api->tokenizer, format->mark);
    api->mark_is_token = format && is_token(api, format->mark);
    api->end_mark_is_token = format && is_token(api, format->end_mark);
    api->after_name_is_token = format && is_token(api, format->after_name);
    api->splits_reasoning = strcmp(api->options->reasoning_parser, "none") != 0;
    const struct think_tag *tag;
    for (size_t i = 0; (tag = think_tag(i)); i++) {
        bool is_used = source && memmem(source, len, tag->close, strlen(tag->close));
        if (is_used && is_special(api->tokenizer, tag->close)) api->thinks_in_special = true;
    }
}

enum { MODEL_NAMES_BYTES = 400 };

bool api_check_model(const struct api *api, const char *name, struct api_error *error) {
    char names[MODEL_NAMES_BYTES] = "";
    size_t len = 0;
    if (!name) return true;
    for (size_t i = 0; i < api->options->num_model_names; i++) {
        const char *own = api->options->model_names[i];
        if (strcmp(own, name) == 0) return true;
        if (len >= sizeof names) continue; // the list is cut
        len += (size_t)snprintf(names + len, sizeof names - len, "%s\"%s\"", i ? " or " : "", own);
    }
    return api_error_set(error, 404, "model_not_found", "model",
                         "there is no model \"%.100s\" here, want %s", name, names);
}

const char *api_model_name(const struct api *api) {
    return api->options->model_names[0];
}

uint64_t api_unix_time(void) {
    return (uint64_t)time(NULL);
}
