/* cmocka.h with the headers it wants included before it. */
#ifndef SUPPORT_CMOCKA_ALL_H
#define SUPPORT_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
