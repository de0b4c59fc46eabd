// A model whose weights MLX changes in a way that cannot be undone: refused, never run with them.
#include <string.h>

#include "base/os/file.h"
#include "engine/plan/engine_plan.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

#define FALCON "tests/reference/data/falcon-h1/"

// Copies a file, and puts `other` in place of each `text`, which is as long.
static void copy_file(const struct temp_folder *folder, const char *name, const char *text,
                      const char *other) {
    char path[128];
    struct buf bytes = {0};
    size_t len = strlen(text);
    snprintf(path, sizeof path, FALCON "%s", name);
    assert_int_equal(file_read(&bytes, path, NULL), OK);
    for (size_t i = 0; i + len <= bytes.len; i++) {
        if (memcmp(bytes.data + i, text, len) == 0) memcpy(bytes.data + i, other, len);
    }
    temp_folder_write(folder, name, bytes.data, bytes.len);
    buf_fini(&bytes);
}

static void expect_weights(const char *model, enum status want, const char *words) {
    const struct nvllm_engine_options options = mini_options(model);
    struct engine_plan plan;
    struct weights *weights = NULL;
    struct err err = {0};
    if (engine_plan_make(&plan, &options, 0, 0, &err)) fail_msg("%s", err.message);
    assert_int_equal(engine_plan_open_weights(&plan, &weights, &err), want);
    if (want && !strstr(err.message, words)) fail_msg("%s", err.message);
    weights_close(weights);
    engine_plan_fini(&plan);
}

static void test_factors_in_weights(void **state) {
    (void)state;
    struct temp_folder folder;
    temp_folder_create(&folder);
    copy_file(&folder, "config.json", "{", "{");
    copy_file(&folder, "model.safetensors", ",1,4]", ",4,1]"); // a convolution in MLX's form
    expect_weights(FALCON, OK, "");
    expect_weights("tests/reference/data/mlx-qwen3-5", OK, ""); // its changes are undone
    expect_weights(folder.path, ERR_UNSUPPORTED, "MLX converted the weights of this Falcon-H1");
    temp_folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors_in_weights),
    };
    return cmocka_run_group_tests_name("mlx_refused", tests, NULL, NULL);
}
