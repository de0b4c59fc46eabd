#include "base/text/c_locale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

// The C library keeps this locale ready: newlocale allocates nothing, so it cannot fail or leak.
locale_t c_locale(void) {
    locale_t locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    CHECK(locale, "no C locale");
    return locale;
}

locale_t c_locale_enter(void) {
    return uselocale(c_locale());
}

void c_locale_leave(locale_t before) {
    uselocale(before);
}

int c_locale_vsnprintf(char *out, size_t size, const char *format, va_list args) {
    locale_t before = c_locale_enter();
    int len = vsnprintf(out, size, format, args);
    c_locale_leave(before);
    return len;
}

int c_locale_snprintf(char *out, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int len = c_locale_vsnprintf(out, size, format, args);
    va_end(args);
    return len;
}

double c_locale_strtod(const char *text, char **end) {
    return strtod_l(text, end, c_locale());
}

float c_locale_strtof(const char *text, char **end) {
    return strtof_l(text, end, c_locale());
}

const char *c_locale_strerror(int number) {
    return strerror_l(number, c_locale());
}
