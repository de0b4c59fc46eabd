/* Characters as Python's str methods see them: classes and case mappings that may give several
 * characters. Simple mappings and categories are utf8proc's; the rest is chars_table.c. */
#ifndef JINJA_CHARS_H
#define JINJA_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool jinja_char_is_space(uint32_t c); // str.isspace: also U+001C to U+001F
bool jinja_char_is_line_end(uint32_t c); // line ends of str.splitlines; \r\n counts as two
bool jinja_char_is_lower(uint32_t c);
bool jinja_char_is_upper(uint32_t c);
bool jinja_char_is_title(uint32_t c); // category Lt
bool jinja_char_is_cased(uint32_t c); // lower, upper or title
bool jinja_char_is_case_ignorable(uint32_t c); // skipped when a final sigma is looked for
bool jinja_char_is_decimal(uint32_t c);
bool jinja_char_is_digit(uint32_t c); // str.isdigit: also superscripts and circled ones
bool jinja_char_is_alnum(uint32_t c); // \w is this or '_'
bool jinja_char_is_printable(uint32_t c);
bool jinja_char_is_identifier(uint32_t c, bool is_first);

enum { JINJA_CHAR_CASE_MAX = 3 };
// Full mappings: [1, JINJA_CHAR_CASE_MAX] characters are written, their number is returned. Lower
// knows no final sigma, which needs the text around it.
size_t jinja_char_to_upper(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]);
size_t jinja_char_to_lower(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]);
size_t jinja_char_to_title(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]);
size_t jinja_char_to_folded(uint32_t c, uint32_t out[JINJA_CHAR_CASE_MAX]); // str.casefold

#endif
