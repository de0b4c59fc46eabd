/* A request's logits are the same bytes however it runs: alone, among others, chunked, with a
 * cached prefix, after preemptions, with more threads, other block sizes or the other policy. For
 * each ISA: a model of each kind of op. For the one that the machine runs: each family, and what
 * the scheduler alone does otherwise. With NANOVLLM_TEST_ALL=1 all of it for each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/isa_repeats.h"
#include "support/mini_engine.h"
#include "support/temp_folder.h"

enum { NUM_PROMPT = 150, NUM_NEW = 12, NUM_OTHERS = 64, OTHER_TOKENS_MAX = 48 };

struct fixture {
    const char *model;
    uint32_t vocab;
    int32_t prompt[NUM_PROMPT];
    int32_t others[NUM_OTHERS][OTHER_TOKENS_MAX];
    struct mini_request requests[NUM_OTHERS + 1]; // with the watched one
    float *want, *got; // [NUM_NEW][vocab]
};

// What the scheduler alone does otherwise, the kernels not: it is tried with one ISA.
static bool has_schedules;

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_fixture(struct fixture *f, uint32_t vocab) {
    uint32_t random = 7;
    f->vocab = vocab;
    for (int i = 0; i < NUM_PROMPT; i++) f->prompt[i] = (int32_t)(next_random(&random) % vocab);
    for (int r = 0; r < NUM_OTHERS; r++) {
        for (int i = 0; i < OTHER_TOKENS_MAX; i++) {
            f->others[r][i] = (int32_t)(next_random(&random) % vocab);
        }
    }
    size_t bytes = (size_t)NUM_NEW * vocab * sizeof(float);
    f->want = malloc(bytes);
    f->got = malloc(bytes);
    assert_true(f->want && f->got);
}

static void free_fixture(struct fixture *f) {
    free(f->want);
    free(f->got);
}

static struct mini_request watched(const struct fixture *f, float *logits) {
    return (struct mini_request){
        .prompt = f->prompt, .num_prompt = NUM_PROMPT, .max_new = NUM_NEW, .logits = logits};
}

static void run_alone(struct fixture *f, const struct nvllm_engine_options *options,
                      float *logits) {
    struct mini_engine engine;
    mini_open(&engine, options);
    struct mini_request request = watched(f, logits);
    mini_run(&engine, &request, 1);
    mini_close(&engine);
}

// The watched request is number `at` of the batch. The last one's rows are beyond the first 1024.
static void run_among_others(struct fixture *f, const struct nvllm_engine_options *options,
                             int at) {
    struct mini_engine engine;
    mini_open(&engine, options);
    uint32_t random = 3;
    for (int i = 0; i < NUM_OTHERS + 1; i++) {
        if (i == at) {
            f->requests[i] = watched(f, f->got);
            continue;
        }
        f->requests[i] = (struct mini_request){
            .prompt = f->others[i > at ? i - 1 : i],
            .num_prompt = 1 + next_random(&random) % OTHER_TOKENS_MAX,
            .max_new = 1 + next_random(&random) % 12,
        };
    }
    mini_run(&engine, f->requests, NUM_OTHERS + 1);
    mini_close(&engine);
}

// Six older requests grow until the watched one, the last to arrive, is preempted.
static void run_preempted(struct fixture *f, const struct nvllm_engine_options *options) {
    enum { NUM_OLDER = 6 };
    struct mini_engine engine;
    mini_open(&engine, options);
    for (int i = 0; i < NUM_OLDER; i++) {
        f->requests[i] =
            (struct mini_request){.prompt = f->others[i], .num_prompt = 14, .max_new = 100};
    }
    f->requests[NUM_OLDER] = watched(f, f->got);
    mini_run(&engine, f->requests, NUM_OLDER + 1);
    assert_true(scheduler_num_preemptions(engine.scheduler) > 0);
    mini_close(&engine);
}

static void expect_same(const struct fixture *f, const char *what) {
    for (uint32_t i = 0; i < NUM_NEW; i++) {
        const float *want = f->want + (size_t)i * f->vocab, *got = f->got + (size_t)i * f->vocab;
        if (memcmp(want, got, f->vocab * sizeof *want) == 0) continue;
        uint32_t at = 0;
        const char *want_bytes = (const char *)want, *got_bytes = (const char *)got;
        while (memcmp(want_bytes + at * sizeof *want, got_bytes + at * sizeof *got, sizeof *want) ==
               0) {
            at++;
        }
        fail_msg("%s, %s: logits of token %u differ first at id %u: %.9g, want %.9g", f->model,
                 what, i, at, (double)got[at], (double)want[at]);
    }
}

static void check_cached_prefix(struct fixture *f, const struct nvllm_engine_options *options) {
    struct mini_engine engine;
    mini_open(&engine, options);
    struct mini_request first = watched(f, NULL), second = watched(f, f->got);
    mini_run(&engine, &first, 1);
    uint64_t before = scheduler_num_cached_tokens(engine.scheduler);
    mini_run(&engine, &second, 1);
    assert_true(scheduler_num_cached_tokens(engine.scheduler) > before);
    mini_close(&engine);
    expect_same(f, "cached prefix");
}

// Layers of single ops give the bits of fused layers. Nothing is watched where nothing is fused.
static void check_single_ops(struct fixture *f, const struct nvllm_engine_options *options) {
    struct mini_engine engine;
    mini_open(&engine, options);
    const struct backend_fusion *fusion = engine.plan.backend->fusion;
    engine.plan.backend->fusion = NULL;
    struct mini_request request = watched(f, f->got);
    mini_run(&engine, &request, 1);
    engine.plan.backend->fusion = fusion;
    mini_close(&engine);
    expect_same(f, "layers of single ops");
}

static struct fixture *start(const char *model, const struct nvllm_engine_options *options) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    struct mini_engine probe;
    mini_open(&probe, options);
    make_fixture(f, probe.plan.config.vocab_size);
    f->model = model;
    mini_close(&probe);
    run_alone(f, options, f->want);
    return f;
}

// 8-bit and 4-bit weights: what differs from 16 bits is how layers run.
static void check_linears(struct nvllm_engine_options options, const char *what) {
    struct fixture *f = start(options.model, &options);
    check_single_ops(f, &options);
    options.threads = 2;
    options.max_num_batched_tokens = 2048; // more rows than are converted at once
    run_among_others(f, &options, NUM_OTHERS);
    expect_same(f, what);
    free_fixture(f);
    free(f);
}

static void check_quantized(const char *model, const char *isa, const char *quantization) {
    struct nvllm_engine_options options = mini_options(model);
    options.cpu_isa = isa;
    options.quantization = quantization;
    check_linears(options, quantization);
}

// A checkpoint's codes: random ones of `bits` bits in the shape of a small Qwen3.
static void check_packed(const char *isa, int bits, int group, bool has_zeros) {
    char config[1024];
    struct temp_folder folder;
    temp_folder_create(&folder);
    snprintf(config, sizeof config,
             "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForCausalLM\"],"
             " \"torch_dtype\": \"bfloat16\", \"vocab_size\": 512, \"hidden_size\": 128,"
             " \"intermediate_size\": 320, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
             " \"num_key_value_heads\": 2, \"head_dim\": 64, \"hidden_act\": \"silu\","
             " \"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 2048, \"rope_theta\": 10000,"
             " \"tie_word_embeddings\": true, \"eos_token_id\": 1, \"quantization_config\":"
             " {\"quant_method\": \"gptq\", \"bits\": %d, \"group_size\": %d, \"sym\": %s,"
             " \"desc_act\": false}}",
             bits, group, has_zeros ? "false" : "true");
    temp_folder_write_text(&folder, "config.json", config);
    struct nvllm_engine_options options = mini_options(folder.path);
    options.cpu_isa = isa;
    options.load_format = "dummy";
    check_linears(options, "codes of a checkpoint");
    temp_folder_remove(&folder);
}

// few_blocks: of a KV cache that is too small for seven requests at a time.
static void check_with(const char *model, const char *isa, const char *kv_cache_dtype,
                       int32_t few_blocks) {
    struct nvllm_engine_options base = mini_options(model);
    base.cpu_isa = isa;
    base.kv_cache_dtype = kv_cache_dtype;
    struct fixture *f = start(model, &base);
    struct nvllm_engine_options options = base;
    run_among_others(f, &options, NUM_OTHERS / 2);
    expect_same(f, "among 64 others");
    options.max_num_batched_tokens = 16;
    options.max_num_seqs = 16;
    run_alone(f, &options, f->got);
    expect_same(f, "chunked at 16 tokens");
    check_cached_prefix(f, &base);
    check_single_ops(f, &base);

    options = base;
    options.num_kvcache_blocks = few_blocks;
    run_preempted(f, &options);
    expect_same(f, "after preemptions");
    if (has_schedules) {
        options.schedule = "prefill-first";
        run_preempted(f, &options);
        expect_same(f, "prefill-first, after preemptions");
    }

    options = base;
    options.threads = 2;
    options.max_num_batched_tokens = 2048;
    run_among_others(f, &options, NUM_OTHERS);
    expect_same(f, "two threads, after 64 others in one step");
    if (has_schedules) {
        options.max_num_batched_tokens = base.max_num_batched_tokens;
        options.block_size = 64;
        options.enable_prefix_caching = 0;
        run_alone(f, &options, f->got);
        expect_same(f, "blocks of 64, no prefix cache");
    }
    free_fixture(f);
    free(f);
}

static void check_model(const char *model, const char *isa, const char *kv_cache_dtype) {
    check_with(model, isa, kv_cache_dtype, 24);
}

// A request of 162 tokens, which are 11 blocks, in a cache of the 4 that a window of 32 and a step
// of 16 tokens need.
static void check_held_blocks(const char *model, const char *isa) {
    struct nvllm_engine_options options = mini_options(model);
    options.cpu_isa = isa;
    struct fixture *f = start(model, &options);
    options.max_num_batched_tokens = 16;
    options.max_num_seqs = 1;
    options.num_kvcache_blocks = 4;
    struct mini_engine engine;
    mini_open(&engine, &options);
    struct mini_request request = watched(f, f->got);
    mini_run(&engine, &request, 1);
    assert_int_equal(scheduler_num_preemptions(engine.scheduler), 0);
    mini_close(&engine);
    expect_same(f, "a cache of its window");
    free_fixture(f);
    free(f);
}

// A window in all layers, for which a request holds few blocks; then five groups of layers, of
// which two have windows.
static void check_windows(const char *isa) {
    check_held_blocks("tests/reference/data/mistral-window", isa);
    check_with("tests/reference/data/mistral-window", isa, "auto", 12);
    check_with("tests/reference/data/qwen2-window", isa, "auto", 100);
    check_with("tests/reference/data/gemma3", isa, "auto", 100);
    check_with("tests/reference/data/gemma2", isa, "auto", 60); // scores with a soft limit
}

static void check_byte_weights(const char *isa) {
    check_quantized("tests/reference/data/qwen3", isa, "int8");
    check_quantized("tests/reference/data/llama-bias", isa, "int4");
}

static void check_isa(const char *isa, bool all_families) {
    check_byte_weights(isa);
    check_packed(isa, 4, 32, true);
    check_packed(isa, 4, 64, false); // heads, and parts of gate and up, are whole groups
    check_packed(isa, 8, 32, false);
    check_model("models/tiny-qwen3", isa, "auto");
    check_model("models/tiny-qwen3", isa, "int8");
    check_model("tests/reference/data/qwen3", isa, "auto"); // head_dim 128
    check_with("tests/reference/data/gpt-oss", isa, "auto", 48); // two groups of blocks
    check_model("tests/reference/data/qwen3-next", isa, "auto"); // layers with a state
    check_model("tests/reference/data/granite4-h", isa, "auto"); // Mamba-2
    check_model("tests/reference/data/falcon-h1", isa, "auto"); // attention and Mamba-2
    check_model("tests/reference/data/lfm2", isa, "auto"); // short convolutions
    check_model("tests/reference/data/nemotron-h-moe", isa, "auto"); // experts without a gate
    check_model("tests/reference/data/cohere-plus", isa, "auto"); // LayerNorms of heads
    check_with("tests/reference/data/cohere2", isa, "auto", 48); // LayerNorms, parallel layers
    check_with("tests/reference/data/llama4", isa, "auto", 48); // chunks
    check_model("tests/reference/data/nanochat", isa, "auto"); // a norm of embeddings
    check_model("tests/reference/data/flex-olmo", isa, "auto"); // experts behind no norm
    check_model("tests/reference/data/mistral4", isa, "auto"); // latents, q scaled by its position
    check_with("tests/reference/data/cohere2-moe", isa, "auto", 48); // experts beside attention
    check_with("tests/reference/data/afmoe", isa, "auto", 48); // gates in a matrix of their own
    check_model("tests/reference/data/apertus", isa, "auto"); // an MLP without a gate
    check_model("tests/reference/data/deepseek-v3", isa, "auto"); // latent attention
    // Heads of two shapes, and layers that read the keys of others.
    check_with("tests/reference/data/gemma4-e2b", isa, "auto", 48);
    if (!all_families) return;
    check_model("tests/reference/data/glm4-moe", isa, "auto"); // experts chosen by sigmoids
    check_model("tests/reference/data/hunyuan", isa, "auto"); // norms behind the rotation
    check_with("tests/reference/data/gemma4", isa, "auto", 48); // keys that are values
    check_with("tests/reference/data/gemma4-moe", isa, "auto", 48); // experts beside a dense MLP
    check_model("tests/reference/data/deepseek-v2", isa, "int8");
    check_model("tests/reference/data/ernie4-5-moe", isa, "auto"); // probabilities with a bias
    check_model("tests/reference/data/qwen3", isa, "int8");
    check_model("tests/reference/data/qwen2", isa, "auto");
    check_model("tests/reference/data/llama-bias", isa, "auto");
    check_model("tests/reference/data/mistral", isa, "auto");
    check_model("tests/reference/data/mixtral", isa, "auto");
    check_model("tests/reference/data/olmo2", isa, "auto");
    check_model("tests/reference/data/granite", isa, "auto");
    check_model("tests/reference/data/phi3-short", isa, "auto");
    check_model("tests/reference/data/qwen3-moe", isa, "auto");
    check_model("tests/reference/data/qwen3-moe-mixed", isa, "auto");
    check_windows(isa);
}

// Whether the machine has no later row of the table: what "auto" chooses, or as good.
static bool is_last(const struct cpu_isa table[CPU_ISA_COUNT], int number) {
    for (int i = number + 1; i < CPU_ISA_COUNT; i++) {
        if (table[i].is_here && !isa_repeats(table, i, ISA_ALL_BUT_BYTES)) return false;
    }
    return true;
}

// Only small models, as scalar code is slow.
static void check_scalar(void) {
    check_model("tests/reference/data/qwen3", "scalar", "auto");
    check_model("tests/reference/data/llama-bias", "scalar", "auto");
    check_model("tests/reference/data/llama-bias", "scalar", "int8");
    check_model("tests/reference/data/qwen3-moe-mixed", "scalar", "auto");
    check_windows("scalar");
    check_model("tests/reference/data/qwen3-5", "scalar", "auto");
}

static void test_isa(void **state) {
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    int number = *(const int *)*state;
    const struct cpu_isa *isa = &table[number];
    if (!isa->is_here) {
        print_message("skipped: this machine has no %s\n", isa->name);
        skip();
    }
    has_schedules = is_last(table, number) || getenv("NANOVLLM_TEST_ALL");
    if (strcmp(isa->name, "scalar") == 0) {
        check_scalar();
    } else if (isa_repeats(table, number, ISA_ALL_BUT_BYTES)) {
        check_byte_weights(isa->name);
    } else {
        check_isa(isa->name, has_schedules);
    }
}

int main(void) {
    static int index[CPU_ISA_COUNT];
    struct CMUnitTest tests[CPU_ISA_COUNT];
    struct cpu_isa table[CPU_ISA_COUNT];
    cpu_isa_table(table);
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        index[i] = i;
        tests[i] = (struct CMUnitTest){
            .name = table[i].name, .test_func = test_isa, .initial_state = &index[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
