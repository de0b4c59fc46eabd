// generate's lines: valid and refused request lines, the sources of requests, and result lines,
// which a JSON parser reads back.
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "base/json/jwrite.h"
#include "cmd/cli.h"
#include "cmd/generate/prompt_source.h"
#include "cmd/generate/request_line.h"
#include "cmd/generate/result_line.h"
#include "support/cmocka_all.h"

static const struct nvllm_sampling_params sampling_init = NVLLM_SAMPLING_PARAMS_INIT;
static const struct request_defaults no_defaults = {.sampling = &sampling_init};

static struct request_line accepted(const char *text) {
    struct request_line line;
    struct err err = {0};
    if (request_line_parse(&line, text, strlen(text), &no_defaults, &err)) {
        fail_msg("%s: %s", text, err.message);
    }
    return line;
}

static void refused(const char *text, const char *sentence) {
    struct request_line line;
    struct err err = {0};
    assert_int_not_equal(request_line_parse(&line, text, strlen(text), &no_defaults, &err), OK);
    assert_string_equal(err.message, sentence);
    assert_null(line.root);
    assert_null(line.prompt_token_ids);
}

static void test_prompts(void **state) {
    (void)state;
    struct request_line line = accepted("{\"prompt\": \"a\\u0000b\\u00fc\"}");
    assert_int_equal(line.prompt_len, 5);
    assert_memory_equal(line.prompt, "a\0b\xc3\xbc", 5);
    assert_null(line.prompt_token_ids);
    request_line_fini(&line);
    line = accepted(" {\"prompt_token_ids\": [0, 2147483647], \"prompt\": null}\r");
    assert_null(line.prompt);
    assert_int_equal(line.num_prompt_token_ids, 2);
    assert_int_equal(line.prompt_token_ids[1], INT32_MAX);
    request_line_fini(&line);
    line = accepted("{\"prompt_token_ids\": []}"); // the engine refuses the empty list
    assert_non_null(line.prompt_token_ids);
    assert_int_equal(line.num_prompt_token_ids, 0);
    request_line_fini(&line);
    line = accepted("{\"prompt\": \"x\", \"cache_salt\": \"me\"}");
    assert_string_equal(line.cache_salt, "me");
    request_line_fini(&line);
}

static void test_sampling_overrides_the_flags(void **state) {
    (void)state;
    struct nvllm_sampling_params flags = NVLLM_SAMPLING_PARAMS_INIT;
    assert_int_equal(nvllm_sampling_params_set(&flags, "stop", "[\"flag\"]", NULL), NVLLM_OK);
    assert_int_equal(nvllm_sampling_params_set(&flags, "stop_token_ids", "[1]", NULL), NVLLM_OK);
    flags.temperature = 0.5f;
    flags.max_tokens = 7;
    const char text[] = "{\"prompt\": \"x\", \"temperature\": 0, \"max_tokens\": null, "
                        "\"ignore_eos\": true, \"stop\": [\"a\", \"b\"], \"logprobs\": 2, "
                        "\"seed\": 9, \"logit_bias\": {\"3\": -1}}";
    struct request_line line;
    const struct request_defaults defaults = {.sampling = &flags};
    assert_int_equal(request_line_parse(&line, text, strlen(text), &defaults, NULL), OK);
    assert_true(line.sampling.temperature == 0);
    assert_int_equal(line.sampling.max_tokens, 7);
    assert_int_equal(line.sampling.ignore_eos, 1);
    assert_int_equal(line.sampling.num_stop, 2);
    assert_string_equal(line.sampling.stop[1], "b");
    assert_int_equal(line.sampling.num_stop_token_ids, 1); // the flag's
    assert_int_equal(line.sampling.logprobs, 2);
    assert_int_equal(line.sampling.seed, 9);
    assert_int_equal(line.sampling.num_logit_bias, 1);
    request_line_fini(&line);
    assert_int_equal(flags.num_stop, 1); // untouched by the line's
    assert_string_equal(flags.stop[0], "flag");
    assert_int_equal(flags.stop_token_ids[0], 1);
    nvllm_sampling_params_fini(&flags);
}

static void test_refused_lines(void **state) {
    (void)state;
    refused("{}", "none of \"prompt\", \"messages\" and \"prompt_token_ids\" is given");
    refused("{\"prompt\": \"a\", \"prompt_token_ids\": [1]}",
            "both \"prompt\" and \"prompt_token_ids\" are given, want one");
    refused("[1]", "the line is a list, want an object");
    refused("\"a\"", "the line is a string, want an object");
    refused("{\"prompt\": 7}", "\"prompt\" is an integer, want a string");
    refused("{\"prompt_token_ids\": \"1\"}",
            "\"prompt_token_ids\" is a string, want a list of token ids");
    refused("{\"prompt_token_ids\": [1, 2.5]}",
            "\"prompt_token_ids\"[1] is a real number, want an integer");
    refused("{\"prompt_token_ids\": [-1]}", "\"prompt_token_ids\"[0] is -1, not a token id");
    refused("{\"prompt_token_ids\": [2147483648]}",
            "\"prompt_token_ids\"[0] is 2147483648, not a token id");
    refused("{\"prompt\": \"a\", \"temprature\": 1}",
            "unknown key \"temprature\"; did you mean \"temperature\"?");
    refused("{\"promt\": \"a\"}", "unknown key \"promt\"; did you mean \"prompt\"?");
    refused("{\"prompt\": \"a\", \"zzzzzzzz\": 1}", "unknown key \"zzzzzzzz\"");
    refused("{\"prompt\": \"a\", \"cache_salt\": \"a\\u0000\"}",
            "\"cache_salt\" contains a NUL character");
    refused("{\"messages\": [], \"prompt\": \"a\"}",
            "both \"prompt\" and \"messages\" are given, want one");
    refused("{\"messages\": [], \"prompt_token_ids\": [1]}",
            "both \"prompt_token_ids\" and \"messages\" are given, want one");
    refused("{\"prompt\": \"a\", \"tools\": []}",
            "\"tools\" belongs to a chat and needs \"messages\"");
    refused("{\"mesages\": []}", "unknown key \"mesages\"; did you mean \"messages\"?");
}

// The chat as text, or "no chat".
static void expect_chat_text(const struct request_line *line, const char *want) {
    struct buf text = {0}; // jwrite, because json_dumps writes numbers as the locale does
    if (line->chat) assert_int_equal(jwrite(&text, line->chat, JSON_COMPACT, "a chat", NULL), OK);
    assert_string_equal(text.data ? text.data : "no chat", want);
    buf_fini(&text);
}

static void expect_chat(const struct request_chat_defaults *chat, const char *text,
                        const char *want) {
    const struct request_defaults defaults = {.sampling = &sampling_init, .chat = *chat};
    struct request_line line;
    struct err err = {0};
    if (request_line_parse(&line, text, strlen(text), &defaults, &err)) {
        fail_msg("%s: %s", text, err.message);
    }
    expect_chat_text(&line, want);
    request_line_fini(&line);
}

static void test_lines_with_messages(void **state) {
    (void)state;
    const struct request_chat_defaults none = {0};
    // Only the chat's members are passed on; a number keeps its value.
    expect_chat(&none,
                "{\"temperature\": 0.5, \"messages\": [{\"role\": \"user\", \"content\": "
                "\"a\\u0000\"}], \"tools\": [{\"x\": 0.1}], \"documents\": null, "
                "\"continue_final_message\": true, \"cache_salt\": \"s\"}",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000\"}],"
                "\"tools\":[{\"x\":0.10000000000000001}],\"continue_final_message\":true}");
    // The library reports errors of a chat.
    expect_chat(&none, "{\"messages\": 7}", "{\"messages\":7}");
    expect_chat(&none, "{\"prompt\": \"a\", \"messages\": null}", "no chat");
}

static void test_what_flags_give_to_chats(void **state) {
    (void)state;
    struct request_chat_defaults chat = {.wrap_prompts = true, .system = "S"};
    struct err err = {0};
    assert_int_equal(request_chat_set_kwargs(&chat, "{\"a\": 1, \"b\": 2}", &err), OK);
    expect_chat(&chat, "{\"prompt\": \"q\", \"chat_template_kwargs\": {\"b\": 3}}",
                "{\"chat_template_kwargs\":{\"a\":1,\"b\":3},\"messages\":[{\"role\":\"system\","
                "\"content\":\"S\"},{\"role\":\"user\",\"content\":\"q\"}]}");
    expect_chat(&chat, "{\"messages\": [{\"role\": \"system\", \"content\": \"own\"}]}",
                "{\"messages\":[{\"role\":\"system\",\"content\":\"own\"}],"
                "\"chat_template_kwargs\":{\"a\":1,\"b\":2}}");
    expect_chat(&chat, "{\"messages\": []}",
                "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"}],"
                "\"chat_template_kwargs\":{\"a\":1,\"b\":2}}");
    expect_chat(&chat, "{\"prompt_token_ids\": [1]}", "no chat");
    json_decref(chat.template_kwargs);
    assert_int_equal(request_chat_set_kwargs(&chat, "[1]", &err), ERR_INVALID);
    assert_string_equal(err.message, "the value is a list, want an object like {\"name\": value}");
    json_decref(chat.template_kwargs);
    assert_int_equal(request_chat_set_kwargs(&chat, "{", &err), ERR_INVALID);
}

static void test_text_as_a_user_message(void **state) {
    (void)state;
    struct request_defaults defaults = {.sampling = &sampling_init};
    struct request_line line;
    assert_int_equal(request_line_from_text(&line, "a", 1, &defaults, NULL), OK);
    assert_null(line.chat);
    request_line_fini(&line);
    defaults.chat.wrap_prompts = true;
    assert_int_equal(request_line_from_text(&line, "\xff\"", 2, &defaults, NULL), OK);
    expect_chat_text(&line, "{\"messages\":[{\"role\":\"user\",\"content\":"
                            "\"\xef\xbf\xbd\\\"\"}]}");
    assert_int_equal(line.prompt_len, 2);
    request_line_fini(&line);
}

static void test_refused_sampling(void **state) {
    (void)state;
    const char *const bad[] = {
        "{\"prompt\": \"a\", \"temperature\": \"hot\"}",
        "{\"prompt\": \"a\", \"temperature\": -1}",
        "{\"prompt\": \"a\", \"max_tokens\": 1.5}",
        "{\"prompt\": \"a\", \"max_tokens\": 0}",
        "{\"prompt\": \"a\", \"stop\": [1]}",
        "{\"prompt\": \"a\", \"stop\": {}}",
        "{\"prompt\": \"a\", \"ignore_eos\": []}",
        "{\"prompt\": \"a\", \"logprobs\": 21}",
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct request_line line;
        struct err err = {0};
        enum status status = request_line_parse(&line, bad[i], strlen(bad[i]), &no_defaults, &err);
        if (!status) fail_msg("accepted: %s", bad[i]);
        assert_true(err.message[0]);
    }
}

static void test_lines_that_are_not_json(void **state) {
    (void)state;
    const char *const bad[] = {"{",
                               "{\"prompt\": \"a\"",
                               "{\"prompt\": \"a\"} x",
                               "prompt",
                               "{'a'}",
                               "{\"prompt\": \"\xff\"}",
                               "{\"prompt\": \"a\", \"prompt\": \"b\"}",
                               "{\"prompt\": \"\\ud800\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct request_line line;
        struct err err = {0};
        enum status status = request_line_parse(&line, bad[i], strlen(bad[i]), &no_defaults, &err);
        assert_int_equal(status, ERR_FORMAT);
        assert_memory_equal(err.message, "this is not valid JSON: ", 24);
    }
}

static int file_with(const char *text, size_t len) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], text, len), (ssize_t)len);
    close(fds[1]);
    return fds[0];
}

static struct prompt_source source_of(const char *text) {
    struct prompt_source source = {.defaults = &no_defaults, .fd = file_with(text, strlen(text))};
    line_reader_init(&source.reader, source.fd, "a pipe", 1000);
    return source;
}

static enum source_state next(struct prompt_source *source, struct request_line *line,
                              struct err *err) {
    enum source_state state = SOURCE_WAIT;
    if (prompt_source_next(source, true, &state, line, err)) fail_msg("%s", err->message);
    return state;
}

static void test_source_goes_on_after_a_bad_line(void **state) {
    (void)state;
    struct prompt_source source = source_of("\xef\xbb\xbf{\"prompt\": \"a\"}\r\n"
                                            "\n \t\r\n"
                                            "{oops\n"
                                            "{\"prompt\": \"b\"}");
    struct request_line line;
    struct err err = {0};
    assert_int_equal(next(&source, &line, &err), SOURCE_REQUEST);
    assert_string_equal(line.prompt, "a");
    request_line_fini(&line);
    assert_int_equal(next(&source, &line, &err), SOURCE_REFUSED);
    assert_memory_equal(err.message, "line 4: this is not valid JSON", 30);
    assert_int_equal(next(&source, &line, &err), SOURCE_REQUEST);
    assert_string_equal(line.prompt, "b");
    request_line_fini(&line);
    assert_int_equal(next(&source, &line, &err), SOURCE_END);
    prompt_source_close(&source);
}

static void test_source_of_arguments(void **state) {
    (void)state;
    char a[] = "one", b[] = "";
    char *const prompts[] = {a, b};
    struct prompt_source source;
    prompt_source_from_args(&source, prompts, 2);
    source.defaults = &no_defaults;
    assert_int_equal(source.total, 2);
    struct request_line line;
    struct err err = {0};
    assert_int_equal(next(&source, &line, &err), SOURCE_REQUEST);
    assert_string_equal(line.prompt, "one");
    request_line_fini(&line);
    assert_int_equal(next(&source, &line, &err), SOURCE_REQUEST);
    assert_int_equal(line.prompt_len, 0);
    request_line_fini(&line);
    assert_int_equal(next(&source, &line, &err), SOURCE_END);
    prompt_source_close(&source);
}

static void test_source_files(void **state) {
    (void)state;
    struct prompt_source source;
    struct err err = {0};
    assert_int_equal(prompt_source_from_file(&source, "/nonexistent.jsonl", true, &err), ERR_IO);
    prompt_source_close(&source);
    assert_int_equal(prompt_source_from_file(&source, "tests", true, &err), ERR_IO);
    assert_string_equal(err.message, "tests is a folder");
    prompt_source_close(&source);
    // Every corpus file of the fuzzer counts its lines and can then be read from its start.
    assert_int_equal(
        prompt_source_from_file(&source, "tests/fuzz/corpus/fuzz_jsonl/mixed.jsonl", true, &err),
        OK);
    source.defaults = &no_defaults;
    uint64_t num_read = 0;
    struct request_line line;
    for (enum source_state s; (s = next(&source, &line, &err)) != SOURCE_END; num_read++) {
        if (s == SOURCE_REQUEST) request_line_fini(&line);
    }
    assert_true(num_read > 3);
    assert_int_equal(num_read, source.total);
    prompt_source_close(&source);
}

static json_t *format(const struct result *result) {
    struct buf out = {0};
    assert_int_equal(result_line_format(&out, result, NULL), OK);
    assert_int_equal(out.data[out.len - 1], '\n');
    assert_ptr_equal(strchr(out.data, '\n'), out.data + out.len - 1); // one line
    json_t *root;
    struct err err;
    if (jread_text(&root, out.data, out.len, "it", &err)) fail_msg("%s: %s", out.data, err.message);
    buf_fini(&out);
    return root;
}

static void expect_text(const struct result *result, const char *want) {
    struct buf out = {0};
    assert_int_equal(result_line_format(&out, result, NULL), OK);
    assert_string_equal(out.data, want);
    buf_fini(&out);
}

static void test_result_line(void **state) {
    (void)state;
    int32_t prompt_ids[] = {1, 2}, token_ids[] = {3};
    char text[] = "a\nb", stop[] = "END";
    struct result result = {.index = 7,
                            .prompt_ids = prompt_ids,
                            .num_prompt_ids = 2,
                            .first = {.token_ids = token_ids,
                                      .num_tokens = 1,
                                      .text = {.data = text, .len = 3},
                                      .finish_reason = NVLLM_FINISH_STOP,
                                      .stop_token_id = -1,
                                      .stop_string = stop},
                            .num_cached_tokens = 16,
                            .num_top = -1};
    expect_text(&result, "{\"index\":7,\"prompt_token_ids\":[1,2],\"token_ids\":[3],"
                         "\"text\":\"a\\nb\",\"finish_reason\":\"stop\",\"stop_reason\":\"END\","
                         "\"num_cached_tokens\":16,\"logprobs\":null}\n");
    result.first.stop_string = NULL;
    result.first.stop_token_id = 4091;
    json_t *root = format(&result);
    assert_int_equal(json_integer_value(json_object_get(root, "stop_reason")), 4091);
    json_decref(root);
}

static void test_result_line_of_a_refused_request(void **state) {
    (void)state;
    char error[] = "line 3: \"x\" is wrong";
    struct result result = {.index = 2,
                            .first = {.finish_reason = NVLLM_FINISH_ERROR, .stop_token_id = -1},
                            .num_top = -1,
                            .error = error};
    expect_text(&result, "{\"index\":2,\"prompt_token_ids\":[],\"token_ids\":[],\"text\":\"\","
                         "\"finish_reason\":\"error\",\"stop_reason\":null,"
                         "\"num_cached_tokens\":0,\"logprobs\":null,"
                         "\"error\":\"line 3: \\\"x\\\" is wrong\"}\n");
}

static void test_result_line_of_several_outputs(void **state) {
    (void)state;
    struct result result = {.index = 4,
                            .first = {.finish_reason = NVLLM_FINISH_LENGTH, .stop_token_id = -1},
                            .num_top = 0};
    assert_int_equal(result_add_others(&result, 2, NULL), OK);
    struct completion *other = result_completion(&result, 1);
    assert_ptr_equal(result_completion(&result, 0), &result.first);
    const struct nvllm_logprob chosen = {5, -0.25f};
    assert_int_equal(result_add_logprobs(other, &chosen, 0, NULL), OK);
    assert_int_equal(buf_append_str(&other->text, "b", NULL), OK);
    other->finish_reason = NVLLM_FINISH_STOP;
    other->stop_token_id = 5;
    expect_text(&result, "{\"index\":4,\"prompt_token_ids\":[],\"token_ids\":[],\"text\":\"\","
                         "\"finish_reason\":\"length\",\"stop_reason\":null,"
                         "\"num_cached_tokens\":0,\"logprobs\":[],\"outputs\":["
                         "{\"index\":0,\"token_ids\":[],\"text\":\"\","
                         "\"finish_reason\":\"length\",\"stop_reason\":null,\"logprobs\":[]},"
                         "{\"index\":1,\"token_ids\":[],\"text\":\"b\","
                         "\"finish_reason\":\"stop\",\"stop_reason\":5,\"logprobs\":"
                         "[{\"token_id\":5,\"logprob\":-0.25,\"top\":[]}]}]}\n");
    result_fini(&result);
}

static void test_result_line_prompt_logprobs(void **state) {
    (void)state;
    struct result result = {.first = {.finish_reason = NVLLM_FINISH_LENGTH, .stop_token_id = -1},
                            .num_top = -1,
                            .has_prompt_logprobs = true};
    static const char before[] = "{\"index\":0,\"prompt_token_ids\":[],\"token_ids\":[],"
                                 "\"text\":\"\",\"finish_reason\":\"length\","
                                 "\"stop_reason\":null,\"num_cached_tokens\":0,"
                                 "\"logprobs\":null,\"prompt_logprobs\":";
    char want[512];
    snprintf(want, sizeof want, "%snull}\n", before);
    expect_text(&result, want);
    const struct nvllm_logprob rows[] = {{5, -0.25f}, {6, -0.5f}, {7, -2.0f}, {7, -2.0f}};
    assert_int_equal(result_add_prompt_logprobs(&result, rows, 1, 3, NULL), OK);
    snprintf(want, sizeof want,
             "%s[null,{\"token_id\":5,\"logprob\":-0.25,\"top\":[[6,-0.5]]},"
             "{\"token_id\":7,\"logprob\":-2,\"top\":[[7,-2]]}]}\n",
             before);
    expect_text(&result, want);
    buf_clear(&result.prompt_logprobs);
    assert_int_equal(result_add_prompt_logprobs(&result, rows, 1, 1, NULL), OK);
    snprintf(want, sizeof want, "%s[null]}\n", before);
    expect_text(&result, want);
    result_fini(&result);
}

static void test_result_line_logprobs(void **state) {
    (void)state;
    struct result result = {.first = {.finish_reason = NVLLM_FINISH_LENGTH, .stop_token_id = -1},
                            .num_top = 2};
    const struct nvllm_logprob row[] = {{5, -0.25f}, {5, -0.25f}, {6, -1.5f}};
    assert_int_equal(result_add_logprobs(&result.first, row, 2, NULL), OK);
    assert_int_equal(result_add_logprobs(&result.first, row, 0, NULL), OK);
    json_t *root = format(&result);
    json_t *logprobs = json_object_get(root, "logprobs");
    assert_int_equal(json_array_size(logprobs), 2);
    struct buf text = {0};
    assert_int_equal(jwrite(&text, logprobs, JSON_COMPACT | JSON_SORT_KEYS, "it", NULL), OK);
    assert_string_equal(text.data,
                        "[{\"logprob\":-0.25,\"token_id\":5,\"top\":[[5,-0.25],[6,-1.5]]},"
                        "{\"logprob\":-0.25,\"token_id\":5,\"top\":[]}]");
    buf_fini(&text);
    json_decref(root);
    result_fini(&result);
}

static void test_stats(void **state) {
    (void)state;
    const struct nvllm_stats before = {
        .num_steps = 3, .num_generated_tokens = 10, .forward_seconds = 1, .peak_rss_bytes = 5};
    const struct nvllm_stats after = {.num_steps = 8,
                                      .num_generated_tokens = 30,
                                      .forward_seconds = 3.5,
                                      .peak_rss_bytes = 9,
                                      .num_kv_blocks_peak = 4};
    struct nvllm_stats since = stats_since(&before, &after);
    assert_int_equal(since.num_steps, 5);
    assert_int_equal(since.num_generated_tokens, 20);
    assert_true(since.forward_seconds == 2.5);
    assert_int_equal(since.peak_rss_bytes, 9);
    struct buf out = {0};
    assert_int_equal(buf_append_str(&out, "{", NULL), OK);
    assert_int_equal(stats_json_members(&out, &since, 2.75, 2, NULL), OK);
    assert_int_equal(buf_append_str(&out, "}", NULL), OK);
    json_t *root;
    assert_int_equal(jread_text(&root, out.data, out.len, "it", NULL), OK);
    assert_int_equal(json_integer_value(json_object_get(root, "num_steps")), 5);
    assert_int_equal(json_integer_value(json_object_get(root, "num_kv_blocks_peak")), 4);
    json_t *seconds = json_object_get(root, "seconds");
    assert_true(json_real_value(json_object_get(seconds, "forward")) == 2.5);
    assert_true(json_real_value(json_object_get(seconds, "total")) == 2.75);
    json_decref(root);
    buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_sampling_overrides_the_flags),
        cmocka_unit_test(test_refused_lines),
        cmocka_unit_test(test_lines_with_messages),
        cmocka_unit_test(test_what_flags_give_to_chats),
        cmocka_unit_test(test_text_as_a_user_message),
        cmocka_unit_test(test_refused_sampling),
        cmocka_unit_test(test_lines_that_are_not_json),
        cmocka_unit_test(test_source_goes_on_after_a_bad_line),
        cmocka_unit_test(test_source_of_arguments),
        cmocka_unit_test(test_source_files),
        cmocka_unit_test(test_result_line),
        cmocka_unit_test(test_result_line_of_a_refused_request),
        cmocka_unit_test(test_result_line_of_several_outputs),
        cmocka_unit_test(test_result_line_prompt_logprobs),
        cmocka_unit_test(test_result_line_logprobs),
        cmocka_unit_test(test_stats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
