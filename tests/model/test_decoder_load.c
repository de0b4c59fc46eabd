// Building a decoder from checkpoints that do not fit their configuration: the message names the
// tensor. The checkpoint has a dense MLP in layers 0, 2, 3 and 4, and 5 experts in each of the
// layers 1 and 5.
#include "model/decoder.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

static const char checkpoint[] = "tests/reference/data/qwen3-moe-mixed";

static enum status load(const char *folder, struct err *err) {
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    const struct step_limits limits = {.max_num_tokens = 4, .max_num_seqs = 1, .max_positions = 8};
    struct comm comm = comm_single();
    struct model_config config;
    struct generation_config generation;
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct decoder *decoder = NULL;
    if (folder_model_config(&config, &generation, folder, err)) fail_msg("%s", err->message);
    if (backend_create(&backend, &options, err)) fail_msg("%s", err->message);
    if (folder_model_weights(&weights, folder, err)) fail_msg("%s", err->message);
    struct layer_table table;
    struct decoder_shape shape;
    if (family_resolve(&table, &config, err)) fail_msg("%s", err->message);
    if (decoder_shape_of(&shape, &config, &table, 0, 1, err)) fail_msg("%s", err->message);
    const struct decoder_options decoder_options = {.config = &config,
                                                    .table = &table,
                                                    .shape = &shape,
                                                    .backend = backend,
                                                    .comm = &comm,
                                                    .limits = limits};
    enum status status = decoder_create(&decoder, &decoder_options, weights, err);
    assert_true((status == OK) == (decoder != NULL));
    decoder_destroy(decoder);
    weights_close(weights);
    backend_destroy(backend);
    layer_table_fini(&table);
    model_config_fini(&config);
    return status;
}

struct bytes {
    char *data;
    size_t size;
};

static struct bytes read_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", checkpoint, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct bytes bytes = {calloc(1, 1 << 20), 0};
    assert_non_null(bytes.data);
    bytes.size = fread(bytes.data, 1, (1 << 20) - 64, file);
    fclose(file);
    return bytes;
}

// The place of `text` in the file, which must have it.
static char *find(const struct bytes *bytes, const char *text) {
    char *found = memmem(bytes->data, bytes->size, text, strlen(text));
    if (!found) fail_msg("no \"%s\" in the file", text);
    return found;
}

// Replaces the first occurrence; the file's size changes.
static void replace(struct bytes *bytes, const char *from, const char *to) {
    char *at = find(bytes, from);
    char *rest = at + strlen(from);
    size_t rest_size = (size_t)(bytes->data + bytes->size - rest);
    assert_true(strlen(to) < strlen(from) + 64);
    memmove(at + strlen(to), rest, rest_size);
    memcpy(at, to, strlen(to));
    bytes->size += strlen(to) - strlen(from);
}

struct refused {
    const char *file, *from, *to; // in `file`, `from` is replaced by `to`
    const char *says[2];
};

static void refuse(const struct refused *refused) {
    struct temp_folder folder;
    temp_folder_create(&folder);
    const char *const names[] = {"config.json", "model.safetensors"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct bytes bytes = read_file(names[i]);
        if (strcmp(refused->file, names[i]) == 0) replace(&bytes, refused->from, refused->to);
        temp_folder_write(&folder, names[i], bytes.data, bytes.size);
        free(bytes.data);
    }
    struct err err = {0};
    assert_int_equal(load(folder.path, &err), ERR_FORMAT);
    for (size_t i = 0; i < ARRAY_LEN(refused->says); i++) {
        if (!strstr(err.message, refused->says[i])) {
            fail_msg("no \"%s\" in: %s", refused->says[i], err.message);
        }
    }
    temp_folder_remove(&folder);
}

static void test_loads_as_it_is(void **state) {
    (void)state;
    struct err err = {0};
    if (load(checkpoint, &err)) fail_msg("%s", err.message);
}

static void test_missing_expert_tensors(void **state) {
    (void)state;
    // A name of the same length, so that the header keeps its size.
    static const struct refused cases[] = {
        {"model.safetensors",
         "layers.1.mlp.experts.4.up_proj",
         "layers.1.mlp.experts.9.up_proj",
         {"model.layers.1.mlp.experts.4.up_proj.weight", "does not have the tensor"}},
        {"model.safetensors",
         "layers.5.mlp.experts.0.down_proj",
         "layers.5.mlp.experts.0.downxproj",
         {"model.layers.5.mlp.experts.0.down_proj", "does not have the tensor"}},
        {"model.safetensors",
         "layers.5.mlp.gate.weight",
         "layers.5.mlp.gata.weight",
         {"model.layers.5.mlp.gate.weight", "does not have the tensor"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) refuse(&cases[i]);
}

static void test_configurations_that_the_tensors_contradict(void **state) {
    (void)state;
    static const char count[] = "\"num_local_experts\": 5",
                      size[] = "\"moe_intermediate_size\": 40";
    static const char step[] = "\"decoder_sparse_step\": 2", only[] = "    3\n";
    static const struct refused cases[] = {
        {"config.json",
         count,
         "\"num_local_experts\": 6",
         {"model.layers.1.mlp.gate.weight", "wants [6, 64]"}},
        {"config.json",
         count,
         "\"num_local_experts\": 4",
         {"model.layers.1.mlp.gate.weight", "wants [4, 64]"}},
        {"config.json",
         count,
         "\"num_local_experts\": 0",
         {"model.layers.1.mlp.gate_proj.weight", "does not have the tensor"}},
        {"config.json",
         size,
         "\"moe_intermediate_size\": 41",
         {"model.layers.1.mlp.experts.0.gate_proj.weight", "wants [41, 64]"}},
        {"config.json",
         step,
         "\"decoder_sparse_step\": 1",
         {"model.layers.0.mlp.gate.weight", "does not have the tensor"}},
        {"config.json",
         only,
         "    1\n",
         {"model.layers.1.mlp.gate_proj.weight", "does not have the tensor"}},
        {"config.json",
         "\"num_hidden_layers\": 6",
         "\"num_hidden_layers\": 5",
         {"model.layers.5.", "which the model does not use"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) refuse(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_as_it_is),
        cmocka_unit_test(test_missing_expert_tensors),
        cmocka_unit_test(test_configurations_that_the_tensors_contradict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
