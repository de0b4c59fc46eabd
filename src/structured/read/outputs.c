#include "structured/read/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "structured/read/choice.h"
#include "structured/read/expression.h"
#include "structured/read/gbnf.h"
#include "structured/read/tag_format.h"
#include "structured/read/tags.h"
#include "structured/schema/schema.h"

struct reader {
    struct grammar *grammar;
    struct schema_options schema;
    const struct vocabulary *vocabulary; // NULL: names of tokens are not checked
    bool strips_blank; // vocabulary.h
    uint32_t start;
};

static enum status wrong_type(const char *key, const json_t *value, const char *want,
                              struct err *err) {
    return err_set(err, ERR_INVALID, "%s is %s, want %s", key, jread_type_name(value), want);
}

// A value, or its text: then *parsed owns what `*value` becomes.
static enum status parse_text(const json_t **value, json_t **parsed, const char *key,
                              struct err *err) {
    if (!json_is_string(*value)) return OK;
    enum status status =
        jread_request(parsed, json_string_value(*value), json_string_length(*value), key, err);
    *value = *parsed;
    return status;
}

static enum status read_schema(struct reader *reader, const char *key, const json_t *value,
                               uint32_t *rule, struct err *err) {
    json_t *parsed = NULL;
    enum status status = parse_text(&value, &parsed, key, err);
    if (!status) {
        status = schema_add(reader->grammar, value, &reader->schema, rule, NULL, err);
        if (status) err_prefix(err, status, "%s", key);
    }
    json_decref(parsed);
    return status;
}

static enum status read_json(struct reader *reader, const json_t *value, struct err *err) {
    return read_schema(reader, "json", value, &reader->start, err);
}

static enum status read_json_object(struct reader *reader, const json_t *value, struct err *err) {
    if (!json_is_true(value)) return wrong_type("json_object", value, "true", err);
    json_t *schema = json_pack("{s:s}", "type", "object");
    if (!schema) return err_nomem(err, "json_object");
    enum status status = read_schema(reader, "json_object", schema, &reader->start, err);
    json_decref(schema);
    return status;
}

static enum status read_regex(struct reader *reader, const json_t *value, struct err *err) {
    if (!json_is_string(value)) return wrong_type("regex", value, "a string", err);
    enum status status = expression_add(reader->grammar, json_string_value(value),
                                        json_string_length(value), &reader->start, err);
    return status ? err_prefix(err, status, "regex") : OK;
}

static enum status read_texts(struct expr_text **out, const char *key, const json_t *list,
                              struct err *err) {
    size_t count = json_array_size(list);
    *out = NULL;
    if (!json_is_array(list)) return wrong_type(key, list, "a list of strings", err);
    struct expr_text *texts = malloc((count + 1) * sizeof *texts);
    if (!texts) return err_nomem(err, key);
    for (size_t i = 0; i < count; i++) {
        const json_t *text = json_array_get(list, i);
        if (!json_is_string(text)) {
            free(texts);
            return err_set(err, ERR_INVALID, "entry %zu of %s is %s, want a string", i, key,
                           jread_type_name(text));
        }
        texts[i] = (struct expr_text){json_string_value(text), json_string_length(text)};
    }
    *out = texts;
    return OK;
}

static enum status read_choice(struct reader *reader, const json_t *value, struct err *err) {
    struct expr_text *texts;
    enum status status = read_texts(&texts, "choice", value, err);
    if (!status) {
        status = choice_add(reader->grammar, texts, json_array_size(value), &reader->start, err);
        if (status) err_prefix(err, status, "choice");
    }
    free(texts);
    return status;
}

static enum status read_grammar(struct reader *reader, const json_t *value, struct err *err) {
    if (!json_is_string(value)) return wrong_type("grammar", value, "a string", err);
    enum status status = gbnf_add(reader->grammar, json_string_value(value),
                                  json_string_length(value), &reader->start, err);
    return status ? err_prefix(err, status, "grammar") : OK;
}

// One of the structures: {"begin": "<f>", "schema": {...}, "end": "</f>"}.
static enum status read_tag(struct reader *reader, const json_t *value, struct tag *tag,
                            struct err *err) {
    const json_t *begin = json_object_get(value, "begin"), *end = json_object_get(value, "end");
    const json_t *schema = json_object_get(value, "schema");
    static const char *const members[] = {"begin", "schema", "end", NULL};
    enum status known = tag_format_check_members(value, members, "a structure", err);
    if (known) return err_prefix(err, known, "structural_tag");
    if (!json_is_string(begin) || !json_is_string(end) || !schema) {
        return err_set(
            err, ERR_INVALID,
            "structural_tag: a structure has no begin, schema or end, or of another type");
    }
    uint32_t rule;
    enum status status = read_schema(reader, "structural_tag", schema, &rule, err);
    if (status) return status;
    *tag = (struct tag){.begin = {json_string_value(begin), json_string_length(begin)},
                        .end = {json_string_value(end), json_string_length(end)},
                        .content = grammar_call(reader->grammar, rule)};
    return OK;
}

static enum status add_tags(struct reader *reader, const json_t *root, struct err *err) {
    const json_t *list = json_object_get(root, "structures");
    const json_t *triggers = json_object_get(root, "triggers");
    static const char *const members[] = {"type", "format", "structures", "triggers", NULL};
    if (!jread_is_object(root)) return wrong_type("structural_tag", root, "an object", err);
    enum status known = tag_format_check_members(root, members, "structural_tag", err);
    if (known) return known;
    const json_t *format = jread_get(root, "format");
    if (format) {
        enum status status = tag_format_add(reader->grammar, format, &reader->schema,
                                            reader->vocabulary, &reader->start, err);
        return status ? err_prefix(err, status, "structural_tag") : OK;
    }
    if (!json_is_array(list))
        return wrong_type("structures of structural_tag", list, "a list", err);
    size_t count = json_array_size(list);
    struct expr_text *texts = NULL;
    struct tag *tags = calloc(count + 1, sizeof *tags);
    enum status status = tags ? OK : err_nomem(err, "structural_tag");
    for (size_t i = 0; !status && i < count; i++) {
        status = read_tag(reader, json_array_get(list, i), &tags[i], err);
    }
    if (!status && triggers && !json_is_null(triggers)) {
        status = read_texts(&texts, "triggers of structural_tag", triggers, err);
    }
    if (!status) {
        const struct tags_options options = {.triggers = texts,
                                             .num_triggers = texts ? json_array_size(triggers) : 0};
        status = tags_add(reader->grammar, tags, count, &options, &reader->start, err);
        if (status) err_prefix(err, status, "structural_tag");
    }
    free(texts);
    free(tags);
    return status;
}

static enum status read_structural_tag(struct reader *reader, const json_t *value,
                                       struct err *err) {
    json_t *parsed = NULL;
    enum status status = parse_text(&value, &parsed, "structural_tag", err);
    if (!status) status = add_tags(reader, value, err);
    json_decref(parsed);
    return status;
}

typedef enum status (*read_fn)(struct reader *reader, const json_t *value, struct err *err);

static const struct {
    const char *key;
    read_fn read;
} forms[] = {
    {"json", read_json},       {"json_object", read_json_object},
    {"regex", read_regex},     {"choice", read_choice},
    {"grammar", read_grammar}, {"structural_tag", read_structural_tag},
};

static read_fn find_form(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (strcmp(forms[i].key, key) == 0) return forms[i].read;
    }
    return NULL;
}

static enum status read_flag(bool *out, const char *key, const json_t *value, struct err *err) {
    if (!json_is_boolean(value)) return wrong_type(key, value, "true or false", err);
    *out = json_is_true(value);
    return OK;
}

// A member that says how JSON is written. ERR_INVALID: there is none of this name.
static enum status read_option(struct reader *reader, const char *key, const json_t *value,
                               struct err *err) {
    bool flag = false;
    if (strcmp(key, "whitespace_pattern") == 0) {
        if (!json_is_string(value)) return wrong_type(key, value, "a string", err);
        reader->schema.space_pattern = json_string_value(value);
        return OK;
    }
    // vLLM's: there is no other engine to fall back to.
    if (strcmp(key, "disable_fallback") == 0) return read_flag(&flag, key, value, err);
    if (strcmp(key, "disable_any_whitespace") == 0) {
        enum status status = read_flag(&flag, key, value, err);
        reader->schema.space = flag ? SCHEMA_SPACE_NONE : SCHEMA_SPACE_BOUNDED;
        return status;
    }
    if (strcmp(key, "disable_additional_properties") == 0) {
        return read_flag(&reader->schema.no_additional_properties, key, value, err);
    }
    if (strcmp(key, "any_key_order") == 0) {
        return read_flag(&reader->schema.any_key_order, key, value, err);
    }
    return err_set(err, ERR_INVALID,
                   "no constraint is called %s: want one of json, json_object, regex, "
                   "choice, grammar and structural_tag",
                   key);
}

// Models whose tokenizer strips a blank begin texts with one. So it may stand before the form,
// and must where the form begins with a blank of its own. JSON begins with none; of grammars and
// tags that is not known.
static void allow_blank(struct reader *reader, read_fn read) {
    struct grammar *grammar = reader->grammar;
    struct exprs *exprs = grammar_exprs(grammar);
    uint32_t expr, blank = expr_string(exprs, " ");
    uint32_t items[] = {grammar_optional(grammar, grammar_terminal(grammar, blank)),
                        grammar_call(grammar, reader->start)};
    uint32_t item = grammar_sequence(grammar, items, 2);
    bool is_expr = read == read_regex || read == read_choice;
    if (is_expr && grammar_rule_as_expr(grammar, reader->start, &expr)) {
        uint32_t begun = expr_concat(exprs, blank, EXPR_ANYTHING);
        item = grammar_terminal(grammar, expr_alt(exprs, expr_concat(exprs, blank, expr),
                                                  expr_minus(exprs, expr, begun)));
    } else if (read == read_grammar || read == read_structural_tag) {
        return;
    }
    reader->start = grammar_rule(grammar, "the answer");
    grammar_define(grammar, reader->start, item);
}

static enum status read_object(struct reader *reader, const json_t *root, struct err *err) {
    read_fn read = NULL;
    const json_t *form = NULL;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (json_is_null(value)) continue;
        read_fn found = find_form(key);
        // json_object: false asks for nothing, as vLLM's clients send it.
        if (found == read_json_object && json_is_false(value)) continue;
        if (found && read) {
            return err_set(err, ERR_INVALID,
                           "two constraints are given, want one of json, json_object, "
                           "regex, choice, grammar and structural_tag");
        }
        if (found) {
            read = found;
            form = value;
        } else {
            enum status status = read_option(reader, key, value, err);
            if (status) return status;
        }
    }
    if (!read) {
        return err_set(err, ERR_INVALID,
                       "no constraint is given, want one of json, json_object, "
                       "regex, choice, grammar and structural_tag");
    }
    enum status status = read(reader, form, err);
    if (!status && reader->strips_blank) allow_blank(reader, read);
    return status ? status : grammar_status(reader->grammar, err);
}

enum status outputs_add(struct grammar *grammar, const json_t *object,
                        const struct vocabulary *vocabulary, uint32_t *rule, struct err *err) {
    struct reader reader = {.grammar = grammar, .vocabulary = vocabulary};
    if (!jread_is_object(object)) return wrong_type("structured_outputs", object, "an object", err);
    if (jread_get(object, "structural_tag")) { // so that their depth is limited
        return err_set(err, ERR_UNSUPPORTED, "a structural_tag within a structural_tag");
    }
    enum status status = read_object(&reader, object, err);
    *rule = reader.start;
    return status;
}

enum status outputs_read(struct grammar **out, const char *text, size_t len,
                         const struct vocabulary *vocabulary, struct err *err) {
    struct reader reader = {.vocabulary = vocabulary};
    json_t *root = NULL;
    *out = NULL;
    enum status status = jread_request(&root, text, len, "structured_outputs", err);
    if (!status && !jread_is_object(root)) {
        status = wrong_type("the value", root, "an object", err);
    }
    if (!status) status = grammar_create(&reader.grammar, NULL, err);
    reader.strips_blank = vocabulary && vocabulary->strips_blank;
    if (!status) status = read_object(&reader, root, err);
    if (!status) grammar_start(reader.grammar, reader.start);
    json_decref(root);
    if (status) {
        grammar_destroy(reader.grammar);
        return status;
    }
    *out = reader.grammar;
    return OK;
}
