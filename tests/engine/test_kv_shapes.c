/* Models whose layers differ in KV heads and head_dim (support/kv_shape_families.c). Their logits
 * are those of transformers. On the CPU, and on the fake device, a request's results must be the
 * same to the bit however it runs. With NANOVLLM_TEST_RANKS the logits and results after
 * preemptions are compared among these ranks, too. */
#include <stdlib.h>

#include "base/compiler.h"
#include "engine/plan/engine_plan.h"
#include "model/decoder_internal.h"
#include "reference/expected.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/ways.h"

static const char folder[] = "tests/reference/data/kv-shapes";

static void expect_logits(const char *isa, const char *kv_cache_dtype, float bound) {
    struct nvllm_engine_options options = mini_options(folder);
    struct expected_difference off[EXPECTED_LENGTHS];
    struct mini_engine engine;
    options.cpu_isa = isa;
    options.kv_cache_dtype = kv_cache_dtype;
    mini_open(&engine, &options);
    expected_run_family(&engine, folder, off);
    mini_close(&engine);
    for (int i = 0; i < EXPECTED_LENGTHS; i++) {
        if (off[i].worst <= bound * off[i].largest) continue;
        fail_msg("%s, %s cache, %u tokens: off by %g of %g", isa, kv_cache_dtype, off[i].num_tokens,
                 (double)off[i].worst, (double)off[i].largest);
    }
}

// The bounds are those of test_families.c.
static void test_logits_are_those_of_transformers(void **state) {
    (void)state;
    expect_logits("scalar", "float32", 5e-5f);
    if (mini_options(folder).tensor_parallel_size > 1) return;
    expect_logits("auto", "auto", 3e-2f);
    expect_logits("auto", "int8", 5e-2f);
}

// The activations of the largest layer fit, whichever that is.
static void test_the_workspace_is_for_the_largest_layer(void **state) {
    (void)state;
    enum { TOKENS = 3 };
    const struct step_limits limits = {.max_num_tokens = TOKENS, .max_num_seqs = 1};
    struct nvllm_engine_options options = mini_options(folder);
    struct decoder_workspace w;
    struct engine_plan plan;
    struct err err = {0};
    options.tensor_parallel_size = 1;
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    decoder_workspace_layout(&w, (char *)64, &plan.config, &plan.layers, &plan.shape, &limits,
                             plan.backend);
    size_t qkv = (size_t)((char *)w.attended - (char *)w.qkv), attended = 4 * 48;
    assert_true(qkv >= TOKENS * (attended + 2 * 48) * sizeof(float)); // 4 heads of 32 need less
    assert_true((char *)w.qkv + qkv + TOKENS * attended * sizeof(float) <=
                (char *)64 + w.size_bytes);
    engine_plan_fini(&plan);
}

static void test_same_results_on_every_way(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 1},
        {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 8, .max_num_tokens = 10},
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .max_num_tokens = 24},
        {.device = "cpu", .schedule = "prefill-first", .max_num_seqs = 8, .no_prefix_cache = 1},
        {.device = "cuda", .async_scheduling = "on", .max_num_seqs = 8},
    };
    if (small_options().tensor_parallel_size > 1) skip();
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

static void test_same_results_after_preemptions(void **state) {
    static const struct way ways[] = {
        {.device = "cpu", .async_scheduling = "on", .max_num_seqs = 8, .num_blocks = 28},
    };
    ways_expect_same(*state, ways, ARRAY_LEN(ways));
}

static void test_a_cached_prompt_gives_the_same_tokens(void **state) {
    const struct mixed_workload_expected *expected = *state;
    struct nvllm_engine_options options = small_options();
    options.device = "cpu"; // not the fake device
    if (options.tensor_parallel_size > 1) skip();
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_result *first = generate_one(engine, &expected->workload->requests[3]);
    struct nvllm_result *second = generate_one(engine, &expected->workload->requests[3]);
    assert_int_equal(first->num_cached_tokens, 0);
    assert_int_equal(second->num_cached_tokens, 80);
    assert_int_equal(second->num_tokens, first->num_tokens);
    assert_memory_equal(second->token_ids, first->token_ids,
                        first->num_tokens * sizeof *first->token_ids);
    nvllm_results_free(first, 1);
    nvllm_results_free(second, 1);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_those_of_transformers),
        cmocka_unit_test(test_the_workspace_is_for_the_largest_layer),
        cmocka_unit_test(test_same_results_on_every_way),
        cmocka_unit_test(test_same_results_after_preemptions),
        cmocka_unit_test(test_a_cached_prompt_gives_the_same_tokens),
    };
    // No checkpoint with a tokenizer has such layers, so all but logits are of random weights.
    setenv("NANOVLLM_TEST_LOAD_FORMAT", "dummy", 1);
    return cmocka_run_group_tests(tests, mixed_workload_expected_make,
                                  mixed_workload_expected_free);
}
