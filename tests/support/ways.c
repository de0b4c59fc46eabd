#include "support/ways.h"

#include <stdbool.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/engine_fixture.h"
#include "support/fake_device.h"

const struct way way_alone = {.device = "cpu", .async_scheduling = "off", .max_num_seqs = 1};

struct nvllm_engine_options way_options(const struct way *way) {
    struct nvllm_engine_options options = small_options();
    options.device = way->device;
    if (way->async_scheduling) options.async_scheduling = way->async_scheduling;
    if (way->schedule) options.schedule = way->schedule;
    options.max_num_seqs = way->max_num_seqs;
    options.max_num_batched_tokens = way->max_num_tokens ? way->max_num_tokens : 64;
    if (way->num_blocks) options.num_kvcache_blocks = way->num_blocks;
    options.enforce_eager = way->enforce_eager;
    options.enable_prefix_caching = !way->no_prefix_cache;
    return options;
}

struct nvllm_result *way_run_alone(const struct mixed_workload *workload,
                                   struct nvllm_stats *stats) {
    struct nvllm_engine_options options = way_options(&way_alone);
    *stats = (struct nvllm_stats)NVLLM_STATS_INIT;
    return mixed_workload_run(workload, &options, stats);
}

static void expect_same(const struct mixed_workload_expected *expected, const struct way *way) {
    struct nvllm_engine_options options = way_options(way);
    struct nvllm_stats stats = NVLLM_STATS_INIT;
    // The fake device runs one model alone.
    bool is_alone = options.tensor_parallel_size == 1 && options.data_parallel_size == 1;
    if (!is_alone && strcmp(way->device, "cuda") == 0) return;
    fake_device_reset();
    struct nvllm_result *got = mixed_workload_run(expected->workload, &options, &stats);
    mixed_workload_expect_same(got, expected->results);
    if (way->num_blocks) assert_true(stats.num_preemptions > 0);
    if (strcmp(way->device, "cuda") == 0) {
        struct fake_device_counts counts = fake_device_counts();
        assert_int_equal(counts.num_graph_launches > 0, !way->enforce_eager);
        assert_int_equal(counts.live, 0);
        assert_int_equal(counts.num_given_back_early, 0);
    }
    nvllm_results_free(got, WORKLOAD_REQUESTS);
}

void ways_expect_same(const struct mixed_workload_expected *expected, const struct way *ways,
                      size_t num_ways) {
    for (size_t i = 0; i < num_ways; i++) expect_same(expected, &ways[i]);
}
