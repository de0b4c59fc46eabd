// Which kernels a processor gets, for every combination of features: of each op the fastest whose
// features are all there. The lists here say again, op by op, what each kernel needs.
#include <string.h>

#include "backend/cpu/isa/kernels_arm.h"
#include "backend/cpu/isa/kernels_x86.h"
#include "backend/cpu/sample/sample_weigh.h"
#include "backend/cpu/scalar/scalar.h"
#include "base/compiler.h"
#include "base/os/cpu.h"
#include "support/cmocka_all.h"

enum {
    AVX512 = CPU_AVX2 | CPU_AVX512,
    VNNI = AVX512 | CPU_AVX512_VNNI,
    BF16 = AVX512 | CPU_AVX512_BF16,
    TILES_INT8 = AVX512 | CPU_AMX_INT8,
    TILES_BF16 = BF16 | CPU_AMX_BF16,
    DOTPROD = CPU_NEON | CPU_NEON_DOTPROD,
    ALL_X86 = VNNI | TILES_INT8 | TILES_BF16 | CPU_AVX_VNNI | CPU_FAST_BF16,
    RANKS_MAX = 8,
};

typedef void any_function(void);

struct rank {
    any_function *kernel;
    uint32_t needs;
};

// The first of a list, fastest first, that `features` allow. The last one needs nothing.
static any_function *first_of(const struct rank ranks[RANKS_MAX], uint32_t features) {
    for (int i = 0; i < RANKS_MAX; i++) {
        if ((features & ranks[i].needs) == ranks[i].needs) return ranks[i].kernel;
    }
    return NULL;
}

#define KERNEL(function) ((any_function *)(function))
// Fails unless an op's kernel is the first of a list.
#define EXPECT(got, features, ...)                                                                 \
    expect(#got, KERNEL(got), first_of((const struct rank[RANKS_MAX]){__VA_ARGS__}, features),     \
           features)

static void expect(const char *op, any_function *got, any_function *want, uint32_t features) {
    if (got != want) fail_msg("%s is another kernel with features %#x", op, features);
}

static void check_linears(const struct cpu_kernels *k, uint32_t f) {
    EXPECT(k->linear_bf16, f, {KERNEL(avx512_linear_bf16), AVX512},
           {KERNEL(avx2_linear_bf16), CPU_AVX2}, {KERNEL(neon_linear_bf16), CPU_NEON},
           {KERNEL(cpu_kernels_scalar.linear_bf16), 0});
    EXPECT(k->linear_f32, f, {KERNEL(avx512_linear_f32), AVX512},
           {KERNEL(avx2_linear_f32), CPU_AVX2}, {KERNEL(neon_linear_f32), CPU_NEON},
           {KERNEL(cpu_kernels_scalar.linear_f32), 0});
    EXPECT(k->widen_bf16, f, {NULL, AVX512}, {KERNEL(avx2_widen_bf16), CPU_AVX2}, {NULL, 0});
    EXPECT(k->linear_bytes, f, {KERNEL(amx_linear_bytes), TILES_INT8},
           {KERNEL(avx512_vnni_linear_bytes), VNNI},
           {KERNEL(avx_vnni_linear_bytes), CPU_AVX2 | CPU_AVX_VNNI},
           {KERNEL(avx2_linear_bytes), CPU_AVX2}, {KERNEL(neon_dotprod_linear_bytes), DOTPROD},
           {KERNEL(neon_linear_bytes), CPU_NEON}, {KERNEL(scalar_linear_bytes), 0});
    EXPECT(k->linear_int4_few, f, {KERNEL(avx512_vnni_linear_int4_few), VNNI},
           {KERNEL(avx_vnni_linear_bytes), TILES_INT8 | CPU_AVX_VNNI},
           {KERNEL(avx2_linear_bytes), TILES_INT8}, {NULL, 0});
    assert_int_equal(k->int4_few_rows > 0, k->linear_int4_few != NULL);
    EXPECT(k->linear_pairs, f, {KERNEL(amx_linear_pairs), TILES_BF16},
           {KERNEL(avx512_bf16_linear_pairs), BF16 | CPU_FAST_BF16}, {NULL, 0});
    EXPECT(k->linear_fixed, f, {NULL, TILES_BF16}, {NULL, BF16 | CPU_FAST_BF16},
           {KERNEL(avx512_vnni_linear_fixed), VNNI}, {NULL, AVX512},
           {KERNEL(avx_vnni_linear_fixed), CPU_AVX2 | CPU_AVX_VNNI},
           {KERNEL(avx2_linear_fixed), CPU_AVX2}, {NULL, 0});
    EXPECT(k->narrow_fixed, f, {NULL, TILES_BF16}, {NULL, BF16 | CPU_FAST_BF16},
           {KERNEL(avx512_narrow_fixed), VNNI}, {NULL, AVX512},
           {KERNEL(avx2_narrow_fixed), CPU_AVX2}, {NULL, 0});
    EXPECT(k->linear_spans, f, {KERNEL(amx_linear_spans), VNNI | TILES_INT8}, {NULL, 0});
    EXPECT(k->narrow_spans, f, {KERNEL(avx512_narrow_spans), VNNI | TILES_INT8}, {NULL, 0});
    EXPECT(k->narrow_bf16, f, {KERNEL(avx512_bf16_narrow), TILES_BF16},
           {KERNEL(avx512_bf16_narrow), BF16 | CPU_FAST_BF16}, {NULL, 0});
    EXPECT(k->narrow_int8, f, {KERNEL(avx512_narrow_int8), AVX512},
           {KERNEL(avx2_narrow_int8), CPU_AVX2}, {KERNEL(scalar_narrow_int8), 0});
    EXPECT(k->pack_bf16, f, {KERNEL(avx512_pack_bf16), AVX512}, {KERNEL(avx2_pack_bf16), CPU_AVX2},
           {KERNEL(neon_pack_bf16), CPU_NEON}, {KERNEL(cpu_kernels_scalar.pack_bf16), 0});
    uint32_t panel_rows = f & CPU_NEON ? 6 : 4;
    if (f & CPU_AVX2) panel_rows = (f & AVX512) == AVX512 ? 12 : 6;
    assert_int_equal(k->panel_rows, panel_rows);
}

static void check_attention(const struct cpu_kernels *k, uint32_t f) {
    EXPECT(k->attention_bf16.span, f, {KERNEL(amx_attention_bf16), TILES_BF16},
           {KERNEL(avx512_attention_bf16), AVX512}, {KERNEL(avx2_attention_bf16), CPU_AVX2},
           {KERNEL(neon_attention_bf16), CPU_NEON},
           {KERNEL(cpu_kernels_scalar.attention_bf16.span), 0});
    EXPECT(k->attention_f32.span, f, {KERNEL(avx512_attention_f32), AVX512},
           {KERNEL(avx2_attention_f32), CPU_AVX2}, {KERNEL(neon_attention_f32), CPU_NEON},
           {KERNEL(cpu_kernels_scalar.attention_f32.span), 0});
    EXPECT(k->attention_int8.span, f, {KERNEL(amx_attention_int8), TILES_BF16},
           {KERNEL(avx512_attention_int8), AVX512}, {KERNEL(avx2_attention_int8), CPU_AVX2},
           {KERNEL(neon_attention_int8), CPU_NEON},
           {KERNEL(cpu_kernels_scalar.attention_int8.span), 0});
    EXPECT(k->attention_e4m3.span, f, {KERNEL(amx_attention_e4m3), TILES_BF16},
           {KERNEL(avx512_attention_e4m3), AVX512}, {KERNEL(avx2_attention_e4m3), CPU_AVX2},
           {KERNEL(neon_attention_e4m3), CPU_NEON},
           {KERNEL(cpu_kernels_scalar.attention_e4m3.span), 0});
    EXPECT(k->store_key, f, {KERNEL(avx512_store_key), AVX512}, {KERNEL(scalar_store_key), 0});
    EXPECT(k->store_value, f, {KERNEL(avx512_store_value), AVX512},
           {KERNEL(scalar_store_value), 0});
    assert_int_equal(k->attention_f32.panel_rows, k->panel_rows);
    const struct attention_kernels *by_tiles[] = {&k->attention_bf16, &k->attention_int8,
                                                  &k->attention_e4m3};
    bool has_tiles = (f & TILES_BF16) == TILES_BF16;
    for (size_t i = 0; i < ARRAY_LEN(by_tiles); i++) {
        EXPECT(by_tiles[i]->begin, f, {KERNEL(amx_attention_begin), TILES_BF16}, {NULL, 0});
        EXPECT(by_tiles[i]->end, f, {KERNEL(amx_attention_end), TILES_BF16}, {NULL, 0});
        assert_int_equal(by_tiles[i]->queries, has_tiles ? QUERIES_BF16 : QUERIES_F32);
        assert_int_equal(by_tiles[i]->panel_rows, has_tiles ? 384 : k->panel_rows);
    }
}

static void check_rows(const struct cpu_kernels *k, uint32_t f) {
    EXPECT(k->rms_norm, f, {KERNEL(avx512_rms_norm), AVX512}, {KERNEL(avx2_rms_norm), CPU_AVX2},
           {KERNEL(neon_rms_norm), CPU_NEON}, {KERNEL(cpu_kernels_scalar.rms_norm), 0});
    EXPECT(k->rope_head, f, {KERNEL(avx512_rope_head), AVX512}, {KERNEL(avx2_rope_head), CPU_AVX2},
           {KERNEL(neon_rope_head), CPU_NEON}, {KERNEL(cpu_kernels_scalar.rope_head), 0});
    EXPECT(k->silu_mul, f, {KERNEL(avx512_silu_mul), AVX512}, {KERNEL(avx2_silu_mul), CPU_AVX2},
           {KERNEL(neon_silu_mul), CPU_NEON}, {KERNEL(cpu_kernels_scalar.silu_mul), 0});
    EXPECT(k->sample_weigh, f, {KERNEL(sample_weigh_avx512), AVX512},
           {KERNEL(sample_weigh_avx2), CPU_AVX2}, {KERNEL(sample_weigh_neon), CPU_NEON},
           {KERNEL(sample_weigh_scalar), 0});
    EXPECT(k->sample_max, f, {KERNEL(sample_max_avx512), AVX512},
           {KERNEL(sample_max_avx2), CPU_AVX2}, {KERNEL(sample_max_neon), CPU_NEON},
           {KERNEL(sample_max_scalar), 0});
}

static void check_all(uint32_t features) {
    struct cpu_kernels kernels;
    cpu_kernels_choose(features, &kernels);
    check_linears(&kernels, features);
    check_attention(&kernels, features);
    check_rows(&kernels, features);
}

// Virtual machines may hide any feature, so no combination is left out.
static void test_every_combination_of_features(void **state) {
    (void)state;
    for (uint32_t features = 0; features <= ALL_X86; features++) check_all(features);
    check_all(CPU_NEON);
    check_all(CPU_NEON_DOTPROD);
    check_all(DOTPROD);
}

static const char *name_of(uint32_t features) {
    struct cpu_kernels kernels;
    cpu_kernels_choose(features, &kernels);
    return kernels.isa;
}

// `nanovllm inspect` shows this name.
static void test_names_of_processors(void **state) {
    (void)state;
    const uint32_t intel = BF16 | CPU_AVX512_VNNI, tiles = CPU_AMX_INT8 | CPU_AMX_BF16;
    assert_string_equal(name_of(0), "scalar");
    assert_string_equal(name_of(CPU_AVX2 | CPU_FAST_BF16), "avx2"); // Zen 3
    assert_string_equal(name_of(CPU_AVX2 | CPU_AVX_VNNI), "avx-vnni"); // Alder Lake
    assert_string_equal(name_of(AVX512), "avx512"); // Skylake
    assert_string_equal(name_of(VNNI), "avx512-vnni"); // Cascade Lake, Ice Lake
    assert_string_equal(name_of(intel), "avx512-vnni"); // Cooper Lake
    assert_string_equal(name_of(intel | CPU_AVX_VNNI), "avx512-vnni"); // Sapphire Rapids, no tiles
    assert_string_equal(name_of(intel | CPU_AVX_VNNI | tiles), "amx"); // Sapphire Rapids
    assert_string_equal(name_of(intel | CPU_FAST_BF16), "avx512-bf16"); // Zen 4
    assert_string_equal(name_of(CPU_NEON), "neon");
    assert_string_equal(name_of(DOTPROD), "neon-dotprod");
}

// A name allows its own features and no others.
static void test_names_that_users_choose(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t features;
    } want[CPU_ISA_COUNT] = {
        {"scalar", 0},
        {"avx2", CPU_AVX2},
        {"avx-vnni", CPU_AVX2 | CPU_AVX_VNNI},
        {"avx512", AVX512},
        {"avx512-vnni", VNNI},
        {"avx512-bf16", VNNI | BF16 | CPU_FAST_BF16},
        {"amx", VNNI | BF16 | CPU_FAST_BF16 | CPU_AMX_INT8 | CPU_AMX_BF16},
        {"neon", CPU_NEON},
        {"neon-dotprod", DOTPROD},
    };
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        assert_string_equal(table[i].name, want[i].name);
        assert_true(table[i].is_here);
        check_linears(&table[i].kernels, want[i].features);
        check_attention(&table[i].kernels, want[i].features);
        check_rows(&table[i].kernels, want[i].features);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_combination_of_features),
        cmocka_unit_test(test_names_of_processors),
        cmocka_unit_test(test_names_that_users_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
