/* Tables of expressions and what they print. */
#ifndef SUPPORT_TEMPLATE_CASES_H
#define SUPPORT_TEMPLATE_CASES_H

#include <stddef.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

struct template_case {
    const char *expression; // between {{ and }}
    const char *printed; // NULL: an error
    const char *reason; // of the error, after "t: line 1: "
};

// Renders every case over the variables words, people, text, html, greek and deep
// (template_cases.c), at 2023-11-14 22:13:20.123456. The first that differs fails the test, which
// prints its expression.
void template_cases_run(const struct template_case *cases, size_t num_cases);

#endif
