#include "backend/ops_util.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/os/cpu.h"

enum { GUARD_BYTES = 256, GUARD_VALUE = 0xa5 };

static struct backend *backend_of(const struct backend_options *options) {
    struct backend *backend = NULL;
    struct err err = {0};
    enum status status = backend_create(&backend, options, &err);
    if (status != OK) fail_msg("%s", err.message);
    return backend;
}

struct backend *ops_backend(const char *isa, int threads, enum dtype weight_dtype) {
    return backend_of(&(struct backend_options){
        .device = "cpu", .cpu_isa = isa, .threads = threads, .weight_dtype = weight_dtype});
}

struct ops_rng ops_rng_of(uint64_t seed) {
    return (struct ops_rng){seed * 0x9e3779b97f4a7c15u + 1};
}

static uint32_t rng_next(struct ops_rng *rng) {
    rng->state ^= rng->state >> 12;
    rng->state ^= rng->state << 25;
    rng->state ^= rng->state >> 27;
    return (uint32_t)((rng->state * 0x2545f4914f6cdd1du) >> 32);
}

uint32_t ops_rng_below(struct ops_rng *rng, uint32_t limit) {
    return (uint32_t)(((uint64_t)rng_next(rng) * limit) >> 32);
}

float ops_rng_float(struct ops_rng *rng) {
    return (float)(rng_next(rng) >> 8) * 0x1p-23f - 1.0f;
}

void ops_rng_fill(struct ops_rng *rng, float *out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = ops_rng_float(rng);
}

float *ops_guard_alloc(size_t count) {
    size_t bytes = count * sizeof(float);
    unsigned char *base = malloc(bytes + 2 * GUARD_BYTES);
    if (!base) abort();
    memset(base, GUARD_VALUE, bytes + 2 * GUARD_BYTES);
    memset(base + GUARD_BYTES, 0xff, bytes); // NaN
    return (float *)(void *)(base + GUARD_BYTES);
}

void ops_guard_free(float *data, size_t count) {
    unsigned char *base = (unsigned char *)data - GUARD_BYTES;
    unsigned char *after = (unsigned char *)(data + count);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (base[i] != GUARD_VALUE)
            fail_msg("byte %zu before the buffer was written", GUARD_BYTES - i);
        if (after[i] != GUARD_VALUE) fail_msg("byte %zu behind the buffer was written", i);
    }
    free(base);
}

double ops_nmse(const float *got, const double *want, size_t count) {
    double difference = 0, total = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - want[i];
        difference += d * d;
        total += want[i] * want[i];
    }
    if (!isfinite(difference) || !isfinite(total)) return (double)INFINITY;
    return total > 0 ? difference / total : difference;
}

double ops_nmse_f32(const float *got, const float *want, size_t count) {
    double difference = 0, total = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        difference += d * d;
        total += (double)want[i] * (double)want[i];
    }
    if (!isfinite(difference) || !isfinite(total)) return (double)INFINITY;
    return total > 0 ? difference / total : difference;
}

void ops_assert_same_bits(const float *got, const float *want, size_t rows, size_t cols,
                          const char *what) {
    if (memcmp(got, want, rows * cols * sizeof *got) == 0) return;
    for (size_t i = 0; i < rows * cols; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) == 0) continue;
        fail_msg("%s: row %zu column %zu is %a, want %a", what, i / cols, i % cols, (double)got[i],
                 (double)want[i]);
    }
}

static bool is_available(const char *isa) {
    struct backend_options options = {
        .device = "cpu", .cpu_isa = isa, .threads = 1, .weight_dtype = DTYPE_BF16};
    struct backend *backend = NULL;
    struct err err = {0};
    enum status status = backend_create(&backend, &options, &err);
    if (status == ERR_UNSUPPORTED) print_message("skipped all of %s: %s\n", isa, err.message);
    backend_destroy(backend);
    return status != ERR_UNSUPPORTED;
}

// In a program whose instruction sets are emulated: this machine has that one, so the same test
// runs its kernels without emulation.
static bool runs_without_emulation(const struct cpu_isa *isa) {
    if (cpu_isa_features() != UINT32_MAX || getenv("NANOVLLM_TEST_ALL")) return false;
    uint32_t amx = CPU_AMX_INT8 | CPU_AMX_BF16, here = cpu_features() | CPU_FAST_BF16;
    if (here & amx && !cpu_amx_request()) here &= ~amx;
    if ((isa->features & ~here) != 0) return false;
    print_message("not emulated, as this machine has it: %s\n", isa->name);
    return true;
}

// Where each instruction is emulated, many runs over the same memory are slow. Of the tables of
// codes "iq4" and "e2m1" take all paths.
static bool is_too_slow(const struct ops_case *one) {
    static const char *const other_tables[] = {"iq2", "iq3", "odd"};
    bool is_slow = strncmp(one->name, "same bits", 9) == 0;
    for (size_t i = 0; i < ARRAY_LEN(other_tables); i++) {
        is_slow |= strcmp(one->name, other_tables[i]) == 0;
    }
    return is_slow && cpu_isa_features() == UINT32_MAX && !getenv("NANOVLLM_TEST_ALL");
}

int ops_run(const char *group, const struct ops_case *cases, size_t num_cases) {
    enum { CASES_MAX = 32, NAME_MAX_BYTES = 96 };
    static char names[CASES_MAX * CPU_ISA_COUNT][NAME_MAX_BYTES];
    static struct CMUnitTest tests[CASES_MAX * CPU_ISA_COUNT];
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    size_t count = 0;
    const char *skipped = getenv("NANOVLLM_TEST_SKIP");
    if (skipped) print_message("skipped all that NANOVLLM_TEST_SKIP names: %s\n", skipped);
    if (num_cases > CASES_MAX) abort();
    for (size_t i = 0; i < CPU_ISA_COUNT; i++) {
        if (!is_available(table[i].name) || runs_without_emulation(&table[i])) continue;
        for (size_t c = 0; c < num_cases; c++) {
            snprintf(names[count], NAME_MAX_BYTES, "%s/%s", cases[c].name, table[i].name);
            if (skipped && fnmatch(skipped, names[count], FNM_EXTMATCH) == 0) continue;
            if (isa_repeats(table, (int)i, cases[c].ops) || is_too_slow(&cases[c])) continue;
            const void *isa = table[i].name;
            tests[count] = (struct CMUnitTest){.name = names[count],
                                               .test_func = cases[c].function,
                                               .initial_state = (void *)(uintptr_t)isa};
            count++;
        }
    }
    if (count == 0) print_message("no test is left\n");
    bool is_emulated = cpu_isa_features() == UINT32_MAX;
    return count ? _cmocka_run_group_tests(group, tests, count, NULL, NULL) : !is_emulated;
}
