/* Tables of expressions and what they print. */
#ifndef JINJA_TESTS_CASES_H
#define JINJA_TESTS_CASES_H

#include <stddef.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

struct jinja_case {
    const char *expression; // between {{ and }}
    const char *printed; // NULL: an error
    const char *reason; // of the error, behind "t: line 1: "
};

// Every case over the variables words, people, text, html, greek and deep (cases.c), at
// 2023-11-14 22:13:20.123456. The first that differs fails the test by its expression.
void jinja_cases_run(const struct jinja_case *cases, size_t num_cases);

#endif
