// Linears as other packages write them, in each format of quantized checkpoints. Every value is
// that of the format by definition, bit for bit (tests/reference/make_quantized_cases.py,
// make_mlx_cases.py, make_bitsandbytes_cases.py).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/coded_matrix.h"
#include "base/json/jread.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

enum { OUT = 32, IN = 64 };

#define FOLDER "tests/reference/data/quantized/"

static float *matrix_of(const struct weight *weight) {
    float *values = malloc(OUT * IN * sizeof *values);
    struct err err = {0};
    assert_non_null(values);
    if (!weight->reader) {
        const void *bytes =
            byte_source_get(&weight->source, 0, OUT * IN * sizeof *values, values, &err);
        assert_non_null(bytes);
        if (bytes != values) memcpy(values, bytes, OUT * IN * sizeof *values);
        return values;
    }
    for (uint64_t row = 0; row < OUT; row++) {
        float *out = values + row * IN;
        if (weight->reader->read(weight->reader, row, 0, IN, out, &err))
            fail_msg("%s", err.message);
    }
    return values;
}

// A part of a row is the same values, wherever it begins and ends.
static void check_parts(const struct weight *weight, const float *values) {
    float part[IN];
    for (uint64_t begin = 0; begin < IN; begin += 7) {
        for (size_t count = 1; begin + count <= IN; count += 13) {
            const uint64_t row = (begin + count) % OUT;
            assert_int_equal(weight->reader->read(weight->reader, row, begin, count, part, NULL),
                             OK);
            assert_memory_equal(part, values + row * IN + begin, count * sizeof *part);
        }
    }
}

// Codes stand for the same values, from a column within the row on too. Returns whether it has any.
static bool check_codes(const char *name, const struct matrix_reader *reader, const float *values) {
    const struct matrix_form form = reader->form;
    struct err err = {0};
    uint8_t codes[IN];
    float scales[IN], offsets[IN] = {0};
    if (!form.code) return false;
    uint32_t group = form.group ? 16 : 0;
    for (uint32_t row = 0; row < OUT; row++) {
        uint32_t col = form.group && row % 2 ? 16 : 0;
        const struct matrix_codes out = {
            .codes = codes, .scales = scales, .offsets = form.has_offsets ? offsets : NULL};
        if (reader->read_codes(reader, row, col, IN - col, group, &out, &err)) {
            fail_msg("%s: %s", name, err.message);
        }
        for (uint32_t i = 0; i < IN - col; i++) {
            uint32_t g = group ? i / group : 0;
            float got = coded_value(form.code, codes[i]) * scales[g] + offsets[g];
            float want = values[row * IN + col + i];
            if (fabsf(got - want) <= 1e-6f * fabsf(want) + 1e-9f) continue;
            fail_msg("%s: code of [%u][%u] is %g, want %g", name, row, col + i, (double)got,
                     (double)want);
        }
    }
    return true;
}

static struct weights *open_case(const char *name, const json_t *format, struct temp_folder *folder,
                                 struct quantization_config *config) {
    char file[512], here[256], link[300];
    struct err err = {0};
    struct weights *weights = NULL;
    temp_folder_create(folder);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(file, sizeof file, "%s/" FOLDER "%s.safetensors", here, name);
    snprintf(link, sizeof link, "%s/model.safetensors", folder->path);
    assert_int_equal(symlink(file, link), 0);
    json_t *root = jread_get(format, "architectures")
                       ? json_incref((json_t *)(uintptr_t)format)
                       : json_pack("{s:O}", "quantization_config", format);
    if (quantization_config_read(config, root, name, &err)) fail_msg("%s", err.message);
    json_decref(root);
    if (folder_model_weights(&weights, folder->path, &err)) fail_msg("%s", err.message);
    weights_set_quantization(weights, config);
    return weights;
}

// Returns whether its weights have codes.
static bool check_case(const char *name, const json_t *format) {
    struct temp_folder folder;
    struct quantization_config config;
    struct err err = {0};
    struct weights *weights = open_case(name, format, &folder, &config);
    const uint64_t shape[2] = {OUT, IN};
    struct weight stored, wanted;
    if (weights_take(weights, "m.weight", 2, shape, &stored, &err)) {
        fail_msg("%s: %s", name, err.message);
    }
    if (weights_take(weights, "want.weight", 2, shape, &wanted, &err)) {
        fail_msg("%s: %s", name, err.message);
    }
    assert_non_null(stored.reader);
    float *got = matrix_of(&stored), *want = matrix_of(&wanted);
    for (size_t i = 0; i < OUT * IN; i++) {
        if (got[i] == want[i]) continue;
        fail_msg("%s: [%zu][%zu] is %g, want %g", name, i / IN, i % IN, (double)got[i],
                 (double)want[i]);
    }
    check_parts(&stored, got);
    bool has_codes = check_codes(name, stored.reader, got);
    if (weights_finish(weights, &err)) fail_msg("%s: %s", name, err.message); // no tensor is left
    free(got);
    free(want);
    weights_close(weights);
    quantization_config_fini(&config);
    temp_folder_remove(&folder);
    return has_codes;
}

// "quantization_config" of each case; of MLX's all that config.json has.
static json_t *load_cases(void) {
    json_t *cases = NULL, *others = NULL;
    struct err err = {0};
    if (jread_file(&cases, FOLDER "cases.json", &err)) fail_msg("%s", err.message);
    if (jread_file(&others, FOLDER "other_cases.json", &err)) fail_msg("%s", err.message);
    assert_int_equal(json_object_update(cases, others), 0);
    json_decref(others);
    return cases;
}

static void test_every_format(void **state) {
    (void)state;
    json_t *cases = load_cases(), *format;
    const char *name;
    assert_true(json_object_size(cases) >= 49);
    int num_with_codes = 0;
    json_object_foreach(cases, name, format) {
        num_with_codes += check_case(name, format);
    }
    assert_true(num_with_codes >= 41);
    json_decref(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format),
    };
    return cmocka_run_group_tests_name("quantized_formats", tests, NULL, NULL);
}
