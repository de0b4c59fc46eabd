/* A template's syntax tree as text, for tests: (+ a (item b 0)). Statements follow one another,
 * bodies are in parentheses, texts that touch are one, a chain of ~ is one node. */
#ifndef SUPPORT_AST_TEXT_H
#define SUPPORT_AST_TEXT_H

#include "base/buf.h"
#include "text/template/ast.h"

MUST_USE enum status ast_text(const struct block *block, struct buf *out, struct err *err);

#endif
