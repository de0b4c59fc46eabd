// Each allocation of the command's reading and writing fails in turn: an error, no leak, no crash,
// and never a wrong request or result.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "cmd/bench/workload.h"
#include "cmd/cli.h"
#include "cmd/generate/prompt_source.h"
#include "cmd/generate/result_line.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

static const struct nvllm_sampling_params sampling_init = NVLLM_SAMPLING_PARAMS_INIT;
static const struct request_defaults no_defaults = {.sampling = &sampling_init};

static void sweep(alloc_sweep_fn work, void *context) {
    const struct alloc_sweep all = {.work = work, .context = context};
    assert_true(alloc_sweep_run(&all) > 0);
}

static enum status parse_flags(void *context, struct err *err) {
    (void)context;
    struct nvllm_engine_options engine = NVLLM_ENGINE_OPTIONS_INIT;
    struct nvllm_sampling_params sampling = sampling_init;
    const struct option_group groups[] = {cli_engine_group(&engine), cli_sampling_group(&sampling)};
    struct options options = {.groups = groups, .num_groups = ARRAY_LEN(groups)};
    char text[][60] = {"-m",
                       "dir",
                       "--temperature",
                       "0.5",
                       "--stop",
                       "a \"b\"",
                       "--stop",
                       "c",
                       "text",
                       "--stop-token-ids",
                       "1,2",
                       "--logit-bias",
                       "{\"1234567\": 2, \"2345678\": 3, \"3456789\": 4, \"4567890\": 5}",
                       "--",
                       "-x"};
    char *argv[ARRAY_LEN(text)];
    for (size_t i = 0; i < ARRAY_LEN(text); i++) argv[i] = text[i];
    enum status status = options_parse(&options, ARRAY_LEN(argv), argv, err);
    if (!status) {
        assert_int_equal(sampling.num_stop, 2);
        assert_string_equal(sampling.stop[0], "a \"b\"");
        assert_int_equal(sampling.num_stop_token_ids, 2);
        assert_int_equal(sampling.num_logit_bias, 4);
        assert_int_equal(options.num_args, 2);
    }
    nvllm_sampling_params_fini(&sampling);
    return status;
}

static void test_flags(void **state) {
    (void)state;
    sweep(parse_flags, NULL);
}

static enum status parse_request(void *context, struct err *err) {
    const char *text = context;
    struct request_line line;
    enum status status = request_line_parse(&line, text, strlen(text), &no_defaults, err);
    if (status) return status;
    if (line.prompt) assert_memory_equal(line.prompt, "a long prompt with \0 inside", 27);
    if (line.prompt_token_ids) assert_int_equal(line.prompt_token_ids[2], 3);
    request_line_fini(&line);
    return OK;
}

static void test_requests(void **state) {
    (void)state;
    char text[] = "{\"prompt\": \"a long prompt with \\u0000 inside\", \"stop\": [\"x\", \"y\"], "
                  "\"temperature\": 0.25, \"logit_bias\": {\"1234567\": \"-inf\", \"2345678\": 1, "
                  "\"3456789\": 2, "
                  "\"4567890\": 3, \"5678901\": 4}, \"cache_salt\": \"s\"}";
    sweep(parse_request, text);
    char ids[] = "{\"prompt_token_ids\": [1, 2, 3], \"stop_token_ids\": [4], \"max_tokens\": 5}";
    sweep(parse_request, ids);
}

static enum status make_chats(void *context, struct err *err) {
    (void)context;
    struct request_defaults defaults = {.sampling = &sampling_init,
                                        .chat = {.wrap_prompts = true, .system = "be brief"}};
    const char line_text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
                             "\"chat_template_kwargs\": {\"a\": 2}, \"tools\": [{}]}";
    struct request_line line, text = {0};
    enum status status = request_chat_set_kwargs(&defaults.chat, "{\"a\": 1}", err);
    if (!status) {
        status = request_line_parse(&line, line_text, sizeof line_text - 1, &defaults, err);
    }
    if (!status) {
        const json_t *messages = json_object_get(line.chat, "messages");
        assert_int_equal(json_array_size(messages), 2);
        const json_t *kwargs = json_object_get(line.chat, "chat_template_kwargs");
        assert_int_equal(json_integer_value(json_object_get(kwargs, "a")), 2);
        assert_int_equal(json_array_size(json_object_get(line.chat, "tools")), 1);
        request_line_fini(&line);
        status = request_line_from_text(&text, "question", 8, &defaults, err);
    }
    if (!status) assert_int_equal(json_array_size(json_object_get(text.chat, "messages")), 2);
    request_line_fini(&text);
    json_decref(defaults.chat.template_kwargs);
    return status;
}

static void test_chats(void **state) {
    (void)state;
    sweep(make_chats, NULL);
}

static enum status read_pipe(void *context, struct err *err) {
    (void)context;
    const char text[] = "{\"prompt\": \"a\"}\n{oops\n\n{\"prompt\": \"b\"}\n";
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], text, sizeof text - 1), sizeof text - 1);
    close(fds[1]);
    struct prompt_source source = {.defaults = &no_defaults, .fd = fds[0]};
    line_reader_init(&source.reader, fds[0], "a pipe", 100);
    enum source_state state = SOURCE_WAIT;
    enum status status = OK;
    int num_requests = 0, num_refused = 0;
    while (!status && state != SOURCE_END) {
        struct request_line line;
        status = prompt_source_next(&source, true, &state, &line, err);
        if (status || state == SOURCE_END) break;
        num_refused += state == SOURCE_REFUSED;
        if (state != SOURCE_REQUEST) continue;
        num_requests++;
        request_line_fini(&line);
    }
    prompt_source_close(&source);
    if (!status) assert_int_equal(num_requests, 2);
    if (!status) assert_int_equal(num_refused, 1);
    return status;
}

static void test_source(void **state) {
    (void)state;
    sweep(read_pipe, NULL);
}

static enum status write_result(void *context, struct err *err) {
    (void)context;
    struct result result = {.first = {.finish_reason = NVLLM_FINISH_STOP, .stop_token_id = 3},
                            .num_top = 1,
                            .index = 1};
    const struct nvllm_logprob row[] = {{5, -0.25f}, {5, -0.25f}};
    struct buf out = {0};
    enum status status = result_add_logprobs(&result.first, row, 1, err);
    if (!status) status = buf_append_str(&result.first.text, "quoted \" and \n more text", err);
    if (!status) status = result_line_format(&out, &result, err);
    if (!status) {
        assert_string_equal(
            out.data, "{\"index\":1,\"prompt_token_ids\":[],\"token_ids\":[],\"text\":\"quoted "
                      "\\\" and \\n more text\",\"finish_reason\":\"stop\",\"stop_reason\":3,"
                      "\"num_cached_tokens\":0,\"logprobs\":[{\"token_id\":5,\"logprob\":-0.25,"
                      "\"top\":[[5,-0.25]]}]}\n");
    }
    buf_fini(&out);
    result_fini(&result);
    return status;
}

static void test_result(void **state) {
    (void)state;
    sweep(write_result, NULL);
}

static enum status make_workload(void *context, struct err *err) {
    (void)context;
    const struct workload_options options = {.scale = 1, .vocab_size = 4096};
    struct workload workload;
    enum status status = workload_create(&workload, &options, err);
    workload_fini(&workload);
    return status;
}

static void test_workload(void **state) {
    (void)state;
    sweep(make_workload, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),  cmocka_unit_test(test_requests),
        cmocka_unit_test(test_chats),  cmocka_unit_test(test_source),
        cmocka_unit_test(test_result), cmocka_unit_test(test_workload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
