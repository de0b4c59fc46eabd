/* CHECK(condition, ...): a broken invariant prints file:line and the values given, then aborts.
 * On in every build type: assert would vanish from release builds. Never for bad input. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include "base/compiler.h"

NORETURN void check_failed(const char *file, int line, const char *condition, const char *format,
                           ...) PRINTF_LIKE(4, 5);

// CHECK(i < n, "i=%u n=%u", i, n)
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (UNLIKELY(!(condition))) check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);     \
    } while (0)

#endif
