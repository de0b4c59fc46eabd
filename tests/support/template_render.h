/* Templates and what they render, or how they fail, over fixed variables:
 *   x = 1, xs = [1, 2, 3], d = {"k": "v"}, t = a tree of {"v": number, "c": [children]}.
 * u is undefined. */
#ifndef SUPPORT_TEMPLATE_RENDER_H
#define SUPPORT_TEMPLATE_RENDER_H

#include <stddef.h>

#include "base/err.h"

struct render_case {
    const char *source;
    const char *want; // the text, or the end of the error message
};

// Parses and renders. *text is NUL-terminated; the caller frees it. After an error it is NULL.
enum status template_render_text(const char *source, char **text, struct err *err);
// Print every case that differs, then fail the test.
void assert_all_render(const struct render_case *cases, size_t count);
void assert_all_fail(const struct render_case *cases, size_t count);

#endif
