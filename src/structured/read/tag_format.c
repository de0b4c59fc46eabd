#include "structured/read/tag_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/utf8.h"
#include "structured/read/expression.h"
#include "structured/read/gbnf.h"
#include "structured/read/outputs.h"
#include "structured/read/tags.h"

enum { TRIAL_STEPS_MAX = 20000000 }; // of all schemas with best_effort together

struct reader {
    struct grammar *grammar;
    const struct schema_options *schema;
    const struct vocabulary *vocabulary; // NULL: names of tokens are not checked
    uint64_t *trial_steps_left;
};

static enum status read_part(const struct reader *reader, const json_t *part, uint32_t *item,
                             struct err *err);

enum status tag_format_check_members(const json_t *object, const char *const *members,
                                     const char *what, struct err *err) {
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const char *key = json_object_iter_key(at);
        const char *const *member = members;
        while (*member && strcmp(*member, key) != 0) member++;
        if (*member || json_is_null(json_object_iter_value(at))) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s has the member \"%.64s\", which is not known",
                       what, key);
    }
    return OK;
}

static enum status wrong_type(const char *key, const json_t *value, const char *want,
                              struct err *err) {
    return err_set(err, ERR_INVALID, "%s is %s, want %s", key,
                   value ? jread_type_name(value) : "missing", want);
}

// A string of UTF-8, borrowed.
static enum status read_text(const json_t *part, const char *key, struct expr_text *out,
                             struct err *err) {
    const json_t *value = json_object_get(part, key);
    if (!json_is_string(value)) return wrong_type(key, value, "a string", err);
    *out = (struct expr_text){json_string_value(value), json_string_length(value)};
    return OK;
}

// A list of strings, or an absent one; *out is the caller's to free.
static enum status read_texts(const json_t *part, const char *key, struct expr_text **out,
                              size_t *count, struct err *err) {
    const json_t *list = jread_get(part, key);
    *count = json_array_size(list);
    if (list && !json_is_array(list)) return wrong_type(key, list, "a list of strings", err);
    *out = calloc(*count + 1, sizeof **out);
    if (!*out) return err_nomem(err, key);
    for (size_t i = 0; i < *count; i++) {
        const json_t *text = json_array_get(list, i);
        if (!json_is_string(text) || !json_string_length(text)) {
            return err_set(err, ERR_INVALID, "%s[%zu] is no text", key, i);
        }
        (*out)[i] = (struct expr_text){json_string_value(text), json_string_length(text)};
    }
    return OK;
}

static enum status read_flag(const json_t *part, const char *key, bool *out, struct err *err) {
    const json_t *value = jread_get(part, key);
    if (value && !json_is_boolean(value)) return wrong_type(key, value, "true or false", err);
    *out = json_is_true(value);
    return OK;
}

// ---- texts ----

static enum status read_const(const struct reader *reader, const json_t *part, uint32_t *item,
                              struct err *err) {
    struct expr_text text = {0};
    enum status status = read_text(part, "value", &text, err);
    if (status) return status;
    struct exprs *exprs = grammar_exprs(reader->grammar);
    *item = grammar_terminal(reader->grammar, expr_literal(exprs, text.bytes, text.len));
    return OK;
}

static enum status read_regex(const struct reader *reader, const json_t *part, uint32_t *item,
                              struct err *err) {
    struct expr_text text = {0};
    uint32_t rule;
    enum status status = read_text(part, "pattern", &text, err);
    if (!status) status = expression_add(reader->grammar, text.bytes, text.len, &rule, err);
    if (!status) *item = grammar_call(reader->grammar, rule);
    return status;
}

static enum status read_grammar(const struct reader *reader, const json_t *part, uint32_t *item,
                                struct err *err) {
    struct expr_text text = {0};
    uint32_t rule;
    enum status status = read_text(part, "grammar", &text, err);
    if (!status) status = gbnf_add(reader->grammar, text.bytes, text.len, &rule, err);
    if (!status) *item = grammar_call(reader->grammar, rule);
    return status;
}

// Tries a schema on a grammar of its own, because one that failed is of no further use.
static enum status try_schema(const struct reader *reader, const json_t *schema, bool *is_good,
                              struct err *err) {
    struct grammar *grammar;
    uint32_t rule;
    const struct grammar_limits limits = {.exprs.steps_max = *reader->trial_steps_left};
    if (!*reader->trial_steps_left) {
        return err_set(err, ERR_CAPACITY, "the schemas with best_effort take more than %d steps",
                       TRIAL_STEPS_MAX);
    }
    enum status status = grammar_create(&grammar, &limits, err);
    if (status) return status;
    status = schema_add(grammar, schema, reader->schema, &rule, NULL, err);
    *reader->trial_steps_left = exprs_steps_left(grammar_exprs(grammar));
    grammar_destroy(grammar);
    *is_good = status == OK;
    return status == ERR_NOMEM ? status : OK;
}

static enum status add_schema(const struct reader *reader, const json_t *schema, bool best_effort,
                              uint32_t *item, struct err *err) {
    bool is_good = true;
    uint32_t rule;
    enum status status = best_effort ? try_schema(reader, schema, &is_good, err) : OK;
    json_t *object = is_good ? NULL : json_pack("{s:s}", "type", "object");
    if (!is_good && !object) status = err_nomem(err, "json_schema");
    if (!status) {
        status = schema_add(reader->grammar, is_good ? schema : object, reader->schema, &rule, NULL,
                            err);
    }
    if (!status) *item = grammar_call(reader->grammar, rule);
    json_decref(object);
    return status;
}

static enum status read_schema(const struct reader *reader, const json_t *part, uint32_t *item,
                               struct err *err) {
    const json_t *schema = json_object_get(part, "json_schema");
    const char *name = json_string_value(json_object_get(part, "name"));
    const char *style = json_string_value(json_object_get(part, "style"));
    json_t *parsed = NULL;
    bool best_effort = false;
    if (!schema) return wrong_type("json_schema", schema, "a schema", err);
    if (jread_get(part, "style") && (!style || strcmp(style, "json") != 0)) {
        return err_set(err, ERR_UNSUPPORTED, "style of json_schema is %.32s, want json",
                       style ? style : jread_type_name(jread_get(part, "style")));
    }
    enum status status = read_flag(part, "best_effort", &best_effort, err);
    if (!status && json_is_string(schema)) {
        status = jread_request(&parsed, json_string_value(schema), json_string_length(schema),
                               "json_schema", err);
        schema = parsed;
    }
    if (!status) status = add_schema(reader, schema, best_effort, item, err);
    json_decref(parsed);
    return status && name ? err_prefix(err, status, "%.80s", name) : status;
}

static enum status read_outputs(const struct reader *reader, const json_t *part, uint32_t *item,
                                struct err *err) {
    const json_t *object = json_object_get(part, "structured_outputs");
    uint32_t rule;
    if (!object) return wrong_type("structured_outputs", object, "an object", err);
    enum status status = outputs_add(reader->grammar, object, reader->vocabulary, &rule, err);
    if (!status) *item = grammar_call(reader->grammar, rule);
    return status;
}

static enum status read_any_text(const struct reader *reader, const json_t *part, uint32_t *item,
                                 struct err *err) {
    struct expr_text *excludes = NULL;
    size_t count;
    enum status status = read_texts(part, "excludes", &excludes, &count, err);
    if (!status) {
        uint32_t expr = expr_text_without(grammar_exprs(reader->grammar), excludes, count);
        *item = grammar_terminal(reader->grammar, expr);
    }
    free(excludes);
    return status;
}

// The name of a token.
static enum status read_name(const struct reader *reader, const json_t *part, struct expr_text *out,
                             struct err *err) {
    enum status status = read_text(part, "token", out, err);
    if (status || !reader->vocabulary ||
        vocabulary_has_name(reader->vocabulary, out->bytes, out->len)) {
        return status;
    }
    return err_set(err, ERR_INVALID,
                   "\"%.64s\" is no added token of this model, or one that ends the answer",
                   out->bytes);
}

static enum status read_token(const struct reader *reader, const json_t *part, uint32_t *item,
                              struct err *err) {
    struct expr_text name = {0};
    enum status status = read_name(reader, part, &name, err);
    if (status) return status;
    struct exprs *exprs = grammar_exprs(reader->grammar);
    *item = grammar_terminal(reader->grammar, expr_special_token(exprs, name.bytes, name.len));
    return OK;
}

static enum status read_any_tokens(const struct reader *reader, const json_t *part, uint32_t *item,
                                   struct err *err) {
    (void)part, (void)err;
    *item = grammar_terminal(reader->grammar, EXPR_ANYTHING);
    return OK;
}

// ---- several parts ----

// The parts of a list, each with its place in the message of a fault.
static enum status read_elements(const struct reader *reader, const json_t *part, uint32_t **items,
                                 size_t *count, struct err *err) {
    const json_t *list = json_object_get(part, "elements");
    *count = json_array_size(list);
    if (!*count) return err_set(err, ERR_INVALID, "elements is no list of parts");
    *items = calloc(*count, sizeof **items);
    if (!*items) return err_nomem(err, "elements");
    for (size_t i = 0; i < *count; i++) {
        enum status status = read_part(reader, json_array_get(list, i), *items + i, err);
        if (status) return err_prefix(err, status, "elements[%zu]", i);
    }
    return OK;
}

static enum status read_sequence(const struct reader *reader, const json_t *part, uint32_t *item,
                                 struct err *err) {
    uint32_t *items = NULL;
    size_t count;
    enum status status = read_elements(reader, part, &items, &count, err);
    if (!status) *item = grammar_sequence(reader->grammar, items, count);
    free(items);
    return status;
}

static enum status read_or(const struct reader *reader, const json_t *part, uint32_t *item,
                           struct err *err) {
    uint32_t *items = NULL;
    size_t count;
    enum status status = read_elements(reader, part, &items, &count, err);
    if (!status) *item = grammar_choice(reader->grammar, items, count);
    free(items);
    return status;
}

static enum status read_content(const struct reader *reader, const json_t *part, uint32_t *item,
                                struct err *err) {
    enum status status = read_part(reader, json_object_get(part, "content"), item, err);
    return status ? err_prefix(err, status, "content") : OK;
}

static enum status read_optional(const struct reader *reader, const json_t *part, uint32_t *item,
                                 struct err *err) {
    enum status status = read_content(reader, part, item, err);
    if (!status) *item = grammar_optional(reader->grammar, *item);
    return status;
}

// ---- tags ----

static const char *const tag_members[] = {"type", "begin", "content", "end", NULL};
static const char *const token_members[] = {"type", "token", NULL};

static enum status read_tag_of(const struct reader *reader, const json_t *part, struct tag *tag,
                               struct err *err) {
    const json_t *begin = json_object_get(part, "begin");
    *tag = (struct tag){.special = jread_is_object(begin)};
    enum status status = tag_format_check_members(part, tag_members, "the part tag", err);
    if (!status && tag->special) {
        status = tag_format_check_members(begin, token_members, "the part token", err);
    }
    if (!status) status = read_content(reader, part, &tag->content, err);
    if (!status) {
        status = tag->special ? read_name(reader, begin, &tag->begin, err)
                              : read_text(part, "begin", &tag->begin, err);
    }
    return status ? status : read_text(part, "end", &tag->end, err);
}

static enum status read_tag_list(const struct reader *reader, const json_t *part,
                                 const struct tags_options *options, uint32_t *item,
                                 struct err *err) {
    const json_t *list = json_object_get(part, "tags");
    size_t count = json_array_size(list);
    if (!count) return err_set(err, ERR_INVALID, "tags is no list of tags");
    struct tag *tags = calloc(count, sizeof *tags);
    enum status status = tags ? OK : err_nomem(err, "tags");
    for (size_t i = 0; tags && i < count && !status; i++) {
        status = read_tag_of(reader, json_array_get(list, i), &tags[i], err);
        if (status) err_prefix(err, status, "tags[%zu]", i);
    }
    uint32_t rule;
    if (!status) status = tags_add(reader->grammar, tags, count, options, &rule, err);
    if (!status) *item = grammar_call(reader->grammar, rule);
    free(tags);
    return status;
}

static enum status read_bounds(const json_t *part, struct tags_options *options, struct err *err) {
    enum status status = read_flag(part, "at_least_one", &options->at_least_one, err);
    return status ? status : read_flag(part, "stop_after_first", &options->at_most_one, err);
}

static enum status read_triggered(const struct reader *reader, const json_t *part, uint32_t *item,
                                  struct err *err) {
    struct expr_text *triggers = NULL;
    struct tags_options options = {0};
    enum status status = read_texts(part, "triggers", &triggers, &options.num_triggers, err);
    if (!status) status = read_bounds(part, &options, err);
    options.triggers = options.num_triggers ? triggers : NULL;
    if (!status) status = read_tag_list(reader, part, &options, item, err);
    free(triggers);
    return status;
}

static enum status read_separated(const struct reader *reader, const json_t *part, uint32_t *item,
                                  struct err *err) {
    struct tags_options options = {.only_tags = true};
    enum status status = read_text(part, "separator", &options.separator, err);
    if (!status) status = read_bounds(part, &options, err);
    return status ? status : read_tag_list(reader, part, &options, item, err);
}

static enum status read_tag(const struct reader *reader, const json_t *part, uint32_t *item,
                            struct err *err) {
    static const struct tags_options options = {
        .only_tags = true, .at_least_one = true, .at_most_one = true};
    struct tag tag;
    uint32_t rule;
    enum status status = read_tag_of(reader, part, &tag, err);
    if (!status) status = tags_add(reader->grammar, &tag, 1, &options, &rule, err);
    if (!status) *item = grammar_call(reader->grammar, rule);
    return status;
}

// ---- a part ----

enum { MEMBERS_MAX = 6 };

static const struct part_type {
    const char *type;
    enum status (*read)(const struct reader *reader, const json_t *part, uint32_t *item,
                        struct err *err);
    const char *members[MEMBERS_MAX]; // NULL ends them
} types[] = {
    {"const_string", read_const, {"type", "value"}},
    {"regex", read_regex, {"type", "pattern"}},
    {"grammar", read_grammar, {"type", "grammar"}},
    {"json_schema", read_schema, {"type", "json_schema", "name", "best_effort", "style"}},
    {"structured_outputs", read_outputs, {"type", "structured_outputs"}},
    {"any_text", read_any_text, {"type", "excludes"}},
    {"token", read_token, {"type", "token"}},
    {"sequence", read_sequence, {"type", "elements"}},
    {"or", read_or, {"type", "elements"}},
    {"optional", read_optional, {"type", "content"}},
    {"tag", read_tag, {"type", "begin", "content", "end"}},
    {"any_tokens", read_any_tokens, {"type"}},
    {"triggered_tags",
     read_triggered,
     {"type", "triggers", "tags", "at_least_one", "stop_after_first"}},
    {"tags_with_separator",
     read_separated,
     {"type", "tags", "separator", "at_least_one", "stop_after_first"}},
};

// JSON is at most JREAD_DEPTH_MAX deep, and so is this recursion.
static enum status read_part(const struct reader *reader, const json_t *part, uint32_t *item,
                             struct err *err) {
    const char *type = json_string_value(json_object_get(part, "type"));
    *item = GRAMMAR_EMPTY;
    for (size_t i = 0; type && i < ARRAY_LEN(types); i++) {
        if (strcmp(types[i].type, type) != 0) continue;
        char what[64];
        snprintf(what, sizeof what, "the part %s", type);
        enum status status = tag_format_check_members(part, types[i].members, what, err);
        return status ? status : types[i].read(reader, part, item, err);
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "a part has no known type, want const_string, regex, grammar, json_schema, "
                   "structured_outputs, any_text, any_tokens, token, sequence, or, optional, tag, "
                   "triggered_tags or "
                   "tags_with_separator");
}

enum status tag_format_add(struct grammar *grammar, const json_t *format,
                           const struct schema_options *schema, const struct vocabulary *vocabulary,
                           uint32_t *rule, struct err *err) {
    uint64_t trial_steps_left = TRIAL_STEPS_MAX;
    struct reader reader = {grammar, schema, vocabulary, &trial_steps_left};
    uint32_t item;
    enum status status = read_part(&reader, format, &item, err);
    if (status) return err_prefix(err, status, "format");
    *rule = grammar_rule(grammar, "format");
    grammar_define(grammar, *rule, item);
    return grammar_status(grammar, err);
}
