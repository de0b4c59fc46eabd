// A checkpoint folder's tensors: a single file and shards, messages that name each disagreement,
// each tensor taken exactly once.
#include "checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

#define INDEX "model.safetensors.index.json"
#define SHARD1 "model-00001-of-00002.safetensors"
#define SHARD2 "model-00002-of-00002.safetensors"

static struct temp_folder folder;

static int set_up(void **state) {
    (void)state;
    temp_folder_create(&folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

// Writes a file with this header and `data_bytes` bytes of data, all of them `fill`.
static void write_tensors(const char *name, const char *header, size_t data_bytes, int fill) {
    unsigned char bytes[4096] = {0};
    size_t header_bytes = strlen(header);
    assert_true(8 + header_bytes + data_bytes <= sizeof bytes);
    bytes[0] = (unsigned char)header_bytes;
    bytes[1] = (unsigned char)(header_bytes >> 8);
    memcpy(bytes + 8, header, header_bytes);
    memset(bytes + 8 + header_bytes, fill, data_bytes);
    temp_folder_write(&folder, name, bytes, 8 + header_bytes + data_bytes);
}

// "a" is [2, 3] BF16, "b.norm.weight" is [4] F32.
static void write_single(void) {
    write_tensors("model.safetensors",
                  "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                  "\"b.norm.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[12,28]}}",
                  28, 1);
}

// "a" [2, 3] BF16 in the first shard, "b" [4] F16 and "c" [1] F32 in the second.
static void write_shards(void) {
    write_tensors(SHARD1, "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}",
                  12, 1);
    write_tensors(SHARD2,
                  "{\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                  "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
                  12, 2);
}

#define GOOD_INDEX                                                                                 \
    "{\"metadata\":{\"total_size\":24},\"weight_map\":{"                                           \
    "\"c\":\"" SHARD2 "\",\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"}}"

static struct weights *open_ok(void) {
    struct weights *weights = NULL;
    struct err err = {0};
    if (folder_model_weights(&weights, folder.path, &err) != OK) fail_msg("%s", err.message);
    return weights;
}

static void expect_words(const struct err *err, const char *words) {
    char copy[512];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *save, *word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save)) {
        if (!strstr(err->message, word)) fail_msg("no \"%s\" in: %s", word, err->message);
    }
}

// Opening must fail with `status` and a message that has each of the '|'-separated words.
static void open_refused(enum status status, const char *words) {
    struct weights *weights = NULL;
    struct err err = {0};
    enum status found = folder_model_weights(&weights, folder.path, &err);
    if (found != status) fail_msg("%s: status %s: %s", words, status_name(found), err.message);
    assert_null(weights);
    expect_words(&err, words);
}

static enum status take(struct weights *weights, const char *name, uint32_t rank, uint64_t dim0,
                        uint64_t dim1, struct weight *out, struct err *err) {
    return weights_take(weights, name, rank, (const uint64_t[]){dim0, dim1}, out, err);
}

static void take_ok(struct weights *weights, const char *name, uint32_t rank, uint64_t dim0,
                    uint64_t dim1, struct weight *out) {
    struct err err = {0};
    if (take(weights, name, rank, dim0, dim1, out, &err) != OK) fail_msg("%s", err.message);
}

static char first_byte(const struct weight *weight) {
    char byte;
    assert_non_null(byte_source_get(&weight->source, 0, 1, &byte, NULL));
    return byte;
}

static void test_single_file(void **state) {
    (void)state;
    write_single();
    struct weights *weights = open_ok();
    struct err err = {0};
    struct weight a;
    struct weight b;
    take_ok(weights, "a", 2, 2, 3, &a);
    assert_int_equal(a.dtype, DTYPE_BF16);
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.shape[0], 2);
    assert_int_equal(a.shape[1], 3);
    char bytes[12];
    assert_ptr_equal(byte_source_get(&a.source, 0, 12, bytes, &err), bytes);
    assert_memory_equal(bytes, "\1\1\1\1\1\1\1\1\1\1\1\1", 12);
    assert_int_equal(weights_finish(weights, &err), ERR_FORMAT); // b is left
    expect_words(&err, "model.safetensors|\"b.norm.weight\" of shape [4]");
    assert_null(strstr(err.message, "more"));
    take_ok(weights, "b.norm.weight", 1, 4, 0, &b);
    assert_int_equal(b.dtype, DTYPE_F32);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
    weights_close(NULL);
}

// One F32 tensor for each name.
static void write_names(const char *const *names, int count) {
    char header[1024] = "{";
    for (int i = 0; i < count; i++) {
        size_t used = strlen(header);
        snprintf(header + used, sizeof header - used,
                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                 i ? "," : "", names[i], 4 * i, 4 * i + 4);
    }
    strcat(header, "}");
    write_tensors("model.safetensors", header, 4 * (size_t)count, 1);
}

static void test_names_of_a_text_model_in_another(void **state) {
    (void)state;
    static const char *const names[] = {"model.language_model.layers.0.a",
                                        "language_model.lm_head",
                                        "language_model.model.layers.1.a",
                                        "layers.2.a",
                                        "embed_tokens.weight",
                                        "norm.weight"};
    static const char *const text_names[] = {"model.layers.0.a",          "lm_head",
                                             "model.layers.1.a",          "model.layers.2.a",
                                             "model.embed_tokens.weight", "model.norm.weight"};
    write_names(names, 6);
    struct weights *weights = open_ok();
    struct err err = {0};
    struct weight weight;
    for (int i = 0; i < 6; i++) take_ok(weights, text_names[i], 1, 1, 0, &weight);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
}

// Of models for images, and of layers that draft tokens behind the others.
static void test_tensors_to_ignore(void **state) {
    (void)state;
    static const char *const names[] = {"model.visual.a", "model.mtp_block.0.b",
                                        "multi_modal_projector.c", "model.layers.2.a",
                                        "layers.3.b"};
    write_names(names, 5);
    struct weights *weights = open_ok();
    struct err err = {0};
    assert_int_equal(weights_finish(weights, &err), ERR_FORMAT);
    expect_words(&err, "does not use|4 more");
    weights_ignore_other_parts(weights);
    weights_ignore_layers(weights, 2, 1);
    assert_int_equal(weights_finish(weights, &err), ERR_FORMAT);
    expect_words(&err, "layers.3.b");
    weights_ignore_layers(weights, 2, 2);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
}

static void test_one_tensor_under_two_names(void **state) {
    (void)state;
    static const char *const names[] = {"layers.0.a", "model.layers.0.a"};
    write_names(names, 2);
    open_refused(ERR_FORMAT, "model.layers.0.a|two names");
}

static void test_shards(void **state) {
    (void)state;
    write_shards();
    temp_folder_write_text(&folder, INDEX, GOOD_INDEX);
    struct weights *weights = open_ok();
    struct err err = {0};
    struct weight weight;
    take_ok(weights, "b", 1, 4, 0, &weight);
    assert_int_equal(weight.dtype, DTYPE_F16);
    assert_int_equal(first_byte(&weight), 2);
    assert_int_equal(weights_finish(weights, &err), ERR_FORMAT);
    expect_words(&err, "does not use|(and 1 more)");
    take_ok(weights, "a", 2, 2, 3, &weight);
    assert_int_equal(first_byte(&weight), 1);
    take_ok(weights, "c", 1, 1, 0, &weight);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
}

static void test_single_file_wins(void **state) {
    (void)state;
    write_single();
    temp_folder_write_text(&folder, INDEX, "not even JSON");
    struct weights *weights = open_ok();
    struct weight weight;
    take_ok(weights, "b.norm.weight", 1, 4, 0, &weight);
    weights_close(weights);
}

static uint64_t fingerprint(void) {
    struct weights *weights = open_ok();
    uint64_t hash = 0;
    assert_int_equal(weights_fingerprint(weights, &hash, NULL), OK);
    weights_close(weights);
    return hash;
}

#define ONE_TENSOR(name, dtype, shape)                                                             \
    "{\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[0,400]}}"

static void test_fingerprints_tell_weights_apart(void **state) {
    (void)state;
    static const struct {
        const char *header;
        int fill;
    } others[] = {
        {ONE_TENSOR("b", "F16", "[10,20]"), 1}, // another name, type, shape, content
        {ONE_TENSOR("a", "BF16", "[10,20]"), 1},
        {ONE_TENSOR("a", "F16", "[20,10]"), 1},
        {ONE_TENSOR("a", "F16", "[10,20]"), 2},
    };
    write_tensors("model.safetensors", ONE_TENSOR("a", "F16", "[10,20]"), 400, 1);
    uint64_t first = fingerprint();
    assert_true(fingerprint() == first);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        write_tensors("model.safetensors", others[i].header, 400, others[i].fill);
        assert_false(fingerprint() == first);
    }
}

static void test_take_refuses(void **state) {
    (void)state;
    write_tensors("model.safetensors",
                  "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                  "\"i\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[12,20]},"
                  "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[20,28]}}",
                  28, 0);
    struct weights *weights = open_ok();
    struct err err = {0};
    struct weight out;
    assert_int_equal(take(weights, "z", 2, 5, 6, &out, &err), ERR_FORMAT);
    expect_words(&err, "model.safetensors|\"z\"|[5, 6]");
    assert_int_equal(take(weights, "a", 2, 3, 2, &out, &err), ERR_FORMAT);
    expect_words(&err, "model.safetensors|\"a\"|[2, 3]|[3, 2]");
    assert_int_equal(take(weights, "a", 1, 2, 0, &out, &err), ERR_FORMAT);
    expect_words(&err, "\"a\"|[2, 3]|wants [2]");
    assert_int_equal(take(weights, "i", 1, 2, 0, &out, &err), ERR_UNSUPPORTED);
    expect_words(&err, "\"i\"|I32|BF16, F16 or F32");
    assert_int_equal(take(weights, "d", 1, 1, 0, &out, &err), ERR_UNSUPPORTED);
    take_ok(weights, "a", 2, 2, 3, &out);
    assert_int_equal(take(weights, "a", 2, 2, 3, &out, &err), ERR_INVALID);
    expect_words(&err, "\"a\"|twice");
    weights_close(weights);
}

// "lm_head" is at the data's bytes 12 to 24, the embedding "a" at 0 to 12.
static void test_ignore_copy(void **state) {
    (void)state;
    static const struct {
        const char *dtype, *shape;
        int fill; // of the last byte of the copy
        enum status status;
        const char *words;
    } cases[] = {
        {"BF16", "[2,3]", 1, OK, ""},
        {"BF16", "[2,3]", 2, ERR_FORMAT,
         "model.safetensors|\"lm_head\" differs from \"a\"|tie_word_embeddings"},
        {"F16", "[2,3]", 1, ERR_FORMAT, "\"lm_head\" differs from \"a\""},
        {"BF16", "[3,2]", 1, ERR_FORMAT, "\"lm_head\"|[3, 2]|[2, 3]"},
    };
    const uint64_t shape[2] = {2, 3};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char header[256];
        snprintf(header, sizeof header,
                 "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                 "\"lm_head\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[12,24]}}",
                 cases[i].dtype, cases[i].shape);
        unsigned char bytes[512] = {(unsigned char)strlen(header)};
        memcpy(bytes + 8, header, strlen(header));
        memset(bytes + 8 + strlen(header), 1, 24);
        bytes[8 + strlen(header) + 23] = (unsigned char)cases[i].fill;
        temp_folder_write(&folder, "model.safetensors", bytes, 8 + strlen(header) + 24);
        struct weights *weights = open_ok();
        struct err err = {0};
        struct weight out;
        take_ok(weights, "a", 2, 2, 3, &out);
        assert_int_equal(weights_ignore_copy(weights, "absent", "a", 2, shape, &err), OK);
        assert_int_equal(weights_ignore_copy(weights, "lm_head", "a", 2, shape, &err),
                         cases[i].status);
        expect_words(&err, cases[i].words);
        if (!cases[i].status) {
            assert_int_equal(take(weights, "lm_head", 2, 2, 3, &out, &err), ERR_INVALID);
            assert_int_equal(weights_finish(weights, &err), OK);
        }
        weights_close(weights);
    }
}

static void test_derived_buffers_may_stay(void **state) {
    (void)state;
    write_tensors("model.safetensors",
                  "{\"model.layers.0.self_attn.rotary_emb.inv_freq\":"
                  "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                  "\"inv_freq\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                  8, 0);
    struct weights *weights = open_ok();
    struct err err = {0};
    assert_int_equal(weights_finish(weights, &err), ERR_FORMAT); // only under its full name
    expect_words(&err, "\"inv_freq\"");
    assert_null(strstr(err.message, "more"));
    struct weight out;
    take_ok(weights, "inv_freq", 1, 1, 0, &out);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
}

static void test_bad_indexes(void **state) {
    (void)state;
    write_shards();
    static const struct {
        const char *index;
        enum status status;
        const char *words;
    } cases[] = {
        {"", ERR_FORMAT, INDEX "|not valid JSON"},
        {"{", ERR_FORMAT, INDEX "|not valid JSON"},
        {"[]", ERR_FORMAT, INDEX "|a list"},
        {"{}", ERR_FORMAT, INDEX "|weight_map|missing"},
        {"{\"weight_map\":[]}", ERR_FORMAT, "weight_map|a list"},
        {"{\"weight_map\":{}}", ERR_FORMAT, "weight_map|empty"},
        {"{\"weight_map\":{\"a\":1}}", ERR_FORMAT, "\"a\"|an integer"},
        {"{\"weight_map\":{\"a\":null}}", ERR_FORMAT, "\"a\"|null"},
        {"{\"weight_map\":{\"a\":\"\"}}", ERR_FORMAT, "\"a\" is \"\", want|name of a file"},
        {"{\"weight_map\":{\"a\":\"..\"}}", ERR_FORMAT, "\"a\"|..|name of a file"},
        {"{\"weight_map\":{\"a\":\".\"}}", ERR_FORMAT, "name of a file"},
        {"{\"weight_map\":{\"a\":\"../" SHARD1 "\"}}", ERR_FORMAT, "\"a\"|../|name of a file"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", ERR_FORMAT, "/etc/passwd|name of a file"},
        {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", ERR_FORMAT, "name of a file"},
        {"{\"weight_map\":{\"a\":\"" SHARD1 "\",\"a\":\"" SHARD1 "\"}}", ERR_FORMAT, "duplicate"},
        {"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\"}}", ERR_IO,
         "model-00003-of-00003.safetensors is missing|\"a\""},
        // listed, but not there
        {"{\"weight_map\":{\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\",\"c\":\"" SHARD2
         "\",\"d\":\"" SHARD2 "\"}}",
         ERR_FORMAT, SHARD2 " does not have|\"d\""},
        // there, but not listed
        {"{\"weight_map\":{\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"}}", ERR_FORMAT,
         SHARD2 " has|\"c\"|not list"},
        // in another shard
        {"{\"weight_map\":{\"a\":\"" SHARD2 "\",\"b\":\"" SHARD2 "\",\"c\":\"" SHARD1 "\"}}",
         ERR_FORMAT, "places"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        temp_folder_write_text(&folder, INDEX, cases[i].index);
        open_refused(cases[i].status, cases[i].words);
    }
}

static void test_missing_shard(void **state) {
    (void)state;
    write_shards();
    temp_folder_write_text(&folder, INDEX, GOOD_INDEX);
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder.path, SHARD2);
    assert_int_equal(remove(path), 0);
    open_refused(ERR_IO, SHARD2 " is missing|" INDEX "|\"c\"");
    temp_folder_write_text(&folder, SHARD2, "version https://git-lfs.github.com/spec/v1\noid x\n");
    open_refused(ERR_FORMAT, SHARD2 "|Git LFS pointer");
}

// A name that belongs to something other than a file is not reported as missing.
static void test_names_that_are_no_files(void **state) {
    (void)state;
    write_shards();
    temp_folder_write_text(&folder, INDEX, GOOD_INDEX);
    const struct {
        const char *name, *link_to;
        const char *words;
    } cases[] = {
        {SHARD2, "nowhere", SHARD2 " is a dangling link"},
        {SHARD2, "/", SHARD2 " is not a regular file but a folder"},
        {SHARD2, "/dev/null", SHARD2 " is not a regular file"},
        {INDEX, "nowhere", INDEX " is a dangling link"},
        {"model.safetensors", "nowhere", "model.safetensors is a dangling link"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder.path, cases[i].name);
        remove(path);
        assert_int_equal(symlink(cases[i].link_to, path), 0);
        open_refused(ERR_IO, cases[i].words);
        assert_int_equal(remove(path), 0);
        write_shards();
        temp_folder_write_text(&folder, INDEX, GOOD_INDEX);
    }
    temp_folder_write_text(&folder, INDEX, "version https://git-lfs.github.com/spec/v1\noid x\n");
    open_refused(ERR_FORMAT, INDEX " is a Git LFS pointer");
}

static void test_same_tensor_twice(void **state) {
    (void)state;
    write_shards();
    write_tensors(SHARD2,
                  "{\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
                  12, 2);
    temp_folder_write_text(&folder, INDEX,
                           "{\"weight_map\":{\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"}}");
    open_refused(ERR_FORMAT, SHARD2 " has|\"a\"|places in " SHARD1);
}

static void test_no_weights(void **state) {
    (void)state;
    open_refused(ERR_IO, "has no weights|model.safetensors");
    temp_folder_write_text(&folder, "model.gguf", "GGUF");
    open_refused(ERR_UNSUPPORTED, "model.gguf|llama.cpp|give that file");
    temp_folder_write_text(&folder, "pytorch_model.bin", "PK");
    open_refused(ERR_UNSUPPORTED, "pytorch_model.bin|PyTorch|safetensors");
    write_shards();
    open_refused(ERR_IO, ".safetensors|no " INDEX);
    struct weights *weights = NULL;
    struct err err = {0};
    assert_int_equal(folder_model_weights(&weights, "/nonexistent/model", &err), ERR_IO);
    expect_words(&err, "/nonexistent/model is not a folder");
    char *longer = malloc(5001);
    assert_non_null(longer);
    memset(longer, '/', 5000); // the root folder, written so long that no file name fits after it
    longer[5000] = '\0';
    assert_int_not_equal(folder_model_weights(&weights, longer, &err), OK);
    free(longer);
    assert_null(weights);
}

static void test_bundled_model(void **state) {
    (void)state;
    struct weights *weights = NULL;
    struct err err = {0};
    if (folder_model_weights(&weights, "models/tiny-qwen3", &err) != OK)
        fail_msg("%s", err.message);
    static const struct {
        const char *name;
        uint64_t rows, columns; // no columns: a vector
    } of_layer[] = {{"input_layernorm", 256, 0},         {"mlp.down_proj", 256, 768},
                    {"mlp.gate_proj", 768, 256},         {"mlp.up_proj", 768, 256},
                    {"self_attn.q_proj", 512, 256},      {"self_attn.k_proj", 256, 256},
                    {"self_attn.v_proj", 256, 256},      {"self_attn.o_proj", 256, 512},
                    {"self_attn.q_norm", 64, 0},         {"self_attn.k_norm", 64, 0},
                    {"post_attention_layernorm", 256, 0}};
    struct weight out;
    take_ok(weights, "model.embed_tokens.weight", 2, 4096, 256, &out);
    for (size_t i = 0; i < 6 * ARRAY_LEN(of_layer); i++) {
        size_t kind = i % ARRAY_LEN(of_layer);
        char name[80];
        snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i / ARRAY_LEN(of_layer),
                 of_layer[kind].name);
        take_ok(weights, name, of_layer[kind].columns ? 2 : 1, of_layer[kind].rows,
                of_layer[kind].columns, &out);
        assert_int_equal(out.dtype, DTYPE_BF16);
    }
    assert_int_equal(weights_finish(weights, &err), ERR_FORMAT); // one is left
    take_ok(weights, "model.norm.weight", 1, 256, 0, &out);
    assert_int_equal(weights_finish(weights, &err), OK);
    weights_close(weights);
}

// A linear in FP8, "a.weight" [2, 3], with one scale for it and two for its inputs.
static void write_fp8(void) {
    write_tensors("model.safetensors",
                  "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
                  "\"a.weight_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[6,8]},"
                  "\"a.input_scale\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]},"
                  "\"a.activation_scale\":{\"dtype\":\"BF16\",\"shape\":[],"
                  "\"data_offsets\":[10,12]}}",
                  12, 0x3f);
}

static void test_scales_of_inputs_are_not_left_over(void **state) {
    (void)state;
    write_fp8();
    struct weights *weights = open_ok();
    weights_set_quantization(weights,
                             &(struct quantization_config){.method = QUANTIZED_FP8}); // one scale
    struct weight out;
    float row[3], want = 1.875f * bf16_to_f32(0x3f3f); // 0x3f and 0x3f3f: all bytes are 0x3f
    take_ok(weights, "a.weight", 2, 2, 3, &out);
    assert_non_null(out.reader);
    assert_int_equal(out.reader->read(out.reader, 1, 0, 3, row, NULL), OK);
    assert_true(row[0] == want && row[2] == want);
    struct err err = {0};
    if (weights_finish(weights, &err)) fail_msg("%s", err.message);
    weights_close(weights);
}

static void test_fp8_without_a_word_of_it_in_the_config_is_refused(void **state) {
    (void)state;
    write_fp8();
    struct weights *weights = open_ok();
    struct weight out;
    struct err err = {0};
    assert_int_equal(take(weights, "a.weight", 2, 2, 3, &out, &err), ERR_UNSUPPORTED);
    expect_words(&err, "a.weight|F8_E4M3|want BF16, F16 or F32");
    weights_close(weights);
}

static void test_bad_tensors_of_experts(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t rank, rows, cols;
        const char *words;
    } cases[] = {
        {"m.experts.2.up_proj.weight", 2, 2, 3, "[2][3][4], want [2 experts][3][4]"},
        {"m.experts.0.up_proj.weight", 2, 2, 4, "[2][3][4], want [2 experts][4][4]"},
        {"m.experts.0.up_proj.bias", 1, 3, 0, "gate_up_proj_bias|[2][4]|[6]"},
        {"m.experts.0.down_proj.weight", 2, 2, 32, "down_proj_scales|a scale that is no number"},
        {"m.experts.0.down_proj.weight", 2, 2, 16, "U8|a multiple of 32"},
        {"m.experts.0.down_proj.weight", 2, 3, 32, "[2][2][1][16]|[2 experts][3][1][16]"},
        {"m.experts.0.down_proj.bias", 1, 3, 0, "down_proj.bias|needs"},
        {"m.experts.x.up_proj.weight", 2, 2, 3, "experts.x|needs"},
        {"m.experts.0.up_proj.other", 2, 2, 3, "up_proj.other|needs"},
    };
    write_tensors("model.safetensors",
                  "{\"m.experts.gate_up_proj\":{\"dtype\":\"BF16\",\"shape\":[2,3,4],"
                  "\"data_offsets\":[0,48]},"
                  "\"m.experts.gate_up_proj_bias\":{\"dtype\":\"BF16\",\"shape\":[2,4],"
                  "\"data_offsets\":[48,64]},"
                  "\"m.experts.down_proj_blocks\":{\"dtype\":\"U8\",\"shape\":[2,2,1,16],"
                  "\"data_offsets\":[64,128]},"
                  "\"m.experts.down_proj_scales\":{\"dtype\":\"U8\",\"shape\":[2,2,1],"
                  "\"data_offsets\":[128,132]}}",
                  132, 0xff);
    struct weights *weights = open_ok();
    weights_set_experts(weights, EXPERTS_INTERLEAVED, 2);
    weights_set_quantization(weights, &(struct quantization_config){.method = QUANTIZED_MXFP4});
    struct weight out;
    take_ok(weights, "m.experts.1.gate_proj.weight", 2, 2, 3, &out);
    take_ok(weights, "m.experts.1.gate_proj.bias", 1, 2, 0, &out);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {0};
        enum status status =
            take(weights, cases[i].name, cases[i].rank, cases[i].rows, cases[i].cols, &out, &err);
        assert_int_not_equal(status, OK);
        expect_words(&err, cases[i].words);
    }
    struct err err = {0};
    weights_set_experts(weights, EXPERTS_INTERLEAVED, 1); // the tensor has one more
    assert_int_equal(take(weights, cases[1].name, 2, 2, 3, &out, &err), ERR_FORMAT);
    expect_words(&err, "[2][3][4], want [1 experts]");
    weights_close(weights);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_single_file),
        IN_FOLDER(test_shards),
        IN_FOLDER(test_single_file_wins),
        IN_FOLDER(test_fingerprints_tell_weights_apart),
        IN_FOLDER(test_take_refuses),
        IN_FOLDER(test_ignore_copy),
        IN_FOLDER(test_derived_buffers_may_stay),
        IN_FOLDER(test_scales_of_inputs_are_not_left_over),
        IN_FOLDER(test_fp8_without_a_word_of_it_in_the_config_is_refused),
        IN_FOLDER(test_bad_tensors_of_experts),
        IN_FOLDER(test_bad_indexes),
        IN_FOLDER(test_missing_shard),
        IN_FOLDER(test_names_that_are_no_files),
        IN_FOLDER(test_same_tensor_twice),
        IN_FOLDER(test_no_weights),
        IN_FOLDER(test_names_of_a_text_model_in_another),
        IN_FOLDER(test_tensors_to_ignore),
        IN_FOLDER(test_one_tensor_under_two_names),
        cmocka_unit_test(test_bundled_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
