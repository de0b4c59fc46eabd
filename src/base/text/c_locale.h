/* Text by the C locale's rules, whatever locale the host process has set. Only this module calls
 * the C library's functions that depend on a locale; check_layers refuses them elsewhere.
 *
 * Only the calling thread's locale is changed, never the process's, and only during a call.
 * Integers and strings need none of this: only %a, %e, %f and %g print a decimal point. */
#ifndef BASE_C_LOCALE_H
#define BASE_C_LOCALE_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

locale_t c_locale(void); // for functions that take a locale (strftime_l); do not free it

// Call these around a library that reads or writes numbers in the thread's locale (jansson).
// `before` is the value that enter returned.
locale_t c_locale_enter(void);
void c_locale_leave(locale_t before);

int c_locale_snprintf(char *out, size_t size, const char *format, ...) PRINTF_LIKE(3, 4);
int c_locale_vsnprintf(char *out, size_t size, const char *format, va_list args) PRINTF_LIKE(3, 0);
double c_locale_strtod(const char *text, char **end); // `end` may be NULL
float c_locale_strtof(const char *text, char **end);
const char *c_locale_strerror(int number); // in English

// ASCII only. `c` is a byte, signed or not.
static inline bool c_locale_is_alpha(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline bool c_locale_is_digit(int c) {
    return c >= '0' && c <= '9';
}
static inline bool c_locale_is_alnum(int c) {
    return c_locale_is_alpha(c) || c_locale_is_digit(c);
}
// -1: not a hexadecimal digit.
static inline int c_locale_hex_value(int c) {
    if (c_locale_is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
