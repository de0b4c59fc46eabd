/* Sums over ranks (ranks/reduce.cu), sampling of rows that are cut among ranks, and token counts
 * from the memory of ranks. All ranks are on one GPU here, a stream each, so one GPU suffices.
 * Their memory is laid out as the kernels want it. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_util.h"
#include "base/compiler.h"
#include "base/dtype.h"

enum { ROWS_MAX = 300, COLS_MAX = 4104, COUNT_MAX = ROWS_MAX * COLS_MAX, SMALL_BYTES = 1 << 20 };

// The ranks of one group. What a rank reads and writes is [rows][cols] bf16.
struct group {
    struct cuda_device_info info; // with so few multiprocessors that the blocks of all ranks fit
    uint32_t world_size;
    struct cuda_ranks ranks[CUDA_RANKS_MAX];
    cudaStream_t streams[CUDA_RANKS_MAX];
    uint16_t *residual[CUDA_RANKS_MAX], *out[CUDA_RANKS_MAX]; // dev
    float *norm; // dev [COLS_MAX]
    volatile uint32_t *has_failed; // pinned
};

static void check(cudaError_t error) {
    if (error) fail_msg("%s", cudaGetErrorString(error));
}

static void *device_zeros(size_t bytes) {
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes));
    check(cudaMemset(memory, 0, bytes));
    check(cudaDeviceSynchronize()); // other streams do not wait for it
    return memory;
}

static void fill_words(char *at, uint32_t value, size_t count) {
    uint32_t *words = test_alloc(count * sizeof *words);
    for (size_t i = 0; i < count; i++) words[i] = value;
    check(cudaMemcpy(at, words, count * sizeof *words, cudaMemcpyHostToDevice));
    free(words);
}

// num_meetings: how often the blocks have met before, as far as they know.
static void group_make(struct group *g, const struct device_pair *pair, uint32_t world_size,
                       uint32_t num_meetings) {
    *g = (struct group){.info = ((struct cuda_backend *)pair->device)->info,
                        .world_size = world_size};
    g->info.num_sms = (g->info.num_sms / (int)world_size + 1) / 2;
    struct cuda_ranks ranks = {.world_size = world_size, .small_bytes = SMALL_BYTES};
    size_t num_counts = CUDA_REDUCE_BLOCKS + 1, at = CUDA_RANKS_MAX * num_counts * sizeof(uint32_t);
    ranks.counts_at = at;
    ranks.lost_at = at + 16384 - 64;
    at += 16384;
    ranks.inbox_at = at;
    size_t inbox_bytes = (size_t)2 * (world_size - 1) * SMALL_BYTES;
    at += inbox_bytes;
    ranks.partial_at = at;
    at += COUNT_MAX * sizeof(uint16_t);
    void *word = NULL;
    check(cudaHostAlloc(&word, 64, cudaHostAllocMapped));
    memset(word, 0, 64);
    g->has_failed = word;
    ranks.has_failed = word;
    for (uint32_t r = 0; r < world_size; r++) {
        char *memory = device_zeros(at);
        ranks.memory[r] = memory;
        fill_words(memory + ranks.flags_at, num_meetings, CUDA_RANKS_MAX * num_counts);
        fill_words(memory + ranks.counts_at, num_meetings, num_counts);
        check(cudaMemset(memory + ranks.inbox_at, CUDA_REDUCE_ABSENT_BYTE, inbox_bytes));
    }
    for (uint32_t r = 0; r < world_size; r++) {
        g->ranks[r] = ranks;
        g->ranks[r].rank = r;
        check(cudaStreamCreateWithFlags(&g->streams[r], cudaStreamNonBlocking));
        g->residual[r] = device_zeros(COUNT_MAX * sizeof(uint16_t));
        g->out[r] = device_zeros(COUNT_MAX * sizeof(uint16_t));
    }
    float norm[COLS_MAX];
    for (uint32_t i = 0; i < COLS_MAX; i++) norm[i] = 1 + (float)(i % 7) / 8;
    g->norm = device_zeros(sizeof norm);
    check(cudaMemcpy(g->norm, norm, sizeof norm, cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());
}

static void group_free(struct group *g) {
    for (uint32_t r = 0; r < g->world_size; r++) {
        check(cudaStreamDestroy(g->streams[r]));
        check(cudaFree(g->ranks[r].memory[r]));
        check(cudaFree(g->residual[r]));
        check(cudaFree(g->out[r]));
    }
    check(cudaFree(g->norm));
    check(cudaFreeHost((void *)(uintptr_t)g->has_failed));
}

struct sum {
    uint32_t rows, cols;
    bool is_small, is_first, has_norm;
};

static void launch(const struct group *g, uint32_t rank, const struct sum *sum) {
    const struct cuda_reduce reduce = {
        .ranks = g->ranks[rank],
        .residual = g->residual[rank],
        .norm = sum->has_norm ? g->norm : NULL,
        .out = g->out[rank],
        .rows = sum->rows,
        .cols = sum->cols,
        .is_first = sum->is_first,
        .eps = 1e-6f,
    };
    if (sum->is_small) {
        cuda_reduce_small_launch(&reduce, &g->info, g->streams[rank]);
    } else {
        cuda_reduce_large_launch(&reduce, &g->info, g->streams[rank]);
    }
}

static float *read_floats(const uint16_t *dev, size_t count) {
    uint16_t *halves = test_alloc(count * sizeof *halves);
    float *values = test_alloc(count * sizeof *values);
    check(cudaMemcpy(halves, dev, count * sizeof *halves, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) values[i] = bf16_to_f32(halves[i]);
    free(halves);
    return values;
}

static void write_floats(void *dev, const float *values, size_t count) {
    uint16_t *halves = test_alloc(count * sizeof *halves);
    for (size_t i = 0; i < count; i++) halves[i] = f32_to_bf16(values[i]);
    check(cudaMemcpy(dev, halves, count * sizeof *halves, cudaMemcpyHostToDevice));
    free(halves);
}

// What every rank should have. Parts of more than two ranks are rounded to bf16 as one sum, if
// large.
static void expect(const struct sum *sum, uint32_t world_size, float *const *parts,
                   const float *before, const float *residual, const float *out) {
    for (uint32_t row = 0; row < sum->rows; row++) {
        double squares = 0;
        for (uint32_t c = 0; c < sum->cols; c++) {
            size_t i = (size_t)row * sum->cols + c;
            float total = 0;
            for (uint32_t r = 0; r < world_size; r++) total += parts[r][i];
            if (!sum->is_small && world_size > 2) total = bf16_to_f32(f32_to_bf16(total));
            if (!sum->is_first) total += before[i];
            if (residual[i] != bf16_to_f32(f32_to_bf16(total))) {
                fail_msg("%u ranks, %u x %u, row %u column %u: %g, want %g", world_size, sum->rows,
                         sum->cols, row, c, (double)residual[i], (double)total);
            }
            squares += (double)residual[i] * (double)residual[i];
        }
        if (!sum->has_norm) continue;
        double scale = 1 / sqrt(squares / sum->cols + 1e-6);
        for (uint32_t c = 0; c < sum->cols; c++) {
            size_t i = (size_t)row * sum->cols + c;
            double want = (double)residual[i] * scale * (1 + (c % 7) / 8.0);
            if (fabs((double)out[i] - want) <= 0.005 * fabs(want) + 1e-6) continue;
            fail_msg("norm of %u x %u, row %u column %u: %g, want %g", sum->rows, sum->cols, row, c,
                     (double)out[i], want);
        }
    }
}

static void run_sum(struct group *g, struct ops_rng *rng, const struct sum *sum) {
    size_t count = (size_t)sum->rows * sum->cols;
    float *parts[CUDA_RANKS_MAX], *before = bf16_values(rng, count, 2);
    for (uint32_t r = 0; r < g->world_size; r++) {
        parts[r] = bf16_values(rng, count, 1);
        write_floats(g->ranks[r].memory[r] + g->ranks[r].partial_at, parts[r], count);
        write_floats(g->residual[r], before, count);
    }
    check(cudaDeviceSynchronize());
    for (uint32_t r = 0; r < g->world_size; r++) launch(g, r, sum);
    check(cudaDeviceSynchronize());
    for (uint32_t r = 0; r < g->world_size; r++) {
        float *residual = read_floats(g->residual[r], count), *out = read_floats(g->out[r], count);
        expect(sum, g->world_size, parts, before, residual, out);
        free(residual);
        free(out);
    }
    for (uint32_t r = 0; r < g->world_size; r++) free(parts[r]);
    free(before);
}

// Sums of changing sizes follow each other, as those of steps do. A group's have as many columns.
static void check_sums(struct group *g, struct ops_rng *rng, uint32_t cols) {
    static const struct sum sums[] = {
        {.rows = 1, .is_small = true, .is_first = true, .has_norm = true},
        {.rows = 3, .is_small = true, .has_norm = true},
        {.rows = 16, .is_small = true},
        {.rows = 2, .has_norm = true},
        {.rows = 5, .is_small = true, .has_norm = true},
        {.rows = 20, .is_first = true},
        {.rows = 7, .has_norm = true},
        {.rows = 1, .is_small = true, .has_norm = true},
        {.rows = 100, .has_norm = true}, // more than there are blocks
        {.rows = 100, .is_small = true, .has_norm = true},
    };
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_LEN(sums); i++) {
            struct sum sum = sums[i];
            sum.cols = cols;
            run_sum(g, rng, &sum);
        }
    }
}

static void test_sums(void **state) {
    static const uint32_t cols[] = {64, 1024, 4096, 4104};
    struct ops_rng rng = ops_rng_of(5);
    for (uint32_t world_size = 2; world_size <= CUDA_RANKS_MAX; world_size++) {
        for (size_t i = 0; i < ARRAY_LEN(cols); i++) {
            struct group g;
            group_make(&g, *state, world_size, 0);
            check_sums(&g, &rng, cols[i]);
            group_free(&g);
        }
    }
}

// The counts of meetings go through 2^31 and through 2^32.
static void test_counts_wrap_around(void **state) {
    static const uint32_t num_meetings[] = {0x7ffffffb, 0xfffffffb};
    struct ops_rng rng = ops_rng_of(6);
    for (uint32_t world_size = 2; world_size <= 3; world_size++) {
        for (size_t i = 0; i < ARRAY_LEN(num_meetings); i++) {
            struct group g;
            group_make(&g, *state, world_size, num_meetings[i]);
            check_sums(&g, &rng, 1024);
            group_free(&g);
        }
    }
}

// A part that has the bits of a place that waits for a part: nobody waits for ever, and NaNs stay.
static void test_absent_parts(void **state) {
    const struct sum sum = {.rows = 100, .cols = 1024, .is_small = true};
    size_t count = (size_t)sum.rows * sum.cols;
    struct ops_rng rng = ops_rng_of(7);
    struct group g;
    group_make(&g, *state, 2, 0);
    for (int round = 0; round < 3; round++) {
        check(cudaMemset(g.ranks[0].memory[0] + g.ranks[0].partial_at, CUDA_REDUCE_ABSENT_BYTE,
                         count * sizeof(uint16_t)));
        check(cudaDeviceSynchronize());
        for (uint32_t r = 0; r < 2; r++) launch(&g, r, &sum);
        check(cudaDeviceSynchronize());
        for (uint32_t r = 0; r < 2; r++) {
            float *residual = read_floats(g.residual[r], count);
            for (size_t i = 0; i < count; i++) assert_true(isnan(residual[i]));
            free(residual);
        }
        run_sum(&g, &rng, &sum);
    }
    group_free(&g);
}

// A rank that waits for one that never comes ends once has_failed is set.
static void test_lost_rank(void **state) {
    struct group g;
    group_make(&g, *state, 3, 0);
    const struct sum small = {2, 1024, true, false, true}, large = {20, 1024, false, false, true};
    launch(&g, 0, &small);
    launch(&g, 0, &large);
    cuda_ranks_meet_launch(&g.ranks[0], &g.info, g.streams[0]);
    assert_int_equal(cudaStreamQuery(g.streams[0]), cudaErrorNotReady);
    *g.has_failed = 1;
    check(cudaStreamSynchronize(g.streams[0]));
    group_free(&g);
}

// ---- sampling ----

enum { VOCAB = 5000, NUM_ROWS = 24 };

static void fill_rows(struct sample_row *rows, struct sample_bias *biases) {
    static const struct sample_row kinds[] = {
        {.temperature = 0, .top_p = 1},
        {.temperature = 0.8f, .top_p = 1},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 1.2f, .top_p = 1, .top_k = 40},
        {.temperature = 0.7f, .top_p = 0.95f, .top_k = 200, .min_p = 0.01f},
        {.temperature = 1, .top_p = 1, .min_p = 0.02f},
    };
    for (uint32_t i = 0; i < NUM_ROWS; i++) {
        rows[i] = kinds[i % ARRAY_LEN(kinds)];
        rows[i].seed_low = 7 * i;
        rows[i].draw = i;
        rows[i].repetition_penalty = 1;
        rows[i].num_top = i % 3 == 0 ? 20 : -1;
        if (i % 2) continue;
        rows[i].bias_start = i * 4;
        rows[i].bias_count = 4;
        for (uint32_t b = 0; b < 4; b++) {
            biases[i * 4 + b] =
                (struct sample_bias){(int32_t)((i * 977 + b * 1301) % VOCAB), 2.5f, 0};
        }
        if (i % 4 == 0) rows[i].mask = 1;
    }
}

// The slices' logits: [rows][slice] each, one after the other.
static float *cut(const float *logits, const int32_t *start, uint32_t count) {
    float *out = test_alloc((size_t)NUM_ROWS * VOCAB * sizeof *out), *at = out;
    for (uint32_t k = 0; k < count; k++) {
        size_t slice = (size_t)(start[k + 1] - start[k]);
        for (uint32_t row = 0; row < NUM_ROWS; row++, at += slice) {
            memcpy(at, logits + (size_t)row * VOCAB + start[k], slice * sizeof *at);
        }
    }
    return out;
}

static void compare(const struct sample_result *got, const struct sample_result *want,
                    const struct sample_row *rows, uint32_t count) {
    for (uint32_t i = 0; i < NUM_ROWS; i++) {
        if (got[i].token_id != want[i].token_id) {
            fail_msg("%u slices, row %u: token %d, want %d", count, i, got[i].token_id,
                     want[i].token_id);
        }
        assert_true(fabsf(got[i].logprob - want[i].logprob) < 1e-4f);
        for (int32_t t = 0; t < rows[i].num_top; t++) {
            assert_int_equal(got[i].top_id[t], want[i].top_id[t]);
            assert_true(fabsf(got[i].top_logprob[t] - want[i].top_logprob[t]) < 1e-4f);
        }
    }
}

// is_shared: each rank scans its slice, as over CUDA IPC; else one rank scans all that it gathered.
static void check_slices(struct cuda_backend *cuda, struct sample_args args, const float *logits,
                         uint32_t count, bool is_shared, struct sample_result *out) {
    struct cuda_logit_slices slices = {.count = count, .scan_count = count};
    for (uint32_t k = 1; k <= count; k++) slices.start[k] = (int32_t)(VOCAB * k / count / 8 * 8);
    float *parts = cut(logits, slices.start, count);
    struct tensor dev = tensor_raw(&cuda->base, parts, (size_t)NUM_ROWS * VOCAB * sizeof *parts);
    for (uint32_t k = 0; k < count; k++) {
        slices.logits[k] = (float *)dev.dev + (size_t)NUM_ROWS * (size_t)slices.start[k];
    }
    void *shared = device_zeros(cuda_sample_shared_bytes(VOCAB, NUM_ROWS));
    if (is_shared) {
        slices.shared[0] = shared;
        slices.num_shared = slices.scan_count = 1;
    }
    for (uint32_t k = 0; k < (is_shared ? count : 1); k++) {
        slices.scan_first = k;
        cuda_sample_scan_launch(&args, &slices, &cuda->info, cuda->stream);
    }
    cuda_sample_finish_launch(&args, &slices, &cuda->info, cuda->stream);
    check(cudaMemcpyAsync(out, args.results, NUM_ROWS * sizeof *out, cudaMemcpyDeviceToHost,
                          cuda->stream));
    check(cudaStreamSynchronize(cuda->stream));
    check(cudaFree(shared));
    tensor_free(&dev);
    free(parts);
}

// Rows that are cut give the tokens of whole rows.
static void test_slices(void **state) {
    const struct device_pair *pair = *state;
    struct backend *device = pair->device;
    struct cuda_backend *cuda = (struct cuda_backend *)device;
    struct ops_rng rng = ops_rng_of(11);
    float *logits = test_alloc((size_t)NUM_ROWS * VOCAB * sizeof *logits);
    for (size_t i = 0; i < (size_t)NUM_ROWS * VOCAB; i++) logits[i] = ops_rng_float(&rng) * 6;
    struct sample_row rows[NUM_ROWS];
    struct sample_bias biases[NUM_ROWS * 4] = {{0}};
    uint32_t mask[(VOCAB + 31) / 32];
    struct sample_result want[NUM_ROWS], got[NUM_ROWS];
    memset(mask, 0x5b, sizeof mask);
    fill_rows(rows, biases);
    size_t floats = device->sampler->scratch_floats(device, VOCAB, NUM_ROWS);
    struct tensor whole = tensor_raw(device, logits, (size_t)NUM_ROWS * VOCAB * sizeof *logits);
    struct tensor dev_rows = tensor_raw(device, rows, sizeof rows);
    struct tensor dev_biases = tensor_raw(device, biases, sizeof biases);
    struct tensor dev_mask = tensor_raw(device, mask, sizeof mask);
    struct tensor results = tensor_nan(device, sizeof want / 2);
    struct tensor scratch = tensor_nan(device, floats * 2);
    const struct sample_args args = {.logits = whole.dev,
                                     .rows = dev_rows.dev,
                                     .biases = dev_biases.dev,
                                     .masks = dev_mask.dev,
                                     .results = results.dev,
                                     .num_rows = NUM_ROWS,
                                     .vocab_size = VOCAB,
                                     .scratch = scratch.dev};
    device->sampler->sample(device, &args);
    tensor_read_raw(&results, want);
    for (uint32_t count = 2; count <= 8; count++) {
        check_slices(cuda, args, logits, count, false, got);
        compare(got, want, rows, count);
        check_slices(cuda, args, logits, count, true, got);
        compare(got, want, rows, count);
    }
    struct tensor *all[] = {&whole, &dev_rows, &dev_biases, &dev_mask, &results, &scratch};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) tensor_free(all[i]);
    free(logits);
}

// A rank's token ids are in pinned memory. The caller of counts_begin may change them at once.
static void test_counts_of_pinned_ids(void **state) {
    enum { SLOTS = 64, SIZE = 151936, IDS = 20000 };
    struct backend *device = ((const struct device_pair *)*state)->device;
    struct token_counts *counts = NULL;
    struct err err = {0};
    void *memory = NULL;
    assert_int_equal(device->queue->alloc_host(device, IDS * sizeof(int32_t), &memory, &err), OK);
    assert_int_equal(device->sampler->counts_create(device, SLOTS, SIZE, IDS, &counts, &err), OK);
    int32_t *ids = memory;
    for (int32_t slot = 1; slot <= SLOTS; slot++) {
        for (uint32_t i = 0; i < IDS; i++) ids[i] = slot;
        device->sampler->counts_begin(device, counts, (uint32_t)slot, ids, 0, IDS);
    }
    for (size_t slot = 1; slot <= SLOTS; slot++) {
        uint32_t row[SLOTS + 1];
        device->ops->download(device, row, counts->counts + (slot - 1) * SIZE, sizeof row);
        assert_int_equal(device->ops->synchronize(device, &err), OK);
        assert_int_equal(row[slot], IDS);
    }
    device->sampler->counts_destroy(device, counts);
    device->queue->release_host(device, memory);
}

int main(int argc, char **argv) {
    // Before CUDA starts: ranks wait for each other, so no two of their streams may share a queue.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),         cmocka_unit_test(test_counts_wrap_around),
        cmocka_unit_test(test_absent_parts), cmocka_unit_test(test_lost_rank),
        cmocka_unit_test(test_slices),       cmocka_unit_test(test_counts_of_pinned_ids),
    };
    return device_pair_run(argc, argv, "cuda_reduce", tests, ARRAY_LEN(tests));
}
