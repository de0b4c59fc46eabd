#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "ops/fma_peak.h"

enum { TURNS = 1 << 17, CHAINS = 12, AMX_TURNS = 1 << 14 };

static volatile float sink;

__attribute__((target("avx512f"))) static void run_avx512(void) {
    __m512 acc[CHAINS];
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < TURNS; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_fmadd_ps(acc[c], a, b);
    }
    UNROLL for (int c = 1; c < CHAINS; c++) acc[0] = _mm512_add_ps(acc[0], acc[c]);
    sink = _mm512_reduce_add_ps(acc[0]);
}

__attribute__((target("avx2,fma"))) static void run_avx2(void) {
    __m256 acc[CHAINS];
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < TURNS; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm256_fmadd_ps(acc[c], a, b);
    }
    UNROLL for (int c = 1; c < CHAINS; c++) acc[0] = _mm256_add_ps(acc[0], acc[c]);
    sink = _mm256_cvtss_f32(acc[0]);
}

// Separate multiplications and additions, four at a time: all that plain x86-64 has.
static void run_scalar(void) {
    __m128 acc[CHAINS];
    const __m128 a = _mm_set1_ps(0.999f), b = _mm_set1_ps(0.001f);
    UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm_set1_ps((float)c);
    for (int i = 0; i < TURNS; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm_add_ps(_mm_mul_ps(acc[c], a), b);
    }
    UNROLL for (int c = 1; c < CHAINS; c++) acc[0] = _mm_add_ps(acc[0], acc[c]);
    sink = _mm_cvtss_f32(acc[0]);
}

// Products of bf16 tiles into four sums, so that a product waits only for the one four before it.
__attribute__((target("amx-tile,amx-bf16"))) static void run_amx(void) {
    struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.rows[i] = 16, config.row_bytes[i] = 64;
    // Compilers assume that only the first bytes of `config` are read. This keeps all of them in
    // memory.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    for (int i = 0; i < AMX_TURNS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}

__attribute__((target("avx512f,avx512bf16"))) static void run_avx512_bf16(void) {
    __m512 acc[CHAINS];
    const __m512bh a = (__m512bh)_mm512_setzero_ps(), b = (__m512bh)_mm512_set1_ps(0.001f);
    UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < TURNS; i++) {
        UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_dpbf16_ps(acc[c], a, b);
    }
    UNROLL for (int c = 1; c < CHAINS; c++) acc[0] = _mm512_add_ps(acc[0], acc[c]);
    sink = _mm512_reduce_add_ps(acc[0]);
}

static bool has_avx512_floats(const char *isa) {
    return strcmp(isa, "avx512") == 0 || strcmp(isa, "avx512-vnni") == 0;
}

static bool has_avx2_floats(const char *isa) {
    return strcmp(isa, "avx2") == 0 || strcmp(isa, "avx-vnni") == 0;
}

void fma_peak_run(const char *isa) {
    if (strcmp(isa, "amx") == 0) {
        run_amx();
    } else if (strcmp(isa, "avx512-bf16") == 0) {
        run_avx512_bf16();
    } else if (has_avx512_floats(isa)) {
        run_avx512();
    } else if (has_avx2_floats(isa)) {
        run_avx2();
    } else {
        run_scalar();
    }
}

double fma_peak_operations(const char *isa) {
    if (strcmp(isa, "amx") == 0) return 2.0 * 16 * 16 * 32 * 4 * AMX_TURNS;
    double lanes = strcmp(isa, "avx512-bf16") == 0 ? 32
                   : has_avx512_floats(isa)        ? 16
                   : has_avx2_floats(isa)          ? 8
                                                   : 4;
    return 2.0 * lanes * TURNS * CHAINS;
}
