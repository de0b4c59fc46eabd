/* Paged causal attention. An item is one kv head of one sequence and up to ATTENTION_ROWS_MAX query
 * rows; a row is a (query, query head of the group) pair, so a decode's rows are the heads of its
 * group. The item walks the sequence's positions in absolute spans of 64 with online softmax and
 * skips what lies behind its last query; each span's K and V are used by all its panels of rows.
 *
 * Where a span begins and how it is summed depends on the position alone: a query's result has the
 * same bits in a decode, in any chunk of a prefill and for any block size. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "base/check.h"

enum { ITEMS_PER_THREAD = 6 };

struct attention_job {
    const struct cpu_backend *cpu;
    const struct attention_args *args;
    uint32_t group; // query heads per kv head
    uint32_t rows_per_item; // panel_rows .. ATTENTION_ROWS_MAX
    uint32_t num_tiles;
};

// A thread's memory for one item.
struct attention_scratch {
    float *q; // panels of [head_dim][rows], one after the other
    float *acc; // [ATTENTION_ROWS_MAX][head_dim]
    float *max; // [ATTENTION_ROWS_MAX]
    float *sum; // [ATTENTION_ROWS_MAX][16]
    float *scores; // [PANEL_ROWS_MAX][ATTENTION_SPAN]
};

// The rows of one item.
struct attention_item {
    uint32_t seq, kv_head;
    uint32_t query_len;
    uint32_t first_row; // of the sequence's query_len * group rows
    uint32_t num_rows, num_panels;
};

size_t attention_scratch_floats(uint32_t head_dim) {
    size_t floats = (size_t)ATTENTION_ROWS_MAX * (2 * (size_t)head_dim + 1 + LANES) +
                    PANEL_ROWS_MAX * ATTENTION_SPAN;
    return (floats + LANES - 1) / LANES * LANES; // a cache line of its own for each thread
}

static struct attention_scratch scratch_of(const struct cpu_backend *cpu, uint32_t thread,
                                           uint32_t head_dim) {
    size_t floats = attention_scratch_floats(cpu->attention_scratch_head_dim);
    struct attention_scratch scratch;
    scratch.q = cpu->attention_scratch + thread * floats;
    scratch.acc = scratch.q + (size_t)ATTENTION_ROWS_MAX * head_dim;
    scratch.sum = scratch.acc + (size_t)ATTENTION_ROWS_MAX * head_dim;
    scratch.scores = scratch.sum + (size_t)ATTENTION_ROWS_MAX * LANES;
    scratch.max = scratch.scores + (size_t)PANEL_ROWS_MAX * ATTENTION_SPAN;
    return scratch;
}

// Tiles of all sequences share one index space without a table: sequence s has those from here on.
// It needs ceil(rows / rows_per_item) of them, which never reach the next one's first.
static uint32_t first_tile(const struct attention_job *job, uint32_t seq) {
    uint64_t row = (uint64_t)(uint32_t)job->args->query_start[seq] * job->group;
    return (uint32_t)(row / job->rows_per_item) + seq;
}

static uint32_t find_seq(const struct attention_job *job, uint32_t tile) {
    uint32_t low = 0, high = job->args->num_seqs - 1;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (first_tile(job, middle) <= tile) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

// False when the tile is one that its sequence does not need.
static bool find_item(const struct attention_job *job, uint32_t tile, uint32_t kv_head,
                      struct attention_item *item) {
    const struct attention_args *args = job->args;
    uint32_t seq = find_seq(job, tile);
    uint32_t query_len = (uint32_t)(args->query_start[seq + 1] - args->query_start[seq]);
    uint32_t first_row = (tile - first_tile(job, seq)) * job->rows_per_item;
    uint32_t rows_total = query_len * job->group;
    if (first_row >= rows_total) return false;
    uint32_t rows_left = rows_total - first_row;
    uint32_t panel_rows = job->cpu->kernels->panel_rows;
    *item = (struct attention_item){
        .seq = seq, .kv_head = kv_head, .query_len = query_len, .first_row = first_row};
    item->num_rows = rows_left < job->rows_per_item ? rows_left : job->rows_per_item;
    item->num_panels = (item->num_rows + panel_rows - 1) / panel_rows;
    return true;
}

// Token and query head of a row of the item.
static size_t row_token(const struct attention_job *job, const struct attention_item *item,
                        uint32_t row) {
    return (size_t)job->args->query_start[item->seq] + (item->first_row + row) / job->group;
}

static size_t row_head(const struct attention_job *job, const struct attention_item *item,
                       uint32_t row) {
    return (size_t)item->kv_head * job->group + (item->first_row + row) % job->group;
}

static uint32_t row_position(const struct attention_job *job, const struct attention_item *item,
                             uint32_t row) {
    uint32_t context_len = (uint32_t)job->args->context_len[item->seq];
    return context_len - item->query_len + (item->first_row + row) / job->group;
}

static void start_rows(const struct attention_job *job, const struct attention_item *item,
                       const struct attention_scratch *scratch) {
    const struct attention_args *args = job->args;
    uint32_t head_dim = args->head_dim;
    size_t row_floats = ((size_t)args->num_heads + 2 * (size_t)args->num_kv_heads) * head_dim;
    memset(scratch->acc, 0, (size_t)item->num_rows * head_dim * sizeof *scratch->acc);
    memset(scratch->sum, 0, (size_t)item->num_rows * LANES * sizeof *scratch->sum);
    for (uint32_t row = 0; row < item->num_rows; row++) scratch->max[row] = -INFINITY;
    for (uint32_t panel = 0; panel < item->num_panels; panel++) {
        uint32_t begin = part_begin(item->num_rows, item->num_panels, panel);
        uint32_t rows = part_begin(item->num_rows, item->num_panels, panel + 1) - begin;
        float *out = scratch->q + (size_t)begin * head_dim;
        for (uint32_t row = 0; row < rows; row++) {
            const float *q = (const float *)args->qkv +
                             row_token(job, item, begin + row) * row_floats +
                             row_head(job, item, begin + row) * head_dim;
            for (size_t d = 0; d < head_dim; d++) out[d * rows + row] = q[d] * args->scale;
        }
    }
}

// K and V of the span's chunks up to `last_position`.
static void find_chunks(const struct attention_job *job, const struct attention_item *item,
                        uint32_t span_begin, uint32_t last_position, struct attention_tile *tile) {
    const struct attention_args *args = job->args;
    const struct kv_cache *cache = args->cache;
    const int32_t *block_table = args->block_tables + (size_t)item->seq * args->block_table_stride;
    uint32_t block_size = cache->spec.block_size;
    for (uint32_t chunk = 0; chunk < ATTENTION_CHUNKS; chunk++) {
        uint32_t position = span_begin + chunk * LANES;
        if (position > last_position) return;
        uint32_t block = (uint32_t)block_table[position / block_size];
        CHECK(block < cache->spec.num_blocks, "seq=%u position=%u block=%u of %u", item->seq,
              position, block, cache->spec.num_blocks);
        size_t offset = (size_t)(position % block_size) * args->head_dim;
        const float *k = kv_cache_head(cache, args->layer, block, item->kv_head);
        tile->k[chunk] = k + offset;
        tile->v[chunk] = k + cache->part_floats + offset;
    }
}

static void walk_positions(const struct attention_job *job, const struct attention_item *item,
                           const struct attention_scratch *scratch) {
    uint32_t head_dim = job->args->head_dim;
    uint32_t last_position = row_position(job, item, item->num_rows - 1);
    struct attention_tile tile = {.head_dim = head_dim, .scores = scratch->scores};
    for (uint32_t span = 0; span <= last_position; span += ATTENTION_SPAN) {
        find_chunks(job, item, span, last_position, &tile);
        for (uint32_t panel = 0; panel < item->num_panels; panel++) {
            uint32_t begin = part_begin(item->num_rows, item->num_panels, panel);
            uint32_t end = part_begin(item->num_rows, item->num_panels, panel + 1);
            if (row_position(job, item, end - 1) < span) continue;
            tile.rows = end - begin;
            for (uint32_t row = 0; row < tile.rows; row++) {
                uint32_t seen = row_position(job, item, begin + row) + 1; // positions 0 .. seen-1
                uint32_t visible = seen > span ? seen - span : 0;
                tile.visible[row] = visible < ATTENTION_SPAN ? visible : ATTENTION_SPAN;
            }
            tile.q = scratch->q + (size_t)begin * head_dim;
            tile.acc = scratch->acc + (size_t)begin * head_dim;
            tile.max = scratch->max + begin;
            tile.sum = scratch->sum + (size_t)begin * LANES;
            job->cpu->kernels->attention(&tile);
        }
    }
}

static void finish_rows(const struct attention_job *job, const struct attention_item *item,
                        const struct attention_scratch *scratch) {
    const struct attention_args *args = job->args;
    size_t head_dim = args->head_dim;
    for (uint32_t row = 0; row < item->num_rows; row++) {
        float sum = 0;
        for (uint32_t lane = 0; lane < LANES; lane++) sum += scratch->sum[row * LANES + lane];
        float scale = 1.0f / sum;
        const float *acc = scratch->acc + row * head_dim;
        float *out =
            (float *)args->out +
            (row_token(job, item, row) * args->num_heads + row_head(job, item, row)) * head_dim;
        for (size_t d = 0; d < head_dim; d++) out[d] = acc[d] * scale;
    }
}

static void attention_item(void *arg, uint32_t index, uint32_t thread) {
    const struct attention_job *job = arg;
    uint32_t num_kv_heads = job->args->num_kv_heads;
    // Last tiles first: in a prefill they are the longest, and what comes last should be short.
    uint32_t tile = job->num_tiles - 1 - index / num_kv_heads;
    struct attention_item item;
    if (!find_item(job, tile, index % num_kv_heads, &item)) return;
    struct attention_scratch scratch = scratch_of(job->cpu, thread, job->args->head_dim);
    start_rows(job, &item, &scratch);
    walk_positions(job, &item, &scratch);
    finish_rows(job, &item, &scratch);
}

// Many rows share the reading of K and V, but every thread should have some items.
static uint32_t rows_per_item(const struct attention_job *job) {
    uint32_t panel_rows = job->cpu->kernels->panel_rows;
    uint64_t rows = (uint64_t)job->args->num_tokens * job->group * job->args->num_kv_heads;
    uint64_t share = rows / (thread_pool_num_threads(job->cpu->pool) * ITEMS_PER_THREAD);
    if (share > ATTENTION_ROWS_MAX) share = ATTENTION_ROWS_MAX;
    uint32_t panels = (uint32_t)share / panel_rows;
    return panels ? panels * panel_rows : panel_rows;
}

void cpu_attention(struct backend *backend, struct backend_stream *stream,
                   const struct attention_args *args) {
    (void)stream;
    CHECK(!args->prepare, "layer=%u", args->layer);
    if (args->num_seqs == 0) return;
    const struct kv_cache_spec *spec = &args->cache->spec;
    CHECK(args->layer < spec->num_layers && args->num_kv_heads == spec->num_kv_heads &&
              args->head_dim == spec->head_dim && args->num_heads % args->num_kv_heads == 0,
          "layer=%u heads=%u kv_heads=%u head_dim=%u", args->layer, args->num_heads,
          args->num_kv_heads, args->head_dim);
    for (uint32_t seq = 0; seq < args->num_seqs; seq++) {
        int32_t query_len = args->query_start[seq + 1] - args->query_start[seq];
        int32_t context_len = args->context_len[seq];
        uint64_t table_tokens = (uint64_t)args->block_table_stride * spec->block_size;
        CHECK(query_len >= 0 && context_len >= query_len && (uint64_t)context_len <= table_tokens,
              "seq=%u query_len=%d context_len=%d", seq, query_len, context_len);
    }
    struct attention_job job = {
        .cpu = cpu_backend_of(backend),
        .args = args,
        .group = args->num_heads / args->num_kv_heads,
    };
    job.rows_per_item = rows_per_item(&job);
    job.num_tiles = first_tile(&job, args->num_seqs); // enough for the last sequence too
    thread_pool_for(job.cpu->pool, job.num_tiles * args->num_kv_heads, attention_item, &job);
}
