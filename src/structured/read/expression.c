#include "structured/read/expression.h"

#include "base/text/utf8.h"
#include "structured/schema/schema.h"

enum status expression_add(struct grammar *grammar, const char *text, size_t len, uint32_t *rule,
                           struct err *err) {
    uint32_t expr;
    if (len > EXPRESSION_BYTES_MAX) {
        return err_set(err, ERR_INVALID, "the expression has %zu bytes, want at most %d", len,
                       EXPRESSION_BYTES_MAX);
    }
    if (utf8_valid_prefix(text, len) != len) {
        return err_set(err, ERR_FORMAT, "the expression is not valid UTF-8");
    }
    enum status status = schema_pattern_whole(grammar_exprs(grammar), text, len, &expr, err);
    if (status) return status;
    *rule = grammar_rule(grammar, "expression");
    grammar_define(grammar, *rule, grammar_terminal(grammar, expr));
    return grammar_status(grammar, err);
}
