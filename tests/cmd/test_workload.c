// The bench workloads: CPython's random numbers, exactly the numbers of nano-vllm's bench.py, and
// the shapes of the others. The expected numbers were printed by CPython 3.11.
#include "cmd/bench/workload.h"

#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

static struct workload make(struct workload_options options) {
    struct workload workload;
    struct err err = {0};
    if (options.scale == 0) options.scale = 1;
    if (!options.vocab_size) options.vocab_size = 151936;
    if (workload_create(&workload, &options, &err)) fail_msg("%s", err.message);
    return workload;
}

static void test_randint_is_pythons(void **state) {
    (void)state;
    struct python_random random;
    python_random_seed(&random, 12345678901234);
    const int32_t want[] = {26252, 586762, 152381, 865437};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_int_equal(python_random_randint(&random, -5, 1000000), want[i]);
    }
    python_random_seed(&random, 1);
    assert_int_equal(python_random_randint(&random, 0, 0), 0);
    assert_int_equal(python_random_randint(&random, 0, 1), 0);
    assert_int_equal(python_random_randint(&random, 0, INT32_MAX), 1095513148);
    assert_int_equal(python_random_randint(&random, 0, 255), 60);
}

static void test_upstream_workload(void **state) {
    (void)state;
    struct workload workload = make((struct workload_options){.kind = WORKLOAD_NANO_VLLM});
    assert_int_equal(workload.num_requests, 256);
    assert_int_equal(workload.num_input_tokens, 142827);
    assert_int_equal(workload.num_output_tokens, 133966);
    const uint32_t prompt_lens[] = {964, 724, 484, 508, 316, 798};
    const int32_t max_tokens[] = {845, 312, 607, 843, 500, 882};
    for (size_t i = 0; i < ARRAY_LEN(prompt_lens); i++) {
        assert_int_equal(workload.requests[i].prompt_len, prompt_lens[i]);
        assert_int_equal(workload.requests[i].max_tokens, max_tokens[i]);
    }
    const int32_t first[] = {6311, 6890, 663, 4242, 8376};
    assert_memory_equal(workload.requests[0].prompt, first, sizeof first);
    const struct workload_request *last = &workload.requests[255];
    const int32_t end[] = {6642, 9046, 1958};
    assert_memory_equal(last->prompt + last->prompt_len - 3, end, sizeof end);
    assert_int_equal(last->max_tokens, 312);
    workload_fini(&workload);
}

static void test_scale_takes_the_first(void **state) {
    (void)state;
    struct workload workload = make((struct workload_options){.scale = 0.05});
    assert_int_equal(workload.num_requests, 13); // 12.8
    assert_int_equal(workload.requests[5].prompt_len, 798);
    assert_int_equal(workload.requests[5].max_tokens, 882);
    workload_fini(&workload);
    workload = make((struct workload_options){.scale = 0.0001});
    assert_int_equal(workload.num_requests, 1);
    assert_int_equal(workload.num_input_tokens, 964);
    assert_int_equal(workload.num_output_tokens, 845);
    workload_fini(&workload);
}

static void test_ids_modulo_a_small_vocabulary(void **state) {
    (void)state;
    struct workload workload = make((struct workload_options){.vocab_size = 4096});
    assert_int_equal(workload.requests[0].prompt[0], 6311 - 4096);
    assert_int_equal(workload.requests[0].prompt[2], 663);
    assert_int_equal(workload.num_input_tokens, 142827);
    for (size_t i = 0; i < workload.num_requests; i++) {
        for (uint32_t j = 0; j < workload.requests[i].prompt_len; j++) {
            assert_in_range(workload.requests[i].prompt[j], 0, 4095);
        }
    }
    workload_fini(&workload);
}

static void test_shared_prefix_is_shared(void **state) {
    (void)state;
    struct workload workload =
        make((struct workload_options){.kind = WORKLOAD_SHARED_PREFIX, .batch_size = 3});
    assert_int_equal(workload.num_requests, 3);
    assert_int_equal(workload.num_input_tokens, 3 * (2048 + 64));
    assert_int_equal(workload.num_output_tokens, 3 * 64);
    const struct workload_request *r = workload.requests;
    assert_memory_equal(r[0].prompt, r[1].prompt, 2048 * sizeof *r[0].prompt);
    assert_memory_equal(r[0].prompt, r[2].prompt, 2048 * sizeof *r[0].prompt);
    assert_memory_not_equal(r[0].prompt + 2048, r[1].prompt + 2048, 64 * sizeof *r[0].prompt);
    workload_fini(&workload);
}

static void test_shapes(void **state) {
    (void)state;
    struct workload workload = make((struct workload_options){.kind = WORKLOAD_ONE_STREAM});
    assert_int_equal(workload.num_requests, 1);
    assert_int_equal(workload.requests[0].prompt_len, 128);
    assert_int_equal(workload.requests[0].max_tokens, 512);
    workload_fini(&workload);
    workload = make((struct workload_options){
        .kind = WORKLOAD_BATCH, .batch_size = 4, .input_len = 10, .output_len = 20});
    assert_int_equal(workload.num_input_tokens, 40);
    assert_int_equal(workload.num_output_tokens, 80);
    workload_fini(&workload);
    workload = make((struct workload_options){.kind = WORKLOAD_PREFILL});
    assert_int_equal(workload.num_input_tokens, 8 * 512);
    assert_int_equal(workload.num_output_tokens, 8);
    workload_fini(&workload);
}

static void test_names(void **state) {
    (void)state;
    enum workload_kind kind = WORKLOAD_NANO_VLLM;
    int32_t batch_size = 0;
    for (int i = WORKLOAD_NANO_VLLM; i <= WORKLOAD_SHARED_PREFIX; i++) {
        assert_true(workload_from_name(workload_name((enum workload_kind)i), &kind, &batch_size));
        assert_int_equal(kind, i);
    }
    assert_int_equal(batch_size, 0);
    assert_true(workload_from_name("batch-32", &kind, &batch_size));
    assert_int_equal(kind, WORKLOAD_BATCH);
    assert_int_equal(batch_size, 32);
    const char *const bad[] = {"", "batch-", "batch-0", "batch-1x", "batch--1", "prefil"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(workload_from_name(bad[i], &kind, &batch_size));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_randint_is_pythons),
        cmocka_unit_test(test_upstream_workload),
        cmocka_unit_test(test_scale_takes_the_first),
        cmocka_unit_test(test_ids_modulo_a_small_vocabulary),
        cmocka_unit_test(test_shared_prefix_is_shared),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
