/* Templates and what they render, or how they fail, over fixed variables:
 *   x = 1, xs = [1, 2, 3], d = {"k": "v"}, t = a tree of {"v": number, "c": [children]}; no u. */
#ifndef JINJA_TESTS_RENDER_H
#define JINJA_TESTS_RENDER_H

#include <stddef.h>

#include "base/err.h"

struct render_case {
    const char *source;
    const char *want; // the text; of one that fails, the end of the message
};

// Parses and renders; *text is NUL-terminated, to be freed, and NULL after an error.
enum status jinja_render_text(const char *source, char **text, struct err *err);
// Print every case that is not as wanted, then fail the test.
void assert_all_render(const struct render_case *cases, size_t count);
void assert_all_fail(const struct render_case *cases, size_t count);

#endif
