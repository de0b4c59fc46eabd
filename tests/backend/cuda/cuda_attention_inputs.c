#include <math.h>
#include <stdlib.h>

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
