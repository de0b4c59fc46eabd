/* Man pages in the language of man(7): text with what roff would take for its own escaped. */
#ifndef CMD_ROFF_H
#define CMD_ROFF_H

#include <stddef.h>
#include <stdio.h>

// `text` [len] within a line. "-" becomes a minus that can be copied from the page.
void roff_text(FILE *out, const char *text, size_t len);
// Lines of text as help has them. Blank lines part paragraphs, which are filled; one with columns
// (two blanks in a row) or indented lines stays as it is.
void roff_paragraphs(FILE *out, const char *text);

#endif
