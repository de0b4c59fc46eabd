// What single parameters of a request do, through the public API on the bundled model.
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"
#include "support/engine_fixture.h"

static void run(struct nvllm_engine *engine) {
    struct nvllm_error error = {0};
    for (int i = 0; nvllm_engine_has_unfinished(engine); i++) {
        assert_true(i < 10000);
        if (nvllm_engine_step(engine, &error)) fail_msg("%s", error.message);
    }
}

enum { ORDER_MAX = 8 };

struct order {
    uint64_t ids[ORDER_MAX];
    int count;
};

static void note_end(const struct nvllm_event *event, void *user_data) {
    struct order *order = user_data;
    if (!event->finish_reason) return;
    assert_int_equal(event->finish_reason, NVLLM_FINISH_LENGTH);
    order->ids[order->count++] = event->request_id;
}

static void test_requests_run_by_priority_then_arrival(void **state) {
    (void)state;
    static const int32_t priorities[] = {0, 5, INT32_MIN, 0, -3, INT32_MAX};
    static const int want[] = {2, 4, 0, 3, 1, 5}; // ids are numbers from 1
    struct nvllm_engine_options options = small_options();
    options.max_num_seqs = 1;
    struct nvllm_engine *engine = open_engine(&options);
    struct nvllm_sampling_params params = greedy_params(3);
    params.ignore_eos = 1;
    struct order order = {0};
    for (size_t i = 0; i < ARRAY_LEN(priorities); i++) {
        params.priority = priorities[i];
        struct nvllm_request request = text_request("Once upon a time", &params);
        request.on_event = note_end;
        request.user_data = &order;
        assert_int_equal(nvllm_engine_add_request(engine, &request, NULL, NULL), NVLLM_OK);
    }
    run(engine);
    assert_int_equal(order.count, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) assert_int_equal(order.ids[i], want[i] + 1);
    nvllm_engine_destroy(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_run_by_priority_then_arrival),
    };
    return cmocka_run_group_tests(tests, open_shared_engine, close_shared_engine);
}
