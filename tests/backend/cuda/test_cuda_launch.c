// What launchers ask the CUDA runtime for, and what they do when it refuses. The linker redirects
// the runtime's calls to this test, so it needs no GPU.
#include <string.h>

#include <cuda.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/recurrent/gated_delta.h"
#include "base/compiler.h"
#include "support/cmocka_all.h"

enum { VALUES_MAX = 16 };

// What was asked since the last test began, and what is refused.
static struct notes {
    int bytes[VALUES_MAX]; // most dynamic shared memory, call by call
    uint32_t num_bytes, num_launches, num_maps;
    size_t launched_bytes; // of the last launch
    bool refuses_bytes, refuses_carveout, refuses_launches, refuses_maps;
} notes;

cudaError_t __wrap_cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute,
                                        int value);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **args);

cudaError_t __wrap_cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute,
                                        int value) {
    (void)kernel;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return notes.refuses_carveout ? cudaErrorInvalidValue : cudaSuccess;
    }
    assert_true(notes.num_bytes < VALUES_MAX);
    notes.bytes[notes.num_bytes++] = value;
    return notes.refuses_bytes ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel,
                                       void **args) {
    (void)kernel, (void)args;
    notes.num_launches++;
    notes.launched_bytes = config->dynamicSmemBytes;
    return notes.refuses_launches ? cudaErrorLaunchOutOfResources : cudaSuccess;
}

// In place of the driver's.
static CUresult encode(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *data,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       const cuuint32_t *steps, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                       CUtensorMapFloatOOBfill fill) {
    (void)map, (void)type, (void)rank, (void)data, (void)sizes, (void)strides, (void)box;
    (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    notes.num_maps++;
    return notes.refuses_maps ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static struct cuda_refusal refusal;

static struct cuda_device_info h200(void) {
    static const union {
        CUresult (*call)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                         const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                         CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                         CUtensorMapFloatOOBfill);
        void *address;
    } driver = {encode};
    return (struct cuda_device_info){.num_sms = 132,
                                     .major = 9,
                                     .shared_bytes_max = 227 << 10,
                                     .encode_tensor_map = driver.address,
                                     .refusal = &refusal};
}

static int reset(void **state) {
    (void)state;
    notes = (struct notes){0};
    refusal = (struct cuda_refusal){0};
    return 0;
}

// A linear by linear/few_rows_ring.cu, which asks for everything.
static void run_ring(void) {
    static const char memory[64];
    const struct cuda_device_info info = h200();
    const struct cuda_few_rows_linear linear = {
        .linear = {.weight = memory, .out = 4096, .in = 4096}, .x = memory, .rows = 1};
    assert_true(cuda_linear_few_rows_ring_fits(1, 4096, 4096, false, &info));
    cuda_linear_few_rows_ring_launch(&linear, &info, NULL);
}

static void run_sort(uint32_t num_tokens) {
    const struct cuda_device_info info = h200();
    const struct experts_args args = {.num_tokens = num_tokens, .top_k = 8};
    const struct cuda_experts_view view = {.shape = {.num_experts = 64}};
    const struct cuda_experts_scratch scratch = {0};
    cuda_experts_sort_launch(&args, &view, &scratch, 64, &info, NULL);
}

// A step of two tokens of one sequence, with heads of dim x dim.
static void run_delta(uint32_t dim) {
    static const float gates[4];
    const struct cuda_device_info info = h200();
    const struct cuda_linear_view none = {0};
    const struct step step = {.num_tokens = 2, .num_seqs = 1, .max_query_len = 2};
    const struct gated_delta_args args = {
        .step = &step,
        .shape = {.num_key_heads = 1, .num_heads = 1, .key_dim = dim, .value_dim = dim},
        .gates = gates};
    cuda_gated_delta_launch(&args, &none, &info, NULL);
}

static void test_what_is_accepted_is_launched(void **state) {
    (void)state;
    run_ring();
    assert_int_equal(notes.num_maps, 1);
    assert_int_equal(notes.num_bytes, 1);
    assert_int_equal(notes.num_launches, 1);
    assert_null(refusal.call);
}

static void test_without_its_tensor_map_a_kernel_is_not_launched(void **state) {
    (void)state;
    notes.refuses_maps = true;
    run_ring();
    assert_int_equal(notes.num_launches, 0);
    assert_string_equal(refusal.call, "a tensor map");
    assert_int_equal(refusal.error, cudaErrorInvalidValue);
}

static void test_without_its_memory_a_kernel_is_not_launched(void **state) {
    (void)state;
    notes.refuses_bytes = true;
    run_ring();
    assert_int_equal(notes.num_launches, 0);
    assert_string_equal(refusal.call, "shared memory for a kernel");
}

static void test_the_first_refusal_is_kept(void **state) {
    (void)state;
    notes.refuses_carveout = notes.refuses_bytes = true;
    run_ring();
    assert_string_equal(refusal.call, "the split of L1 and shared memory");
    notes.refuses_carveout = notes.refuses_bytes = false;
    run_ring();
    assert_int_equal(notes.num_launches, 0);
    assert_string_equal(refusal.call, "the split of L1 and shared memory");
}

static void test_a_refused_launch_is_kept(void **state) {
    (void)state;
    notes.refuses_launches = true;
    run_sort(16);
    assert_int_equal(notes.num_launches, 1);
    assert_string_equal(refusal.call, "a kernel could not be started");
    assert_int_equal(refusal.error, cudaErrorLaunchOutOfResources);
}

// All calls asked for the same number of bytes, which is as much as the last launch takes at least.
static void expect_one_size(uint32_t num_calls) {
    assert_int_equal(notes.num_bytes, num_calls);
    for (uint32_t i = 1; i < num_calls; i++) assert_int_equal(notes.bytes[i], notes.bytes[0]);
    assert_true(notes.launched_bytes <= (size_t)notes.bytes[0]);
}

// The number belongs to the process: a smaller step of one engine would take memory from a larger
// one of another.
static void test_a_kernel_asks_for_the_same_memory_at_every_launch(void **state) {
    (void)state;
    enum { LARGE = 40000 }; // so many tokens take more than a launch may without asking
    run_sort(LARGE);
    run_sort(2 * LARGE);
    expect_one_size(2);

    reset(NULL);
    run_delta(64);
    run_delta(96);
    expect_one_size(2);

    reset(NULL);
    run_delta(192);
    run_delta(256);
    expect_one_size(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_what_is_accepted_is_launched, reset),
        cmocka_unit_test_setup(test_without_its_tensor_map_a_kernel_is_not_launched, reset),
        cmocka_unit_test_setup(test_without_its_memory_a_kernel_is_not_launched, reset),
        cmocka_unit_test_setup(test_the_first_refusal_is_kept, reset),
        cmocka_unit_test_setup(test_a_refused_launch_is_kept, reset),
        cmocka_unit_test_setup(test_a_kernel_asks_for_the_same_memory_at_every_launch, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
