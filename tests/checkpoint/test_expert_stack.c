// Experts in one tensor: gate's and up's columns take turns or are halves, or rows are.
#include <string.h>

#include "checkpoint/weights.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

enum { EXPERTS = 2, INPUTS = 3, SIZE = 2, COUNT = EXPERTS * INPUTS * 2 * SIZE };

// Number n of m.experts.gate_up_proj [EXPERTS][INPUTS][2 SIZE] is n, and of n.experts.gate_up_proj
// [EXPERTS][2 SIZE][INPUTS] too.
static void write_model(const struct temp_folder *folder) {
    static const char header[] = "{\"m.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[2,3,4],"
                                 "\"data_offsets\":[0,96]},"
                                 "\"n.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[2,4,3],"
                                 "\"data_offsets\":[96,192]}}";
    enum { LEN = sizeof header - 1 };
    unsigned char bytes[8 + LEN + 2 * 4 * COUNT] = {LEN};
    memcpy(bytes + 8, header, LEN);
    for (int i = 0; i < 2 * COUNT; i++) {
        float value = (float)(i % COUNT);
        memcpy(bytes + 8 + LEN + 4 * i, &value, sizeof value);
    }
    temp_folder_write(folder, "model.safetensors", bytes, sizeof bytes);
}

static void test_columns_of_gate_and_up(void **state) {
    (void)state;
    static const struct {
        enum expert_layout layout;
        const char *name;
        float want[SIZE][INPUTS];
    } cases[] = {
        {EXPERTS_INTERLEAVED, "m.experts.1.gate_proj.weight", {{12, 16, 20}, {14, 18, 22}}},
        {EXPERTS_INTERLEAVED, "m.experts.1.up_proj.weight", {{13, 17, 21}, {15, 19, 23}}},
        {EXPERTS_HALVED, "m.experts.1.gate_proj.weight", {{12, 16, 20}, {13, 17, 21}}},
        {EXPERTS_HALVED, "m.experts.1.up_proj.weight", {{14, 18, 22}, {15, 19, 23}}},
        {EXPERTS_HALVED, "n.experts.1.gate_proj.weight", {{12, 13, 14}, {15, 16, 17}}},
        {EXPERTS_HALVED, "n.experts.1.up_proj.weight", {{18, 19, 20}, {21, 22, 23}}},
    };
    struct temp_folder folder;
    temp_folder_create(&folder);
    write_model(&folder);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const uint64_t shape[] = {SIZE, INPUTS};
        struct weights *weights = NULL;
        struct weight weight;
        struct err err = {0};
        if (folder_model_weights(&weights, folder.path, &err)) fail_msg("%s", err.message);
        weights_set_experts(weights, cases[i].layout, EXPERTS);
        if (weights_take(weights, cases[i].name, 2, shape, &weight, &err)) {
            fail_msg("%s", err.message);
        }
        assert_memory_equal(weight.source.data, cases[i].want, sizeof cases[i].want);
        weights_close(weights);
    }
    temp_folder_remove(&folder);
}

// Takes expert 1's up from a square gate_up_proj [2][4][4]: 4 inputs, an intermediate size of 2.
static void take_square(const char *header, size_t data_bytes, enum status want,
                        const float *want_up) {
    static float data[64];
    static unsigned char bytes[512 + sizeof data];
    size_t len = strlen(header);
    struct temp_folder folder;
    struct weights *weights = NULL;
    struct weight up;
    const uint64_t shape[] = {2, 4};
    struct err err = {0};
    for (size_t i = 0; i < ARRAY_LEN(data); i++) data[i] = (float)i;
    memset(bytes, 0, 8);
    bytes[0] = (unsigned char)len;
    assert_true(len < 256 && data_bytes <= sizeof data);
    memcpy(bytes + 8, header, len);
    memcpy(bytes + 8 + len, data, data_bytes);
    temp_folder_create(&folder);
    temp_folder_write(&folder, "model.safetensors", bytes, 8 + len + data_bytes);
    if (folder_model_weights(&weights, folder.path, &err)) fail_msg("%s", err.message);
    weights_set_experts(weights, EXPERTS_HALVED, EXPERTS);
    assert_int_equal(weights_take(weights, "m.experts.1.up_proj.weight", 2, shape, &up, &err),
                     want);
    if (want) assert_non_null(strstr(err.message, "m.experts.gate_up_proj"));
    if (!want) assert_memory_equal(up.source.data, want_up, 8 * sizeof *want_up);
    weights_close(weights);
    temp_folder_remove(&folder);
}

#define SQUARE                                                                                     \
    "{\"m.experts.gate_up_proj\":{\"dtype\":\"F32\",\"shape\":[2,4,4],\"data_offsets\":[0,128]}"

// Where rows and columns are equally many, down_proj says which of the two forms it is.
static void test_form_of_square_halves(void **state) {
    (void)state;
    // As published: [inputs][gates, ups].
    static const float turned[] = {18, 22, 26, 30, 19, 23, 27, 31};
    take_square(SQUARE ",\"m.experts.down_proj\":{\"dtype\":\"F32\",\"shape\":[2,2,4],"
                       "\"data_offsets\":[128,192]}}",
                192, OK, turned);
    // As transformers 5 writes it: [gates, ups][inputs].
    static const float rows[] = {24, 25, 26, 27, 28, 29, 30, 31};
    take_square(SQUARE ",\"m.experts.down_proj\":{\"dtype\":\"F32\",\"shape\":[2,4,2],"
                       "\"data_offsets\":[128,192]}}",
                192, OK, rows);
}

static void test_square_halves_alone_are_refused(void **state) {
    (void)state;
    take_square(SQUARE "}", 128, ERR_UNSUPPORTED, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns_of_gate_and_up),
                                       cmocka_unit_test(test_form_of_square_halves),
                                       cmocka_unit_test(test_square_halves_alone_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
