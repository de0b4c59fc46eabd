/* A template's syntax tree as text, for tests: (+ a (item b 0)). Statements follow one another, and
 * bodies are in parentheses. Adjacent texts are joined into one, and a chain of ~ into one node. */
#ifndef SUPPORT_AST_TEXT_H
#define SUPPORT_AST_TEXT_H

#include "base/buf.h"
#include "text/template/ast.h"

MUST_USE enum status ast_text(const struct block *block, struct buf *out, struct err *err);

#endif
