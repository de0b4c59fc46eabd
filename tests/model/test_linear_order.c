/* The order in which decoder_load.c lets the CPU's linears follow each other is that of a step. A
 * step's linears and experts are watched: each linear is the one that the linear before it has as
 * `next`. What follows experts cannot be seen here. */
#include <stdio.h>

#include "backend/cpu/ops.h"
#include "model/decoder_internal.h"
#include "support/cmocka_all.h"
#include "support/mini_engine.h"

static struct backend_ops ops; // the backend's, with these watched
static struct backend_moe moe;
static void (*run_linear)(struct backend *backend, const struct linear_args *args);
static void (*run_experts)(struct backend *backend, const struct experts_args *args);

static const struct linear *last; // NULL: experts, or none yet
static uint32_t num_known; // linears whose next one was known

static void watched_linear(struct backend *backend, const struct linear_args *args) {
    if (last && last->next) {
        assert_ptr_equal(last->next, args->linear);
        num_known++;
    }
    last = args->linear;
    run_linear(backend, args);
}

static void watched_experts(struct backend *backend, const struct experts_args *args) {
    assert_null(last->next); // the router's: which weights are read next is not known
    last = NULL;
    run_experts(backend, args);
}

static void check_family(const char *name, uint32_t want) {
    char folder[64];
    snprintf(folder, sizeof folder, "tests/reference/data/%s", name);
    struct nvllm_engine_options options = mini_options(folder);
    struct mini_engine engine;
    static const int32_t prompt[] = {5, 6, 7};
    struct mini_request request = {.prompt = prompt, .num_prompt = 3, .max_new = 1};
    mini_open(&engine, &options);
    struct backend *backend = engine.plan.backend;
    const struct backend_ops *all_ops = backend->ops;
    const struct backend_moe *all_moe = backend->moe;
    ops = *all_ops;
    moe = *all_moe;
    run_linear = ops.linear;
    run_experts = moe.experts;
    ops.linear = watched_linear;
    moe.experts = watched_experts;
    backend->ops = &ops;
    backend->moe = &moe;
    last = NULL;
    num_known = 0;
    mini_run(&engine, &request, 1);
    backend->ops = all_ops;
    backend->moe = all_moe;
    mini_close(&engine);
    if (num_known != want)
        fail_msg("%s: %u linears' next is known, want %u", name, num_known, want);
}

static void test_steps_run_in_the_known_order(void **state) {
    (void)state;
    check_family("qwen3-moe", 6); // 3 layers: q, k, v; o; router
    check_family("qwen3-moe-mixed", 20);
    check_family("glm4-moe", 7); // a dense layer, then one with a shared expert
    check_family("deepseek-v3", 13); // latent attention
    check_family("qwen2-moe", 8); // the shared expert has a gate
    check_family("gpt-oss", 8);
    check_family("gemma4-moe", 8); // the shared expert comes before the router
    check_family("gemma4-e2b", 23); // layers have inputs
    check_family("qwen3-next", 28); // attention has gates
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps_run_in_the_known_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
