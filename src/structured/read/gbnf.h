/* GBNF, the grammars of llama.cpp, and the EBNF that vLLM's users write, which differs only in
 * that names may have "_".
 *
 *     root  ::= "yes" | "no, because " [^\n]{1,80} # a comment
 *
 * Strings, classes, ".", groups, "|", * + ? {m} {m,} {m,n}, and the escapes \n \r \t \\ \" \[ \]
 * \xHH \uHHHH \UHHHHHHHH; an escaped punctuation mark is itself. A rule ends where the next name
 * ::= begins, so it may have any line ends. Refused, as everywhere: left recursion, a rule that is
 * not defined; and tokens in angle brackets. */
#ifndef STRUCTURED_GBNF_H
#define STRUCTURED_GBNF_H

#include "structured/grammar/grammar.h"

enum { GBNF_BYTES_MAX = 1 << 20 };

// Adds the rules of `text` [len]; *rule is the one called root. ERR_FORMAT: the message has line
// and column. A grammar that failed is of no further use.
MUST_USE enum status gbnf_add(struct grammar *grammar, const char *text, size_t len, uint32_t *rule,
                              struct err *err);

#endif
