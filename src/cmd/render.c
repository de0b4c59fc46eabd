/* `nanovllm render` prints the prompt that a chat template makes of a chat. It needs no weights. It
 * prints only after all has succeeded: the output is a whole prompt or nothing. */
#include <string.h>
#include <unistd.h>

#include "base/json/json_text.h"
#include "base/os/output_file.h"
#include "base/text/buf.h"
#include "cmd/cli.h"
#include "cmd/model/model_place.h"
#include "cmd/terminal/line_reader.h"

enum { CHAT_BYTES_MAX = 64 << 20 };

struct render {
    struct nvllm_engine_options engine_options; // of which only the model counts
    const char *input, *chat_template; // NULL: not given
    int32_t tokens;
};

static const struct nvllm_param *own_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"model", NVLLM_PARAM_STRING, offsetof(struct render, engine_options.model), 0, 0, NULL,
         "folder of a checkpoint, a GGUF file or a model by its name, for its chat template and "
         "special tokens"},
        {"input", NVLLM_PARAM_STRING, offsetof(struct render, input), 0, 0, NULL,
         "JSON of a chat, or of a template's variables; - is standard input; default -"},
        {"chat_template", NVLLM_PARAM_STRING, offsetof(struct render, chat_template), 0, 0, NULL,
         "file with the Jinja source of a chat template; default: the model's own"},
        {"tokens", NVLLM_PARAM_BOOL, offsetof(struct render, tokens), 0, 1, NULL,
         "print the prompt's token ids as a JSON list; needs the model's tokenizer.json"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static const char details[] =
    "Prints the prompt that a chat template makes of a chat: exactly the bytes that\n"
    "the model gets, without a newline at the end. Loads no weights.\n";

static const char epilogue[] =
    "With -m the input is a chat, as a line of generate's --input has it: a list of\n"
    "messages, or {\"messages\": [...]}, which may have tools, documents,\n"
    "chat_template_kwargs, add_generation_prompt (default true) and\n"
    "continue_final_message. --chat-template then replaces the model's template and\n"
    "keeps its special tokens.\n"
    "\n"
    "Without -m, --chat-template is rendered over the input as it is: an object whose\n"
    "members are the template's variables. Nothing is added: messages, tools,\n"
    "add_generation_prompt, bos_token and all others are there if the input has them.\n"
    "\n"
    "In both, \"now\": \"2026-01-02T03:04:05\" fixes the time that templates print.\n"
    "\n"
    "Exit status: 0 the prompt was printed; 1 the chat could not be rendered, and\n"
    "nothing was printed; 2 the command line is wrong.\n";

static enum status render_input(struct render *render, const struct buf *input, struct buf *out,
                                struct err *err) {
    struct nvllm_error error = {0};
    struct nvllm_chat_template *chat_template = NULL;
    char *text = NULL;
    size_t len = 0;
    const char *model = render->engine_options.model;
    enum status status =
        cli_status(nvllm_chat_template_open(&chat_template, model, render->chat_template, &error),
                   &error, err);
    if (!status) {
        enum nvllm_status rendered =
            model ? nvllm_chat_template_render(chat_template, input->data, input->len, NULL, &text,
                                               &len, &error)
                  : nvllm_chat_template_render_raw(chat_template, input->data, input->len, NULL,
                                                   &text, &len, &error);
        status = cli_status(rendered, &error, err);
    }
    if (!status) status = buf_append(out, text, len, err);
    nvllm_free(text);
    nvllm_chat_template_close(chat_template);
    return status;
}

// Replaces the text in `out` by its token ids.
static enum status to_tokens(const struct render *render, struct buf *out, struct err *err) {
    struct nvllm_error error = {0};
    struct nvllm_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    size_t num_ids = 0;
    enum status status = cli_status(
        nvllm_tokenizer_open(&tokenizer, render->engine_options.model, &error), &error, err);
    if (!status) {
        status = cli_status(
            nvllm_tokenizer_encode(tokenizer, out->data, out->len, 0, NULL, &ids, &num_ids, &error),
            &error, err);
    }
    buf_clear(out);
    if (!status) status = json_text_ids(out, ids, num_ids, err);
    if (!status) status = buf_append_str(out, "\n", err);
    nvllm_free(ids);
    nvllm_tokenizer_close(tokenizer);
    return status;
}

static int render(struct render *r) {
    struct err err = {0};
    struct buf input = {0}, out = {0};
    struct output_file file;
    struct model_place place;
    enum status status = OK;
    if (r->engine_options.model) status = model_place_find(&place, &r->engine_options, true, &err);
    if (!status) status = read_whole_file(&input, r->input ? r->input : "-", CHAT_BYTES_MAX, &err);
    if (!status) status = render_input(r, &input, &out, &err);
    if (!status && r->tokens) status = to_tokens(r, &out, &err);
    if (!status) status = output_file_open(&file, "-", &err);
    if (!status) status = output_file_write(&file, out.data, out.len, &err);
    buf_fini(&input);
    buf_fini(&out);
    return status ? cli_error("%s", err.message) : CLI_OK;
}

int cmd_render(int argc, char **argv) {
    struct render r = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT};
    const struct option_group groups[] = {{.title = "Options", .row = own_option, .target = &r},
                                          cli_model_group(&r.engine_options)};
    struct options options = {.command = "render",
                              .synopsis = "[-m MODEL] [--chat-template FILE] [options]",
                              .details = details,
                              .epilogue = epilogue,
                              .groups = groups,
                              .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (!r.engine_options.model && !r.chat_template) {
        return cli_usage_error(&options,
                               "no chat template given: use -m MODEL or --chat-template FILE");
    }
    if (r.tokens && !r.engine_options.model)
        return cli_usage_error(&options, "--tokens needs a model: use -m MODEL");
    if (options.num_args) {
        return cli_usage_error(&options, "unexpected argument %s: the chat comes from --input",
                               options.args[0]);
    }
    if (!r.input && isatty(STDIN_FILENO)) {
        return cli_usage_error(&options, "no chat given: use --input FILE");
    }
    return render(&r);
}
