// A checkpoint's readers know the interface alone: a form that has no file gives a configuration,
// a tokenizer, a chat template and weights.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_form.h"
#include "checkpoint/model_config.h"
#include "checkpoint/tensor.h"
#include "checkpoint/weights.h"
#include "support/cmocka_all.h"
#include "support/config_text.h"
#include "support/temp_folder.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

static const char *config_text;
static const char *quantized_name, *quantized_text; // a document beside it; NULL: none

static const char *text_of(const char *document) {
    if (strcmp(document, "config.json") == 0) return config_text;
    if (quantized_name && strcmp(document, quantized_name) == 0) return quantized_text;
    if (strcmp(document, "generation_config.json") == 0) return "{\"top_k\": 7}";
    if (strcmp(document, "tokenizer.json") == 0) {
        return "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, "
               "\"a\": 1, \"b\": 2, \"ab\": 3}, \"merges\": [\"a b\"]}, \"decoder\": {\"type\": "
               "\"Sequence\", "
               "\"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"_\"}, "
               "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}}";
    }
    if (strcmp(document, "tokenizer_config.json") == 0) return "{\"eos_token\": \"</s>\"}";
    if (strcmp(document, "additional_chat_templates/default.jinja") == 0) return "x{{ eos_token }}";
    return NULL;
}

static enum status memory_find(const struct checkpoint *checkpoint, const char *document,
                               struct document_name *what, bool *present, struct err *err) {
    (void)checkpoint, (void)err;
    snprintf(what->text, sizeof what->text, "memory:%s", document);
    *present = text_of(document) != NULL;
    return OK;
}

static enum status memory_read(const struct checkpoint *checkpoint, const char *document,
                               struct buf *out, struct err *err) {
    (void)checkpoint;
    return buf_append_str(out, text_of(document), err);
}

static enum status memory_list(const struct checkpoint *checkpoint, const char *group,
                               struct buf *names, struct err *err) {
    (void)checkpoint;
    assert_string_equal(group, "additional_chat_templates");
    return buf_append(names, "README\0default.jinja", sizeof "README\0default.jinja", err);
}

static enum status memory_explain(const struct checkpoint *checkpoint, const char *document,
                                  struct err *err) {
    (void)checkpoint;
    return err_set(err, ERR_IO, "memory has no %s", document);
}

static const uint16_t elements[6] = {1, 2, 3, 4, 5, 6};
static const struct tensor tensor = {.name = "a",
                                     .path = "memory:a",
                                     .dtype = DTYPE_BF16,
                                     .rank = 2,
                                     .shape = {2, 3},
                                     .size_bytes = sizeof elements,
                                     .source = {.data = elements}};
static int num_open_sets;

static enum status memory_check(const struct tensor_set *set, struct err *err) {
    (void)set, (void)err;
    return OK;
}

static void memory_close_tensors(struct tensor_set *set) {
    (void)set;
    num_open_sets--;
}

static enum status memory_open_tensors(const struct checkpoint *checkpoint, struct tensor_set **out,
                                       struct err *err) {
    static const struct tensor *tensors[] = {&tensor};
    static struct tensor_set set = {tensors, 1, "memory", memory_check, memory_close_tensors};
    (void)checkpoint, (void)err;
    num_open_sets++;
    *out = &set;
    return OK;
}

static void memory_close(struct checkpoint *checkpoint) {
    (void)checkpoint;
}

static const struct checkpoint_form form = {
    .find = memory_find,
    .read = memory_read,
    .list = memory_list,
    .explain = memory_explain,
    .open_tensors = memory_open_tensors,
    .close = memory_close,
};

static char path[] = "memory";
static const struct checkpoint memory = {&form, path};

static void test_config(void **state) {
    (void)state;
    char *text = make_config((const struct field[CHANGES_MAX]){{"num_hidden_layers", "5"}});
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    config_text = text;
    if (model_config_load(&config, &generation, &memory, &err)) fail_msg("%s", err.message);
    assert_int_equal(config.num_layers, 5);
    assert_true(generation.has_top_k && generation.top_k == 7);
    model_config_fini(&config);
    config_text = "{}";
    assert_int_equal(model_config_load(&config, &generation, &memory, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "memory:config.json"));
    config_text = NULL;
    assert_int_equal(model_config_load(&config, &generation, &memory, &err), ERR_IO);
    assert_string_equal(err.message, "memory has no config.json");
    free(text);
}

// A checkpoint may say in a document of its own that it is quantized. config.json comes before it.
static void test_quantization_documents(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        enum quantization_method method;
        uint32_t group;
        const char *words; // of the error
    } cases[] = {
        {"hf_quant_config.json",
         "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {\"quant_algo\": \"FP8\", "
         "\"kv_cache_quant_algo\": \"FP8\", \"exclude_modules\": [\"lm_head\"]}}",
         QUANTIZED_FP8, 0, NULL},
        {"quantize_config.json",
         "{\"bits\": 4, \"group_size\": 128, \"damp_percent\": 0.01, \"desc_act\": false, \"sym\": "
         "true, \"true_sequential\": true, \"model_name_or_path\": null}",
         QUANTIZED_GPTQ, 128, NULL},
        {"quant_config.json",
         "{\"zero_point\": true, \"q_group_size\": 64, \"w_bit\": 4, \"version\": \"GEMM\"}",
         QUANTIZED_AWQ, 64, NULL},
        {"quantize_config.json", "{\"bits\": 4, \"quant_method\": \"awq\"}", QUANTIZED_AWQ, 0,
         NULL},
        {"hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"W4A8\"}}", 0, 0,
         "memory:hf_quant_config.json: \"quant_algo\""},
        {"hf_quant_config.json", "{}", 0, 0, "\"quantization\" is missing"},
        {"quantize_config.json", "[", 0, 0, "memory:quantize_config.json"},
        {"other_config.json", "[", QUANTIZED_NOT, 0, NULL},
    };
    char *plain = make_config((const struct field[CHANGES_MAX]){{NULL, NULL}});
    char *named = make_config((const struct field[CHANGES_MAX]){
        {"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 32}"}});
    struct model_config config;
    struct generation_config generation;
    struct err err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config_text = plain;
        quantized_name = cases[i].name;
        quantized_text = cases[i].text;
        enum status status = model_config_load(&config, &generation, &memory, &err);
        const char *words = cases[i].words;
        if ((status != OK) != (words != NULL)) fail_msg("%zu: %s", i, err.message);
        if (words && !strstr(err.message, words)) fail_msg("no %s in: %s", words, err.message);
        if (!status) {
            assert_int_equal(config.quantization.method, cases[i].method);
            assert_int_equal(config.quantization.block_cols, cases[i].group);
            model_config_fini(&config);
        }
        config_text = named;
        if (model_config_load(&config, &generation, &memory, &err)) fail_msg("%s", err.message);
        assert_int_equal(config.quantization.bits, 8);
        model_config_fini(&config);
    }
    quantized_name = NULL;
    config_text = NULL;
    free(plain);
    free(named);
}

static void test_tokenizer(void **state) {
    (void)state;
    struct tokenizer *tokenizer = NULL;
    struct token_list ids = {0};
    struct err err = {0};
    if (tokenizer_open(&tokenizer, &memory, &err)) fail_msg("%s", err.message);
    assert_int_equal(tokenizer_encode(tokenizer, "aab", 3, false, NULL, &ids, &err), OK);
    assert_int_equal(ids.len, 2);
    assert_int_equal(ids.ids[0], 1);
    assert_int_equal(ids.ids[1], 3);
    token_list_fini(&ids);
    tokenizer_close(tokenizer);
}

static void test_chat_template(void **state) {
    (void)state;
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}";
    struct chat_template *chat_template = NULL;
    struct buf out = {0};
    struct err err = {0};
    if (chat_template_open(&chat_template, &memory, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(chat_template_render(chat_template, chat, sizeof chat - 1, NULL, &out, &err),
                     OK);
    assert_string_equal(out.data, "x</s>");
    buf_fini(&out);
    chat_template_close(chat_template);
}

static void test_weights(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct weight weight;
    struct err err = {0};
    const uint64_t shape[] = {2, 3};
    assert_int_equal(weights_open(&weights, &memory, &err), OK);
    assert_int_equal(weights_take(weights, "b", 2, shape, &weight, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "memory does not have the tensor \"b\""));
    assert_int_equal(weights_take(weights, "a", 2, shape, &weight, &err), OK);
    assert_ptr_equal(weight.source.data, elements);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
    assert_int_equal(num_open_sets, 0);
}

// A file is the model's under any name, in the folder or among its further templates.
static void test_files_of_a_folder(void **state) {
    (void)state;
    struct temp_folder folder;
    struct stat info;
    char name[256], link_name[256];
    temp_folder_create(&folder);
    temp_folder_write_text(&folder, "notes.txt", "x");
    snprintf(name, sizeof name, "%s/notes.txt", folder.path);
    assert_int_equal(stat(name, &info), 0);
    assert_false(checkpoint_has_file(folder.path, info.st_dev, info.st_ino));
    snprintf(link_name, sizeof link_name, "%s/config.json", folder.path);
    assert_int_equal(symlink("notes.txt", link_name), 0);
    assert_true(checkpoint_has_file(folder.path, info.st_dev, info.st_ino));
    assert_false(checkpoint_has_file("/nonexistent/model", info.st_dev, info.st_ino));
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),    cmocka_unit_test(test_quantization_documents),
        cmocka_unit_test(test_tokenizer), cmocka_unit_test(test_chat_template),
        cmocka_unit_test(test_weights),   cmocka_unit_test(test_files_of_a_folder),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
