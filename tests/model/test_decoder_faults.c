// A decoder with dense and sparse layers is built while each of its allocations fails in turn; a
// forward pass allocates nothing.
#include "model/decoder.h"
#include "model/family.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"

enum { TOKENS = 40, BLOCK_SIZE = 16, BLOCKS = 4 };

static const char checkpoint[] = "tests/reference/data/qwen3-5";

struct objects {
    struct model_config config;
    struct layer_table table;
    struct weights *weights;
    struct backend *backend;
    struct comm comm;
    struct decoder *decoder;
    struct kv_cache *cache;
};

static void objects_fini(struct objects *o) {
    decoder_destroy(o->decoder);
    if (o->backend) o->backend->ops->kv_cache_destroy(o->backend, o->cache);
    weights_close(o->weights);
    backend_destroy(o->backend);
    layer_table_fini(&o->table);
    model_config_fini(&o->config);
}

static enum status objects_init(struct objects *o, struct err *err) {
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    const struct step_limits limits = {
        .max_num_tokens = TOKENS, .max_num_seqs = 1, .max_positions = TOKENS};
    struct generation_config generation;
    *o = (struct objects){.comm = comm_single()};
    enum status status = folder_model_config(&o->config, &generation, checkpoint, err);
    if (!status) status = folder_model_weights(&o->weights, checkpoint, err);
    if (!status) status = backend_create(&o->backend, &options, err);
    if (status) return status;
    const struct kv_cache_spec spec = {
        .num_layers = o->config.num_layers,
        .num_blocks = BLOCKS,
        .block_size = BLOCK_SIZE,
        .num_kv_heads = o->config.num_kv_heads,
        .head_dim = o->config.head_dim,
        .num_heads = o->config.num_heads,
        .limits = limits,
    };
    status = o->backend->ops->kv_cache_create(o->backend, &spec, &o->cache, err);
    if (status) return status;
    struct decoder_shape shape;
    weights_ignore_other_parts(o->weights);
    if ((status = family_resolve(&o->table, &o->config, err))) return status;
    if ((status = decoder_shape_of(&shape, &o->config, &o->table, 0, 1, err))) return status;
    const struct decoder_options decoder_options = {.config = &o->config,
                                                    .table = &o->table,
                                                    .shape = &shape,
                                                    .backend = o->backend,
                                                    .comm = &o->comm,
                                                    .limits = limits};
    return decoder_create(&o->decoder, &decoder_options, o->weights, err);
}

static enum status make_and_destroy(void *context, struct err *err) {
    (void)context;
    struct objects objects;
    enum status status = objects_init(&objects, err);
    objects_fini(&objects);
    return status;
}

static void test_allocations_fail(void **state) {
    (void)state;
    // qsort of the many tensors asks for memory, but also sorts without it (glibc 2.36).
    const struct alloc_sweep sweep = {.work = make_and_destroy, .may_survive = true};
    assert_true(alloc_sweep_run(&sweep) > 100);
}

static const float *forward(struct objects *o, uint32_t num_tokens) {
    static int32_t tokens[TOKENS], positions[TOKENS], slots[TOKENS];
    int32_t query_start[] = {0, (int32_t)num_tokens}, context_len[] = {(int32_t)num_tokens};
    int32_t block_table[BLOCKS] = {0, 1, 2, 3};
    int32_t logit_index[] = {(int32_t)num_tokens - 1};
    for (int32_t i = 0; i < TOKENS; i++) {
        tokens[i] = 7 * i;
        positions[i] = slots[i] = i;
    }
    const struct step step = {
        .tokens = tokens,
        .positions = positions,
        .slot_mapping = slots,
        .query_start = query_start,
        .context_len = context_len,
        .block_tables = block_table,
        .logit_index = logit_index,
        .num_tokens = num_tokens,
        .num_seqs = 1,
        .num_logits = 1,
        .table_stride = BLOCKS,
        .table_row = query_start, // 0
        .max_query_len = num_tokens,
        .max_context_len = num_tokens,
    };
    return decoder_forward(o->decoder, o->cache, &step);
}

static void test_a_pass_does_not_allocate(void **state) {
    (void)state;
    struct objects objects;
    struct err err = {0};
    if (objects_init(&objects, &err)) fail_msg("%s", err.message);
    alloc_hook_reset();
    const float *one = forward(&objects, 1), *many = forward(&objects, TOKENS);
    assert_int_equal(alloc_hook_count(), 0);
    assert_true(one && many);
    objects_fini(&objects);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_a_pass_does_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
