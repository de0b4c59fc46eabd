/* Random-weight checkpoints of the supported families against transformers' float32 logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "reference/expected.h"
#include "support/mini_engine.h"

static void check_family(const char *family, const char *isa) {
    char folder[128];
    snprintf(folder, sizeof folder, "tests/reference/data/%s", family);
    struct nvllm_engine_options options = mini_options(folder);
    options.cpu_isa = isa;
    struct mini_engine engine;
    mini_open(&engine, &options);
    struct expected_difference off[EXPECTED_LENGTHS];
    expected_run_family(&engine, folder, off);
    mini_close(&engine);
    for (int i = 0; i < EXPECTED_LENGTHS; i++) {
        if (off[i].worst <= 5e-5f * off[i].largest) continue;
        fail_msg("%s, %s, %u tokens: off by %g, allowed %g", family, isa, off[i].num_tokens,
                 (double)off[i].worst, (double)(5e-5f * off[i].largest));
    }
}

static void check_on_every_isa(const char *family) {
    struct cpu_features features = cpu_features();
    check_family(family, "scalar");
    if (features.avx2) check_family(family, "avx2");
    if (features.avx512) check_family(family, "avx512");
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

static void test_qwen3_moe(void **state) {
    (void)state;
    check_on_every_isa("qwen3-moe");
}

static void test_qwen3_moe_with_dense_layers(void **state) {
    (void)state;
    check_on_every_isa("qwen3-moe-mixed");
}

static void test_llama_with_biases(void **state) {
    (void)state;
    check_on_every_isa("llama-bias");
}

static void test_mixtral(void **state) {
    (void)state;
    check_on_every_isa("mixtral");
}

int main(void) {
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
