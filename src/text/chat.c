/* The variables are transformers': messages, tools, documents and add_generation_prompt, then the
 * special tokens, over which the caller's further variables win. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jread.h"
#include "text/chat_internal.h"
#include "text/chat_messages.h"

static enum status nomem(struct err *err) {
    return err_nomem(err, "chat");
}

// `value`, borrowed or NULL, as the variable `name`; NULL is None.
static enum status set_variable(json_t *variables, const char *name, json_t *value,
                                struct err *err) {
    json_t *given = value ? json_incref(value) : json_null();
    return json_object_set_new_nocheck(variables, name, given) ? nomem(err) : OK;
}

static enum status make_variables(const struct chat_template *chat_template,
                                  const struct chat *chat, json_t **out, struct err *err) {
    json_t *variables = json_object();
    *out = variables;
    if (!variables) return nomem(err);
    enum status status = set_variable(variables, "messages", chat->messages, err);
    if (!status) status = set_variable(variables, "tools", chat->tools, err);
    if (!status) status = set_variable(variables, "documents", chat->documents, err);
    if (!status) {
        json_t *add = json_boolean(chat->add_generation_prompt);
        status = set_variable(variables, "add_generation_prompt", add, err);
    }
    if (!status && json_object_update(variables, chat_template->special_tokens)) {
        status = nomem(err);
    }
    if (!status && chat->template_kwargs && json_object_update(variables, chat->template_kwargs)) {
        status = nomem(err);
    }
    return status;
}

static enum status render(const struct chat_template *chat_template,
                          const struct chat_variant *variant, const struct chat *chat,
                          struct buf *out, struct err *err) {
    json_t *variables = NULL;
    enum status status = make_variables(chat_template, chat, &variables, err);
    if (!status) {
        status = template_render(variant->template, variables, &chat->now.options, out, err);
    }
    json_decref(variables);
    return status;
}

// What the variant makes of a chat; *rendered false: it refuses, which is an answer too.
static enum status ask(const struct chat_template *chat_template,
                       const struct chat_variant *variant, const char *text, struct buf *out,
                       bool *rendered, struct err *err) {
    struct chat chat;
    struct err refusal = {0};
    enum status status = chat_read(&chat, text, strlen(text), err);
    if (status) return status;
    if (variant == &chat_template->main) chat.tools = NULL;
    buf_clear(out);
    status = buf_reserve(out, 0, &refusal); // a template may print nothing
    if (!status) status = render(chat_template, variant, &chat, out, &refusal);
    *rendered = !status;
    if (status == ERR_NOMEM && err) *err = refusal;
    chat_fini(&chat);
    return status == ERR_NOMEM ? status : OK;
}

/* Whether a template reads content that is a list of parts is asked of the template itself: it is
 * given a list once. One that takes strings only raises an error, or prints the list as Python or
 * JSON writes it, where a newline becomes \n. */
static enum status probe_parts(const struct chat_template *chat_template,
                               struct chat_variant *variant, struct buf *out, struct err *err) {
    static const char text[] = "nanovllm\nprobe";
    bool rendered;
    enum status status =
        ask(chat_template, variant,
            "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
            "\"text\": \"nanovllm\\nprobe\"}]}], \"tools\": []}",
            out, &rendered, err);
    if (status) return status;
    variant->takes_parts = rendered && memmem(out->data, out->len, text, sizeof text - 1);
    return OK;
}

// The content of a message that only calls tools may be null. A template that fails over it, or
// prints it as None, but takes an empty text is given that.
static enum status probe_null(const struct chat_template *chat_template,
                              struct chat_variant *variant, struct buf *out, struct err *err) {
    static const char with_content[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": %s, \"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", "
        "\"function\": {\"name\": \"f\", \"arguments\": {}}}]}, {\"role\": \"tool\", "
        "\"tool_call_id\": \"abcdefghi\", \"name\": \"f\", \"content\": \"r\"}], \"tools\": []}";
    char text[sizeof with_content + sizeof "null"], null[sizeof text];
    snprintf(text, sizeof text, with_content, "\"\"");
    snprintf(null, sizeof null, with_content, "null");
    bool with_text, with_null, prints_none = false;
    enum status status = ask(chat_template, variant, text, out, &with_text, err);
    if (status) return status;
    bool has_none = with_text && memmem(out->data, out->len, "None", 4);
    status = ask(chat_template, variant, null, out, &with_null, err);
    if (status) return status;
    if (with_null && !has_none) prints_none = memmem(out->data, out->len, "None", 4) != NULL;
    variant->takes_null = !with_text || (with_null && !prints_none);
    return OK;
}

static enum status probe(const struct chat_template *chat_template, struct chat_variant *variant,
                         struct err *err) {
    if (!variant->template) return OK;
    struct buf out = {0};
    enum status status = probe_parts(chat_template, variant, &out, err);
    if (!status) status = probe_null(chat_template, variant, &out, err);
    buf_fini(&out);
    return status;
}

enum status chat_template_open(struct chat_template **out, const char *model, const char *path,
                               struct err *err) {
    *out = NULL;
    struct chat_template *chat_template = calloc(1, sizeof *chat_template);
    if (!chat_template) return err_nomem(err, "chat template");
    enum status status = chat_open_files(chat_template, model, path, err);
    if (!status) status = probe(chat_template, &chat_template->main, err);
    if (!status) status = probe(chat_template, &chat_template->tool_use, err);
    if (status) {
        chat_template_close(chat_template);
        return status;
    }
    *out = chat_template;
    return OK;
}

void chat_template_close(struct chat_template *chat_template) {
    if (!chat_template) return;
    template_destroy(chat_template->main.template);
    template_destroy(chat_template->tool_use.template);
    json_decref(chat_template->special_tokens);
    buf_fini(&chat_template->names);
    free(chat_template);
}

static enum status choose(const struct chat_template *chat_template, bool has_tools,
                          const struct chat_variant **out, struct err *err) {
    bool use_tools = has_tools && chat_template->tool_use.template;
    *out = use_tools ? &chat_template->tool_use : &chat_template->main;
    if ((*out)->template) return OK;
    return err_set(err, ERR_INVALID,
                   "the model has chat templates of several names and none is \"default\": %.300s",
                   chat_template->names.data);
}

static enum status render_chat(const struct chat_template *chat_template, struct chat *chat,
                               struct buf *out, struct err *err) {
    const struct chat_variant *variant = NULL;
    json_t *final_text = NULL;
    size_t start = out->len;
    enum status status = buf_reserve(out, 0, err);
    if (!status) status = choose(chat_template, chat->tools != NULL, &variant, err);
    if (!status) status = chat_normalize(chat, variant->takes_parts, variant->takes_null, err);
    if (!status && chat->continue_final_message) status = chat_mark_end(chat, &final_text, err);
    if (!status) status = render(chat_template, variant, chat, out, err);
    if (!status && chat->continue_final_message) {
        status = chat_cut_at_mark(out, start, final_text, err);
    }
    json_decref(final_text);
    if (!status || out->len == start) return status;
    out->len = start;
    out->data[start] = '\0';
    return status;
}

enum status chat_template_render(const struct chat_template *chat_template, const char *chat_text,
                                 size_t len, struct buf *out, struct err *err) {
    struct chat chat;
    enum status status = chat_read(&chat, chat_text, len, err);
    if (!status) status = render_chat(chat_template, &chat, out, err);
    chat_fini(&chat);
    return status;
}

enum status chat_template_render_raw(const struct chat_template *chat_template,
                                     const char *variables_text, size_t len, struct buf *out,
                                     struct err *err) {
    json_t *variables = NULL;
    struct chat_now now;
    const struct chat_variant *variant = NULL;
    enum status status = jread_text_nul(&variables, variables_text, len, "the chat", err);
    if (!status && !json_is_object(variables)) {
        status = err_set(err, ERR_FORMAT, "the variables are %s, want an object",
                         jread_type_name(variables));
    }
    if (!status) status = chat_now_read(&now, json_object_get(variables, "now"), err);
    if (!status) {
        json_object_del(variables, "now");
        status = choose(chat_template, jread_get(variables, "tools") != NULL, &variant, err);
    }
    if (!status) status = template_render(variant->template, variables, &now.options, out, err);
    json_decref(variables);
    return status;
}
