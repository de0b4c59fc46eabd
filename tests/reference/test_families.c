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

static void test_qwen3(void **state) {
    (void)state;
    check_on_every_isa("qwen3");
}

static void test_qwen3_tied_with_biases(void **state) {
    (void)state;
    check_on_every_isa("qwen3-tied-bias");
}

static void test_qwen3_yarn(void **state) {
    (void)state;
    check_on_every_isa("qwen3-yarn");
}

static void test_qwen2(void **state) {
    (void)state;
    check_on_every_isa("qwen2");
}

static void test_llama3_rope(void **state) {
    (void)state;
    check_on_every_isa("llama3-rope");
}

static void test_llama_without_grouped_queries(void **state) {
    (void)state;
    check_on_every_isa("llama-mha");
}

static void test_mistral(void **state) {
    (void)state;
    check_on_every_isa("mistral");
}

// MLX's codes of 2 to 8 bits, with other sizes for some modules; the embedding is lm_head too.
static void test_mlx(void **state) {
    (void)state;
    check_by_floats("mlx-qwen3", true);
}

static void test_mlx_experts(void **state) {
    (void)state;
    check_by_floats("mlx-qwen3-moe", true);
}

static void test_qwen3_moe(void **state) {
    (void)state;
    check_unrounded("qwen3-moe");
}

static void test_qwen3_moe_with_dense_layers(void **state) {
    (void)state;
    check_unrounded("qwen3-moe-mixed");
}

static void test_mistral_with_a_window(void **state) {
    (void)state;
    check_on_every_isa("mistral-window");
}

static void test_qwen2_with_windows_in_some_layers(void **state) {
    (void)state;
    check_on_every_isa("qwen2-window");
}

static void test_llama_with_biases(void **state) {
    (void)state;
    check_on_every_isa("llama-bias");
}

static void test_mixtral(void **state) {
    (void)state;
    check_unrounded("mixtral");
}

static void test_gpt_oss_in_mxfp4(void **state) {
    (void)state;
    check_by_floats("gpt-oss", true);
}

static void test_gpt_oss(void **state) {
    (void)state;
    check_unrounded("gpt-oss-bf16");
}

static void test_text_of_qwen3_vl(void **state) {
    (void)state;
    check_on_every_isa("qwen3-vl");
}

static void test_text_of_mistral3(void **state) {
    (void)state;
    check_on_every_isa("mistral3");
}

static void test_smollm3(void **state) {
    (void)state;
    check_on_every_isa("smollm3");
}

static void test_granite(void **state) {
    (void)state;
    check_on_every_isa("granite");
}

static void test_olmo2(void **state) {
    (void)state;
    check_on_every_isa("olmo2");
}

static void test_olmo3(void **state) {
    (void)state;
    check_on_every_isa("olmo3");
}

static void test_minimax_m2(void **state) {
    (void)state;
    check_unrounded("minimax-m2");
}

static void test_glm4_moe(void **state) {
    (void)state;
    check_unrounded("glm4-moe");
}

static void test_apertus(void **state) {
    (void)state;
    check_on_every_isa("apertus");
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

static void test_arcee(void **state) {
    (void)state;
    check_on_every_isa("arcee");
}

static void test_internlm3(void **state) {
    (void)state;
    check_unrounded("internlm3");
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

static void test_falcon_h1_with_a_norm(void **state) {
    (void)state;
    check_unrounded("falcon-h1-norm");
}

static void test_granite4_h(void **state) {
    (void)state;
    check_on_every_isa("granite4-h");
}

static void test_granite4_h_moe(void **state) {
    (void)state;
    check_unrounded("granite4-h-moe");
}

static void test_nemotron_h(void **state) {
    (void)state;
    check_on_every_isa("nemotron-h");
}

static void test_nemotron_h_moe(void **state) {
    (void)state;
    check_unrounded("nemotron-h-moe");
}

static void test_lfm2(void **state) {
    (void)state;
    check_on_every_isa("lfm2");
}

static void test_lfm2_moe(void **state) {
    (void)state;
    check_unrounded("lfm2-moe");
}

static void test_llama4(void **state) {
    (void)state;
    check_unrounded("llama4");
}

static void test_phi(void **state) {
    (void)state;
    check_on_every_isa("phi");
}

static void test_exaone_moe(void **state) {
    (void)state;
    check_unrounded("exaone-moe");
}

static void test_nemotron(void **state) {
    (void)state;
    check_on_every_isa("nemotron");
}

static void test_stablelm(void **state) {
    (void)state;
    check_on_every_isa("stablelm");
}

static void test_stablelm_parallel(void **state) {
    (void)state;
    check_on_every_isa("stablelm-parallel");
}

static void test_starcoder2(void **state) {
    (void)state;
    check_on_every_isa("starcoder2");
}

static void test_cohere(void **state) {
    (void)state;
    check_on_every_isa("cohere");
}

static void test_cohere_with_norms_of_heads(void **state) {
    (void)state;
    check_on_every_isa("cohere-plus");
}

static void test_stablelm_with_norms_of_heads(void **state) {
    (void)state;
    check_on_every_isa("stablelm-norms");
}

static void test_cohere2(void **state) {
    (void)state;
    check_on_every_isa("cohere2");
}

static void test_ernie4_5(void **state) {
    (void)state;
    check_unrounded("ernie4-5");
}

static void test_ernie4_5_with_experts(void **state) {
    (void)state;
    check_unrounded("ernie4-5-moe");
}

static void test_olmoe(void **state) {
    (void)state;
    check_unrounded("olmoe");
}

static void test_deepseek_v2(void **state) {
    (void)state;
    check_unrounded("deepseek-v2");
}

static void test_deepseek_v3(void **state) {
    (void)state;
    check_unrounded("deepseek-v3");
}

static void test_glm4_moe_lite(void **state) {
    (void)state;
    if (mini_options("").tensor_parallel_size > 2) skip(); // it has 2 heads
    check_unrounded("glm4-moe-lite");
}

static void test_dots1(void **state) {
    (void)state;
    check_unrounded("dots1");
}

static void test_granite_with_experts(void **state) {
    (void)state;
    check_unrounded("granite-moe");
}

static void test_hunyuan(void **state) {
    (void)state;
    check_unrounded("hunyuan");
}

static void test_hunyuan_with_experts(void **state) {
    (void)state;
    check_unrounded("hunyuan-moe");
}

static void test_solar_open(void **state) {
    (void)state;
    check_unrounded("solar-open");
}

static void test_helium(void **state) {
    (void)state;
    check_unrounded("helium");
}

static void test_hyperclovax(void **state) {
    (void)state;
    check_unrounded("hyperclovax");
}

static void test_glm(void **state) {
    (void)state;
    check_unrounded("glm");
}

static void test_glm4(void **state) {
    (void)state;
    check_unrounded("glm4");
}

static void test_gemma4(void **state) {
    (void)state;
    check_unrounded("gemma4");
}

static void test_gemma4_with_experts(void **state) {
    (void)state;
    check_unrounded("gemma4-moe");
}

static void test_gemma4_with_inputs_of_layers(void **state) {
    (void)state;
    check_unrounded("gemma4-e2b");
}

static void test_granite4(void **state) {
    (void)state;
    check_on_every_isa("granite4");
}

static void test_ministral3_in_fp8(void **state) {
    (void)state;
    check_unrounded("ministral3");
}

static void test_gemma2(void **state) {
    (void)state;
    check_unrounded("gemma2");
}

static void test_seed_oss(void **state) {
    (void)state;
    check_unrounded("seed-oss");
}

static void test_exaone4(void **state) {
    (void)state;
    check_unrounded("exaone4");
}

static void test_qwen2_moe(void **state) {
    (void)state;
    check_unrounded("qwen2-moe");
}

static void test_gemma3(void **state) {
    (void)state;
    check_on_every_isa("gemma3");
}

static void test_phi3(void **state) {
    (void)state;
    check_on_every_isa("phi3");
}

static void test_phi3_with_short_factors(void **state) {
    (void)state;
    check_on_every_isa("phi3-short");
}

static void test_phi3_with_long_factors(void **state) {
    (void)state;
    check_on_every_isa("phi3-long");
}

static void test_qwen3_next(void **state) {
    (void)state;
    check_unrounded("qwen3-next");
}

static void test_qwen3_5(void **state) {
    (void)state;
    check_on_every_isa("qwen3-5");
}

static void test_qwen3_5_with_experts(void **state) {
    (void)state;
    check_unrounded("qwen3-5-moe");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlx),
        cmocka_unit_test(test_mlx_experts),
        cmocka_unit_test(test_apertus),
        cmocka_unit_test(test_apertus_of_dummy_weights),
        cmocka_unit_test(test_arcee),
        cmocka_unit_test(test_internlm3),
        cmocka_unit_test(test_bamba),
        cmocka_unit_test(test_falcon_h1),
        cmocka_unit_test(test_falcon_h1_with_a_norm),
        cmocka_unit_test(test_granite4_h),
        cmocka_unit_test(test_granite4_h_moe),
        cmocka_unit_test(test_nemotron_h),
        cmocka_unit_test(test_nemotron_h_moe),
        cmocka_unit_test(test_lfm2),
        cmocka_unit_test(test_lfm2_moe),
        cmocka_unit_test(test_llama4),
        cmocka_unit_test(test_phi),
        cmocka_unit_test(test_exaone_moe),
        cmocka_unit_test(test_nemotron),
        cmocka_unit_test(test_stablelm),
        cmocka_unit_test(test_stablelm_parallel),
        cmocka_unit_test(test_starcoder2),
        cmocka_unit_test(test_cohere),
        cmocka_unit_test(test_cohere_with_norms_of_heads),
        cmocka_unit_test(test_stablelm_with_norms_of_heads),
        cmocka_unit_test(test_cohere2),
        cmocka_unit_test(test_ernie4_5),
        cmocka_unit_test(test_ernie4_5_with_experts),
        cmocka_unit_test(test_olmoe),
        cmocka_unit_test(test_deepseek_v2),
        cmocka_unit_test(test_deepseek_v3),
        cmocka_unit_test(test_glm4_moe_lite),
        cmocka_unit_test(test_dots1),
        cmocka_unit_test(test_granite_with_experts),
        cmocka_unit_test(test_hunyuan),
        cmocka_unit_test(test_hunyuan_with_experts),
        cmocka_unit_test(test_solar_open),
        cmocka_unit_test(test_helium),
        cmocka_unit_test(test_hyperclovax),
        cmocka_unit_test(test_glm),
        cmocka_unit_test(test_glm4),
        cmocka_unit_test(test_glm4_moe),
        cmocka_unit_test(test_minimax_m2),
        cmocka_unit_test(test_ministral3_in_fp8),
        cmocka_unit_test(test_gemma2),
        cmocka_unit_test(test_seed_oss),
        cmocka_unit_test(test_exaone4),
        cmocka_unit_test(test_qwen2_moe),
        cmocka_unit_test(test_granite4),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_gemma4_with_inputs_of_layers),
        cmocka_unit_test(test_gemma4_with_experts),
        cmocka_unit_test(test_qwen3_next),
        cmocka_unit_test(test_qwen3_5),
        cmocka_unit_test(test_qwen3_5_with_experts),
        cmocka_unit_test(test_smollm3),
        cmocka_unit_test(test_granite),
        cmocka_unit_test(test_olmo2),
        cmocka_unit_test(test_olmo3),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_phi3_with_short_factors),
        cmocka_unit_test(test_phi3_with_long_factors),
        cmocka_unit_test(test_gpt_oss_in_mxfp4),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_text_of_qwen3_vl),
        cmocka_unit_test(test_text_of_mistral3),
        cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_qwen3_tied_with_biases),
        cmocka_unit_test(test_qwen3_yarn),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_llama3_rope),
        cmocka_unit_test(test_llama_without_grouped_queries),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_mixtral),
        cmocka_unit_test(test_qwen3_moe),
        cmocka_unit_test(test_qwen3_moe_with_dense_layers),
        cmocka_unit_test(test_llama_with_biases),
        cmocka_unit_test(test_mistral_with_a_window),
        cmocka_unit_test(test_qwen2_with_windows_in_some_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
