// The parameter table: every field can be set by name, what is out of range or of the wrong kind is
// refused with a sentence and changes nothing, and a whole struct is checked by the same rules.
#include "engine/params/params.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/buf.h"
#include "engine/step/sampling.h"
#include "support/cmocka_all.h"
#include "support/params_fixture.h"

static const struct nvllm_engine_options options_init = NVLLM_ENGINE_OPTIONS_INIT;

static void option_ok(struct nvllm_engine_options *options, const char *name, const char *value) {
    struct err err = {0};
    if (params_set_engine_option(options, name, value, &err) != OK) {
        fail_msg("%s = %s: %s", name, value, err.message);
    }
}

static void option_refused(const char *name, const char *value, const char *sentence) {
    struct nvllm_engine_options options;
    memcpy(&options, &options_init, sizeof options); // padding too: all bytes are compared
    struct err err = {0};
    assert_int_equal(params_set_engine_option(&options, name, value, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    assert_memory_equal(&options, &options_init, sizeof options);
}

static void check_table(const struct nvllm_param *(*param_at)(size_t), size_t count,
                        size_t struct_bytes) {
    for (size_t i = 0; i < count; i++) {
        const struct nvllm_param *param = param_at(i);
        assert_non_null(param);
        assert_true(param->offset >= sizeof(size_t)); // not struct_size
        assert_true(param->offset + param_size(param->type) <= struct_bytes);
        assert_int_equal(param->offset % param_size(param->type), 0);
        assert_true(strlen(param->help) > 10);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(param_at(j)->name, param->name);
            assert_int_not_equal(param_at(j)->offset, param->offset);
        }
    }
    assert_null(param_at(count));
    assert_null(param_at(SIZE_MAX));
}

static void test_tables_are_sound(void **state) {
    (void)state;
#define ONE(...) +1
    enum {
        NUM_SAMPLING = 0 NVLLM_MODEL_PARAMS(ONE) NVLLM_SAMPLER_PARAMS(ONE) NVLLM_REQUEST_PARAMS(ONE)
            NVLLM_LIST_PARAMS(ONE),
        NUM_OPTIONS = 0 NVLLM_ENGINE_OPTIONS(ONE, ONE, ONE),
    };
    check_table(params_sampling, NUM_SAMPLING, sizeof(struct nvllm_sampling_params));
    check_table(params_engine_option, NUM_OPTIONS, sizeof(struct nvllm_engine_options));
}

// What a default says is what _INIT has, except where the model comes before it.
static void test_defaults_are_those_of_init(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    const struct generation_config no_model = {0};
    sampling_fill_defaults(&params, &no_model);
    struct nvllm_sampling_params set = params_defaults;
    for (size_t i = 0; params_sampling(i); i++) {
        const struct nvllm_param *param = params_sampling(i);
        if (!params_sampling_default(i)) continue; // a list
        set_ok(&set, param->name, params_sampling_default(i));
        assert_memory_equal((char *)&set + param->offset, (char *)&params + param->offset,
                            param_size(param->type));
    }
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    for (size_t i = 0; params_engine_option(i); i++) {
        const struct nvllm_param *param = params_engine_option(i);
        const char *text = params_engine_option_default(i);
        if (!text) continue;
        option_ok(&options, param->name, text);
        if (param->type == NVLLM_PARAM_STRING) {
            const char *const *field = (const void *)((const char *)&options_init + param->offset);
            assert_string_equal(*field, text);
        } else {
            assert_memory_equal((char *)&options + param->offset,
                                (const char *)&options_init + param->offset,
                                param_size(param->type));
        }
    }
    assert_string_equal(params_sampling_default(0), "1"); // temperature
    assert_null(params_sampling_default(SIZE_MAX));
    assert_null(params_engine_option_default(SIZE_MAX));
}

static void test_sets_every_number(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "temperature", "0.7");
    set_ok(&params, "top_p", "1");
    set_ok(&params, "min_p", " 0.05 ");
    set_ok(&params, "top_k", "-1");
    set_ok(&params, "repetition_penalty", "1.1e0");
    set_ok(&params, "presence_penalty", "-2");
    set_ok(&params, "frequency_penalty", "2.0");
    set_ok(&params, "max_tokens", "2147483647");
    set_ok(&params, "ignore_eos", "true");
    set_ok(&params, "skip_special_tokens", "false");
    set_ok(&params, "include_stop_str_in_output", "true");
    set_ok(&params, "logprobs", "20");
    set_ok(&params, "priority", "-2147483648");
    set_ok(&params, "n", "1024");
    set_ok(&params, "prompt_logprobs", "20");
    set_ok(&params, "echo", "true");
    set_ok(&params, "min_tokens", "2147483647");
    set_ok(&params, "seed", "9223372036854775807");
    assert_true(params.temperature == 0.7f);
    assert_true(params.top_p == 1.0f);
    assert_true(params.min_p == 0.05f);
    assert_int_equal(params.top_k, -1);
    assert_true(params.repetition_penalty == 1.1f);
    assert_true(params.presence_penalty == -2.0f);
    assert_true(params.frequency_penalty == 2.0f);
    assert_int_equal(params.max_tokens, INT32_MAX);
    assert_int_equal(params.ignore_eos, 1);
    assert_int_equal(params.skip_special_tokens, 0);
    assert_int_equal(params.include_stop_str_in_output, 1);
    assert_int_equal(params.logprobs, 20);
    assert_int_equal(params.priority, INT32_MIN);
    assert_int_equal(params.n, 1024);
    assert_int_equal(params.prompt_logprobs, 20);
    assert_int_equal(params.echo, 1);
    assert_int_equal(params.min_tokens, INT32_MAX);
    assert_true(params.seed == INT64_MAX);
    assert_null(params.owned); // numbers need no memory
}

static void test_booleans_have_four_spellings(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int value;
    } cases[] = {{"true", 1}, {"false", 0}, {"1", 1}, {"0", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
        params.ignore_eos = !cases[i].value;
        set_ok(&params, "ignore_eos", cases[i].text);
        assert_int_equal(params.ignore_eos, cases[i].value);
    }
    set_refused("ignore_eos", "2", "ignore_eos is 2, want true or false");
    set_refused("ignore_eos", "yes", "ignore_eos is yes, want true or false");
    set_refused("ignore_eos", "1.0", "ignore_eos is 1.0, want true or false");
}

static void test_refuses_numbers_with_a_sentence(void **state) {
    (void)state;
    set_refused("max_tokens", "1.5", "max_tokens is 1.5, want an integer from 1 to 2147483647");
    set_refused("max_tokens", "abc", "max_tokens is abc, want an integer from 1 to 2147483647");
    set_refused("max_tokens", "", "max_tokens is , want an integer from 1 to 2147483647");
    set_refused("max_tokens", "0", "max_tokens is 0, want an integer from 1 to 2147483647");
    set_refused("max_tokens", "2147483648",
                "max_tokens is 2147483648, want an integer from 1 to 2147483647");
    set_refused("max_tokens", "99999999999999999999",
                "max_tokens is 99999999999999999999, want an integer from 1 to 2147483647");
    set_refused("max_tokens", "true", "max_tokens is true, want an integer from 1 to 2147483647");
    set_refused("max_tokens", "\"5\"", "max_tokens is \"5\", want an integer from 1 to 2147483647");
    set_refused("max_tokens", "[5]", "max_tokens is [5], want an integer from 1 to 2147483647");
    set_refused("min_tokens", "-1", "min_tokens is -1, want an integer from 0 to 2147483647");
    set_refused("prompt_logprobs", "21", "prompt_logprobs is 21, want an integer from -2 to 20");
    set_refused("echo", "2", "echo is 2, want true or false");
    set_refused("n", "0", "n is 0, want an integer from 1 to 1024");
    set_refused("n", "1025", "n is 1025, want an integer from 1 to 1024");
    set_refused("priority", "2147483648",
                "priority is 2147483648, want an integer from -2147483648 to 2147483647");
    set_refused("logprobs", "21", "logprobs is 21, want an integer from -1 to 20");
    set_refused("seed", "-2", "seed is -2, want an integer from -1 to 9223372036854775807");
    set_refused("temperature", "-0.1", "temperature is -0.1, want a number from 0 to 100");
    set_refused("temperature", "NaN", "temperature is NaN, want a number from 0 to 100");
    set_refused("temperature", "inf", "temperature is inf, want a number from 0 to 100");
    set_refused("temperature", "1e999", "temperature is 1e999, want a number from 0 to 100");
    set_refused("temperature", "-1e30", "temperature is -1e30, want a number from 0 to 100");
    set_refused("top_p", "0", "top_p is 0, want a number above 0 and at most 1");
    set_refused("top_p", "1e-60", "top_p is 1e-60, want a number above 0 and at most 1");
    set_refused("top_p", "1.0000001", "top_p is 1.0000001, want a number above 0 and at most 1");
    set_refused("top_k", "-2", "top_k is -2, want an integer from -1 to 2147483647");
    set_refused("min_p", "1.1", "min_p is 1.1, want a number from 0 to 1");
    set_refused("repetition_penalty", "0",
                "repetition_penalty is 0, want a number above 0 and at most 10");
    set_refused("presence_penalty", "2.5", "presence_penalty is 2.5, want a number from -2 to 2");
}

static void test_suggests_the_nearest_name(void **state) {
    (void)state;
    set_refused("temprature", "1",
                "unknown sampling parameter \"temprature\"; did you mean \"temperature\"?");
    set_refused("max-tokens", "1",
                "unknown sampling parameter \"max-tokens\"; did you mean \"max_tokens\"?");
    set_refused("xylophone", "1", "unknown sampling parameter \"xylophone\"");
    set_refused(NULL, "1", "unknown sampling parameter \"\"");
    set_refused("seed", NULL, "seed has no value");
    set_refused("owned", "1", "unknown sampling parameter \"owned\"");
    option_refused("treads", "1", "unknown engine option \"treads\"; did you mean \"threads\"?");
    option_refused("model", NULL, "model has no value");
}

// The refusal of a seed that is `lead` and 40 two-byte characters, of which `num_shown` are shown.
static void refuse_long_seed(const char *lead, int num_shown) {
    char value[128], sentence[256];
    int value_len = snprintf(value, sizeof value, "%s", lead);
    int len = snprintf(sentence, sizeof sentence, "seed is %s", lead);
    for (int i = 0; i < 40; i++) {
        value_len += snprintf(value + value_len, sizeof value - (size_t)value_len, "\xc3\xa9");
        if (i >= num_shown) continue;
        len += snprintf(sentence + len, sizeof sentence - (size_t)len, "\xc3\xa9");
    }
    snprintf(sentence + len, sizeof sentence - (size_t)len,
             "..., want an integer from -1 to 9223372036854775807");
    set_refused("seed", value, sentence);
}

static void test_long_values_are_cut_at_a_character(void **state) {
    (void)state;
    refuse_long_seed("", 30);
    refuse_long_seed("x", 29); // 60 bytes would end in the middle of a character
}

static void test_null_is_the_default_again(void **state) {
    (void)state;
    static const char *const values[][2] = {
        {"temperature", "0.5"},
        {"top_p", "0.5"},
        {"min_p", "0.5"},
        {"top_k", "5"},
        {"max_tokens", "5"},
        {"repetition_penalty", "2"},
        {"ignore_eos", "true"},
        {"presence_penalty", "1"},
        {"logprobs", "5"},
        {"frequency_penalty", "1"},
        {"seed", "5"},
        {"stop_token_ids", "[1, 2]"},
        {"stop", "END"},
        {"logit_bias", "{\"5\": 1}"},
        {"allowed_token_ids", "[1, 2]"},
        {"bad_words", "word"},
        {"logprob_token_ids", "[1, 2]"},
        {"priority", "5"},
        {"n", "5"},
        {"prompt_logprobs", "5"},
        {"echo", "true"},
        {"min_tokens", "5"},
        {"skip_special_tokens", "false"},
        {"include_stop_str_in_output", "true"},
    };
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) set_ok(&params, values[i][0], values[i][1]);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) set_ok(&params, values[i][0], " null ");
    void *owned = params.owned;
    params.owned = NULL;
    assert_defaults(&params);
    params.owned = owned;
    params_fini_sampling(&params);
    assert_defaults(&params);
}

static void test_options_have_ranges(void **state) {
    (void)state;
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    option_ok(&options, "model", "models/tiny");
    option_ok(&options, "device", "cuda");
    option_ok(&options, "device", "cuda:0");
    option_ok(&options, "device", "cuda:9999");
    option_ok(&options, "device", "cuda:3,0,0");
    option_ok(&options, "device", "cpu");
    option_ok(&options, "dtype", "float32");
    option_ok(&options, "load_format", "dummy");
    option_ok(&options, "quantization", "int4");
    option_ok(&options, "kv_cache_dtype", "float32");
    option_ok(&options, "schedule", "prefill-first");
    option_ok(&options, "cpu_isa", "avx512");
    option_ok(&options, "threads", "1024");
    option_ok(&options, "max_num_seqs", "65536");
    option_ok(&options, "max_num_batched_tokens", "1048576");
    option_ok(&options, "max_model_len", "40960");
    option_ok(&options, "block_size", "4096");
    option_ok(&options, "num_kvcache_blocks", "100");
    option_ok(&options, "kv_cache_gib", "0.5");
    option_ok(&options, "enable_prefix_caching", "false");
    option_ok(&options, "skip_tokenizer_init", "1");
    option_ok(&options, "seed", "77");
    assert_string_equal(options.model, "models/tiny");
    assert_string_equal(options.device, "cpu");
    assert_string_equal(options.dtype, "float32");
    assert_string_equal(options.load_format, "dummy");
    assert_string_equal(options.quantization, "int4");
    assert_string_equal(options.kv_cache_dtype, "float32");
    assert_string_equal(options.schedule, "prefill-first");
    assert_string_equal(options.cpu_isa, "avx512");
    assert_int_equal(options.threads, 1024);
    assert_int_equal(options.max_num_seqs, 65536);
    assert_int_equal(options.max_num_batched_tokens, 1 << 20);
    assert_int_equal(options.max_model_len, 40960);
    assert_int_equal(options.block_size, 4096);
    assert_int_equal(options.num_kvcache_blocks, 100);
    assert_true(options.kv_cache_gib == 0.5);
    assert_int_equal(options.enable_prefix_caching, 0);
    assert_int_equal(options.skip_tokenizer_init, 1);
    assert_int_equal(options.seed, 77);
    assert_int_equal(params_check_engine_options(&options, NULL), OK);
    option_refused("device", "gpu", "device is gpu, want auto, cuda, cuda:N or cpu");
    option_refused("device", "", "device is , want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:", "device is cuda:, want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:1,", "device is cuda:1,, want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:,1", "device is cuda:,1, want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:N", "device is cuda:N, want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:1x", "device is cuda:1x, want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:-1", "device is cuda:-1, want auto, cuda, cuda:N or cpu");
    option_refused("device", "cuda:10000", "device is cuda:10000, want auto, cuda, cuda:N or cpu");
    option_refused("device", "aut", "device is aut, want auto, cuda, cuda:N or cpu");
    option_refused("device", "auto|cpu", "device is auto|cpu, want auto, cuda, cuda:N or cpu");
    option_refused("cpu_isa", "sse",
                   "cpu_isa is sse, want auto, scalar, avx2, avx-vnni, "
                   "avx512, avx512-vnni, avx512-bf16, amx, neon or neon-dotprod");
    option_refused("quantization", "int3", "quantization is int3, want none, int8 or int4");
    option_refused("threads", "-1", "threads is -1, want an integer from 0 to 1024");
    option_refused("threads", "1025", "threads is 1025, want an integer from 0 to 1024");
    option_refused("max_num_seqs", "0", "max_num_seqs is 0, want an integer from 1 to 65536");
    option_refused("block_size", "17", "block_size is 17, want a multiple of 16");
    option_refused("block_size", "8", "block_size is 8, want an integer from 16 to 4096");
    option_refused("kv_cache_gib", "-1", "kv_cache_gib is -1, want a number from 0 to 65536");
    option_refused("seed", "-1", "seed is -1, want an integer from 0 to 9223372036854775807");
}

static void test_null_is_an_options_default_again(void **state) {
    (void)state;
    struct nvllm_engine_options options;
    memset(&options, 0xff, sizeof options);
    for (size_t i = 0; params_engine_option(i); i++) {
        const struct nvllm_param *param = params_engine_option(i);
        option_ok(&options, param->name, "null");
        const char *got = (const char *)&options + param->offset;
        const char *want = (const char *)&options_init + param->offset;
        if (param->type != NVLLM_PARAM_STRING) {
            assert_memory_equal(got, want, param_size(param->type));
            continue;
        }
        const char *got_text, *want_text; // equal literals may have different addresses
        memcpy(&got_text, got, sizeof got_text);
        memcpy(&want_text, want, sizeof want_text);
        assert_int_equal(got_text == NULL, want_text == NULL);
        if (want_text) assert_string_equal(got_text, want_text);
    }
}

static void check_refused(struct nvllm_sampling_params *params, const char *sentence) {
    struct err err = {0};
    assert_int_equal(params_check_sampling(params, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    *params = params_defaults;
}

static void test_checks_a_whole_sampling_struct(void **state) {
    (void)state;
    static const char *const empty_stop[] = {"a", ""}, *const null_stop[] = {NULL};
    static const int32_t ids[] = {1, -5};
    static const struct nvllm_logit_bias ban[] = {{3, -INFINITY}}, up[] = {{3, INFINITY}},
                                         nan_bias[] = {{3, NAN}}, negative[] = {{-3, 1}};
    struct nvllm_sampling_params p = NVLLM_SAMPLING_PARAMS_INIT;
    assert_int_equal(params_check_sampling(&p, NULL), OK); // unset passes
    p.logit_bias = ban, p.num_logit_bias = 1;
    assert_int_equal(params_check_sampling(&p, NULL), OK);
    p = params_defaults;
    p.temperature = NAN;
    check_refused(&p, "temperature is nan, want a number from 0 to 100");
    p.temperature = INFINITY;
    check_refused(&p, "temperature is inf, want a number from 0 to 100");
    p.presence_penalty = NVLLM_UNSET_FLOAT; // unset is not a value where the default is a number
    check_refused(&p, "presence_penalty is -1.00000002e+30, want a number from -2 to 2");
    p.top_p = 0;
    check_refused(&p, "top_p is 0, want a number above 0 and at most 1");
    p.max_tokens = 0;
    check_refused(&p, "max_tokens is 0, want an integer from 1 to 2147483647");
    p.ignore_eos = 2;
    check_refused(&p, "ignore_eos is 2, want true or false");
    p.seed = -7;
    check_refused(&p, "seed is -7, want an integer from -1 to 9223372036854775807");
    p.stop = empty_stop, p.num_stop = 2;
    check_refused(&p, "entry 1 of stop is empty");
    p.stop = null_stop, p.num_stop = 1;
    check_refused(&p, "entry 0 of stop is NULL");
    p.num_stop = 3;
    check_refused(&p, "stop is NULL with 3 entries");
    p.stop = empty_stop, p.num_stop = 17;
    check_refused(&p, "stop has 17 entries, want at most 16");
    p.stop_token_ids = ids, p.num_stop_token_ids = 2;
    check_refused(&p, "entry 1 of stop_token_ids is -5, want a token id from 0 to 2147483647");
    p.stop_token_ids = ids, p.num_stop_token_ids = 1025;
    check_refused(&p, "stop_token_ids has 1025 entries, want at most 1024");
    p.logit_bias = up, p.num_logit_bias = 1;
    check_refused(&p, "logit_bias of token 3 is inf, want a number from -100 to 100 or -INFINITY");
    p.logit_bias = nan_bias, p.num_logit_bias = 1;
    check_refused(&p, "logit_bias of token 3 is nan, want a number from -100 to 100 or -INFINITY");
    p.logit_bias = negative, p.num_logit_bias = 1;
    check_refused(&p, "logit_bias names token -3, want an id of 0 or more");
    p.num_logit_bias = 1;
    check_refused(&p, "logit_bias is NULL with 1 entries");
}

static void options_check_refused(struct nvllm_engine_options *options, const char *sentence) {
    struct err err = {0};
    assert_int_equal(params_check_engine_options(options, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    *options = options_init;
    options->model = "m";
}

static void test_checks_a_whole_options_struct(void **state) {
    (void)state;
    struct nvllm_engine_options o = NVLLM_ENGINE_OPTIONS_INIT;
    options_check_refused(&o, "model is not set, want the folder of a checkpoint");
    assert_int_equal(params_check_engine_options(&o, NULL), OK);
    // All mean their defaults.
    o.device = o.dtype = o.load_format = o.schedule = o.cpu_isa = o.quantization =
        o.kv_cache_dtype = o.numa = NULL;
    assert_int_equal(params_check_engine_options(&o, NULL), OK);
    o.schedule = "mixd";
    options_check_refused(&o, "schedule is mixd, want mixed or prefill-first");
    o.kv_cache_gib = (double)NAN;
    options_check_refused(&o, "kv_cache_gib is nan, want a number from 0 to 65536");
    o.kv_cache_gib = (double)INFINITY;
    options_check_refused(&o, "kv_cache_gib is inf, want a number from 0 to 65536");
    o.block_size = 24;
    options_check_refused(&o, "block_size is 24, want a multiple of 16");
    o.block_size = 0;
    options_check_refused(&o, "block_size is 0, want an integer from 16 to 4096");
    o.num_kvcache_blocks = 1 << 27;
    options_check_refused(
        &o, "num_kvcache_blocks is 134217728, want at most 134217727 with a block_size of 16");
    o.num_kvcache_blocks = 1 << 20, o.block_size = 4096;
    options_check_refused(
        &o, "num_kvcache_blocks is 1048576, want at most 524287 with a block_size of 4096");
    o.seed = -1;
    options_check_refused(&o, "seed is -1, want an integer from 0 to 9223372036854775807");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_sound),
        cmocka_unit_test(test_defaults_are_those_of_init),
        cmocka_unit_test(test_sets_every_number),
        cmocka_unit_test(test_booleans_have_four_spellings),
        cmocka_unit_test(test_refuses_numbers_with_a_sentence),
        cmocka_unit_test(test_suggests_the_nearest_name),
        cmocka_unit_test(test_long_values_are_cut_at_a_character),
        cmocka_unit_test(test_null_is_the_default_again),
        cmocka_unit_test(test_options_have_ranges),
        cmocka_unit_test(test_null_is_an_options_default_again),
        cmocka_unit_test(test_checks_a_whole_sampling_struct),
        cmocka_unit_test(test_checks_a_whole_options_struct),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
