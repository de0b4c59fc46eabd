// Whether a checkpoint has a linear, in whatever form its matrix is stored.
#include <string.h>

#include "checkpoint/weights.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"
#include "support/temp_folder.h"

// Four tensors of eight zero bytes each.
static void write_model(const struct temp_folder *folder) {
    static const char header[] =
        "{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
        "\"b.qweight\":{\"dtype\":\"I32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"
        "\"c.weight_packed\":{\"dtype\":\"I32\",\"shape\":[2,1],\"data_offsets\":[16,24]},"
        "\"d.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,2],\"data_offsets\":[24,32]}}";
    enum { LEN = sizeof header - 1 };
    unsigned char bytes[8 + LEN + 32] = {LEN & 255, LEN >> 8};
    memcpy(bytes + 8, header, LEN);
    temp_folder_write(folder, "model.safetensors", bytes, sizeof bytes);
}

static void test_packed_matrices_count(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    write_model(&folder);
    struct weights *weights = NULL;
    struct err err = {0};
    if (folder_model_weights(&weights, folder.path, &err)) fail_msg("%s", err.message);
    assert_true(weights_has(weights, "a.weight"));
    assert_true(weights_has(weights, "b.weight"));
    assert_true(weights_has(weights, "c.weight"));
    assert_false(weights_has(weights, "d.weight"));
    assert_false(weights_has(weights, "b.bias"));
    weights_close(weights);
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed_matrices_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
