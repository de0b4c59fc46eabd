/* cmocka.h with the headers it wants included before it. */
#ifndef SUPPORT_CMOCKA_ALL_H
#define SUPPORT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// A macro of cmocka's old interface, which is a function of jinja/src/run.h.
#undef run_test

#endif
