// Asks the bundled model a question and prints the answer as it is generated.
#include <nanovllm.h>
#include <stdio.h>
#include <string.h>

static void print_text(const struct nvllm_event *event, void *user_data) {
    (void)user_data;
    fwrite(event->text, 1, event->text_len, stdout);
    if (event->finish_reason != NVLLM_FINISH_NONE) putchar('\n');
}

int main(void) {
    struct nvllm_error error = {0};
    struct nvllm_engine_options options = NVLLM_ENGINE_OPTIONS_INIT;
    options.model = "models/tiny-qwen3";
    struct nvllm_engine *engine = NULL;
    if (nvllm_engine_create(&engine, &options, &error) != NVLLM_OK) goto fail;

    struct nvllm_sampling_params sampling = NVLLM_SAMPLING_PARAMS_INIT;
    sampling.temperature = 0;
    struct nvllm_request request = NVLLM_REQUEST_INIT;
    request.chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 37 + 58?\"}],"
                   " \"chat_template_kwargs\": {\"enable_thinking\": false}}";
    request.chat_len = strlen(request.chat);
    request.sampling = &sampling;
    request.on_event = print_text;
    uint64_t id;
    if (nvllm_engine_add_request(engine, &request, &id, &error) != NVLLM_OK) goto fail;

    while (nvllm_engine_has_unfinished(engine)) {
        if (nvllm_engine_step(engine, &error) != NVLLM_OK) goto fail;
    }
    nvllm_engine_destroy(engine);
    return 0;
fail:
    fprintf(stderr, "%s\n", error.message);
    nvllm_engine_destroy(engine);
    return 1;
}
