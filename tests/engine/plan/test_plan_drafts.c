// When `auto` guesses: what a plan tells the table of costs about its model and its device.
#include "base/os/file.h"
#include "base/text/buf.h"
#include "engine/plan/engine_plan.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#define CODES                                                                                      \
    ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}"

static struct nvllm_engine_options options_of(const char *model) {
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = model;
    options.device = "cpu";
    options.load_format = "dummy";
    options.num_kvcache_blocks = 16;
    return options;
}

// With so many sequences in a step `auto` may guess. 0: it is off.
static void expect_auto(const struct nvllm_engine_options *options, uint32_t seqs_max) {
    struct engine_plan plan;
    struct err err = {0};
    if (engine_plan_make(&plan, options, 0, 0, &err)) fail_msg("%s", err.message);
    if (!plan.backend->has_cheap_rows) seqs_max = 0;
    assert_int_equal(plan.draft_costs.seqs_max, seqs_max);
    assert_int_equal(plan.drafts.num_tokens, seqs_max ? DRAFT_TOKENS_MAX : 0);
    assert_int_equal(plan.drafts.is_adaptive, seqs_max > 0);
    engine_plan_fini(&plan);
}

static void test_auto_goes_by_model_and_device(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of("bench/configs/qwen3-0.6b");
    assert_string_equal(options.drafts, "auto");
    expect_auto(&options, 4);
    options.cpu_isa = "scalar";
    expect_auto(&options, 0);
    options = options_of("bench/configs/qwen3-0.6b");
    options.tensor_parallel_size = 2;
    expect_auto(&options, 0);
    options = options_of("models/tiny-qwen3");
    expect_auto(&options, 0);
    options = options_of("bench/configs/qwen3-30b-a3b"); // experts
    expect_auto(&options, 0);
    options = options_of("bench/configs/qwen3.5-2b"); // recurrent layers
    struct engine_plan plan;
    struct err err = {0};
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    assert_int_equal(plan.drafts.num_tokens, 0);
    engine_plan_fini(&plan);
}

// It counts how the weights are kept, not how they are stored.
static void test_rows_of_codes_cost_more(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of("bench/configs/qwen3-0.6b");
    options.quantization = "int8";
    expect_auto(&options, 2);

    struct temp_folder folder;
    temp_folder_create(&folder);
    struct buf text = {0};
    assert_int_equal(file_read(&text, "bench/configs/qwen3-0.6b/config.json", NULL), OK);
    while (text.len && text.data[--text.len] != '}') continue;
    assert_int_equal(buf_append(&text, CODES, sizeof CODES, NULL), OK); // with its end
    temp_folder_write_text(&folder, "config.json", text.data);
    buf_fini(&text);
    options = options_of(folder.path);
    expect_auto(&options, 2);
    options.dtype = "bfloat16"; // they are decoded
    expect_auto(&options, 4);
    temp_folder_remove(&folder);
}

// A number of drafts is taken everywhere. Without guesses forms still skip certain text, where
// steps overlap.
static void test_other_options(void **state) {
    (void)state;
    struct nvllm_engine_options options = options_of("models/tiny-qwen3");
    options.drafts = "8";
    struct engine_plan plan;
    struct err err = {0};
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    assert_int_equal(plan.drafts.num_tokens, 8);
    assert_false(plan.drafts.is_adaptive);
    engine_plan_fini(&plan);
    static const char *const none[] = {"auto", "off"};
    for (int i = 0; i < 2; i++) {
        options.drafts = none[i];
        options.async_scheduling = "on";
        if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
        assert_true(plan.drafts.only_forced);
        engine_plan_fini(&plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_goes_by_model_and_device),
        cmocka_unit_test(test_rows_of_codes_cost_more),
        cmocka_unit_test(test_other_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
