// One rank of several warms its linears up while the others wait: it must not wait for a sum.
#include "model/decoder.h"
#include "model/family.h"
#include "support/cmocka_all.h"
#include "support/folder_model.h"

enum { TOKENS = 4, VOCAB_MAX = 1 << 16 };

static float part[TOKENS * 4096], logits[TOKENS * VOCAB_MAX];

static void *partial(struct comm *comm) {
    (void)comm;
    return part;
}

static float *rank_logits(struct comm *comm) {
    (void)comm;
    return logits;
}

static void reduce_add(struct comm *comm, struct backend *backend,
                       const struct reduce_add_args *args) {
    (void)comm, (void)backend;
    fail_msg("a sum of %u rows, for which the rank would wait", args->rows);
}

// The first of two ranks.
static void warm_up(const char *checkpoint) {
    static const struct comm_ops ops = {
        .partial = partial, .reduce_add = reduce_add, .logits = rank_logits};
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    struct comm comm = {.rank = 0, .world_size = 2, .ops = &ops};
    struct model_config config;
    struct generation_config generation;
    struct layer_table table;
    struct decoder_shape shape;
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct decoder *decoder = NULL;
    struct err err = {0};
    if (folder_model_config(&config, &generation, checkpoint, &err)) fail_msg("%s", err.message);
    if (family_resolve(&table, &config, &err)) fail_msg("%s", err.message);
    if (decoder_shape_of(&shape, &config, &table, 0, 2, &err)) fail_msg("%s", err.message);
    if (backend_create(&backend, &options, &err)) fail_msg("%s", err.message);
    if (folder_model_weights(&weights, checkpoint, &err)) fail_msg("%s", err.message);
    const struct decoder_options decoder_options = {.config = &config,
                                                    .table = &table,
                                                    .shape = &shape,
                                                    .backend = backend,
                                                    .comm = &comm,
                                                    .limits = {.max_num_tokens = TOKENS,
                                                               .max_num_seqs = TOKENS,
                                                               .max_positions = 64,
                                                               .max_blocks_per_seq = 4}};
    if (decoder_create(&decoder, &decoder_options, weights, &err)) fail_msg("%s", err.message);
    assert_true(config.hidden_size <= sizeof part / sizeof *part / TOKENS);
    assert_true(config.vocab_size <= VOCAB_MAX);
    decoder_warm_up_linears(decoder, TOKENS);
    decoder_destroy(decoder);
    weights_close(weights);
    backend_destroy(backend);
    layer_table_fini(&table);
    model_config_fini(&config);
}

static void test_no_sums(void **state) {
    (void)state;
    warm_up("tests/reference/data/qwen3");
}

// There a norm follows o and down, and needs the sum.
static void test_no_sums_before_norms_behind_blocks(void **state) {
    static const char *const checkpoints[] = {
        "tests/reference/data/gemma2", "tests/reference/data/gemma3", "tests/reference/data/olmo2"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(checkpoints); i++) warm_up(checkpoints[i]);
}

// A layer of these has two results to sum before its MLP.
static void test_no_sums_of_two_mixers(void **state) {
    (void)state;
    warm_up("tests/reference/data/falcon-h1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_sums),
        cmocka_unit_test(test_no_sums_before_norms_behind_blocks),
        cmocka_unit_test(test_no_sums_of_two_mixers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
