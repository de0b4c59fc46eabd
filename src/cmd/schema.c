/* `nanovllm schema check` says what of a JSON schema is enforced, and which texts fit. It needs no
 * model: the tokens are single bytes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "base/os/clock.h"
#include "base/os/output_file.h"
#include "cmd/cli.h"
#include "cmd/schema_order.h"
#include "cmd/terminal/line_reader.h"
#include "structured/automaton/automaton.h"
#include "structured/matcher.h"
#include "structured/schema/schema.h"

enum { FILE_BYTES_MAX = 256 << 20, SHOWN_BYTES = 60 };

struct check {
    const char *schema_path, *texts_path; // texts_path NULL: none
    int32_t disable_any_whitespace, disable_additional_properties, any_key_order;
    const char *whitespace_pattern;
    struct vocabulary *vocabulary; // each byte is a token
    struct automaton *automaton;
    struct buf out;
    size_t num_bad; // texts that do not fit
    bool is_refused;
};

static const struct nvllm_param *check_option(size_t index) {
    static const struct nvllm_param rows[] = {
        {"disable_any_whitespace", NVLLM_PARAM_BOOL, offsetof(struct check, disable_any_whitespace),
         0, 1, NULL, "allow no white space between the parts of a text; default false"},
        {"whitespace_pattern", NVLLM_PARAM_STRING, offsetof(struct check, whitespace_pattern), 0, 0,
         NULL, "regular expression of the white space between the parts of a text"},
        {"disable_additional_properties", NVLLM_PARAM_BOOL,
         offsetof(struct check, disable_additional_properties), 0, 1, NULL,
         "objects have only keys that the schema names, where it does not say so; default false"},
        {"any_key_order", NVLLM_PARAM_BOOL, offsetof(struct check, any_key_order), 0, 1, NULL,
         "keys of objects come in any order, not in that of the schema; default false"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

static enum status make_vocabulary(struct vocabulary **out, struct err *err) {
    struct vocabulary_token tokens[257];
    char bytes[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){.bytes = &bytes[i], .len = 1};
    }
    tokens[256] = (struct vocabulary_token){.bytes = ""};
    const int32_t end = 256;
    return vocabulary_create(out, tokens, 257, &end, 1, err);
}

static enum status compile(struct check *check, const json_t *schema, struct schema_report *report,
                           struct err *err) {
    const struct schema_options options = {
        .space = check->disable_any_whitespace ? SCHEMA_SPACE_NONE : SCHEMA_SPACE_BOUNDED,
        .space_pattern = check->whitespace_pattern,
        .no_additional_properties = check->disable_additional_properties != 0,
        .any_key_order = check->any_key_order != 0};
    struct grammar *grammar;
    uint32_t rule;
    enum status status = grammar_create(&grammar, NULL, err);
    if (status) return status;
    status = schema_add(grammar, schema, &options, &rule, report, err);
    if (status) {
        grammar_destroy(grammar);
        return status;
    }
    grammar_start(grammar, rule);
    return automaton_create(&check->automaton, grammar, check->vocabulary, NULL, err);
}

// What is refused first, then what says nothing.
static enum status write_findings(struct check *check, const struct schema_report *report,
                                  const struct err *reason, struct err *err) {
    enum status status = OK;
    bool has_reason = false;
    for (int refused = 1; refused >= 0; refused--) {
        for (size_t i = 0; i < report->num_findings && !status; i++) {
            const struct schema_finding *finding = &report->findings[i];
            if (finding->refused != (refused == 1)) continue;
            has_reason |= strcmp(finding->text, reason->message) == 0;
            status = buf_appendf(&check->out, err, "%s %s\n",
                                 refused ? "refused:" : "ignored:", finding->text);
        }
    }
    if (!status && check->is_refused && !has_reason) {
        status = buf_appendf(&check->out, err, "refused: %s\n", reason->message);
    }
    return status;
}

static enum status read_schema(struct check *check, struct err *err) {
    struct buf text = {0};
    json_t *schema = NULL;
    struct schema_report report = {0};
    struct err reason = {0};
    enum status status = read_whole_file(&text, check->schema_path, FILE_BYTES_MAX, err);
    if (!status) {
        status =
            jread_request(&schema, text.data ? text.data : "", text.len, check->schema_path, err);
    }
    if (!status) {
        double start = clock_seconds();
        enum status compiled = compile(check, schema, &report, &reason);
        double ms = (clock_seconds() - start) * 1e3;
        check->is_refused = compiled != OK;
        if (compiled == ERR_NOMEM) status = err_set(err, compiled, "%s", reason.message);
        if (!status) status = write_findings(check, &report, &reason, err);
        if (!compiled && !status) {
            status = buf_appendf(&check->out, err, "compiled in %.2f ms\n", ms);
        }
    }
    schema_report_fini(&report);
    json_decref(schema);
    buf_fini(&text);
    return status;
}

// `fits` is the length of the longest beginning that some text of the schema has.
static enum status write_misfit(struct check *check, size_t line, const char *text, size_t len,
                                size_t fits, struct err *err) {
    size_t from = fits > SHOWN_BYTES ? fits - SHOWN_BYTES : 0;
    struct err shown = {0}; // one safe line
    err_set(&shown, ERR_INVALID, "%s%.*s", from ? "..." : "", (int)(fits - from), text + from);
    if (fits == len) {
        return buf_appendf(&check->out, err, "line %zu: fits, but is not complete: %s\n", line,
                           shown.message);
    }
    struct err next = {0};
    size_t rest = len - fits < 16 ? len - fits : 16;
    err_set(&next, ERR_INVALID, "%.*s", (int)rest, text + fits);
    return buf_appendf(&check->out, err, "line %zu: fits for %zu bytes, %s, but goes on with %s\n",
                       line, fits, shown.message, next.message);
}

// A text that does not fit as it is. Its members may fit in another order.
static enum status write_misfit_or_order(struct check *check, size_t line, const char *text,
                                         size_t len, size_t fits, struct err *err) {
    struct buf ordered = {0};
    bool is_order = false;
    enum status status = schema_order_text(check->automaton, text, len, &ordered, &is_order, err);
    if (status) {
        status = err_prefix(err, status, "line %zu", line);
    } else if (is_order) {
        struct err shown = {0}; // one safe line
        err_set(&shown, ERR_INVALID, "%.*s", (int)ordered.len, ordered.data);
        status = buf_appendf(&check->out, err, "line %zu: fits with its keys in this order: %s\n",
                             line, shown.message);
    } else {
        check->num_bad++;
        status = write_misfit(check, line, text, len, fits, err);
    }
    buf_fini(&ordered);
    return status;
}

static enum status check_text(struct check *check, size_t line, const char *text, size_t len,
                              struct err *err) {
    struct matcher matcher;
    enum status status = matcher_init(&matcher, check->automaton, err);
    size_t fits = 0;
    while (!status && fits < len) {
        status = matcher_take_bytes(&matcher, text + fits, 1, err);
        if (!status) fits++;
    }
    bool is_whole = fits == len && matcher_can_end(&matcher);
    matcher_fini(&matcher);
    if (status && status != ERR_INVALID) return err_prefix(err, status, "line %zu", line);
    if (is_whole) return buf_appendf(&check->out, err, "line %zu: fits\n", line);
    return write_misfit_or_order(check, line, text, len, fits, err);
}

static enum status check_texts(struct check *check, struct err *err) {
    struct buf texts = {0};
    enum status status = read_whole_file(&texts, check->texts_path, FILE_BYTES_MAX, err);
    size_t line = 0;
    for (size_t at = 0; at < texts.len && !status;) {
        const char *text = texts.data + at, *end = memchr(text, '\n', texts.len - at);
        size_t len = end ? (size_t)(end - text) : texts.len - at;
        at += len + 1;
        line++;
        if (len && text[len - 1] == '\r') len--;
        if (len) status = check_text(check, line, text, len, err);
    }
    buf_fini(&texts);
    return status;
}

static int run_check(struct check *check) {
    struct err err = {0};
    struct output_file file;
    enum status status = make_vocabulary(&check->vocabulary, &err);
    if (!status) status = read_schema(check, &err);
    if (!status && check->texts_path && !check->is_refused) status = check_texts(check, &err);
    // What was found before an error is shown too.
    struct err writing = {0};
    enum status written = output_file_open(&file, "-", &writing);
    if (!written) written = output_file_write(&file, check->out.data, check->out.len, &writing);
    automaton_release(check->automaton);
    vocabulary_destroy(check->vocabulary);
    buf_fini(&check->out);
    if (status) return cli_error("%s", err.message);
    if (written) return cli_error("%s", writing.message);
    return check->is_refused || check->num_bad ? CLI_FAILED : CLI_OK;
}

int cmd_schema(int argc, char **argv) {
    struct check check = {0};
    const struct option_group groups[] = {
        {.title = "Options", .row = check_option, .target = &check}};
    struct options options = {
        .command = "schema",
        .synopsis = "check SCHEMA.json [TEXTS.jsonl] [options]",
        .details =
            "Compiles a JSON schema as a request with structured output does. Prints each\n"
            "keyword that cannot be enforced (refused:), with its place as a JSON pointer, what\n"
            "says nothing about the values (ignored:), and the time. Then it says of each line\n"
            "of TEXTS.jsonl whether an answer may be this text. Answers have their keys in the\n"
            "order of the schema, unless --any-key-order is given. A text that fits only in the\n"
            "schema's order is shown in that order. \"-\" is standard input.\n"
            "\n"
            "The exit status is 1 when the schema is refused or a text does not fit.\n",
        .groups = groups,
        .num_groups = ARRAY_LEN(groups)};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (!options.num_args || strcmp(options.args[0], "check") != 0) {
        return cli_usage_error(&options, "want \"check\", then a schema");
    }
    if (options.num_args < 2) return cli_usage_error(&options, "no schema given");
    if (options.num_args > 3) {
        return cli_usage_error(&options, "unexpected argument %s", options.args[3]);
    }
    check.schema_path = options.args[1];
    if (options.num_args == 3) check.texts_path = options.args[2];
    if (check.texts_path && !strcmp(check.schema_path, "-") && !strcmp(check.texts_path, "-")) {
        return cli_usage_error(&options, "standard input cannot be both the schema and the texts");
    }
    return run_check(&check);
}
