/* Chat templates of the public API: handles, errors and ownership of the text. */
#include "text/chat/chat.h"

#include "api/convert.h"
#include "api/model_find.h"
#include "api/parsed.h"
#include "checkpoint/checkpoint.h"
#include "engine/llm_engine.h"

static const struct chat_template *template_of(const struct nvllm_chat_template *handle) {
    return (const struct chat_template *)handle;
}

enum nvllm_status nvllm_chat_template_open(struct nvllm_chat_template **out, const char *model,
                                           const char *path, struct nvllm_error *error) {
    struct err err = {0};
    struct chat_template *chat_template = NULL;
    struct checkpoint *checkpoint = NULL;
    char place[FILE_PATH_MAX];
    enum status status = model ? api_model_find_texts(place, model, &err) : OK;
    if (!status && model) status = checkpoint_open(&checkpoint, place, &err);
    if (!status) status = chat_template_open(&chat_template, checkpoint, path, &err);
    checkpoint_close(checkpoint);
    *out = (struct nvllm_chat_template *)chat_template;
    return api_error(error, status, &err);
}

void nvllm_chat_template_close(struct nvllm_chat_template *chat_template) {
    chat_template_close((struct chat_template *)chat_template);
}

typedef enum status (*render_fn)(const struct chat_template *chat_template, const char *json,
                                 size_t len, const struct interrupt *interrupt, struct buf *out,
                                 struct err *err);

static enum nvllm_status render_with(render_fn render, const struct nvllm_chat_template *handle,
                                     const char *json, size_t len,
                                     const struct nvllm_interrupt *interrupt, struct buf *out,
                                     struct nvllm_error *error) {
    struct err err = {0};
    const struct interrupt asked = llm_engine_interrupt(interrupt);
    enum status status = OK;
    if (!handle || !json) status = err_set(&err, ERR_INVALID, "no chat template or no chat given");
    if (!status) status = buf_reserve(out, 0, &err); // never NULL on success
    if (!status) status = render(template_of(handle), json, len, &asked, out, &err);
    if (status) buf_fini(out);
    return api_error(error, status, &err);
}

enum nvllm_status nvllm_chat_template_render(const struct nvllm_chat_template *chat_template,
                                             const char *chat, size_t chat_len,
                                             const struct nvllm_interrupt *interrupt, char **text,
                                             size_t *text_len, struct nvllm_error *error) {
    struct buf out = {0};
    enum nvllm_status status =
        render_with(chat_template_render, chat_template, chat, chat_len, interrupt, &out, error);
    *text = out.data;
    *text_len = out.len;
    return status;
}

enum nvllm_status nvllm_chat_template_render_raw(const struct nvllm_chat_template *chat_template,
                                                 const char *variables, size_t variables_len,
                                                 const struct nvllm_interrupt *interrupt,
                                                 char **text, size_t *text_len,
                                                 struct nvllm_error *error) {
    struct buf out = {0};
    enum nvllm_status status = render_with(chat_template_render_raw, chat_template, variables,
                                           variables_len, interrupt, &out, error);
    *text = out.data;
    *text_len = out.len;
    return status;
}

enum nvllm_status api_chat_render(const struct nvllm_chat_template *chat_template,
                                  const json_t *chat, size_t memory_left,
                                  const struct nvllm_interrupt *interrupt, struct buf *out,
                                  struct nvllm_error *error) {
    struct err err = {0};
    const struct interrupt asked = llm_engine_interrupt(interrupt);
    enum status status =
        chat_template_render_json(template_of(chat_template), chat, memory_left, &asked, out, &err);
    return api_error(error, status, &err);
}

const char *api_chat_source(const struct nvllm_chat_template *chat_template, bool has_tools,
                            size_t *len) {
    return chat_template_source(template_of(chat_template), has_tools, len);
}

bool api_chat_reads_tools(const struct nvllm_chat_template *chat_template) {
    return chat_template_reads_tools(template_of(chat_template));
}
