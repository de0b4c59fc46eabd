/* Requests given as chats: the same answers as the rendered text, the ids in the result, templates
 * opened early or late, and every refusal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/temp_folder.h"

static const char question[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 37 + "
                               "58?\"}], \"chat_template_kwargs\": {\"enable_thinking\": false}}";

static struct nvllm_request chat_request(const char *chat,
                                         const struct nvllm_sampling_params *params) {
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.chat = chat;
    request.chat_len = strlen(chat);
    request.sampling = params;
    return request;
}

static void test_a_chat_runs_as_its_rendered_text(void **state) {
    struct nvllm_sampling_params params = greedy_params(40);
    struct nvllm_request chat = chat_request(question, &params);
    struct nvllm_request text = text_request(QUESTION, &params);
    struct nvllm_result *a = generate_one(*state, &chat), *b = generate_one(*state, &text);
    assert_string_equal(a->text, "37 + 58 = 95.");
    assert_int_equal(a->num_prompt_tokens, b->num_prompt_tokens);
    assert_memory_equal(a->prompt_token_ids, b->prompt_token_ids,
                        a->num_prompt_tokens * sizeof *a->prompt_token_ids);
    assert_int_equal(a->num_tokens, b->num_tokens);
    assert_memory_equal(a->token_ids, b->token_ids, a->num_tokens * sizeof *a->token_ids);
    nvllm_results_free(a, 1);
    nvllm_results_free(b, 1);
}

static void count_prompt(const struct nvllm_event *event, void *user_data) {
    *(uint32_t *)user_data = event->num_prompt_tokens;
}

static void test_a_chat_is_added_by_itself(void **state) {
    struct nvllm_sampling_params params = greedy_params(2);
    struct nvllm_request request = chat_request(question, &params);
    uint32_t num_prompt_tokens = 0;
    request.on_event = count_prompt;
    request.user_data = &num_prompt_tokens;
    uint64_t id = 0;
    assert_int_equal(nvllm_engine_add_request(*state, &request, &id, NULL), NVLLM_OK);
    while (nvllm_engine_has_unfinished(*state)) {
        assert_int_equal(nvllm_engine_step(*state, NULL), NVLLM_OK);
    }
    assert_int_equal(num_prompt_tokens, 25);
}

static void test_refused_requests(void **state) {
    struct nvllm_request request = chat_request("{\"messages\": [7]}", NULL);
    expect_refused(*state, &request, "messages[0] is an integer, want an object");
    request = chat_request("[]", NULL);
    expect_refused(*state, &request, "\"messages\" is empty, want at least one message");
    request = chat_request(question, NULL);
    request.prompt = "x";
    request.prompt_len = 1;
    expect_refused(*state, &request, "one of prompt, prompt_token_ids and chat, not several");
    const int32_t id = 1;
    request = chat_request(question, NULL);
    request.prompt_token_ids = &id;
    request.num_prompt_token_ids = 1;
    expect_refused(*state, &request, "one of prompt, prompt_token_ids and chat, not several");
}

static void test_a_refused_chat_does_not_stop_a_list(void **state) {
    struct nvllm_sampling_params params = greedy_params(40);
    struct nvllm_request requests[2] = {chat_request("{}", &params),
                                        chat_request(question, &params)};
    struct nvllm_result *results = NULL;
    assert_int_equal(nvllm_engine_generate(*state, requests, 2, &results, NULL, NULL), NVLLM_OK);
    assert_int_equal(results[0].finish_reason, NVLLM_FINISH_ERROR);
    assert_string_equal(results[0].error.message, "\"messages\" is missing, want a list");
    assert_string_equal(results[1].text, "37 + 58 = 95.");
    nvllm_results_free(results, 2);
}

static void test_the_engines_template(void **state) {
    struct nvllm_error error = {0};
    const struct nvllm_chat_template *chat_template = nvllm_engine_chat_template(*state, &error);
    assert_non_null(chat_template);
    assert_ptr_equal(nvllm_engine_chat_template(*state, &error), chat_template);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(nvllm_chat_template_render(chat_template, question, sizeof question - 1, NULL,
                                                &text, &len, &error),
                     NVLLM_OK);
    assert_string_equal(text, QUESTION);
    nvllm_free(text);
    assert_int_equal(nvllm_chat_template_render(NULL, question, 1, NULL, &text, &len, &error),
                     NVLLM_ERR_INVALID);
    assert_null(text);
}

static void test_without_a_tokenizer(void **state) {
    (void)state;
    struct nvllm_engine_options options = small_options();
    options.skip_tokenizer_init = 1;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_request request = chat_request(question, NULL);
    expect_refused(engine, &request, "a chat needs the tokenizer, which skip_tokenizer_init left");
    nvllm_engine_destroy(engine);
}

static void test_a_template_of_ones_own(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "mine.jinja", "{{ messages[0].content }} of {{ eos_token }}");
    char path[256];
    snprintf(path, sizeof path, "%s/mine.jinja", folder.path);
    struct nvllm_engine_options options = small_options();
    options.chat_template = path;
    struct nvllm_engine *engine = open_engine(&options);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(nvllm_chat_template_render(nvllm_engine_chat_template(engine, NULL), question,
                                                sizeof question - 1, NULL, &text, &len, NULL),
                     NVLLM_OK);
    assert_string_equal(text, "What is 37 + 58? of <|im_end|>"); // the model's tokens stay
    nvllm_free(text);
    nvllm_engine_destroy(engine);

    // A broken one ends the creation, with its line.
    temp_folder_write_text(&folder, "mine.jinja", "a\n{% endfor %}");
    struct nvllm_error error = {0};
    assert_int_equal(nvllm_engine_create(&engine, &options, &error), NVLLM_ERR_FORMAT);
    assert_non_null(strstr(error.message, "mine.jinja: line 2: "));
    assert_null(engine);
    temp_folder_remove(&folder);
}

static void test_a_model_without_a_template(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer.json"};
    struct temp_folder folder;
    temp_folder_create(&folder);
    char here[256], from[512], to[512];
    assert_non_null(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(from, sizeof from, "%s/models/tiny-qwen3/%s", here, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder.path, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    struct nvllm_engine_options options = small_options();
    options.model = folder.path;
    options.load_format = "dummy";
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_error error = {0};
    assert_null(nvllm_engine_chat_template(engine, &error));
    assert_non_null(strstr(error.message, "--chat-template FILE"));
    struct nvllm_request request = chat_request(question, NULL);
    expect_refused(engine, &request, "has no chat template: no chat_template.jinja");
    nvllm_engine_destroy(engine);
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chat_runs_as_its_rendered_text),
        cmocka_unit_test(test_a_chat_is_added_by_itself),
        cmocka_unit_test(test_refused_requests),
        cmocka_unit_test(test_a_refused_chat_does_not_stop_a_list),
        cmocka_unit_test(test_the_engines_template),
        cmocka_unit_test(test_without_a_tokenizer),
        cmocka_unit_test(test_a_template_of_ones_own),
        cmocka_unit_test(test_a_model_without_a_template),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
