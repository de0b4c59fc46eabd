/* cmocka.h with the headers that must come before it. */
#ifndef SUPPORT_CMOCKA_ALL_H
#define SUPPORT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// A macro of cmocka's old interface; text/template/run.h has a function of that name.
#undef run_test

#endif
