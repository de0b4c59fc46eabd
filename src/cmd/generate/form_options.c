#include "cmd/generate/form_options.h"

#include <jansson.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "base/text/buf.h"
#include "cmd/cli.h"
#include "cmd/terminal/line_reader.h"
#include "structured/read/outputs.h"

enum { FORM_BYTES_MAX = 1 << 20 };

static const struct nvllm_param *form_row(size_t index) {
    static const struct nvllm_param rows[] = {
        {"json_schema", NVLLM_PARAM_STRING, 0, 0, 0, NULL,
         "file with the JSON schema that the output must fit"},
        {"regex", NVLLM_PARAM_STRING, 0, 0, 0, NULL,
         "regular expression that the whole output must match"},
        {"choice", NVLLM_PARAM_STRINGS, 0, 0, 0, NULL,
         "text that the output may be; may be given several times"},
        {"grammar", NVLLM_PARAM_STRING, 0, 0, 0, NULL,
         "file with a grammar in GBNF or EBNF that the output must fit"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

// The file's text as JSON: of a schema the value, of a grammar a string.
static enum status read_file(json_t **out, const char *path, bool is_json, struct err *err) {
    struct buf text = {0};
    enum status status = read_whole_file(&text, path, FORM_BYTES_MAX, err);
    if (!status && is_json) {
        status = jread_request(out, text.data ? text.data : "", text.len, path, err);
    } else if (!status) {
        *out = json_stringn(text.data ? text.data : "", text.len);
        if (!*out) status = err_set(err, ERR_INVALID, "%s is not valid UTF-8", path);
    }
    buf_fini(&text);
    return status;
}

static enum status read_value(json_t **out, const char *name, const char *value, struct err *err) {
    if (strcmp(name, "json_schema") == 0) return read_file(out, value, true, err);
    if (strcmp(name, "grammar") == 0) return read_file(out, value, false, err);
    if (strcmp(name, "choice") == 0) return jread_text(out, value, strlen(value), name, err);
    *out = json_string(value);
    return *out ? OK : err_set(err, ERR_INVALID, "the text is not valid UTF-8");
}

// The JSON text of structured_outputs that the flag `name` asks for.
static enum status form_text(struct buf *out, const char *name, const char *value,
                             struct err *err) {
    json_t *form = NULL, *object = json_object();
    const char *key = strcmp(name, "json_schema") == 0 ? "json" : name;
    enum status status = object ? read_value(&form, name, value, err) : err_nomem(err, "options");
    if (!status && json_object_set(object, key, form)) status = err_nomem(err, "options");
    if (!status) status = jwrite(out, object, JSON_COMPACT, "options", err);
    json_decref(form);
    json_decref(object);
    return status;
}

static enum status set_text(struct nvllm_sampling_params *params, const char *text,
                            struct err *err) {
    struct nvllm_error fault = {0};
    enum nvllm_status set = nvllm_sampling_params_set(params, "structured_outputs", text, &fault);
    return cli_status(set, &fault, err);
}

static enum status set_form(void *target, const char *name, const char *value, struct err *err) {
    struct nvllm_sampling_params *params = target;
    if (params->num_structured_outputs) {
        return err_set(err, ERR_INVALID, "the output has another form already");
    }
    struct buf text = {0};
    enum status status = form_text(&text, name, value, err);
    if (!status) status = set_text(params, text.data, err);
    buf_fini(&text);
    return status;
}

enum status form_set_schema(struct nvllm_sampling_params *params, const char *path,
                            struct err *err) {
    struct buf text = {0};
    struct grammar *grammar = NULL;
    enum status status = form_text(&text, "json_schema", path, err);
    if (!status) status = outputs_read(&grammar, text.data, text.len, NULL, err);
    if (!status) status = set_text(params, text.data, err);
    grammar_destroy(grammar);
    buf_fini(&text);
    return status;
}

enum status form_remove(struct nvllm_sampling_params *params, struct err *err) {
    return set_text(params, "null", err);
}

struct option_group form_options(struct nvllm_sampling_params *params) {
    return (struct option_group){
        .title = "Form of the output", .row = form_row, .set = set_form, .target = params};
}
