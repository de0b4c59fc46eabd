// Which kernels attention_begin and project_in choose on this device; no other op changes that.
// Also tests recording a step again.
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"

enum { SEQS = 300, BLOCK = 16, HEADS = 16, KV_HEADS = 8, HEAD_DIM = 128, SIZE = 64 };

// A cache, steps of up to SEQS sequences of one position, and a qkv that is small enough for
// linear/few_rows_sm90.cu, if the device has that kernel.
struct fixture {
    struct backend *device;
    struct kv_cache *cache;
    struct tensor zeros, ones, starts; // [SEQS + 1]
    struct tensor norm, x, out; // [SIZE], [SEQS][SIZE]
    struct linear *qkv;
};

static struct fixture fixture_make(struct backend *device) {
    struct fixture f = {.device = device};
    struct err err = {0};
    int32_t zeros[SEQS + 1] = {0}, ones[SEQS + 1], starts[SEQS + 1];
    float weights[SIZE * SIZE] = {0};
    for (int32_t i = 0; i <= SEQS; i++) {
        ones[i] = 1;
        starts[i] = i;
    }
    const struct kv_cache_spec spec = {.num_layers = 2,
                                       .num_blocks = 1,
                                       .block_size = BLOCK,
                                       .num_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .num_heads = HEADS,
                                       .limits = {.max_num_tokens = SEQS,
                                                  .max_num_seqs = SEQS,
                                                  .max_positions = BLOCK,
                                                  .max_blocks_per_seq = 1}};
    if (device->ops->kv_cache_create(device, &spec, &f.cache, &err)) fail_msg("%s", err.message);
    f.zeros = tensor_raw(device, zeros, sizeof zeros);
    f.ones = tensor_raw(device, ones, sizeof ones);
    f.starts = tensor_raw(device, starts, sizeof starts);
    f.norm = tensor_raw(device, weights, SIZE * sizeof *weights);
    const struct matrix_slice part = {.source = {.data = weights},
                                      .dtype = DTYPE_F32,
                                      .rows = SIZE,
                                      .cols = SIZE,
                                      .row_stride = SIZE};
    f.qkv = linear_of(device, &(struct linear_spec){&part, NULL, 1, WEIGHTS_NATIVE});
    f.x = tensor_nan(device, (size_t)SEQS * SIZE);
    f.out = tensor_nan(device, (size_t)SEQS * SIZE);
    return f;
}

static void fixture_free(struct fixture *f) {
    tensor_free(&f->out);
    tensor_free(&f->x);
    f->device->ops->linear_destroy(f->device, f->qkv);
    f->device->ops->kv_cache_destroy(f->device, f->cache);
    tensor_free(&f->norm);
    tensor_free(&f->starts);
    tensor_free(&f->ones);
    tensor_free(&f->zeros);
}

// The kernels chosen for a step. A step of more tokens than sequences has a prompt. A decode with
// drafts comes as sequences of one token each, and only max_query_len says so.
static struct cuda_step choice_of(const struct fixture *f, uint32_t num_tokens, uint32_t num_seqs,
                                  uint32_t max_query_len) {
    const struct step step = {.num_tokens = num_tokens,
                              .num_seqs = num_seqs,
                              .table_stride = 1,
                              .max_query_len = max_query_len,
                              .max_context_len = 1,
                              .positions = f->zeros.dev,
                              .slot_mapping = f->zeros.dev,
                              .query_start = f->starts.dev,
                              .context_len = f->ones.dev,
                              .block_tables = f->zeros.dev,
                              .table_row = f->zeros.dev};
    struct err err = {0};
    f->device->ops->attention_begin(f->device, f->cache, &step);
    if (f->device->ops->synchronize(f->device, &err)) fail_msg("%s", err.message);
    return cuda_backend_of(f->device)->step;
}

// The choice depends on all sequences of the step, padding included.
static void test_clusters_by_the_number_of_sequences(void **state) {
    const struct device_pair *pair = *state;
    const struct cuda_device_info *info = &cuda_backend_of(pair->device)->info;
    struct fixture f = fixture_make(pair->device);
    for (uint32_t n = 1; n <= 20; n++) {
        int size = cuda_attention_cluster_size(info, n, HEADS, KV_HEADS, HEAD_DIM);
        assert_int_equal(choice_of(&f, n, n, 1).cluster_size, size);
        assert_int_equal(choice_of(&f, n, n, 2).cluster_size, size);
        assert_int_equal(choice_of(&f, n + 1, n, 2).cluster_size, 0);
    }
    assert_int_equal(choice_of(&f, SEQS, SEQS, 1).cluster_size, 0);
    fixture_free(&f);
}

static bool is_compact_behind(const struct fixture *f, uint32_t rows) {
    f->device->fusion->project_in(f->device, &(struct project_in_args){.linear = f->qkv,
                                                                       .residual = f->x.dev,
                                                                       .norm = f->norm.dev,
                                                                       .out = f->out.dev,
                                                                       .hidden = f->x.dev,
                                                                       .rows = rows,
                                                                       .eps = 1e-6f});
    return cuda_backend_of(f->device)->step.is_compact;
}

// Attention leaves shared memory to qkv's kernel only if that kernel keeps its weights there: for
// up to 8 rows of the linear before it.
static void test_shared_memory_by_the_linear_before(void **state) {
    const struct device_pair *pair = *state;
    bool streams = cuda_backend_of(pair->device)->info.major >= 9;
    struct fixture f = fixture_make(pair->device);
    assert_int_equal(is_compact_behind(&f, 8), streams);
    assert_false(is_compact_behind(&f, 9));
    assert_int_equal(is_compact_behind(&f, 1), streams);
    fixture_free(&f);
}

static void test_later_ops_change_nothing(void **state) {
    const struct device_pair *pair = *state;
    struct backend *device = pair->device;
    struct fixture f = fixture_make(device);
    is_compact_behind(&f, 1);
    struct cuda_step before = choice_of(&f, 1, 1, 1);
    device->ops->linear(
        device, &(struct linear_args){.linear = f.qkv, .x = f.x.dev, .out = f.out.dev, .rows = 1});
    struct cuda_step after = cuda_backend_of(device)->step;
    assert_int_equal(after.cluster_size, before.cluster_size);
    assert_int_equal(after.is_compact, before.is_compact);
    fixture_free(&f);
}

// Records `times` ops, each of which copies x to out.
static void record_copies(const struct fixture *f, struct tensor *x, struct tensor *out, int times,
                          struct backend_graph **graph) {
    struct backend *device = f->device;
    struct err err = {0};
    if (device->queue->graph_begin(device, &err)) fail_msg("%s", err.message);
    for (int i = 0; i < times; i++) {
        device->ops->gather_rows(
            device,
            &(struct gather_rows_args){
                .x = x->dev, .index = f->zeros.dev, .out = out->dev, .rows = 1, .cols = SIZE});
    }
    if (device->queue->graph_end(device, graph, &err)) fail_msg("%s", err.message);
    assert_non_null(*graph);
}

static void expect_copied(struct backend *device, struct backend_graph *graph, struct tensor *x,
                          struct tensor *out) {
    device->queue->graph_launch(device, graph);
    float *got = tensor_read(out), *want = tensor_read(x);
    ops_assert_same_bits(got, want, 1, SIZE, "what a recording copies");
    free(want);
    free(got);
}

// Recorded again with other pointers, the graph is updated in place. With other ops it is made
// anew.
static void test_a_recording_replaces_another(void **state) {
    const struct device_pair *pair = *state;
    struct backend *device = pair->device;
    struct fixture f = fixture_make(device);
    float values[3][SIZE];
    struct tensor x[3], out[3];
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < SIZE; j++) values[i][j] = (float)(i * SIZE + j + 1);
        x[i] = tensor_of(device, values[i], SIZE);
        out[i] = tensor_nan(device, SIZE);
    }
    struct backend_graph *graph = NULL;
    for (int i = 0; i < 3; i++) {
        record_copies(&f, &x[i], &out[i], i < 2 ? 1 : 2, &graph);
        expect_copied(device, graph, &x[i], &out[i]);
    }
    device->queue->graph_destroy(device, graph);
    for (int i = 0; i < 3; i++) {
        tensor_free(&out[i]);
        tensor_free(&x[i]);
    }
    fixture_free(&f);
}

// Of rows without log-probabilities only the token and its own log-probability come back.
static void test_short_results(void **state) {
    enum { ROWS = 19 };
    const struct device_pair *pair = *state;
    struct backend *device = pair->device;
    struct err err = {0};
    struct sample_row rows[ROWS] = {0};
    struct sample_result results[ROWS], untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i].num_top = i % 3 ? -1 : (int32_t)i;
        memset(&results[i], (int)i + 1, sizeof results[i]);
    }
    struct tensor dev_rows = tensor_raw(device, rows, sizeof rows);
    struct tensor dev_results = tensor_raw(device, results, sizeof results);
    void *memory = NULL;
    if (device->queue->alloc_host(device, sizeof results, &memory, &err)) {
        fail_msg("%s", err.message);
    }
    struct sample_result *host = memory;
    memset(host, 0x5a, sizeof results);
    device->sampler->download_results(device, host, dev_results.dev, dev_rows.dev, ROWS);
    assert_int_equal(device->ops->synchronize(device, &err), OK);
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct sample_result *rest = i % 3 ? &untouched : &results[i];
        assert_int_equal(host[i].token_id, results[i].token_id);
        assert_memory_equal(&host[i].logprob, &results[i].logprob, sizeof(float));
        assert_memory_equal(host[i].top_id, rest->top_id, sizeof rest->top_id);
        assert_memory_equal(host[i].top_logprob, rest->top_logprob, sizeof rest->top_logprob);
    }
    device->queue->release_host(device, host);
    tensor_free(&dev_results);
    tensor_free(&dev_rows);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clusters_by_the_number_of_sequences),
        cmocka_unit_test(test_shared_memory_by_the_linear_before),
        cmocka_unit_test(test_later_ops_change_nothing),
        cmocka_unit_test(test_a_recording_replaces_another),
        cmocka_unit_test(test_short_results),
    };
    return device_pair_run(argc, argv, "cuda step", tests, ARRAY_LEN(tests));
}
