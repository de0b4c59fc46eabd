// The bundled model's chats give the same prompts, byte for byte, and the same token ids as with
// transformers.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "nanovllm.h"
#include "support/cmocka_all.h"

static const char model[] = "models/tiny-qwen3";

// A case as the chat that transformers was given: its messages and its variables.
static char *chat_of(const json_t *item) {
    json_t *chat = json_pack("{s:O, s:{s:O}}", "messages", json_object_get(item, "messages"),
                             "chat_template_kwargs", "enable_thinking",
                             json_object_get(item, "enable_thinking"));
    assert_non_null(chat);
    char *text = json_dumps(chat, 0);
    assert_non_null(text);
    json_decref(chat);
    return text;
}

static void check_prompt(const struct nvllm_chat_template *chat_template,
                         const struct nvllm_tokenizer *tokenizer, const json_t *item) {
    char *chat = chat_of(item), *prompt = NULL;
    size_t len = 0, num_ids = 0;
    int32_t *ids = NULL;
    struct nvllm_error error = {0};
    if (nvllm_chat_template_render(chat_template, chat, strlen(chat), NULL, &prompt, &len,
                                   &error)) {
        fail_msg("%s: %s", chat, error.message);
    }
    assert_string_equal(prompt, json_string_value(json_object_get(item, "prompt")));
    if (nvllm_tokenizer_encode(tokenizer, prompt, len, 0, NULL, &ids, &num_ids, &error)) {
        fail_msg("%s", error.message);
    }
    const json_t *want = json_object_get(item, "prompt_token_ids");
    assert_int_equal(num_ids, json_array_size(want));
    for (size_t i = 0; i < num_ids; i++) {
        assert_int_equal(ids[i], json_integer_value(json_array_get(want, i)));
    }
    nvllm_free(ids);
    nvllm_free(prompt);
    free(chat);
}

static void test_prompts_of_the_greedy_cases(void **state) {
    (void)state;
    json_t *cases = json_load_file("tests/reference/data/greedy.json", 0, NULL);
    assert_non_null(cases);
    struct nvllm_error error = {0};
    struct nvllm_chat_template *chat_template = NULL;
    struct nvllm_tokenizer *tokenizer = NULL;
    if (nvllm_chat_template_open(&chat_template, model, NULL, &error) ||
        nvllm_tokenizer_open(&tokenizer, model, &error)) {
        fail_msg("%s", error.message);
    }
    assert_true(json_array_size(cases) > 5);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_prompt(chat_template, tokenizer, json_array_get(cases, i));
    }
    nvllm_tokenizer_close(tokenizer);
    nvllm_chat_template_close(chat_template);
    json_decref(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prompts_of_the_greedy_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
