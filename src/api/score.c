/* Scores: whether a document answers a query, asked as Qwen3-Reranker was trained to be asked. */
#include <string.h>

#include "api/convert.h"
#include "base/compiler.h"
#include "base/json/json_out.h"
#include "checkpoint/pooling_config.h"
#include "engine/data_parallel/engine_group.h"
#include "engine/llm_engine.h"

static const char system_text[] =
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".";
static const char web_search[] =
    "Given a web search query, retrieve relevant passages that answer the query";

enum nvllm_status nvllm_score_chat(const char *query, const char *document, const char *instruction,
                                   char **chat, size_t *chat_len, struct nvllm_error *error) {
    const char *const parts[] = {"<Instruct>: ",   instruction ? instruction : web_search,
                                 "\n<Query>: ",    query,
                                 "\n<Document>: ", document};
    struct buf text = {0};
    struct json_out out = {0};
    struct err err = {0};
    enum status status = OK;
    for (size_t i = 0; i < ARRAY_LEN(parts) && !status; i++) {
        status = buf_append(&text, parts[i], strlen(parts[i]), &err);
    }
    json_out_raw(&out, "{\"messages\":[{\"role\":\"system\",\"content\":");
    json_out_cstring(&out, system_text);
    json_out_raw(&out, "},{\"role\":\"user\",\"content\":");
    json_out_string(&out, text.data, text.len);
    json_out_raw(&out, "}],\"chat_template_kwargs\":{\"enable_thinking\":false}}");
    buf_fini(&text);
    if (!status && out.status) status = err_nomem(&err, "chat");
    if (status) json_out_fini(&out);
    *chat = out.buf.data;
    *chat_len = out.buf.len;
    return api_error(error, status, &err);
}

static const struct pooling_config *pooling_of(const struct nvllm_engine *engine) {
    return llm_engine_pooling(engine_group_first((const struct engine_group *)engine));
}

const char *nvllm_engine_prompt_text(const struct nvllm_engine *engine, const char *name) {
    return json_string_value(json_object_get(pooling_of(engine)->prompts, name));
}

int nvllm_engine_is_embedder(const struct nvllm_engine *engine) {
    return pooling_of(engine)->is_present;
}
