/* The bundled model compared with transformers in float32: 24 greedy conversations, their ids and
 * log-probabilities. The instruction set of `auto` answers all of them. The others answer every
 * sixth, because other tests compare each of their kernels with the scalar one; NANOVLLM_TEST_ALL=1
 * leaves none out. Where only kernels of int8 and int4 weights are new, nothing is repeated. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json/jread.h"
#include "checkpoint/safetensors.h"
#include "reference/expected.h"
#include "support/isa_repeats.h"
#include "support/mini_engine.h"

static float log_probability(const float *logits, uint32_t vocab, int32_t token) {
    float largest = logits[0];
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++) largest = fmaxf(largest, logits[i]);
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)largest);
    return (float)((double)logits[token] - (double)largest - log(sum));
}

static void check_case(struct mini_engine *engine, const json_t *item, size_t index,
                       const struct safetensors *expected, float bound, float *logits) {
    uint32_t vocab = engine->plan.config.vocab_size;
    int32_t prompt[EXPECTED_TOKENS_MAX], want[EXPECTED_TOKENS_MAX];
    uint32_t num_prompt = expected_read_ids(json_object_get(item, "prompt_token_ids"), prompt);
    uint32_t num_want = expected_read_ids(json_object_get(item, "completion_token_ids"), want);
    double margin = json_number_value(json_object_get(item, "min_top2_margin"));
    struct mini_request request = {
        .prompt = prompt, .num_prompt = num_prompt, .max_new = num_want, .logits = logits};
    // If the choice is that close, append the reference's tokens, so that log-probabilities
    // compare.
    if (margin < EXPECTED_MARGIN_RULE) request.forced = want;
    mini_run(engine, &request, 1);
    char key[64];
    snprintf(key, sizeof key, "case%zu.completion_logprobs", index);
    const struct tensor *t = safetensors_find(expected, key);
    assert_non_null(t);
    float logprobs[EXPECTED_TOKENS_MAX];
    assert_true(t->size_bytes <= sizeof logprobs);
    assert_non_null(byte_source_get(&t->source, 0, t->size_bytes, logprobs, NULL));
    for (uint32_t i = 0; i < num_want; i++) {
        if (request.tokens[i] != want[i]) {
            fail_msg("case %zu, token %u: %d, want %d", index, i, request.tokens[i], want[i]);
        }
        float got = log_probability(logits + (size_t)i * vocab, vocab, want[i]);
        if (!(fabsf(got - logprobs[i]) <= bound)) {
            fail_msg("case %zu, token %u: log-probability %g, want %g", index, i, (double)got,
                     (double)logprobs[i]);
        }
    }
}

// Bounds of a log-probability: with everything in float32, or with x rounded to bf16 for linears,
// or with keys and values in bf16 or int8.
static const float exact_bound = 1e-3f, bf16_bound = 0.1f, int8_bound = 0.1f;

// Checks every step-th conversation.
static void check_isa(const struct cpu_isa *isa, const char *kv_cache_dtype, float bound,
                      size_t step) {
    struct err err = {0};
    json_t *cases = NULL;
    struct safetensors *expected = NULL;
    if (jread_file(&cases, "tests/reference/data/greedy.json", &err)) fail_msg("%s", err.message);
    if (safetensors_open(&expected, "tests/reference/data/greedy.safetensors", &err)) {
        fail_msg("%s", err.message);
    }
    struct nvllm_engine_options options = mini_options("models/tiny-qwen3");
    options.cpu_isa = isa->name;
    options.kv_cache_dtype = kv_cache_dtype;
    struct mini_engine engine;
    mini_open(&engine, &options);
    float *logits =
        malloc((size_t)EXPECTED_TOKENS_MAX * engine.plan.config.vocab_size * sizeof *logits);
    assert_non_null(logits);
    assert_int_equal(json_array_size(cases), 24);
    for (size_t i = 0; i < json_array_size(cases); i += step) {
        check_case(&engine, json_array_get(cases, i), i, expected, bound, logits);
    }
    free(logits);
    mini_close(&engine);
    safetensors_close(expected);
    json_decref(cases);
}

// Whether `auto` runs this ISA's kernels of bf16 weights.
static bool is_auto(const struct cpu_isa table[CPU_ISA_COUNT], const struct cpu_isa *isa) {
    struct cpu_kernels best;
    cpu_kernels_choose(cpu_isa_features(), &best);
    int index = 0;
    while (index < CPU_ISA_COUNT && strcmp(table[index].name, best.isa) != 0) index++;
    assert_true(index < CPU_ISA_COUNT);
    const char *same = isa_repeats(table, index, ISA_ALL_BUT_BYTES);
    return strcmp(same ? same : best.isa, isa->name) == 0;
}

static void test_isa(void **state) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    int index = *(const int *)*state;
    const struct cpu_isa *isa = &table[index];
    if (!isa->is_here) {
        print_message("skipped: this machine has no %s\n", isa->name);
        skip();
    }
    const char *same = isa_repeats(table, index, ISA_ALL_BUT_BYTES);
    if (same) {
        print_message("skipped: %s runs the same kernels\n", same);
        skip();
    }
    if (getenv("NANOVLLM_TEST_RANKS") && index != CPU_ISA_AVX2 && index != CPU_ISA_NEON) {
        print_message("skipped: ranks are tried with one instruction set\n");
        skip();
    }
    size_t step = is_auto(table, isa) || getenv("NANOVLLM_TEST_ALL") ? 1 : 6;
    check_isa(isa, "float32", isa->kernels.linear_pairs ? bf16_bound : exact_bound, step);
    check_isa(isa, "auto", bf16_bound, step);
    check_isa(isa, "int8", int8_bound, step);
}

int main(void) {
    static int index[CPU_ISA_COUNT];
    struct CMUnitTest tests[CPU_ISA_COUNT];
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        index[i] = i;
        tests[i] = (struct CMUnitTest){
            .name = table[i].name, .test_func = test_isa, .initial_state = &index[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
