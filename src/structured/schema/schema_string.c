/* Strings: patterns, lengths and excluded values as sets of decoded texts; then the JSON form. Keys
 * that propertyNames allows are such sets too. */
#include <string.h>

#include "structured/schema/schema_internal.h"

uint32_t schema_pattern_expr(struct schema_reader *reader, const json_t *schema,
                             const char *pattern, size_t len) {
    uint32_t expr = EXPR_NOTHING;
    // A pattern that begins with a NUL is read again each time: the memo has formats there.
    bool has_memo = len && pattern[0];
    if (has_memo && strmap_get(&reader->pattern_of, pattern, len, &expr)) return expr;
    struct err err = {0};
    enum status status = schema_pattern(reader->exprs, pattern, len, &expr, &err);
    if (status == ERR_UNSUPPORTED) {
        schema_refuse(reader,
                      schema_say(reader, schema, "pattern \"%.100s\" cannot be enforced: %s",
                                 pattern, err.message));
    } else if (status == ERR_FORMAT) {
        schema_fail(reader, status,
                    schema_say(reader, schema,
                               "pattern \"%.100s\" is not an expression of "
                               "ECMA-262: %s",
                               pattern, err.message));
    } else if (status) {
        schema_fail(reader, status, err.message);
    } else if (has_memo) {
        status = strmap_put(&reader->pattern_of, pattern, len, expr, NULL, reader->err);
        if (status && !reader->status) reader->status = status;
    }
    return status ? EXPR_NOTHING : expr;
}

bool schema_pattern_matches(struct schema_reader *reader, const json_t *schema, const char *pattern,
                            size_t pattern_len, const char *text, size_t len) {
    uint32_t expr = schema_pattern_expr(reader, schema, pattern, pattern_len);
    bool matches = false;
    if (schema_failed(reader)) return false;
    enum status status = expr_matches(reader->exprs, expr, text, len, &matches, reader->err);
    if (status && !reader->status) reader->status = status;
    return matches;
}

static bool has_length(const struct schema_branch *branch) {
    return branch->length_min || branch->length_max != EXPR_FOREVER;
}

uint32_t schema_text_expr(struct schema_reader *reader, const struct schema_branch *branch) {
    struct exprs *exprs = reader->exprs;
    uint32_t text = branch->text;
    if (has_length(branch)) {
        uint32_t length =
            expr_repeat(exprs, expr_any_char(exprs), branch->length_min, branch->length_max);
        text = text == reader->any_text ? length : expr_and(exprs, text, length);
    }
    const struct schema_value_set *excluded = branch->excluded;
    if (!excluded) return text;
    struct expr_text *texts = schema_alloc(reader, (excluded->num_values + 1) * sizeof *texts);
    size_t len = 0;
    for (size_t i = 0; texts && i < excluded->num_values; i++) {
        const json_t *value = excluded->values[i];
        if (!json_is_string(value)) continue;
        texts[len++] = (struct expr_text){json_string_value(value), json_string_length(value)};
    }
    return len ? expr_minus(exprs, text, expr_one_of(exprs, texts, len)) : text;
}

uint32_t schema_string_expr(struct schema_reader *reader, const struct schema_branch *branch) {
    struct exprs *exprs = reader->exprs;
    if (branch->text_refused) schema_refuse(reader, branch->text_refused);
    uint32_t quote = expr_string(exprs, "\"");
    uint32_t text = schema_text_expr(reader, branch);
    // Texts of formats have no character that needs an escape, and nobody writes one there.
    if (!branch->text_is_raw) text = expr_json_content(exprs, text);
    return expr_concat(exprs, quote, expr_concat(exprs, text, quote));
}

static void add_name_texts(struct schema_reader *reader, const struct schema_branch *branch,
                           void *arg) {
    uint32_t *texts = arg;
    struct exprs *exprs = reader->exprs;
    if (!(branch->types & SCHEMA_STRING)) return;
    if (branch->text_refused) schema_refuse(reader, branch->text_refused);
    if (!branch->values) {
        *texts = expr_alt(exprs, *texts, schema_text_expr(reader, branch));
        return;
    }
    for (size_t i = 0; i < branch->values->num_values; i++) {
        const json_t *value = branch->values->values[i];
        if (!json_is_string(value) || !schema_branch_allows(reader, branch, value)) continue;
        uint32_t text = expr_literal(exprs, json_string_value(value), json_string_length(value));
        *texts = expr_alt(exprs, *texts, text);
    }
}

uint32_t schema_names_expr(struct schema_reader *reader, const struct schema_literals *names) {
    size_t len = 0;
    for (const struct schema_literals *at = names; at; at = at->next) len++;
    struct schema_literal *list = schema_alloc(reader, (len + 1) * sizeof *list);
    if (!list) return EXPR_NOTHING;
    len = 0;
    for (; names; names = names->next) list[len++] = names->literal;
    uint32_t texts = EXPR_NOTHING;
    const struct schema_sink sink = {add_name_texts, &texts};
    schema_expand(reader, list, len, &sink);
    return texts;
}
