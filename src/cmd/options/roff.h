/* Writes man pages, man(7): escapes the characters that roff treats as commands. */
#ifndef CMD_ROFF_H
#define CMD_ROFF_H

#include <stddef.h>
#include <stdio.h>

// `text` [len] within a line. "-" becomes a minus that can be copied from the page.
void roff_text(FILE *out, const char *text, size_t len);
// Writes lines of help text. Blank lines separate paragraphs. A paragraph is filled, unless it has
// columns (two blanks in a row) or indented lines: then it stays as it is.
void roff_paragraphs(FILE *out, const char *text);

#endif
