/* `nanovllm tokenize` and `nanovllm detokenize` need only a tokenizer, no model. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "base/json/json_text.h"
#include "base/os/output_file.h"
#include "cmd/cli.h"
#include "cmd/generate/prompt_source.h"
#include "cmd/model/model_place.h"

struct tokenize {
    struct nvllm_engine_options engine_options; // of which only the model counts
    int32_t json, pieces, add_special_tokens, skip_special_tokens;
    struct nvllm_tokenizer *tokenizer;
    struct buf out;
};

static const struct nvllm_param model_row = {
    "model",
    NVLLM_PARAM_STRING,
    offsetof(struct tokenize, engine_options.model),
    0,
    0,
    NULL,
    "folder with tokenizer.json, a tokenizer.json itself, a GGUF file, or a model by its name; "
    "required"};

static const struct nvllm_param *tokenize_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"json", NVLLM_PARAM_BOOL, offsetof(struct tokenize, json), 0, 1, NULL,
         "print each text's ids as a JSON list (with --pieces of [id, piece] pairs)"},
        {"pieces", NVLLM_PARAM_BOOL, offsetof(struct tokenize, pieces), 0, 1, NULL,
         "print one token per line, its id and its text quoted; half a character shows as U+FFFD"},
        {"add_special_tokens", NVLLM_PARAM_BOOL, offsetof(struct tokenize, add_special_tokens), 0,
         1, NULL, "add what the tokenizer puts around a text, such as a BOS token; default true"},
    };
    if (index == 0) return &model_row;
    return index - 1 < ARRAY_LEN(rows) ? &rows[index - 1] : NULL;
}

static const struct nvllm_param *detokenize_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"json", NVLLM_PARAM_BOOL, offsetof(struct tokenize, json), 0, 1, NULL,
         "print the text as a JSON string"},
        {"skip_special_tokens", NVLLM_PARAM_BOOL, offsetof(struct tokenize, skip_special_tokens), 0,
         1, NULL, "leave out special tokens; default false"},
    };
    if (index == 0) return &model_row;
    return index - 1 < ARRAY_LEN(rows) ? &rows[index - 1] : NULL;
}

static enum status add_piece(struct tokenize *t, int32_t id, struct err *err) {
    struct nvllm_error error = {0};
    char *text = NULL;
    size_t len = 0;
    enum status status = cli_status(
        nvllm_tokenizer_decode(t->tokenizer, &id, 1, 0, &text, &len, &error), &error, err);
    if (!status) status = json_text_string(&t->out, text, len, err);
    nvllm_free(text);
    return status;
}

static enum status add_pieces(struct tokenize *t, const int32_t *ids, size_t num_ids,
                              struct err *err) {
    struct buf *out = &t->out;
    enum status status = t->json ? buf_append_str(out, "[", err) : OK;
    for (size_t i = 0; i < num_ids && !status; i++) {
        const char *before = !t->json ? "" : i ? ",[" : "[";
        status = buf_appendf(out, err, "%s%d%s", before, ids[i], t->json ? "," : "\t");
        if (!status) status = add_piece(t, ids[i], err);
        if (!status) status = buf_append_str(out, t->json ? "]" : "\n", err);
    }
    if (!status && t->json) status = buf_append_str(out, "]\n", err);
    return status;
}

static enum status add_ids(struct tokenize *t, const int32_t *ids, size_t num_ids,
                           struct err *err) {
    enum status status = OK;
    if (t->json) {
        status = json_text_ids(&t->out, ids, num_ids, err);
    } else {
        for (size_t i = 0; i < num_ids && !status; i++) {
            status = buf_appendf(&t->out, err, i ? " %d" : "%d", ids[i]);
        }
    }
    return status ? status : buf_append_str(&t->out, "\n", err);
}

static enum status tokenize_text(struct tokenize *t, const char *text, size_t len,
                                 struct err *err) {
    struct nvllm_error error = {0};
    int32_t *ids = NULL;
    size_t num_ids = 0;
    enum status status =
        cli_status(nvllm_tokenizer_encode(t->tokenizer, text, len, t->add_special_tokens, NULL,
                                          &ids, &num_ids, &error),
                   &error, err);
    if (!status) {
        status = t->pieces ? add_pieces(t, ids, num_ids, err) : add_ids(t, ids, num_ids, err);
    }
    nvllm_free(ids);
    return status;
}

static enum status tokenize_all(struct tokenize *t, const struct options *options,
                                struct err *err) {
    enum status status = OK;
    for (size_t i = 0; i < options->num_args && !status; i++) {
        status = tokenize_text(t, options->args[i], strlen(options->args[i]), err);
    }
    if (status || options->num_args) return status;
    struct prompt_source source;
    status = prompt_source_from_stdin(&source, err);
    if (!status) status = tokenize_text(t, source.text.data, source.text.len, err);
    prompt_source_close(&source);
    return status;
}

static const char id_separators[] = " \t\r\n,";

static enum status parse_id(const char **at, int32_t *id, struct err *err) {
    size_t len = strcspn(*at, id_separators);
    char *end = NULL;
    errno = 0;
    long long number = strtoll(*at, &end, 10);
    if (end != *at + len || errno || number < 0 || number > INT32_MAX) {
        return err_set(err, ERR_INVALID, "\"%.*s\" is not a token id", (int)(len < 64 ? len : 64),
                       *at);
    }
    *id = (int32_t)number;
    *at = end;
    return OK;
}

// The number of bytes from '[' to the ']' that closes it, or to the text's end. Brackets inside
// strings are counted too: a list with strings is refused anyway.
static size_t list_len(const char *text) {
    size_t depth = 0;
    for (size_t i = 0; text[i]; i++) {
        depth += text[i] == '[';
        if (text[i] == ']' && --depth == 0) return i + 1;
    }
    return strlen(text);
}

// Reads a list of token ids; anything else in it is an error.
static enum status parse_list(const char **at, int32_t *ids, size_t *num_ids, struct err *err) {
    size_t len = list_len(*at);
    json_t *list = NULL;
    enum status status = jread_text(&list, *at, len, "the list of token ids", err);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t number = json_integer_value(id);
        if (!json_is_integer(id)) {
            status = err_set(err, ERR_INVALID, "element %zu of the list is %s, want a token id", i,
                             jread_type_name(id));
        } else if (number < 0 || number > INT32_MAX) {
            status = err_set(err, ERR_INVALID, "element %zu of the list is %lld, not a token id", i,
                             (long long)number);
        } else {
            ids[(*num_ids)++] = (int32_t)number;
        }
    }
    json_decref(list);
    *at += len;
    if (!status && **at && !strchr(id_separators, **at)) {
        status = err_set(err, ERR_INVALID, "a list of token ids is followed by \"%.20s\"", *at);
    }
    return status;
}

// Reads ids or JSON lists of ids, separated by blanks and commas: both forms that tokenize prints.
static enum status parse_ids(const char *text, int32_t *ids, size_t *num_ids, struct err *err) {
    enum status status = OK;
    while (!status) {
        text += strspn(text, id_separators);
        if (!*text) break;
        if (*text == '[') {
            status = parse_list(&text, ids, num_ids, err);
        } else {
            status = parse_id(&text, &ids[*num_ids], err);
            if (!status) ++*num_ids;
        }
    }
    return status;
}

// Appends the text of the ids in one text to the output.
static enum status detokenize_text(struct tokenize *t, const char *text, size_t len,
                                   struct err *err) {
    if (memchr(text, '\0', len)) return err_set(err, ERR_INVALID, "a NUL byte is not a token id");
    // An id and its separator take at least two bytes.
    int32_t *ids = malloc((len / 2 + 1) * sizeof *ids);
    if (!ids) return err_nomem(err, "token ids");
    size_t num_ids = 0;
    char *decoded = NULL;
    size_t decoded_len = 0;
    enum status status = parse_ids(text, ids, &num_ids, err);
    struct nvllm_error error = {0};
    if (!status) {
        status =
            cli_status(nvllm_tokenizer_decode(t->tokenizer, ids, num_ids, t->skip_special_tokens,
                                              &decoded, &decoded_len, &error),
                       &error, err);
    }
    if (!status && t->json) {
        status = json_text_string(&t->out, decoded, decoded_len, err);
        if (!status) status = buf_append_str(&t->out, "\n", err);
    } else if (!status) {
        status = buf_append(&t->out, decoded, decoded_len, err);
        // A pipe gets only the bytes, no newline, so that tokenize | detokenize changes nothing.
        if (!status && isatty(STDOUT_FILENO)) status = buf_append_str(&t->out, "\n", err);
    }
    nvllm_free(decoded);
    free(ids);
    return status;
}

static enum status detokenize_all(struct tokenize *t, const struct options *options,
                                  struct err *err) {
    struct prompt_source source = {.fd = -1};
    enum status status = OK;
    if (!options->num_args) status = prompt_source_from_stdin(&source, err);
    // All arguments together are one list: `detokenize 1 2 3`.
    for (size_t i = 0; i < options->num_args && !status; i++) {
        status = buf_appendf(&source.text, err, i ? " %s" : "%s", options->args[i]);
    }
    if (!status) status = detokenize_text(t, source.text.data, source.text.len, err);
    prompt_source_close(&source);
    return status;
}

static int run(struct options *options, struct tokenize *t, int argc, char **argv,
               enum status (*convert)(struct tokenize *, const struct options *, struct err *)) {
    int exit_code;
    if (!cli_parse(options, argc, argv, &exit_code)) return exit_code;
    if (!t->engine_options.model)
        return cli_usage_error(options, "no tokenizer given: use -m MODEL");
    if (!options->num_args && isatty(STDIN_FILENO)) {
        return cli_usage_error(options, "no text or ids given");
    }
    struct err err = {0};
    struct nvllm_error error = {0};
    struct output_file file;
    struct model_place place;
    enum status status = model_place_find(&place, &t->engine_options, true, &err);
    if (!status) {
        status = cli_status(nvllm_tokenizer_open(&t->tokenizer, place.path, &error), &error, &err);
    }
    if (!status) status = convert(t, options, &err);
    if (!status) status = output_file_open(&file, "-", &err);
    if (!status) status = output_file_write(&file, t->out.data, t->out.len, &err);
    nvllm_tokenizer_close(t->tokenizer);
    buf_fini(&t->out);
    return status ? cli_error("%s", err.message) : CLI_OK;
}

int cmd_tokenize(int argc, char **argv) {
    struct tokenize t = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT, .add_special_tokens = 1};
    const struct option_group groups[] = {
        {.title = "Options", .row = tokenize_option, .target = &t},
        cli_model_group(&t.engine_options)};
    struct options options = {
        .command = "tokenize",
        .synopsis = "-m MODEL [options] [TEXT...]",
        .details =
            "Prints the token ids of each TEXT on a line of its own. Without TEXT, standard\n"
            "input is the text, whole and exactly as it is.\n",
        .groups = groups,
        .num_groups = ARRAY_LEN(groups)};
    return run(&options, &t, argc, argv, tokenize_all);
}

int cmd_detokenize(int argc, char **argv) {
    struct tokenize t = {.engine_options = NVLLM_ENGINE_OPTIONS_INIT};
    const struct option_group groups[] = {
        {.title = "Options", .row = detokenize_option, .target = &t},
        cli_model_group(&t.engine_options)};
    struct options options = {
        .command = "detokenize",
        .synopsis = "-m MODEL [options] [ID...]",
        .details =
            "Prints the text of token ids, given as arguments or on standard input, between\n"
            "blanks or commas or as JSON lists of integers. Nothing is added to the text but\n"
            "a newline on a terminal.\n",
        .groups = groups,
        .num_groups = ARRAY_LEN(groups)};
    return run(&options, &t, argc, argv, detokenize_all);
}
