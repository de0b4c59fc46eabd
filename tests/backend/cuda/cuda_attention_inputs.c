#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_attention_util.h"

static void fill_rope(float *rope, uint32_t num_positions, uint32_t head_dim) {
    for (uint32_t position = 0; position < num_positions; position++) {
        for (uint32_t i = 0; i < head_dim / 2; i++) {
            double angle = position * pow(10000.0, -2.0 * i / head_dim);
            rope[(size_t)position * head_dim + i] = (float)cos(angle);
            rope[(size_t)position * head_dim + head_dim / 2 + i] = (float)sin(angle);
        }
    }
}

static bool is_sharing(const struct sharing *g, uint32_t s) {
    return s >= g->first && (s - g->first) % g->stride == 0 &&
           (s - g->first) / g->stride < g->num_seqs;
}

// Makes the first positions of sequences that share them those of the first such sequence.
static void share_tokens(struct inputs *in) {
    for (uint32_t g = 0; g < in->work->num_sharing; g++) {
        const struct sharing *sharing = &in->work->sharing[g];
        for (uint32_t s = 0; s < in->work->num_seqs; s++) {
            if (s == sharing->first || !is_sharing(sharing, s)) continue;
            memcpy(in->qkv[s], in->qkv[sharing->first],
                   sharing->positions * in->row_floats * sizeof **in->qkv);
        }
    }
}

struct inputs inputs_make(const struct shape *shape, const struct work *work) {
    struct inputs in = {.shape = *shape, .work = work};
    uint32_t head_dim = shape->head_dim;
    in.row_floats = ((size_t)shape->num_heads + 2 * (size_t)shape->num_kv_heads) * head_dim;
    in.qkv = test_alloc(work->num_seqs * sizeof *in.qkv);
    struct ops_rng rng = ops_rng_of(head_dim + shape->num_heads);
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        in.qkv[s] = bf16_values(&rng, work->seqs[s].context * in.row_floats, 2);
        in.num_queries += work->seqs[s].queries;
        if (work->seqs[s].context > in.max_context) in.max_context = work->seqs[s].context;
    }
    share_tokens(&in);
    in.rope = test_alloc((size_t)in.max_context * head_dim * sizeof *in.rope);
    fill_rope(in.rope, in.max_context, head_dim);
    in.q_norm = test_alloc(head_dim * sizeof *in.q_norm);
    in.k_norm = test_alloc(head_dim * sizeof *in.k_norm);
    for (uint32_t d = 0; d < head_dim; d++) {
        in.q_norm[d] = 1 + 0.5f * ops_rng_float(&rng);
        in.k_norm[d] = 1 + 0.5f * ops_rng_float(&rng);
    }
    in.sinks = test_alloc(shape->num_heads * sizeof *in.sinks);
    for (uint32_t h = 0; h < shape->num_heads; h++) in.sinks[h] = 3 * ops_rng_float(&rng);
    return in;
}

void inputs_free(struct inputs *in) {
    for (uint32_t s = 0; s < in->work->num_seqs; s++) free(in->qkv[s]);
    free(in->qkv);
    free(in->rope);
    free(in->q_norm);
    free(in->k_norm);
    free(in->sinks);
}

int32_t *tables_make(const struct inputs *in, uint32_t stride, uint32_t *num_blocks) {
    const struct work *work = in->work;
    uint32_t block_size = in->shape.block_size, used = 0;
    struct ops_rng rng = ops_rng_of(99);
    *num_blocks = 2;
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        *num_blocks += (work->seqs[s].context + block_size - 1) / block_size;
    }
    int32_t *order = test_alloc(*num_blocks * sizeof *order);
    for (uint32_t i = 0; i < *num_blocks; i++) {
        uint32_t other = ops_rng_below(&rng, i + 1);
        order[i] = order[other];
        order[other] = (int32_t)i;
    }
    int32_t *tables = test_alloc((size_t)work->num_seqs * stride * sizeof *tables);
    for (uint32_t s = 0; s < work->num_seqs; s++) {
        uint32_t own = (work->seqs[s].context + block_size - 1) / block_size;
        int32_t *table = tables + (size_t)s * stride;
        for (uint32_t i = 0; i < stride; i++) {
            table[i] = i < own ? order[used + i] : order[*num_blocks - 1]; // of no sequence
        }
        used += own;
        for (uint32_t g = 0; g < in->work->num_sharing; g++) {
            const struct sharing *sharing = &in->work->sharing[g];
            if (!is_sharing(sharing, s)) continue;
            memcpy(table, tables + (size_t)sharing->first * stride,
                   sharing->positions / block_size * sizeof *table);
        }
    }
    free(order);
    return tables;
}

void hide_shared(const struct inputs *in, uint32_t s, int32_t *table, uint32_t stride) {
    for (uint32_t g = 0; g < in->work->num_sharing; g++) {
        const struct sharing *sharing = &in->work->sharing[g];
        if (s == sharing->first || !is_sharing(sharing, s)) continue;
        uint32_t num_blocks = sharing->positions / in->shape.block_size;
        for (uint32_t i = 0; i < num_blocks; i++) table[i] = table[stride - 1];
    }
}

struct shared_prefixes shared_on(struct backend *backend, const struct inputs *in,
                                 uint32_t num_seqs, struct tensor *prefix_of, struct tensor *seqs) {
    struct shared_prefixes shared = {.num = in->work->num_sharing};
    int32_t *of = test_alloc(num_seqs * sizeof *of), *members = test_alloc(num_seqs * sizeof *of);
    uint32_t num = 0;
    for (uint32_t s = 0; s < num_seqs; s++) of[s] = -1;
    for (uint32_t g = 0; g < in->work->num_sharing; g++) {
        const struct sharing *sharing = &in->work->sharing[g];
        shared.list[g] = (struct shared_prefix){num, sharing->num_seqs, sharing->positions};
        for (uint32_t i = 0; i < sharing->num_seqs; i++, num++) {
            members[num] = (int32_t)(sharing->first + i * sharing->stride);
            of[members[num]] = (int32_t)g;
        }
    }
    *prefix_of = tensor_raw(backend, of, num_seqs * sizeof *of);
    *seqs = tensor_raw(backend, members, num_seqs * sizeof *members);
    shared.prefix_of = prefix_of->dev;
    shared.seqs = seqs->dev;
    free(of);
    free(members);
    return shared;
}
