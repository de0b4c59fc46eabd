// Tensors that a model does not take: which ones may remain in its checkpoint.
#include "checkpoint/spare_tensors.h"

#include "support/cmocka_all.h"

enum { BYTES = 10000 }; // over two reads of a bias

static char zeros[BYTES], one[BYTES];

static bool is_spare(const char *name, uint32_t rank, const char *bytes,
                     enum quantization_method method) {
    const struct quantization_config config = {.method = method};
    const struct tensor tensor = {.name = name,
                                  .path = "file",
                                  .dtype = DTYPE_F16,
                                  .rank = rank,
                                  .shape = {rank == 1 ? BYTES / 2 : 50, 100},
                                  .size_bytes = BYTES,
                                  .source = {.data = bytes}};
    bool found = false;
    struct err err = {0};
    if (spare_tensor_check(&found, &tensor, &config, &err)) fail_msg("%s", err.message);
    return found;
}

// AutoGPTQ gave every linear that it quantized a bias.
static void test_biases_of_zeros(void **state) {
    (void)state;
    one[BYTES - 1] = 0x3c;
    assert_true(is_spare("a.bias", 1, zeros, QUANTIZED_GPTQ));
    assert_true(is_spare("a.bias", 1, zeros, QUANTIZED_AWQ));
    assert_false(is_spare("a.bias", 1, one, QUANTIZED_GPTQ));
    assert_false(is_spare("a.bias", 1, zeros, QUANTIZED_NOT));
    assert_false(is_spare("a.bias", 2, zeros, QUANTIZED_GPTQ));
    assert_false(is_spare("a.weight", 1, zeros, QUANTIZED_GPTQ));
}

static void test_tables_and_scales(void **state) {
    (void)state;
    assert_true(is_spare("m.rotary_emb.inv_freq", 1, one, QUANTIZED_NOT));
    assert_false(is_spare("inv_freq", 1, one, QUANTIZED_NOT));
    assert_true(is_spare("m.self_attn.k_scale", 1, one, QUANTIZED_FP8));
    assert_true(is_spare("m.v_proj.output_scale", 1, one, QUANTIZED_NVFP4));
    assert_false(is_spare("m.self_attn.k_scale", 1, one, QUANTIZED_NOT));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_biases_of_zeros),
        cmocka_unit_test(test_tables_and_scales),
    };
    return cmocka_run_group_tests_name("spare_tensors", tests, NULL, NULL);
}
