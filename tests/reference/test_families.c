/* Random-weight checkpoints of the supported families against transformers' float32 logits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "checkpoint/safetensors.h"
#include "support/mini_engine.h"

enum { NUM_SEQS = 5 };

static const struct safetensors_tensor *tensor(const struct safetensors *file, int seq,
                                               const char *name) {
    char key[64];
    snprintf(key, sizeof key, "seq%d.%s", seq, name);
    const struct safetensors_tensor *t = safetensors_find(file, key);
    if (!t) fail_msg("%s is not in the expected values", key);
    return t;
}

static void compare(const float *got, const float *want, uint32_t vocab, const char *what) {
    float largest = 0, worst = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        largest = fmaxf(largest, fabsf(want[i]));
        worst = fmaxf(worst, fabsf(got[i] - want[i]));
        if (isnan(got[i])) fail_msg("%s: logit %u is NaN", what, i);
    }
    if (!(worst <= 5e-5f * largest)) {
        fail_msg("%s: off by %g, allowed %g", what, (double)worst, (double)(5e-5f * largest));
    }
}

static void check_family(const char *family, const char *isa) {
    char folder[128], path[160], what[200];
    snprintf(folder, sizeof folder, "tests/reference/data/%s", family);
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    struct err err = {0};
    struct safetensors *expected = NULL;
    if (safetensors_open(&expected, path, &err)) fail_msg("%s", err.message);
    struct nvllm_engine_options options = mini_options(folder);
    options.cpu_isa = isa;
    struct mini_engine engine;
    mini_open(&engine, &options);
    uint32_t vocab = engine.plan.config.vocab_size;
    float *logits = malloc(vocab * sizeof *logits);
    float *want = malloc(vocab * sizeof *want);
    int32_t *ids = malloc(512 * sizeof *ids);
    assert_true(logits && want && ids);
    for (int seq = 0; seq < NUM_SEQS; seq++) {
        const struct safetensors_tensor *input = tensor(expected, seq, "input_ids");
        const struct safetensors_tensor *last = tensor(expected, seq, "last_logits");
        memcpy(ids, input->data, input->size_bytes);
        memcpy(want, last->data, last->size_bytes);
        struct mini_request request = {
            .prompt = ids, .num_prompt = (uint32_t)input->shape[0], .max_new = 1, .logits = logits};
        mini_run(&engine, &request, 1);
        snprintf(what, sizeof what, "%s, %s, %u tokens", family, isa, request.num_prompt);
        compare(logits, want, vocab, what);
    }
    free(logits);
    free(want);
    free(ids);
    mini_close(&engine);
    safetensors_close(expected);
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
