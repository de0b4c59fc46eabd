/* The variables are those of transformers: messages, tools, documents, add_generation_prompt, and
 * the special tokens. A variable of the caller replaces a special token of the same name. */
#include "text/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "text/chat/chat_internal.h"
#include "text/chat/chat_messages.h"

static enum status nomem(struct err *err) {
    return err_nomem(err, "chat");
}

// Sets the variable `name` to `value`, which is borrowed; NULL is None.
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
        status = jinja_template_render(variant->template, variables, &chat->now.options, out, err);
    }
    json_decref(variables);
    return status;
}

// Refuses a chat of which the template leaves out a message. Where it refuses the marked chat, the
// messages cannot be told apart, and the chat stays as it is. The chat is of no use afterwards.
static enum status check_left_out(const struct chat_template *chat_template,
                                  const struct chat_variant *variant, struct chat *chat,
                                  struct err *err) {
    struct buf prompt = {0};
    struct err fault = {0};
    enum status status = chat_mark_texts(chat, err);
    if (!status) status = buf_reserve(&prompt, 0, err);
    if (!status) {
        status = render(chat_template, variant, chat, &prompt, &fault);
        if (!status) {
            status = chat_check_marks(chat, &variant->forms, prompt.data, prompt.len, err);
        } else if (status == ERR_INVALID) {
            status = OK;
        } else if (err) {
            *err = fault;
        }
    }
    buf_fini(&prompt);
    return status;
}

// ---- Finds out which forms of messages a template reads, by rendering small chats.

struct probe {
    const struct chat_template *chat_template;
    struct chat_variant *variant;
    bool with_tools; // the chats have a tool; else tools is None
    struct buf out; // of the last chat
    bool rendered; // false: the template refused the last chat
    struct err *err;
};

// Renders a small chat. The only error is ERR_NOMEM; a refusal is an answer.
static enum status ask(struct probe *probe, const char *messages) {
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"nanovllm_tool\", \"description\": "
        "\"d\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";
    char text[1024];
    int len = snprintf(text, sizeof text, "{\"messages\": [%s], \"tools\": %s}", messages,
                       probe->with_tools ? tools : "null");
    struct chat chat;
    struct err refusal = {0};
    enum status status = chat_read(&chat, text, (size_t)len, probe->err);
    if (status) return status;
    buf_clear(&probe->out);
    status = buf_reserve(&probe->out, 0, &refusal); // a template may print nothing
    if (!status) {
        status = render(probe->chat_template, probe->variant, &chat, &probe->out, &refusal);
    }
    probe->rendered = !status;
    if (status == ERR_NOMEM && probe->err) *probe->err = refusal;
    chat_fini(&chat);
    return status == ERR_NOMEM ? status : OK;
}

static bool has_printed(const struct probe *probe, const char *text) {
    return probe->rendered && memmem(probe->out.data, probe->out.len, text, strlen(text));
}

// Whether the template prints a tool. One that names `tools` may mean other things: a member of a
// message (Phi-4-mini) or a variable such as xml_tools. Some print tools only behind a message of
// the system. One that refuses a tool will do so in its own words.
static enum status probe_reads_tools(struct probe *probe) {
    static const char *const chats[] = {
        "{\"role\": \"user\", \"content\": \"q\"}",
        "{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"q\"}",
    };
    bool any_rendered = false, any_printed = false;
    enum status status = OK;
    probe->with_tools = true;
    for (size_t i = 0; i < ARRAY_LEN(chats) && !any_printed && !status; i++) {
        status = ask(probe, chats[i]);
        any_rendered |= probe->rendered;
        any_printed |= has_printed(probe, "nanovllm_tool");
    }
    probe->variant->forms.tools = any_printed || !any_rendered;
    return status;
}

// Some templates fail without tools, whatever the messages are: those are probed with a tool.
static enum status probe_tools(struct probe *probe) {
    probe->with_tools = probe->variant == &probe->chat_template->tool_use;
    if (probe->with_tools) return OK;
    enum status status = ask(probe, "{\"role\": \"user\", \"content\": \"q\"}");
    probe->with_tools = !probe->rendered;
    return status;
}

// A template that takes only strings either raises an error over a list of parts or prints the list
// as Python or JSON does. Then a newline becomes \n, and the probe's text is not found.
static enum status probe_parts(struct probe *probe) {
    enum status status = ask(probe, "{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                                    "\"text\": \"nanovllm\\nprobe\"}]}");
    probe->variant->forms.parts = has_printed(probe, "nanovllm\nprobe");
    return status;
}

// Whether the template prints a message of this role in front of a user's.
static enum status probe_role(struct probe *probe, const char *role, bool *is_read) {
    char messages[200];
    snprintf(messages, sizeof messages,
             "{\"role\": \"%s\", \"content\": \"nanovllm probe\"}, "
             "{\"role\": \"user\", \"content\": \"q\"}",
             role);
    enum status status = ask(probe, messages);
    *is_read = has_printed(probe, "nanovllm probe");
    return status;
}

static enum status probe_systems(struct probe *probe) {
    enum status status = ask(probe, "{\"role\": \"system\", \"content\": \"nanovllm first\"}, "
                                    "{\"role\": \"system\", \"content\": \"nanovllm second\"}, "
                                    "{\"role\": \"user\", \"content\": \"q\"}");
    probe->variant->forms.systems =
        has_printed(probe, "nanovllm first") && has_printed(probe, "nanovllm second");
    return status;
}

// How a template takes one content of an assistant's message.
struct answer {
    bool rendered, prints_none, prints_call;
};

static enum status ask_content(struct probe *probe, enum chat_shape shape, const char *content,
                               struct answer *answer) {
    static const char calls[] =
        ", \"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", \"function\": "
        "{\"name\": \"nanovllm_call\", \"arguments\": %s}}]}, {\"role\": \"tool\", "
        "\"tool_call_id\": \"abcdefghi\", \"name\": \"f\", \"content\": \"r\"}";
    static const char thought[] =
        ", \"reasoning_content\": \"t\"}, {\"role\": \"user\", \"content\": \"q\"}";
    char messages[512], rest[256];
    snprintf(rest, sizeof rest, calls, probe->variant->forms.text_arguments ? "\"{}\"" : "{}");
    snprintf(messages, sizeof messages,
             "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\"%s%s", content,
             shape == CHAT_WITH_CALLS ? rest : thought);
    enum status status = ask(probe, messages);
    *answer = (struct answer){probe->rendered, has_printed(probe, "None"),
                              has_printed(probe, "nanovllm_call")};
    return status;
}

// DeepSeek's templates append the arguments to a text, which fails with an object.
static enum status probe_arguments(struct probe *probe) {
    bool *text_arguments = &probe->variant->forms.text_arguments;
    struct answer answer;
    enum status status = ask_content(probe, CHAT_WITH_CALLS, ", \"content\": \"\"", &answer);
    if (status || answer.rendered) return status;
    *text_arguments = true;
    status = ask_content(probe, CHAT_WITH_CALLS, ", \"content\": \"\"", &answer);
    *text_arguments = answer.rendered;
    return status;
}

// An assistant that calls tools, or only thinks, may set content to null or leave it out. Where a
// template fails over null or a missing content, or prints None for it, but reads an empty text, it
// gets the empty text.
static enum status probe_no_content(struct probe *probe, enum chat_shape shape) {
    struct answer text, null, missing;
    enum status status = ask_content(probe, shape, ", \"content\": \"\"", &text);
    if (!status) status = ask_content(probe, shape, ", \"content\": null", &null);
    if (!status) status = ask_content(probe, shape, "", &missing);
    if (status) return status;
    // Where even the empty text is refused, the content is not the reason.
    struct chat_forms *forms = &probe->variant->forms;
    bool none = text.prints_none;
    forms->null[shape] = !text.rendered || (null.rendered && (none || !null.prints_none));
    forms->missing[shape] = !text.rendered || (missing.rendered && (none || !missing.prints_none));
    // Some print calls only beside a certain content. One that refuses all has words of its own.
    if (shape == CHAT_WITH_CALLS) {
        bool any_rendered = text.rendered || null.rendered || missing.rendered;
        bool any_printed = text.prints_call || null.prints_call || missing.prints_call;
        forms->calls = any_printed || !any_rendered;
    }
    return OK;
}

static enum status probe(const struct chat_template *chat_template, struct chat_variant *variant,
                         struct err *err) {
    if (!variant->template) return OK;
    struct probe probe = {.chat_template = chat_template, .variant = variant, .err = err};
    enum status status = probe_reads_tools(&probe);
    if (!status) status = probe_tools(&probe);
    if (!status) status = probe_parts(&probe);
    if (!status) status = probe_role(&probe, "developer", &variant->forms.developer);
    if (!status) status = probe_role(&probe, "system", &variant->forms.system);
    if (!status) status = probe_systems(&probe);
    if (!status) status = probe_arguments(&probe);
    for (enum chat_shape shape = 0; shape < NUM_CHAT_SHAPES && !status; shape++) {
        status = probe_no_content(&probe, shape);
    }
    buf_fini(&probe.out);
    return status;
}

// ---- opening and rendering

enum status chat_template_open(struct chat_template **out, const struct checkpoint *checkpoint,
                               const char *path, struct err *err) {
    *out = NULL;
    struct chat_template *chat_template = calloc(1, sizeof *chat_template);
    if (!chat_template) return err_nomem(err, "chat template");
    enum status status = chat_open_files(chat_template, checkpoint, path, err);
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
    chat_variant_fini(&chat_template->main);
    chat_variant_fini(&chat_template->tool_use);
    json_decref(chat_template->special_tokens);
    buf_fini(&chat_template->names);
    free(chat_template);
}

static enum status choose(const struct chat_template *chat_template, bool has_tools,
                          const struct chat_variant **out, struct err *err) {
    const struct chat_variant *tool_use = &chat_template->tool_use;
    bool has_tool_use = tool_use->template || tool_use->fault.status;
    *out = has_tools && has_tool_use ? tool_use : &chat_template->main;
    if ((*out)->template) return OK;
    if ((*out)->fault.status) {
        if (err) *err = (*out)->fault;
        return (*out)->fault.status;
    }
    return err_set(err, ERR_INVALID,
                   "the model has chat templates of several names and none is \"default\": %.300s",
                   chat_template->names.data);
}

const char *chat_template_source(const struct chat_template *chat_template, bool has_tools,
                                 size_t *len) {
    const struct chat_variant *variant;
    if (choose(chat_template, has_tools, &variant, NULL)) return NULL;
    *len = variant->source.len;
    return variant->source.data;
}

bool chat_template_reads_tools(const struct chat_template *chat_template) {
    const struct chat_variant *variant;
    return !choose(chat_template, true, &variant, NULL) && variant->forms.tools;
}

static enum status check_list(const json_t *list, const char *name, bool is_read, struct err *err) {
    if (is_read || !json_array_size(list)) return OK;
    return err_set(err, ERR_UNSUPPORTED, "\"%s\" is a list that the chat template does not read",
                   name);
}

// What the template does not read would be lost in silence.
static enum status check_reads(const struct chat_variant *variant, const struct chat *chat,
                               struct err *err) {
    const struct buf *source = &variant->source;
    bool reads_documents = memmem(source->data, source->len, "documents", 9);
    enum status status = check_list(chat->tools, "tools", variant->forms.tools, err);
    if (!status) status = check_list(chat->documents, "documents", reads_documents, err);
    for (size_t i = 0; i < json_array_size(chat->messages) && !status && !variant->forms.calls;
         i++) {
        const json_t *calls = json_object_get(json_array_get(chat->messages, i), "tool_calls");
        if (!json_array_size(calls)) continue;
        status = err_set(err, ERR_INVALID,
                         "the chat template leaves out the tool_calls of messages[%zu]: the model "
                         "would not see them",
                         i);
    }
    return status;
}

static enum status render_chat(const struct chat_template *chat_template, struct chat *chat,
                               struct buf *out, struct err *err) {
    const struct chat_variant *variant = NULL;
    json_t *final_text = NULL;
    size_t start = out->len;
    enum status status = buf_reserve(out, 0, err);
    if (!status) status = choose(chat_template, chat->tools != NULL, &variant, err);
    if (!status) status = check_reads(variant, chat, err);
    if (!status) status = chat_normalize(chat, &variant->forms, err);
    if (!status && chat->continue_final_message) status = chat_mark_end(chat, &final_text, err);
    if (!status) status = render(chat_template, variant, chat, out, err);
    bool shows_texts = status || chat_shows_texts(chat, out->data + start, out->len - start);
    if (!status && chat->continue_final_message) {
        status = chat_cut_at_mark(out, start, final_text, err);
    }
    if (!status && !shows_texts) status = check_left_out(chat_template, variant, chat, err);
    json_decref(final_text);
    if (!status || out->len == start) return status;
    out->len = start;
    out->data[start] = '\0';
    return status;
}

// Ends the chat, after a `status` from reading it.
static enum status render_read(const struct chat_template *chat_template, enum status status,
                               struct chat *chat, const struct interrupt *interrupt,
                               struct buf *out, struct err *err) {
    chat->now.options.interrupt = interrupt;
    if (!status) status = render_chat(chat_template, chat, out, err);
    chat_fini(chat);
    return status;
}

enum status chat_template_render(const struct chat_template *chat_template, const char *chat_text,
                                 size_t len, const struct interrupt *interrupt, struct buf *out,
                                 struct err *err) {
    struct chat chat;
    enum status status = chat_read(&chat, chat_text, len, err);
    return render_read(chat_template, status, &chat, interrupt, out, err);
}

enum status chat_template_render_json(const struct chat_template *chat_template, const json_t *tree,
                                      size_t memory_left, const struct interrupt *interrupt,
                                      struct buf *out, struct err *err) {
    struct chat chat;
    enum status status = chat_read_json(&chat, tree, memory_left, err);
    return render_read(chat_template, status, &chat, interrupt, out, err);
}

enum status chat_template_render_raw(const struct chat_template *chat_template,
                                     const char *variables_text, size_t len,
                                     const struct interrupt *interrupt, struct buf *out,
                                     struct err *err) {
    json_t *variables = NULL;
    struct chat_now now;
    const struct chat_variant *variant = NULL;
    enum status status = jread_request(&variables, variables_text, len, "the chat", err);
    if (!status && !jread_is_object(variables)) {
        status = err_set(err, ERR_FORMAT, "the variables are %s, want an object",
                         jread_type_name(variables));
    }
    if (!status) status = chat_now_read(&now, json_object_get(variables, "now"), err);
    if (!status) {
        now.options.interrupt = interrupt;
        json_object_del(variables, "now");
        status = choose(chat_template, jread_get(variables, "tools") != NULL, &variant, err);
    }
    if (!status)
        status = jinja_template_render(variant->template, variables, &now.options, out, err);
    json_decref(variables);
    return status;
}
