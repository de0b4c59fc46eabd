#include "structured/read/choice.h"

#include "base/text/utf8.h"

enum status choice_add(struct grammar *grammar, const struct expr_text *texts, size_t num_texts,
                       uint32_t *rule, struct err *err) {
    if (num_texts == 0) return err_set(err, ERR_INVALID, "the list of choices is empty");
    for (size_t i = 0; i < num_texts; i++) {
        if (utf8_valid_prefix(texts[i].bytes, texts[i].len) != texts[i].len) {
            return err_set(err, ERR_INVALID, "choice %zu is not valid UTF-8", i);
        }
    }
    struct exprs *exprs = grammar_exprs(grammar);
    *rule = grammar_rule(grammar, "choice");
    grammar_define(grammar, *rule, grammar_terminal(grammar, expr_one_of(exprs, texts, num_texts)));
    return grammar_status(grammar, err);
}
