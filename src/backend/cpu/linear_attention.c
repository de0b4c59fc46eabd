/* Linear attention (backend.h). A state is float32, whatever the KV cache's type is: its sums run
 * over the whole sequence. The unit of work is one key/value head of one sequence, which goes
 * through its tokens in order. So a step's cut and its other sequences change no bit. */
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"

enum { SLOT_ALIGN = 64 };

size_t cpu_linear_attention_bytes(const struct backend *backend, uint32_t num_kv_heads,
                                  uint32_t head_dim) {
    (void)backend;
    size_t bytes = (size_t)num_kv_heads * head_dim * head_dim * sizeof(float);
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

// state += k v^T
static void update(float *state, const float *k, const float *v, uint32_t dim) {
    for (uint32_t i = 0; i < dim; i++, state += dim) {
        for (uint32_t j = 0; j < dim; j++) state[j] += k[i] * v[j];
    }
}

// out = scale * q state
static void read_state(const float *state, const float *q, float scale, float *out, uint32_t dim) {
    memset(out, 0, dim * sizeof *out);
    for (uint32_t i = 0; i < dim; i++, state += dim) {
        float factor = scale * q[i];
        for (uint32_t j = 0; j < dim; j++) out[j] += factor * state[j];
    }
}

struct job {
    const struct cpu_kernels *kernels;
    const struct linear_attention_args *args;
};

static void norm_head(const struct job *job, const float *weight, float *head) {
    const struct linear_attention_args *args = job->args;
    if (!weight) return;
    job->kernels->rms_norm(head, NULL, weight, head, args->head_dim, args->eps);
}

// The tokens begin .. end - 1 of a sequence, through one key/value head.
static void run_head(const struct job *job, uint32_t kv_head, int32_t begin, int32_t end,
                     float *state) {
    const struct linear_attention_args *args = job->args;
    uint32_t dim = args->head_dim, group = args->num_heads / args->num_kv_heads;
    size_t stride = (size_t)(args->num_heads + 2 * args->num_kv_heads) * dim;
    for (int32_t t = begin; t < end; t++) {
        float *q = (float *)args->qkv + (size_t)t * stride;
        float *k = q + (size_t)(args->num_heads + kv_head) * dim;
        float *out = (float *)args->out + (size_t)t * args->num_heads * dim;
        norm_head(job, args->k_norm, k);
        update(state, k, k + (size_t)args->num_kv_heads * dim, dim);
        for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
            norm_head(job, args->q_norm, q + (size_t)h * dim);
            read_state(state, q + (size_t)h * dim, args->scale, out + (size_t)h * dim, dim);
        }
    }
}

static void head_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct job *job = arg;
    const struct linear_attention_args *args = job->args;
    const struct step *step = args->step;
    uint32_t s = item / args->num_kv_heads, kv_head = item % args->num_kv_heads;
    int32_t begin = step->query_start[s], end = step->query_start[s + 1];
    int32_t start = step->context_len[s] - (end - begin); // the first query's position
    if (start < 0) return; // padding
    size_t slot = cpu_linear_attention_bytes(NULL, args->num_kv_heads, args->head_dim);
    size_t state_size = (size_t)args->head_dim * args->head_dim;
    float *state = (float *)args->states + (size_t)step->table_row[s] * (slot / sizeof *state) +
                   kv_head * state_size;
    if (start == 0) memset(state, 0, state_size * sizeof *state);
    run_head(job, kv_head, begin, end, state);
}

void cpu_linear_attention(struct backend *backend, const struct linear_attention_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct job job = {&cpu->kernels, args};
    thread_pool_for(cpu->pool, args->step->num_seqs * args->num_kv_heads, head_item, &job);
}
