// The parameter table: every field can be set by name, what is out of range or of the wrong kind is
// refused with a sentence and changes nothing, and a whole struct is checked by the same rules.
#include "engine/params.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "support/cmocka_all.h"

static const struct nvllm_sampling_params sampling_init = NVLLM_SAMPLING_PARAMS_INIT;
static const struct nvllm_engine_options options_init = NVLLM_ENGINE_OPTIONS_INIT;

static void set_ok(struct nvllm_sampling_params *params, const char *name, const char *value) {
    struct err err = {0};
    if (params_set_sampling(params, name, value, &err) != OK) {
        fail_msg("%s = %s: %s", name, value, err.message);
    }
}

static size_t type_size(enum nvllm_param_type type) {
    if (type == NVLLM_PARAM_INT64 || type == NVLLM_PARAM_DOUBLE) return 8;
    if (type == NVLLM_PARAM_INT || type == NVLLM_PARAM_FLOAT || type == NVLLM_PARAM_BOOL) return 4;
    return sizeof(void *);
}

// Field by field: the padding between them may be anything.
static void assert_defaults(const struct nvllm_sampling_params *params) {
    const struct nvllm_param *param;
    for (size_t i = 0; (param = params_sampling(i)); i++) {
        const char *field = (const char *)params + param->offset;
        const char *want = (const char *)&sampling_init + param->offset;
        if (memcmp(field, want, type_size(param->type)) != 0) fail_msg("%s", param->name);
    }
    assert_int_equal(params->struct_size, sampling_init.struct_size);
    assert_int_equal(params->num_stop_token_ids + params->num_stop + params->num_logit_bias, 0);
    assert_null(params->owned);
}

// Refused with exactly this sentence, and the parameters are as before.
static void set_refused(const char *name, const char *value, const char *sentence) {
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct err err = {0};
    assert_int_equal(params_set_sampling(&params, name, value, &err), ERR_INVALID);
    assert_string_equal(err.message, sentence);
    assert_defaults(&params);
}

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
        assert_true(param->offset + type_size(param->type) <= struct_bytes);
        assert_int_equal(param->offset % type_size(param->type), 0);
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
    check_table(params_sampling, 16, sizeof(struct nvllm_sampling_params));
    check_table(params_engine_option, 25, sizeof(struct nvllm_engine_options));
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
    set_ok(&params, "logprobs", "20");
    set_ok(&params, "priority", "-2147483648");
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
    assert_int_equal(params.logprobs, 20);
    assert_int_equal(params.priority, INT32_MIN);
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
                "unknown sampling parameter \"temprature\", did you mean \"temperature\"?");
    set_refused("max-tokens", "1",
                "unknown sampling parameter \"max-tokens\", did you mean \"max_tokens\"?");
    set_refused("xylophone", "1", "unknown sampling parameter \"xylophone\"");
    set_refused(NULL, "1", "unknown sampling parameter \"\"");
    set_refused("seed", NULL, "seed has no value");
    set_refused("owned", "1", "unknown sampling parameter \"owned\"");
    option_refused("treads", "1", "unknown engine option \"treads\", did you mean \"threads\"?");
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
        {"temperature", "0.5"}, {"top_p", "0.5"},
        {"min_p", "0.5"},       {"top_k", "5"},
        {"max_tokens", "5"},    {"repetition_penalty", "2"},
        {"ignore_eos", "true"}, {"presence_penalty", "1"},
        {"logprobs", "5"},      {"frequency_penalty", "1"},
        {"seed", "5"},          {"stop_token_ids", "[1, 2]"},
        {"stop", "END"},        {"logit_bias", "{\"5\": 1}"},
        {"priority", "5"},      {"min_tokens", "5"},
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

static void test_stop_takes_a_string_or_a_list(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "stop", "</answer> or so");
    assert_int_equal(params.num_stop, 1);
    assert_string_equal(params.stop[0], "</answer> or so");
    set_ok(&params, "stop", "\"\\n\\n\"");
    assert_int_equal(params.num_stop, 1);
    assert_string_equal(params.stop[0], "\n\n");
    set_ok(&params, "stop", "[\"a\", \"\xc3\xa9\", \"END\"]");
    assert_int_equal(params.num_stop, 3);
    assert_string_equal(params.stop[0], "a");
    assert_string_equal(params.stop[1], "\xc3\xa9");
    assert_string_equal(params.stop[2], "END");
    set_ok(&params, "stop", "[]");
    assert_int_equal(params.num_stop, 0);
    params_fini_sampling(&params);

    set_refused("stop", "", "entry 0 of stop is empty");
    set_refused("stop", "[\"a\", \"\"]", "entry 1 of stop is empty");
    set_refused("stop", "[\"a\", 5]", "entry 1 of stop is an integer, want a string");
    set_refused("stop", "5", "stop is 5, want a string (in quotes) or a list of strings");
    set_refused("stop", "[\"a\"", "stop is [\"a\", want a string or a list of strings");
    set_refused("stop", "\"a", "stop is \"a, want a string or a list of strings");
    set_refused("stop", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
                "stop has 17 entries, want at most 16");
    set_refused("stop", "\"a\\u0000b\"",
                "entry 0 of stop has a NUL character, which none may have");
}

static void test_stop_strings_are_bounded(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    static char text[(128 << 10) + 2];
    memset(text, 's', sizeof text - 1);
    text[1024] = '\0';
    set_ok(&params, "stop", text);
    assert_int_equal(strlen(params.stop[0]), 1024);
    text[1024] = 's';
    text[1025] = '\0';
    set_refused("stop", text, "entry 0 of stop is longer than 1024 bytes");
    char list[1100];
    snprintf(list, sizeof list, "[\"a\", \"%.1060s\"]", text);
    set_refused("stop", list, "entry 1 of stop is longer than 1024 bytes");
    text[1025] = 's';
    set_refused("stop", text, "stop is longer than 128 KiB");
    set_refused("logit_bias", text, "logit_bias is longer than 128 KiB");
    params_fini_sampling(&params);
    const char *stops[] = {"a", text}; // a C caller's, not looked through to its end
    params.stop = stops;
    params.num_stop = 2;
    struct err err = {0};
    assert_int_equal(params_check_sampling(&params, &err), ERR_INVALID);
    assert_string_equal(err.message, "entry 1 of stop is longer than 1024 bytes");
}

// The longest lists within their bounds, written as long as JSON allows, are within the text's.
static void test_longest_lists_fit(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    struct buf text = {0};
    for (int i = 0; i < 16; i++) {
        assert_int_equal(buf_append_str(&text, i ? ",\"" : "[\"", NULL), OK);
        for (int k = 0; k < 1024; k++) assert_int_equal(buf_append_str(&text, "\\u0041", NULL), OK);
        assert_int_equal(buf_append_str(&text, "\"", NULL), OK);
    }
    assert_int_equal(buf_append_str(&text, "]", NULL), OK);
    set_ok(&params, "stop", text.data);
    assert_int_equal(params.num_stop, 16);
    buf_clear(&text);
    for (int i = 0; i < 1024; i++) {
        assert_int_equal(buf_appendf(&text, NULL, "%s\"%d\":-0.00000012345678901234567",
                                     i ? "," : "{", 2000000000 + i),
                         OK);
    }
    assert_int_equal(buf_append_str(&text, "}", NULL), OK);
    set_ok(&params, "logit_bias", text.data);
    assert_int_equal(params.num_logit_bias, 1024);
    buf_fini(&text);
    params_fini_sampling(&params);
}

static void test_stop_token_ids_take_a_list(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "stop_token_ids", "[7, 0, 2147483647]");
    assert_int_equal(params.num_stop_token_ids, 3);
    assert_int_equal(params.stop_token_ids[0], 7);
    assert_int_equal(params.stop_token_ids[1], 0);
    assert_int_equal(params.stop_token_ids[2], INT32_MAX);
    params_fini_sampling(&params);

    set_refused("stop_token_ids", "7", "stop_token_ids is 7, want a list of token ids");
    set_refused("stop_token_ids", "[7", "stop_token_ids is [7, want a list of token ids");
    set_refused("stop_token_ids", "[7, \"8\"]",
                "entry 1 of stop_token_ids is a string, want a token id");
    set_refused("stop_token_ids", "[7.0]",
                "entry 0 of stop_token_ids is a real number, want a token id");
    set_refused("stop_token_ids", "[-1]",
                "entry 0 of stop_token_ids is -1, want a token id from 0 to 2147483647");
    set_refused("stop_token_ids", "[2147483648]",
                "entry 0 of stop_token_ids is 2147483648, want a token id from 0 to 2147483647");
}

static void test_logit_bias_takes_a_map(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "logit_bias", "{\"12\": -100, \"0\": 2.5, \"9\": \"-inf\"}");
    assert_int_equal(params.num_logit_bias, 3);
    assert_int_equal(params.logit_bias[0].token_id, 12);
    assert_true(params.logit_bias[0].bias == -100.0f);
    assert_int_equal(params.logit_bias[1].token_id, 0);
    assert_true(params.logit_bias[1].bias == 2.5f);
    assert_int_equal(params.logit_bias[2].token_id, 9);
    assert_true(isinf(params.logit_bias[2].bias) && params.logit_bias[2].bias < 0);
    set_ok(&params, "logit_bias", "{}");
    assert_int_equal(params.num_logit_bias, 0);
    params_fini_sampling(&params);

    set_refused("logit_bias", "[1]", "logit_bias is [1], want a map of token ids to biases");
    set_refused("logit_bias", "{\"x\": 1}", "logit_bias has the key \"x\", want a token id");
    set_refused("logit_bias", "{\"-1\": 1}", "logit_bias has the key \"-1\", want a token id");
    set_refused("logit_bias", "{\"01\": 1}", "logit_bias has the key \"01\", want a token id");
    set_refused("logit_bias", "{\"2147483648\": 1}",
                "logit_bias has the key \"2147483648\", want a token id");
    set_refused("logit_bias", "{\"\": 1}", "logit_bias has the key \"\", want a token id");
    set_refused("logit_bias", "{\"1\": 101}",
                "logit_bias of token 1 is 101, want a number from -100 to 100 or \"-inf\"");
    set_refused("logit_bias", "{\"1\": \"inf\"}",
                "logit_bias of token 1 is a string, want a number or \"-inf\"");
    set_refused("logit_bias", "{\"1\": 1, \"1\": 2}",
                "logit_bias is {\"1\": 1, \"1\": 2}, want a map of token ids to biases");
}

static void test_a_refused_list_keeps_the_old_one(void **state) {
    (void)state;
    struct nvllm_sampling_params params = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&params, "stop", "[\"a\", \"b\"]");
    set_ok(&params, "stop_token_ids", "[3]");
    set_ok(&params, "logit_bias", "{\"4\": 1}");
    assert_int_equal(params_set_sampling(&params, "stop", "[1]", NULL), ERR_INVALID);
    assert_int_equal(params_set_sampling(&params, "stop_token_ids", "[-1]", NULL), ERR_INVALID);
    assert_int_equal(params_set_sampling(&params, "logit_bias", "{\"a\":1}", NULL), ERR_INVALID);
    assert_int_equal(params.num_stop, 2);
    assert_string_equal(params.stop[1], "b");
    assert_int_equal(params.stop_token_ids[0], 3);
    assert_int_equal(params.logit_bias[0].token_id, 4);
    params_fini_sampling(&params);
}

// How a line of JSON overrides the flags: a copy without ownership borrows the lists it does not
// set.
static void test_a_copy_can_borrow_lists(void **state) {
    (void)state;
    struct nvllm_sampling_params base = NVLLM_SAMPLING_PARAMS_INIT;
    set_ok(&base, "stop", "[\"a\", \"b\"]");
    set_ok(&base, "stop_token_ids", "[3]");
    struct nvllm_sampling_params copy = base;
    copy.owned = NULL;
    set_ok(&copy, "stop", "c");
    assert_string_equal(copy.stop[0], "c");
    assert_int_equal(copy.stop_token_ids[0], 3);
    params_fini_sampling(&copy);
    assert_string_equal(base.stop[1], "b");
    assert_int_equal(base.stop_token_ids[0], 3);
    struct nvllm_sampling_params moved = base; // ownership moves with the struct
    params_fini_sampling(&moved);
    params_fini_sampling(NULL);
}

static void test_options_have_ranges(void **state) {
    (void)state;
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    option_ok(&options, "model", "models/tiny");
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
    option_refused("device", "gpu", "device is gpu, want auto, cuda or cpu");
    option_refused("device", "", "device is , want auto, cuda or cpu");
    option_refused("device", "aut", "device is aut, want auto, cuda or cpu");
    option_refused("device", "auto|cpu", "device is auto|cpu, want auto, cuda or cpu");
    option_refused("cpu_isa", "sse",
                   "cpu_isa is sse, want auto, scalar, avx2, avx512, "
                   "avx512-bf16 or amx");
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
            assert_memory_equal(got, want, type_size(param->type));
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
    *params = sampling_init;
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
    p = sampling_init;
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
    check_refused(&p, "logit_bias names token -3");
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
        o.kv_cache_dtype = NULL;
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
        cmocka_unit_test(test_sets_every_number),
        cmocka_unit_test(test_booleans_have_four_spellings),
        cmocka_unit_test(test_refuses_numbers_with_a_sentence),
        cmocka_unit_test(test_suggests_the_nearest_name),
        cmocka_unit_test(test_long_values_are_cut_at_a_character),
        cmocka_unit_test(test_null_is_the_default_again),
        cmocka_unit_test(test_stop_takes_a_string_or_a_list),
        cmocka_unit_test(test_stop_strings_are_bounded),
        cmocka_unit_test(test_longest_lists_fit),
        cmocka_unit_test(test_stop_token_ids_take_a_list),
        cmocka_unit_test(test_logit_bias_takes_a_map),
        cmocka_unit_test(test_a_refused_list_keeps_the_old_one),
        cmocka_unit_test(test_a_copy_can_borrow_lists),
        cmocka_unit_test(test_options_have_ranges),
        cmocka_unit_test(test_null_is_an_options_default_again),
        cmocka_unit_test(test_checks_a_whole_sampling_struct),
        cmocka_unit_test(test_checks_a_whole_options_struct),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
