/* Paged causal attention. A row is a (query, query head of the group) pair, so a decode's rows are
 * the heads of its group. An item is one kv head of one sequence and up to item_rows_max rows.
 * Its rows walk the positions together, from where the first query's window begins to the last
 * query, with online softmax. A step of the walk is a span of 64 positions that begins at a
 * multiple of 64, or a whole part (AMX). All panels of rows use a span's K and V before the next
 * span.
 *
 * Positions are cut into parts at multiples of ATTENTION_PART. A row's parts are summed apart and
 * then joined in order. One item computes all parts, or, where a few long sequences would leave
 * threads idle, each part is an item of its own (attention_plan.c decides). So a query's bits do
 * not depend on how its prefill is chunked, on the block size or on the number of threads. A decode
 * gives the same. */
#include "backend/cpu/attention/attention.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/dtype.h"

enum { ROWS_AHEAD = 6 }; // rows whose queries or outputs are fetched before their turn

// A thread's memory for one item.
struct attention_scratch {
    float *q; // the panels' queries, one panel after the other
    struct attention_state total; // of all parts so far
    struct attention_state part; // of one part
    float *scores; // [ATTENTION_SCORES_FLOATS]
    void *keys, *values; // bf16 [ATTENTION_PART][head_dim]
};

// The rows of one item.
struct attention_item {
    const struct attention_seq *seq;
    uint32_t index; // of the sequence
    uint32_t kv_head;
    uint32_t part; // the only part to walk, if the sequence is split
    uint32_t first_row; // of the sequence's query_len * group rows
    uint32_t num_rows, num_panels;
};

size_t attention_state_floats(uint32_t rows, uint32_t head_dim) {
    size_t floats = (size_t)rows * ((size_t)head_dim + ATTENTION_SUMS + 1);
    return (floats + LANES - 1) / LANES * LANES;
}

// acc comes first, so that it starts on a cache line.
static struct attention_state state_at(float *memory, uint32_t rows, uint32_t head_dim) {
    struct attention_state state = {.acc = memory};
    state.sum = state.acc + (size_t)rows * head_dim;
    state.max = state.sum + (size_t)rows * ATTENTION_SUMS;
    return state;
}

size_t attention_scratch_floats(uint32_t head_dim) {
    return (size_t)ATTENTION_ROWS_MAX * head_dim +
           2 * attention_state_floats(ATTENTION_ROWS_MAX, head_dim) + ATTENTION_SCORES_FLOATS +
           (size_t)ATTENTION_PART * head_dim;
}

static struct attention_scratch scratch_of(const struct cpu_backend *cpu, uint32_t thread,
                                           uint32_t head_dim) {
    size_t floats = attention_scratch_floats(cpu->attention_scratch_head_dim);
    size_t state_floats = attention_state_floats(ATTENTION_ROWS_MAX, head_dim);
    struct attention_scratch scratch;
    scratch.q = cpu->attention_scratch + thread * floats;
    scratch.scores = scratch.q + (size_t)ATTENTION_ROWS_MAX * head_dim;
    scratch.keys = scratch.scores + ATTENTION_SCORES_FLOATS;
    scratch.values = (float *)scratch.keys + (size_t)ATTENTION_PART / 2 * head_dim;
    float *states = (float *)scratch.values + (size_t)ATTENTION_PART / 2 * head_dim;
    scratch.total = state_at(states, ATTENTION_ROWS_MAX, head_dim);
    scratch.part = state_at(states + state_floats, ATTENTION_ROWS_MAX, head_dim);
    return scratch;
}

static void find_item(const struct attention_job *job, uint32_t index,
                      struct attention_item *item) {
    const struct kv_cache *cache = job->args->cache;
    uint32_t low = 0, high = job->args->step->num_seqs - 1;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (cache->seqs[middle].first_item <= index) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const struct attention_seq *seq = &cache->seqs[low];
    uint32_t of_seq = index - seq->first_item, num_kv_heads = job->args->num_kv_heads;
    uint32_t unit = of_seq / num_kv_heads; // a part of a split sequence, else a tile of rows
    *item = (struct attention_item){
        .seq = seq, .index = low, .kv_head = of_seq % num_kv_heads, .num_rows = seq->num_rows};
    if (seq->is_split) {
        item->part = seq->first_part + unit;
    } else {
        item->first_row = unit * job->rows_per_item;
        item->num_rows -= item->first_row;
        if (item->num_rows > job->rows_per_item) item->num_rows = job->rows_per_item;
    }
    uint32_t panel_rows = job->kernels->panel_rows;
    item->num_panels = (item->num_rows + panel_rows - 1) / panel_rows;
}

// Token and query head of a row of the item.
static size_t row_token(const struct attention_job *job, const struct attention_item *item,
                        uint32_t row) {
    return (size_t)job->args->step->query_start[item->index] + (item->first_row + row) / job->group;
}

static size_t row_head(const struct attention_job *job, const struct attention_item *item,
                       uint32_t row) {
    return (size_t)item->kv_head * job->group + (item->first_row + row) % job->group;
}

static uint32_t row_position(const struct attention_job *job, const struct attention_item *item,
                             uint32_t row) {
    return item->seq->first_position + (item->first_row + row) / job->group;
}

// Where load_queries puts the queries of a panel.
static float *panel_queries(const struct attention_job *job,
                            const struct attention_scratch *scratch, uint32_t panel) {
    return scratch->q + (size_t)panel * job->kernels->panel_rows * job->args->head_dim;
}

// The queries of rows from `row` of the item on that are in bf16 already.
static const void *narrow_queries(const struct attention_job *job,
                                  const struct attention_item *item, uint32_t row) {
    const struct step *step = job->args->step;
    size_t first = (size_t)step->query_start[item->index] * job->group + item->first_row + row;
    first += (size_t)item->kv_head * step->num_tokens * job->group;
    return job->narrow->queries + first * job->args->head_dim;
}

// Writes one row of a panel's queries, scaled, in the kernels' layout.
static void put_queries(const struct attention_job *job, const float *q, uint32_t row,
                        uint32_t rows, float *panel) {
    uint32_t head_dim = job->args->head_dim;
    float scale = job->args->scale;
    switch (job->kernels->queries) {
    case QUERIES_F32:
        for (size_t d = 0; d < head_dim; d++) panel[d * rows + row] = q[d] * scale;
        break;
    case QUERIES_BF16:
        // The last 64 bytes of a row may reach into the next row, which is written later.
        job->cpu->kernels.narrow_bf16(
            q, scale, head_dim, (unsigned char *)panel + (size_t)row * head_dim * sizeof(uint16_t),
            CHUNK_BYTES);
        break;
    }
}

static const float *row_queries(const struct attention_job *job, const struct attention_item *item,
                                uint32_t row) {
    const struct attention_args *args = job->args;
    size_t head = row_token(job, item, row) * attention_row_heads(args) + row_head(job, item, row);
    return (const float *)args->qkv + head * args->head_dim;
}

static inline void fetch_row(const float *row, uint32_t head_dim, bool is_written) {
    for (uint32_t d = 0; d < head_dim; d += LANES) {
        if (is_written) {
            __builtin_prefetch(row + d, 1);
        } else {
            __builtin_prefetch(row + d);
        }
    }
}

static void load_queries(const struct attention_job *job, const struct attention_item *item,
                         const struct attention_scratch *scratch) {
    for (uint32_t panel = 0; panel < item->num_panels; panel++) {
        uint32_t begin = part_begin(item->num_rows, item->num_panels, panel);
        uint32_t rows = part_begin(item->num_rows, item->num_panels, panel + 1) - begin;
        uint32_t padded = attention_padded_rows(rows);
        if (job->kernels->queries != QUERIES_F32) padded = rows;
        for (uint32_t row = 0; row < padded; row++) {
            // Tokens are pages apart, so the processor does not fetch the next one by itself.
            if (begin + row + ROWS_AHEAD < item->num_rows) {
                fetch_row(row_queries(job, item, begin + row + ROWS_AHEAD), job->args->head_dim,
                          false);
            }
            const float *q = row_queries(job, item, begin + (row < rows ? row : rows - 1));
            put_queries(job, q, row, padded, panel_queries(job, scratch, panel));
        }
    }
}

// Positions `first` .. `last`.
struct position_range {
    uint32_t first, last;
};

// The positions that the item's rows see.
static struct position_range seen_by_item(const struct attention_job *job,
                                          const struct attention_item *item) {
    return (struct position_range){.first =
                                       attention_first_seen(job->args, row_position(job, item, 0)),
                                   .last = row_position(job, item, item->num_rows - 1)};
}

// Sets next_k and next_v of the tile to the span's chunks. Those outside `seen` become the chunk of
// its nearest position, as their blocks may be gone.
static void find_chunks(const struct attention_job *job, const struct attention_item *item,
                        uint32_t span_begin, struct position_range seen,
                        struct attention_tile *tile) {
    const struct attention_args *args = job->args;
    const struct kv_layer *layer = &job->layer;
    const int32_t *block_table = step_table(args->step, args->kv_group, item->index);
    uint32_t block_size = layer->spec->block_size;
    for (uint32_t chunk = 0; chunk < job->kernels->span_positions / ATTENTION_CHUNK; chunk++) {
        uint32_t position = span_begin + chunk * ATTENTION_CHUNK;
        if (position > seen.last) position = seen.last;
        if (position < seen.first) position = seen.first;
        uint32_t block = (uint32_t)block_table[position / block_size];
        CHECK(block < layer->spec->num_blocks, "seq=%u position=%u block=%u of %u", item->index,
              position, block, layer->spec->num_blocks);
        size_t offset = position % block_size / ATTENTION_CHUNK * layer->chunk_bytes;
        const char *k = kv_layer_head(layer, block, item->kv_head);
        tile->next_k[chunk] = k + offset;
        tile->next_v[chunk] = k + layer->part_bytes + offset;
    }
}

// How many of the span's positions are before `position`.
static uint32_t in_span(const struct attention_job *job, uint32_t span, uint32_t position) {
    uint32_t before = position > span ? position - span : 0;
    return before < job->kernels->span_positions ? before : job->kernels->span_positions;
}

static void walk_span(const struct attention_job *job, const struct attention_item *item,
                      const struct attention_scratch *scratch, const struct attention_state *state,
                      uint32_t span, struct attention_tile *tile) {
    uint32_t hidden[ATTENTION_ROWS_MAX], visible[ATTENTION_ROWS_MAX], last = item->num_rows - 1;
    // Usually every row sees the whole span.
    bool sees_all =
        attention_first_seen(job->args, row_position(job, item, last)) <= span &&
        in_span(job, span, row_position(job, item, 0) + 1) == job->kernels->span_positions;
    for (uint32_t row = 0; row <= last && sees_all; row++) {
        hidden[row] = 0;
        visible[row] = job->kernels->span_positions;
    }
    for (uint32_t row = 0; row <= last && !sees_all; row++) {
        uint32_t position = row_position(job, item, row);
        hidden[row] = in_span(job, span, attention_first_seen(job->args, position));
        visible[row] = in_span(job, span, position + 1);
    }
    for (uint32_t panel = 0; panel < item->num_panels; panel++) {
        uint32_t begin = part_begin(item->num_rows, item->num_panels, panel);
        uint32_t end = part_begin(item->num_rows, item->num_panels, panel + 1);
        if (hidden[begin] == visible[end - 1]) continue;
        tile->rows = end - begin;
        tile->hidden = hidden + begin;
        tile->visible = visible + begin;
        tile->q = job->narrow->queries ? narrow_queries(job, item, begin)
                                       : panel_queries(job, scratch, panel);
        tile->acc = state->acc + (size_t)begin * tile->head_dim;
        tile->max = state->max + begin;
        tile->sum = state->sum + (size_t)begin * ATTENTION_SUMS;
        job->kernels->span(tile);
    }
}

// Computes all rows over the part's positions. sum[row * ATTENTION_SUMS] becomes a row's whole sum.
static void walk_part(const struct attention_job *job, const struct attention_item *item,
                      const struct attention_scratch *scratch, uint32_t part,
                      const struct attention_state *state) {
    uint32_t head_dim = job->args->head_dim;
    if (job->kernels->span_positions != ATTENTION_PART) { // else the kernel begins with 0
        memset(state->acc, 0, (size_t)item->num_rows * head_dim * sizeof *state->acc);
    }
    memset(state->sum, 0, (size_t)item->num_rows * ATTENTION_SUMS * sizeof *state->sum);
    for (uint32_t row = 0; row < item->num_rows; row++) state->max[row] = -INFINITY;

    uint32_t begin = part * ATTENTION_PART, end = begin + ATTENTION_PART;
    struct position_range seen = seen_by_item(job, item), next = seen;
    struct attention_tile tile = {.head_dim = head_dim,
                                  .scores = scratch->scores,
                                  .keys = scratch->keys,
                                  .values = scratch->values,
                                  .softcap = job->args->softcap};
    uint32_t step = job->kernels->span_positions;
    if (begin < seen.first) begin = seen.first / step * step;
    // If parts are items, positions after this part are another item's: fetch none of them.
    if (item->seq->is_split && end - 1 < next.last) next.last = end - 1;
    find_chunks(job, item, begin, seen, &tile);
    for (uint32_t span = begin; span < end && span <= seen.last; span += step) {
        memcpy(tile.k, tile.next_k, sizeof tile.k);
        memcpy(tile.v, tile.next_v, sizeof tile.v);
        find_chunks(job, item, span + step, next, &tile);
        walk_span(job, item, scratch, state, span, &tile);
    }
    for (uint32_t row = 0; row < item->num_rows; row++) {
        float *sum = state->sum + (size_t)row * ATTENTION_SUMS;
        for (uint32_t lane = 1; lane < ATTENTION_SUMS; lane++) sum[0] += sum[lane];
    }
}

static void add_scaled(float *restrict acc, float keep, const float *restrict more, float scale,
                       size_t count) {
    for (size_t i = 0; i < count; i++) acc[i] = acc[i] * keep + more[i] * scale;
}

// Adds a part to the total of the parts before it, for the rows that see it. A row's first part
// becomes its total, which may hold anything before.
static void join_part(const struct attention_job *job, const struct attention_item *item,
                      uint32_t part, const struct attention_state *total,
                      const struct attention_state *more) {
    size_t head_dim = job->args->head_dim;
    for (uint32_t row = 0; row < item->num_rows; row++) {
        uint32_t last = row_position(job, item, row);
        uint32_t first_part = attention_first_seen(job->args, last) / ATTENTION_PART;
        if (part < first_part || part > last / ATTENTION_PART) continue;
        float *sum = total->sum + (size_t)row * ATTENTION_SUMS;
        float more_sum = more->sum[(size_t)row * ATTENTION_SUMS];
        if (part == first_part) {
            sum[0] = more_sum;
            total->max[row] = more->max[row];
            memcpy(total->acc + row * head_dim, more->acc + row * head_dim,
                   head_dim * sizeof *total->acc);
            continue;
        }
        float change = more->max[row] - total->max[row], small = expf(-fabsf(change));
        float keep = change > 0.0f ? small : 1.0f, scale = change > 0.0f ? 1.0f : small;
        sum[0] = sum[0] * keep + more_sum * scale;
        total->max[row] = fmaxf(total->max[row], more->max[row]);
        add_scaled(total->acc + row * head_dim, keep, more->acc + row * head_dim, scale, head_dim);
    }
}

// What a row's weighted sum of values is multiplied by in the end: 1 / (sum + exp(sink - max)),
// where the sum is that of exp(score - max).
static float row_scale(const struct attention_job *job, const struct attention_item *item,
                       const struct attention_state *total, uint32_t row) {
    float sum = total->sum[(size_t)row * ATTENTION_SUMS], max = total->max[row];
    if (!job->args->sinks) return 1.0f / sum;
    return 1.0f / (sum + expf(job->args->sinks[row_head(job, item, row)] - max));
}

static float *row_out(const struct attention_job *job, const struct attention_item *item,
                      uint32_t row) {
    const struct attention_args *args = job->args;
    size_t head = row_token(job, item, row) * args->num_heads + row_head(job, item, row);
    return (float *)args->out + head * args->head_dim;
}

static void finish_rows(const struct attention_job *job, const struct attention_item *item,
                        const struct attention_state *total) {
    const struct attention_args *args = job->args;
    const struct attention_narrow *narrow = job->narrow;
    size_t head_dim = args->head_dim;
    size_t row_bytes = narrow->out ? linear_row_bytes(job->cpu, narrow->reader) : 0;
    bool is_spans = narrow->out && linear_is_spans(job->cpu, narrow->reader);
    for (uint32_t row = 0; row < item->num_rows; row++) {
        float scale = row_scale(job, item, total, row);
        float *acc = total->acc + row * head_dim;
        size_t token = row_token(job, item, row), at = row_head(job, item, row) * head_dim;
        if (narrow->out) {
            size_t stride;
            unsigned char *packed = packed_row(narrow->out, row_bytes, args->step->num_tokens,
                                               (uint32_t)token, &stride);
            if (is_spans) {
                for (size_t d = 0; d < head_dim; d++) acc[d] *= scale;
                linear_narrow_part(job->cpu, narrow->reader, acc, (uint32_t)at, (uint32_t)head_dim,
                                   packed, stride);
                continue;
            }
            packed += at / (CHUNK_BYTES / 2) * stride;
            job->cpu->kernels.narrow_bf16(acc, scale, (uint32_t)head_dim, packed, stride);
            continue;
        }
        if (row + ROWS_AHEAD < item->num_rows) {
            fetch_row(row_out(job, item, row + ROWS_AHEAD), args->head_dim, true);
        }
        // Kernels may differ in the sign of a zero: adding 0 makes all of them +0.
        float *out = row_out(job, item, row);
        for (size_t d = 0; d < head_dim; d++) out[d] = acc[d] * scale + 0.0f;
    }
}

// The memory for a part of a split sequence.
static struct attention_state split_state(const struct attention_job *job,
                                          const struct attention_item *item, uint32_t part) {
    uint32_t head_dim = job->args->head_dim;
    size_t at = (size_t)item->kv_head * item->seq->num_parts + (part - item->seq->first_part);
    float *memory = job->args->cache->partials + item->seq->first_partial +
                    at * attention_state_floats(item->num_rows, head_dim);
    return state_at(memory, item->num_rows, head_dim);
}

// The thread that finishes last joins all parts.
static void run_split(const struct attention_job *job, const struct attention_item *item,
                      const struct attention_scratch *scratch) {
    const struct kv_cache *cache = job->args->cache;
    struct attention_state state = split_state(job, item, item->part);
    walk_part(job, item, scratch, item->part, &state);
    atomic_uint *left =
        &cache->parts_left[(size_t)item->index * job->args->num_kv_heads + item->kv_head];
    if (atomic_fetch_sub_explicit(left, 1, memory_order_acq_rel) > 1) return;
    uint32_t first = item->seq->first_part, end = first + item->seq->num_parts;
    const struct attention_state total = split_state(job, item, first);
    for (uint32_t part = first + 1; part < end; part++) {
        state = split_state(job, item, part);
        join_part(job, item, part, &total, &state);
    }
    finish_rows(job, item, &total);
}

static void run_whole(const struct attention_job *job, const struct attention_item *item,
                      const struct attention_scratch *scratch) {
    struct position_range seen = seen_by_item(job, item);
    uint32_t first = seen.first / ATTENTION_PART, last = seen.last / ATTENTION_PART;
    walk_part(job, item, scratch, first, &scratch->total);
    for (uint32_t part = first + 1; part <= last; part++) {
        walk_part(job, item, scratch, part, &scratch->part);
        join_part(job, item, part, &scratch->total, &scratch->part);
    }
    finish_rows(job, item, &scratch->total);
}

static void attention_item(void *arg, uint32_t index, uint32_t thread) {
    const struct attention_job *job = arg;
    // Last items first: in a prefill they are the longest, and short items at the end keep all
    // threads busy.
    struct attention_item item;
    find_item(job, job->num_items - 1 - index, &item);
    struct attention_scratch scratch = scratch_of(job->cpu, thread, job->args->head_dim);
    if (!job->narrow->queries) load_queries(job, &item, &scratch);
    unsigned before = job->kernels->begin ? job->kernels->begin() : 0;
    if (item.seq->is_split) {
        run_split(job, &item, &scratch);
    } else {
        run_whole(job, &item, &scratch);
    }
    if (job->kernels->end) job->kernels->end(before);
}

void cpu_attention(struct backend *backend, const struct attention_args *args) {
    attention_run(cpu_backend_of(backend), args, &(struct attention_narrow){0});
}

const struct attention_kernels *attention_kernels_of(const struct cpu_kernels *kernels,
                                                     enum dtype dtype) {
    if (dtype == DTYPE_I8) return &kernels->attention_int8;
    if (dtype == DTYPE_F8_E4M3) return &kernels->attention_e4m3;
    return dtype == DTYPE_F32 ? &kernels->attention_f32 : &kernels->attention_bf16;
}

void attention_run(struct cpu_backend *cpu, const struct attention_args *args,
                   const struct attention_narrow *narrow) {
    if (args->step->num_seqs == 0) return;
    const struct kv_cache_spec *spec = &args->cache->spec;
    CHECK(args->num_heads % args->num_kv_heads == 0, "heads=%u kv_heads=%u", args->num_heads,
          args->num_kv_heads);
    CHECK(args->step->num_seqs <= spec->limits.max_num_seqs, "num_seqs=%u of %u",
          args->step->num_seqs, spec->limits.max_num_seqs);
    for (uint32_t seq = 0; seq < args->step->num_seqs; seq++) {
        int32_t query_len = args->step->query_start[seq + 1] - args->step->query_start[seq];
        int32_t context_len = args->step->context_len[seq];
        uint64_t table_tokens = (uint64_t)args->step->table_stride * spec->block_size;
        CHECK(query_len >= 0 && context_len >= query_len && (uint64_t)context_len <= table_tokens,
              "seq=%u query_len=%d context_len=%d", seq, query_len, context_len);
    }
    struct attention_job job = {
        .cpu = cpu,
        .narrow = narrow,
        .kernels = attention_kernels_of(&cpu->kernels, spec->dtype),
        .args = args,
        .layer = kv_cache_layer(args),
        .group = args->num_heads / args->num_kv_heads,
    };
    attention_make_plan(&job);
    thread_pool_for(cpu->pool, job.num_items, attention_item, &job);
}
