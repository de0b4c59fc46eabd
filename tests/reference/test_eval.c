/* The bundled model's 325 questions through the public API, all in one batch: at least 99 % exact,
 * or 97 % with weights of 4 bits. Exits with 77, which ctest counts as skipped, if cuda is asked
 * for and missing.
 *   test_eval [DEVICE [QUANTIZATION [KV_CACHE_DTYPE [ISA]]]]     defaults: cpu none auto auto */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/device_list.h"
#include "nanovllm.h"

enum { PROMPT_BYTES = 2048, SKIPPED = 77 };

static char *chatml(const char *question) {
    char *prompt = malloc(PROMPT_BYTES);
    assert_non_null(prompt);
    int n = snprintf(
        prompt, PROMPT_BYTES,
        "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", question);
    assert_true(n > 0 && n < PROMPT_BYTES);
    return prompt;
}

static const char *quantization = "none", *kv_cache_dtype = "auto", *isa = "auto";

static void test_answers(void **state) {
    json_error_t fault;
    json_t *root = json_load_file("tests/reference/data/tiny-qwen3-eval.json", 0, &fault);
    assert_non_null(root);
    const json_t *items = json_object_get(root, "items");
    size_t count = json_array_size(items);
    assert_int_equal(count, 325);

    struct nvllm_error error = {0};
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "models/tiny-qwen3";
    options.device = *state;
    options.quantization = quantization;
    options.kv_cache_dtype = kv_cache_dtype;
    options.cpu_isa = isa;
    options.kv_cache_gib = 1;
    struct nvllm_engine *engine = NULL;
    if (nvllm_engine_create(&engine, &options, &error)) fail_msg("%s", error.message);
    struct nvllm_sampling_params greedy = NVLLM_SAMPLING_PARAMS_INIT;
    greedy.temperature = 0;
    struct nvllm_request *requests = calloc(count, sizeof *requests);
    assert_non_null(requests);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(items, i);
        requests[i] = (struct nvllm_request)NVLLM_REQUEST_INIT;
        requests[i].prompt = chatml(json_string_value(json_object_get(item, "question")));
        requests[i].prompt_len = strlen(requests[i].prompt);
        requests[i].sampling = &greedy;
    }
    struct nvllm_result *results = NULL;
    if (nvllm_engine_generate(engine, requests, count, &results, NULL, &error)) {
        fail_msg("%s", error.message);
    }
    size_t exact = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(items, i);
        const char *answer = json_string_value(json_object_get(item, "answer"));
        if (strcmp(results[i].text, answer) == 0) {
            exact++;
        } else {
            print_message("%s -> %s (want %s)\n",
                          json_string_value(json_object_get(item, "question")), results[i].text,
                          answer);
        }
        free((void *)(uintptr_t)requests[i].prompt);
    }
    print_message("%zu of %zu exact\n", exact, count);
    assert_true(exact * 100 >= count * (strcmp(quantization, "int4") == 0 ? 97 : 99));
    nvllm_results_free(results, count);
    free(requests);
    nvllm_engine_destroy(engine);
    json_decref(root);
}

int main(int argc, char **argv) {
    static char cpu[] = "cpu";
    char *device = argc > 1 ? argv[1] : cpu;
    if (argc > 2) quantization = argv[2];
    if (argc > 3) kv_cache_dtype = argv[3];
    if (argc > 4) isa = argv[4];
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_answers, device)};
    struct err err = {0};
    if (strcmp(device, "cuda") == 0 && device_cuda.available(&err)) {
        print_message("skipped: %s\n", err.message);
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
