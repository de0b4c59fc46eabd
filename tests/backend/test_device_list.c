// Which backend a device's name gives. The machine may have a GPU or not, and the build CUDA or
// not: a missing device is named.
#include <stdio.h>
#include <string.h>

#include "backend/device_list.h"
#include "support/cmocka_all.h"

static enum status create(const char *device, struct backend **backend, struct err *err) {
    const struct backend_options options = {
        .device = device, .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    *backend = NULL;
    *err = (struct err){0};
    return backend_create(backend, &options, err);
}

static void test_cpu_is_always_there(void **state) {
    (void)state;
    struct backend *backend;
    struct err err;
    assert_int_equal(create("cpu", &backend, &err), OK);
    assert_string_equal(backend->name, "cpu");
    backend_destroy(backend);
}

static void test_unknown_device_lists_the_known(void **state) {
    (void)state;
    struct backend *backend;
    struct err err;
    assert_int_equal(create("gpu", &backend, &err), ERR_INVALID);
    assert_null(backend);
    assert_string_equal(err.message, "unknown device \"gpu\" (auto, cuda, cuda:N, cpu)");
}

static void test_auto_is_cuda_where_it_is_there(void **state) {
    (void)state;
    struct backend *cuda, *automatic, *unnamed;
    struct err err;
    if (create("cuda", &cuda, &err) != OK) {
        assert_null(cuda);
        assert_int_equal(strncmp(err.message, "device cuda", strlen("device cuda")), 0);
        print_message("%s\n", err.message);
    }
    const char *want = cuda ? "cuda" : "cpu";
    backend_destroy(cuda);
    assert_int_equal(create("auto", &automatic, &err), OK);
    assert_string_equal(automatic->name, want);
    backend_destroy(automatic);
    assert_int_equal(create(NULL, &unnamed, &err), OK);
    assert_string_equal(unnamed->name, want);
    backend_destroy(unnamed);
}

static const struct device_kind *found(const char *device) {
    return device_list_find(device);
}

static void test_names_of_one_kind(void **state) {
    (void)state;
    for (uint32_t i = 0; i < device_list_count(); i++) {
        const struct device_kind *kind = device_list_get(i);
        char text[64];
        assert_ptr_equal(found(kind->name), kind);
        snprintf(text, sizeof text, "%s:0,3", kind->name);
        assert_ptr_equal(found(text), kind->has_numbers ? kind : NULL);
        snprintf(text, sizeof text, "%s:", kind->name);
        assert_null(found(text));
        snprintf(text, sizeof text, "%sx:0", kind->name);
        assert_null(found(text));
    }
}

// Nobody's list of devices may leave out the one that every machine has: `auto` would find none.
static void test_the_last_is_always_there(void **state) {
    (void)state;
    const struct device_kind *last = device_list_get(device_list_count() - 1);
    assert_int_equal(last->available(NULL), OK);
    assert_non_null(found("auto"));
    assert_ptr_equal(found(NULL), found("auto"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_is_always_there),
        cmocka_unit_test(test_unknown_device_lists_the_known),
        cmocka_unit_test(test_auto_is_cuda_where_it_is_there),
        cmocka_unit_test(test_names_of_one_kind),
        cmocka_unit_test(test_the_last_is_always_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
