/* A template's syntax tree as text, for tests: (+ a (item b 0)). Statements follow one another,
 * bodies are in parentheses, texts that touch are one, a chain of ~ is one node. */
#ifndef JINJA_TESTS_AST_TEXT_H
#define JINJA_TESTS_AST_TEXT_H

#include "base/text/buf.h"
#include "jinja/src/parse/ast.h"

MUST_USE enum status jinja_ast_text(const struct jinja_block *block, struct buf *out,
                                    struct err *err);

#endif
