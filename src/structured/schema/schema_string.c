/* Strings: patterns, lengths and excluded values as sets of decoded texts; then the JSON form. */
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
    for (size_t i = 0; excluded && i < excluded->num_values; i++) {
        const json_t *value = excluded->values[i];
        if (!json_is_string(value)) continue;
        uint32_t one = expr_literal(exprs, json_string_value(value), json_string_length(value));
        text = expr_minus(exprs, text, one);
    }
    return text;
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
