/* Random-weight checkpoints of the supported families against transformers' float32 logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "reference/expected.h"
#include "support/isa_repeats.h"
#include "support/mini_engine.h"

// Bounds as a share of the largest logit: with everything in float32, or with x rounded to bf16 for
// linears and keys and values in bf16, as on device cuda. fixed_bound: with packed weights times x
// as 16-bit integers (backend/cpu/linear/fixed.h).
static const float exact_bound = 5e-5f, fixed_bound = 5e-4f, bf16_bound = 3e-2f;

// With 8-bit and 4-bit weights, and with 8-bit keys and values. Random weights have no structure
// that would hide rounding.
static const float int8_bound = 0.1f, int4_bound = 1.0f, int8_cache_bound = 5e-2f;
static const float fp8_cache_bound = 0.2f;

static void check_family(const char *family, const char *isa, const char *quantization,
                         const char *kv_cache_dtype, float bound) {
    char folder[128];
    snprintf(folder, sizeof folder, "tests/reference/data/%s", family);
    struct nvllm_engine_options options = mini_options(folder);
    options.cpu_isa = isa;
    options.quantization = quantization;
    options.kv_cache_dtype = kv_cache_dtype;
    struct mini_engine engine;
    mini_open(&engine, &options);
    struct expected_difference off[EXPECTED_LENGTHS];
    expected_run_family(&engine, folder, off);
    mini_close(&engine);
    for (int i = 0; i < EXPECTED_LENGTHS; i++) {
        print_message("%s, %s, %s, %s cache, %u tokens: off by %.2g of the largest\n", family, isa,
                      quantization, kv_cache_dtype, off[i].num_tokens,
                      (double)(off[i].worst / off[i].largest));
        if (off[i].worst <= bound * off[i].largest) continue;
        fail_msg("%s, %s, %s, %s cache, %u tokens: off by %g, allowed %g", family, isa,
                 quantization, kv_cache_dtype, off[i].num_tokens, (double)off[i].worst,
                 (double)(bound * off[i].largest));
    }
}

static bool has_ranks(void) {
    return mini_options("").tensor_parallel_size > 1;
}

static bool differs(const struct cpu_isa table[CPU_ISA_COUNT], int index) {
    return table[index].is_here && !isa_repeats(table, index, ISA_ALL_BUT_BYTES);
}

// Ranks divide weights alike for every ISA, so by ranks only the last one is tried whose linears
// round nothing. NANOVLLM_TEST_ALL=1 tries all.
static bool is_tried(const struct cpu_isa table[CPU_ISA_COUNT], int index) {
    if (!differs(table, index)) return false;
    if (!has_ranks() || getenv("NANOVLLM_TEST_ALL")) return true;
    if (table[index].kernels.linear_pairs) return false;
    for (int i = index + 1; i < CPU_ISA_COUNT; i++) {
        if (differs(table, i) && !table[i].kernels.linear_pairs) return false;
    }
    return true;
}

// With random weights rounding may choose another expert, which gives other logits, and scores
// without a factor are large. Such models are compared only where nothing is rounded.
static void check_by_floats(const char *family, bool is_packed) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (!is_tried(table, i)) continue;
        if (table[i].kernels.linear_pairs) continue;
        bool is_fixed = is_packed && table[i].kernels.linear_fixed;
        check_family(family, table[i].name, "none", "float32",
                     is_fixed ? fixed_bound : exact_bound);
    }
}

static void check_unrounded(const char *family) {
    check_by_floats(family, false);
}

static void check_on_every_isa(const char *family) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    int last = CPU_ISA_COUNT - 1;
    while (!differs(table, last)) last--;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (!is_tried(table, i)) continue;
        bool rounds = table[i].kernels.linear_pairs;
        check_family(family, table[i].name, "none", "float32", rounds ? bf16_bound : exact_bound);
        // A rank's cache is as one's. test_ops_attention compares the caches of every ISA.
        if ((has_ranks() || i != last) && !getenv("NANOVLLM_TEST_ALL")) continue;
        check_family(family, table[i].name, "none", "auto", bf16_bound);
        check_family(family, table[i].name, "none", "int8", int8_cache_bound);
    }
    check_family(family, "auto", "none", "fp8", fp8_cache_bound);
    check_family(family, "auto", "int8", "auto", int8_bound);
    check_family(family, "auto", "int4", "auto", int4_bound);
}

static void test_on_every_isa(void **state) {
    check_on_every_isa(*state);
}

static void test_unrounded(void **state) {
    check_unrounded(*state);
}

static void test_packed(void **state) {
    check_by_floats(*state, true);
}

// A test that has the family's name.
#define ON_EVERY_ISA(family)                                                                       \
    { family, test_on_every_isa, NULL, NULL, (void *)(uintptr_t)(family) }
#define UNROUNDED(family)                                                                          \
    { family, test_unrounded, NULL, NULL, (void *)(uintptr_t)(family) }
#define PACKED(family)                                                                             \
    { family, test_packed, NULL, NULL, (void *)(uintptr_t)(family) }

// MLX's codes of 2 to 8 bits, with other sizes for some modules; the embedding is lm_head too.
static void test_mlx(void **state) {
    (void)state;
    check_by_floats("mlx-qwen3", true);
}

static void test_mlx_experts(void **state) {
    (void)state;
    check_by_floats("mlx-qwen3-moe", true);
}

static void test_gpt_oss_in_mxfp4(void **state) {
    (void)state;
    check_by_floats("gpt-oss", true);
}

// Its constants are checked where a checkpoint has them.
static void test_apertus_of_dummy_weights(void **state) {
    (void)state;
    struct nvllm_engine_options options = mini_options("tests/reference/data/apertus");
    options.load_format = "dummy";
    struct mini_engine engine;
    mini_open(&engine, &options);
    mini_close(&engine);
}

static void test_bamba(void **state) {
    (void)state;
    if (mini_options("").tensor_parallel_size > 2) skip(); // it has 2 heads
    check_on_every_isa("bamba");
}

static void test_falcon_h1(void **state) {
    (void)state;
    if (mini_options("").tensor_parallel_size > 2) skip(); // its Mamba layers have 2 groups
    check_on_every_isa("falcon-h1");
}

static void test_glm4_moe_lite(void **state) {
    (void)state;
    if (mini_options("").tensor_parallel_size > 2) skip(); // it has 2 heads
    check_unrounded("glm4-moe-lite");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_mlx),
    cmocka_unit_test(test_mlx_experts),
    PACKED("mlx-qwen3-5"), // MXFP8; MLX adds 1 to weights of norms
    PACKED("mlx-deepseek-v3"), // NVFP4; MLX has the heads of latents apart
    PACKED("mlx-gpt-oss"), // MXFP4, with biases
    UNROUNDED("mlx-exaone-moe"), // experts in one tensor, by MLX's names
    UNROUNDED("mlx-gemma4-moe"),
    UNROUNDED("mlx-granite-moe"),
    ON_EVERY_ISA("apertus"),
    cmocka_unit_test(test_apertus_of_dummy_weights),
    ON_EVERY_ISA("arcee"),
    UNROUNDED("afmoe"),
    UNROUNDED("axk1"),
    UNROUNDED("cohere2-moe"),
    UNROUNDED("flex-olmo"),
    UNROUNDED("granite-moe-swa"),
    UNROUNDED("sarvam-moe"),
    UNROUNDED("granite-moe-shared"),
    UNROUNDED("hy-v3"),
    UNROUNDED("mellum"),
    UNROUNDED("mistral4"),
    UNROUNDED("sarvam-mla"),
    UNROUNDED("glm4v"),
    UNROUNDED("kimi-k25"),
    ON_EVERY_ISA("youtu"),
    UNROUNDED("internlm3"),
    cmocka_unit_test(test_bamba),
    cmocka_unit_test(test_falcon_h1),
    UNROUNDED("falcon-h1-norm"),
    ON_EVERY_ISA("granite4-h"),
    UNROUNDED("granite4-h-moe"),
    ON_EVERY_ISA("nemotron-h"),
    UNROUNDED("nemotron-h-moe"),
    ON_EVERY_ISA("lfm2"),
    UNROUNDED("lfm2-moe"),
    UNROUNDED("llama4"),
    ON_EVERY_ISA("phi"),
    UNROUNDED("exaone-moe"),
    ON_EVERY_ISA("nemotron"),
    ON_EVERY_ISA("stablelm"),
    ON_EVERY_ISA("stablelm-parallel"),
    ON_EVERY_ISA("starcoder2"),
    ON_EVERY_ISA("cohere"),
    ON_EVERY_ISA("cohere-plus"),
    ON_EVERY_ISA("stablelm-norms"),
    ON_EVERY_ISA("cohere2"),
    UNROUNDED("ernie4-5"),
    UNROUNDED("ernie4-5-moe"),
    UNROUNDED("olmoe"),
    UNROUNDED("deepseek-v2"),
    UNROUNDED("deepseek-v3"),
    cmocka_unit_test(test_glm4_moe_lite),
    UNROUNDED("dots1"),
    UNROUNDED("granite-moe"),
    UNROUNDED("hunyuan"),
    UNROUNDED("hunyuan-moe"),
    UNROUNDED("solar-open"),
    UNROUNDED("helium"),
    UNROUNDED("hyperclovax"),
    UNROUNDED("glm"),
    UNROUNDED("glm4"),
    UNROUNDED("glm4-moe"),
    UNROUNDED("minimax-m2"),
    UNROUNDED("ministral3"),
    ON_EVERY_ISA("cwm"),
    ON_EVERY_ISA("gemma"),
    ON_EVERY_ISA("granite-swa"),
    ON_EVERY_ISA("jais2"),
    ON_EVERY_ISA("minicpm"),
    UNROUNDED("ministral"),
    ON_EVERY_ISA("nanochat"),
    UNROUNDED("vaultgemma"),
    UNROUNDED("gemma2"),
    UNROUNDED("seed-oss"),
    UNROUNDED("exaone4"),
    UNROUNDED("qwen2-moe"),
    ON_EVERY_ISA("granite4"),
    UNROUNDED("gemma4"),
    UNROUNDED("gemma4-e2b"),
    UNROUNDED("gemma4-moe"),
    UNROUNDED("qwen3-next"),
    ON_EVERY_ISA("qwen3-5"),
    UNROUNDED("qwen3-5-moe"),
    ON_EVERY_ISA("smollm3"),
    ON_EVERY_ISA("granite"),
    ON_EVERY_ISA("olmo2"),
    ON_EVERY_ISA("olmo3"),
    ON_EVERY_ISA("gemma3"),
    ON_EVERY_ISA("phi3"),
    ON_EVERY_ISA("phi3-short"),
    ON_EVERY_ISA("phi3-long"),
    cmocka_unit_test(test_gpt_oss_in_mxfp4),
    UNROUNDED("gpt-oss-bf16"),
    ON_EVERY_ISA("qwen3-vl"),
    ON_EVERY_ISA("mistral3"),
    ON_EVERY_ISA("qwen3"),
    ON_EVERY_ISA("qwen3-tied-bias"),
    ON_EVERY_ISA("qwen3-yarn"),
    ON_EVERY_ISA("qwen2"),
    ON_EVERY_ISA("llama3-rope"),
    ON_EVERY_ISA("llama-mha"),
    ON_EVERY_ISA("mistral"),
    UNROUNDED("mixtral"),
    UNROUNDED("qwen3-moe"),
    UNROUNDED("qwen3-moe-mixed"),
    ON_EVERY_ISA("llama-bias"),
    ON_EVERY_ISA("mistral-window"),
    ON_EVERY_ISA("qwen2-window"),
};

// TEST_FAMILIES [FILTER]: only these tests, as cmocka_set_test_filter has it.
int main(int argc, char **argv) {
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
