// The processor's features beside what the kernel lists in /proc/cpuinfo.
#include "base/os/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { FLAGS_TEXT = 1 << 14 };

// The first processor's line that begins with `name`, between blanks; empty without one.
static void read_line(const char *name, char *out) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    assert_non_null(file);
    out[0] = 0;
    while (fgets(out, FLAGS_TEXT, file)) {
        if (strncmp(out, name, strlen(name)) == 0) break;
        out[0] = 0;
    }
    fclose(file);
    for (char *at = out; *at; at++) {
        if (*at == '\n' || *at == '\t') *at = ' ';
    }
}

// Whether all of the blank-separated `words` are in a line.
static bool has_words(const char *line, const char *words) {
    char list[128], word[64], *rest = NULL;
    snprintf(list, sizeof list, "%s", words);
    for (char *at = strtok_r(list, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        snprintf(word, sizeof word, " %s ", at);
        if (!strstr(line, word)) return false;
    }
    return true;
}

static void test_features_are_those_of_the_kernel(void **state) {
    (void)state;
    static const struct {
        enum cpu_feature feature;
        const char *flags;
    } cases[] = {
        {CPU_AVX2, "avx2 fma"},
        {CPU_AVX_VNNI, "avx_vnni"},
        {CPU_AVX512, "avx512f avx512bw avx512dq avx512vl"},
        {CPU_AVX512_VNNI, "avx512_vnni"},
        {CPU_AVX512_BF16, "avx512_bf16"},
        {CPU_AMX_INT8, "amx_tile amx_int8"},
        {CPU_AMX_BF16, "amx_tile amx_bf16"},
        {CPU_NEON, "asimd"},
        {CPU_NEON_DOTPROD, "asimddp"},
    };
    static char flags[FLAGS_TEXT], vendor[FLAGS_TEXT];
    read_line("flags", flags);
    if (!flags[0]) read_line("Features", flags); // on ARM
    read_line("vendor_id", vendor);
    uint32_t features = cpu_features();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool has = (features & cases[i].feature) != 0;
        if (has == has_words(flags, cases[i].flags)) continue;
        fail_msg("%s: %s by cpu_features", cases[i].flags, has ? "there" : "absent");
    }
    bool is_amd = has_words(vendor, "AuthenticAMD") && (features & CPU_AVX2);
    assert_int_equal((features & CPU_FAST_BF16) != 0, is_amd);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_features_are_those_of_the_kernel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
