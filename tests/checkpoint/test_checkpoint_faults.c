// Reading a checkpoint while each of its allocations and mappings fails in turn: ERR_NOMEM, and
// nothing leaks.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json/jread.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

static const char model[] = "models/tiny-qwen3";

static enum status load_config(void *context, struct err *err) {
    (void)context;
    struct model_config config = {0};
    struct generation_config generation = {0};
    enum status status = folder_model_config(&config, &generation, model, err);
    model_config_fini(&config);
    return status;
}

static enum status open_file(void *context, struct err *err) {
    (void)context;
    struct safetensors *file = NULL;
    const char *path = "models/tiny-qwen3/model-00002-of-00002.safetensors";
    enum status status = safetensors_open(&file, path, err);
    safetensors_close(file);
    return status;
}

static enum status open_shards(void *context, struct err *err) {
    (void)context;
    struct weights *weights = NULL;
    enum status status = folder_model_weights(&weights, model, err);
    weights_close(weights);
    return status;
}

static enum status take_from_dummy(void *context, struct err *err) {
    (void)context;
    struct weights *weights = NULL;
    struct weight weight;
    const uint64_t shape[2] = {100, 64};
    enum status status = weights_open_dummy(&weights, err);
    if (!status) status = weights_take(weights, "lm_head.weight", 2, shape, &weight, err);
    if (!status) status = weights_take(weights, "model.norm.weight", 1, shape, &weight, err);
    if (!status) status = weights_finish(weights, err);
    weights_close(weights);
    return status;
}

// A linear of a quantized checkpoint, whose folder and configuration are in `context`.
struct quantized_case {
    const char *folder, *config;
};

static enum status take_quantized(void *context, struct err *err) {
    const struct quantized_case *c = context;
    struct quantization_config config = {0};
    struct weights *weights = NULL;
    struct weight weight;
    const uint64_t shape[2] = {32, 64};
    float row[64];
    json_t *root = NULL;
    enum status status = jread_text(&root, c->config, strlen(c->config), "config", err);
    if (!status) status = quantization_config_read(&config, root, "config", err);
    json_decref(root);
    if (!status) status = folder_model_weights(&weights, c->folder, err);
    if (!status) weights_set_quantization(weights, &config);
    if (!status) status = weights_take(weights, "m.weight", 2, shape, &weight, err);
    if (!status) status = weight.reader->read(weight.reader, 0, 0, 64, row, err);
    weights_close(weights);
    quantization_config_fini(&config);
    return status;
}

// All that is made of a GGUF file, whose path is the context.
static enum status read_gguf(void *context, struct err *err) {
    static const char *const documents[] = {"tokenizer.json", "tokenizer_config.json",
                                            "generation_config.json", "chat_template.jinja"};
    struct checkpoint *checkpoint = NULL;
    struct model_config config = {0};
    struct generation_config generation = {0};
    struct weights *weights = NULL;
    struct buf text = {0};
    enum status status = checkpoint_open(&checkpoint, context, err);
    if (!status) status = model_config_load(&config, &generation, checkpoint, err);
    for (size_t i = 0; i < ARRAY_LEN(documents) && !status; i++) {
        status = checkpoint_read(checkpoint, documents[i], &text, err);
    }
    if (!status) status = weights_open(&weights, checkpoint, err);
    weights_close(weights);
    buf_fini(&text);
    model_config_fini(&config);
    checkpoint_close(checkpoint);
    return status;
}

static void sweep(alloc_sweep_fn work) {
    assert_true(alloc_sweep_run(&(struct alloc_sweep){.work = work}) > 0);
}

static void test_model_config(void **state) {
    (void)state;
    sweep(load_config);
}

static void test_safetensors(void **state) {
    (void)state;
    sweep(open_file);
}

static void test_weights(void **state) {
    (void)state;
    sweep(open_shards);
}

static void test_dummy_weights(void **state) {
    (void)state;
    sweep(take_from_dummy);
}

static void test_gguf(void **state) {
    (void)state;
    static char dense[] = "tests/fuzz/corpus/fuzz_gguf/llama";
    static char sparse[] = "tests/fuzz/corpus/fuzz_gguf/qwen3moe";
    assert_true(alloc_sweep_run(&(struct alloc_sweep){.work = read_gguf, .context = dense}) > 0);
    assert_true(alloc_sweep_run(&(struct alloc_sweep){.work = read_gguf, .context = sparse}) > 0);
}

static void sweep_quantized(const char *name, const char *config) {
    struct temp_folder folder;
    char here[256], file[512], link[300];
    temp_folder_create(&folder);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(file, sizeof file, "%s/tests/reference/data/quantized/%s.safetensors", here, name);
    snprintf(link, sizeof link, "%s/model.safetensors", folder.path);
    assert_int_equal(symlink(file, link), 0);
    struct quantized_case context = {folder.path, config};
    assert_true(
        alloc_sweep_run(&(struct alloc_sweep){.work = take_quantized, .context = &context}) > 0);
    temp_folder_remove(&folder);
}

static void test_quantized_weights(void **state) {
    (void)state;
    sweep_quantized("gptq-act-order",
                    "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                    "\"group_size\": 32, \"sym\": false}}");
    sweep_quantized("awq", "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, "
                           "\"group_size\": 32, \"modules_to_not_convert\": [\"x\"]}}");
    sweep_quantized("ct-w4a16-asym",
                    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
                    "\"format\": \"pack-quantized\", \"config_groups\": {\"a\": {\"targets\": "
                    "[\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"int\", "
                    "\"strategy\": \"group\", \"group_size\": 32, \"symmetric\": false}}}}}");
    sweep_quantized(
        "ct-nvfp4",
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
        "\"format\": \"nvfp4-pack-quantized\", \"config_groups\": {\"a\": {\"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\", "
        "\"strategy\": \"tensor_group\", \"group_size\": 16}}}}}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_config),      cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_weights),           cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_quantized_weights), cmocka_unit_test(test_dummy_weights),
    };
    return cmocka_run_group_tests_name("checkpoint_faults", tests, NULL, NULL);
}
