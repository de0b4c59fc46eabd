/* Every unit test starts in the locale that NANOVLLM_TEST_LOCALE names, as a program that embeds
 * the library may (tests/text/locales). Empty: the locale of LC_ALL, LC_CTYPE and the others.
 * Without the variable it stays in the C locale. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void set_locale(void) {
    const char *name = getenv("NANOVLLM_TEST_LOCALE");
    if (!name || setlocale(LC_ALL, name)) return;
    fprintf(stderr, "no locale %s\n", name);
    exit(1);
}
