/* The smallest possible backend: the required ops alone, in plain C, float32, one thread, nothing
 * fused. It has no queue, no sampler, no experts. doc/adding-a-backend.md walks through it, and
 * test_plain_backend runs models on it. Linked into a test, it replaces the CUDA backend: --device
 * cuda.
 *
 * Device memory here is the host's, so that the code stays short. A real device differs in alloc,
 * upload and download, and in where the loops run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/device_list.h"

struct linear {
    uint32_t out, in;
    float *weight; // [out][in]
    float *bias; // [out], zeros where there is none
};

struct kv_cache {
    struct kv_cache_spec spec;
    float *keys, *values; // [num_layers][num_blocks * block_size][num_kv_heads][head_dim]
};

static void plain_destroy(struct backend *backend) {
    free(backend);
}

static enum status plain_alloc(struct backend *backend, size_t bytes, void **dev, struct err *err) {
    (void)backend;
    size_t rounded = (bytes + 63) / 64 * 64;
    *dev = aligned_alloc(64, rounded ? rounded : 64);
    if (!*dev) return err_nomem(err, "device memory");
    memset(*dev, 0, rounded);
    return OK;
}

static void plain_release(struct backend *backend, void *dev) {
    (void)backend;
    free(dev);
}

static void plain_upload(struct backend *backend, void *dev, const void *host, size_t bytes) {
    (void)backend;
    if (bytes) memcpy(dev, host, bytes);
}

static void plain_download(struct backend *backend, void *host, const void *dev, size_t bytes) {
    (void)backend;
    if (bytes) memcpy(host, dev, bytes);
}

static enum status plain_synchronize(struct backend *backend, struct err *err) {
    (void)backend, (void)err;
    return OK;
}

// Reads row `row` of a checkpoint's matrix as floats; ERR_IO if its file cannot be read.
static enum status read_row(const struct matrix_slice *slice, size_t row, float *out,
                            struct err *err) {
    size_t element = dtype_size(slice->dtype), bytes = slice->cols * element;
    char *buffer = malloc(bytes);
    if (!buffer) return err_nomem(err, "linear");
    const char *from =
        byte_source_get(&slice->source, row * slice->row_stride * element, bytes, buffer, err);
    for (size_t i = 0; from && i < slice->cols; i++) {
        uint16_t half;
        memcpy(&half, from + i * element, sizeof half);
        if (slice->dtype == DTYPE_F32) memcpy(&out[i], from + i * element, sizeof *out);
        if (slice->dtype == DTYPE_BF16) out[i] = bf16_to_f32(half);
        if (slice->dtype == DTYPE_F16) out[i] = f16_to_f32(half);
    }
    free(buffer);
    return from ? OK : ERR_IO;
}

static void plain_linear_destroy(struct backend *backend, struct linear *linear) {
    (void)backend;
    if (!linear) return;
    free(linear->weight);
    free(linear->bias);
    free(linear);
}

static enum status plain_linear_create(struct backend *backend, const struct linear_spec *spec,
                                       struct linear **out, struct err *err) {
    struct linear *linear = calloc(1, sizeof *linear);
    if (!linear) return err_nomem(err, "linear");
    linear->in = spec->parts[0].cols;
    for (uint32_t p = 0; p < spec->num_parts; p++) linear->out += spec->parts[p].rows;
    linear->weight = malloc((size_t)linear->out * linear->in * sizeof *linear->weight);
    linear->bias = calloc(linear->out, sizeof *linear->bias);
    enum status status = linear->weight && linear->bias ? OK : err_nomem(err, "linear");
    size_t n = 0;
    for (uint32_t p = 0; !status && p < spec->num_parts; p++) {
        if (spec->biases) status = read_row(&spec->biases[p], 0, linear->bias + n, err);
        for (uint32_t row = 0; !status && row < spec->parts[p].rows; row++, n++) {
            status = read_row(&spec->parts[p], row, linear->weight + n * linear->in, err);
        }
    }
    if (status) {
        plain_linear_destroy(backend, linear);
        return status;
    }
    *out = linear;
    return OK;
}

static bool plain_has_format(const struct backend *backend, struct weight_format format) {
    (void)backend;
    return weight_format_is(format, WEIGHTS_NATIVE);
}

static size_t plain_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in,
                                 bool bias, struct weight_format format) {
    (void)backend, (void)bias, (void)format;
    return ((size_t)out * in + out) * sizeof(float);
}

static size_t cache_floats(const struct kv_cache_spec *spec, size_t num_blocks) {
    return spec->num_layers * num_blocks * spec->block_size * spec->num_kv_heads * spec->head_dim;
}

static size_t plain_kv_cache_block_bytes(const struct backend *backend,
                                         const struct kv_cache_spec *spec) {
    (void)backend;
    return 2 * cache_floats(spec, 1) * sizeof(float);
}

static void plain_kv_cache_destroy(struct backend *backend, struct kv_cache *cache) {
    (void)backend;
    if (!cache) return;
    free(cache->keys);
    free(cache->values);
    free(cache);
}

static enum status plain_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                         struct kv_cache **out, struct err *err) {
    if (spec->dtype != DTYPE_NONE && spec->dtype != DTYPE_F32) {
        return err_set(err, ERR_UNSUPPORTED, "a KV cache of %s, device plain keeps F32",
                       dtype_name(spec->dtype));
    }
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "KV cache");
    cache->spec = *spec;
    cache->keys = malloc(cache_floats(spec, spec->num_blocks) * sizeof *cache->keys);
    cache->values = malloc(cache_floats(spec, spec->num_blocks) * sizeof *cache->values);
    if (!cache->keys || !cache->values) {
        plain_kv_cache_destroy(backend, cache);
        return err_nomem(err, "KV cache");
    }
    *out = cache;
    return OK;
}

// The index of one head of one slot in keys or values.
static size_t slot_at(const struct kv_cache *cache, uint32_t layer, size_t slot, uint32_t head) {
    const struct kv_cache_spec *spec = &cache->spec;
    size_t slots = (size_t)spec->num_blocks * spec->block_size;
    return ((layer * slots + slot) * spec->num_kv_heads + head) * spec->head_dim;
}

static void plain_embed(struct backend *backend, const struct embed_args *args) {
    (void)backend;
    const struct step *step = args->step;
    const struct linear *table = args->table;
    for (uint32_t t = 0; t < step->num_tokens; t++) {
        int32_t token = step->tokens[t];
        if (token < 0 && step->previous) token = step->previous[-1 - token].token_id;
        int64_t row = (int64_t)token - args->vocab_start;
        float *out = (float *)args->out + (size_t)t * table->in;
        bool is_here = row >= 0 && row < table->out;
        for (uint32_t k = 0; k < table->in; k++) {
            out[k] = is_here ? table->weight[(size_t)row * table->in + k] : 0;
        }
    }
}

static void norm_row(const float *x, const float *weight, float *out, uint32_t cols, float eps) {
    float sum = 0;
    for (uint32_t i = 0; i < cols; i++) sum += x[i] * x[i];
    float scale = 1 / sqrtf(sum / (float)cols + eps);
    for (uint32_t i = 0; i < cols; i++) out[i] = x[i] * scale * weight[i];
}

static void plain_rms_norm(struct backend *backend, const struct rms_norm_args *args) {
    (void)backend;
    uint32_t groups = args->groups ? args->groups : 1;
    size_t stride = args->stride ? args->stride : (size_t)groups * args->cols;
    for (uint32_t r = 0; r < args->rows * groups; r++) {
        size_t at = r / groups * stride + (size_t)(r % groups) * args->cols;
        const float *x = (const float *)args->x + at;
        float *out = (float *)args->out + at;
        if (args->residual) {
            float *residual = (float *)args->residual + at;
            for (uint32_t i = 0; i < args->cols; i++) residual[i] += x[i];
            x = residual;
        }
        norm_row(x, args->weight, out, args->cols, args->eps);
    }
}

static void plain_linear(struct backend *backend, const struct linear_args *args) {
    (void)backend; // activations are float32, so out_is_float changes nothing
    const struct linear *linear = args->linear;
    for (uint32_t r = 0; r < args->rows; r++) {
        const float *x = (const float *)args->x + (size_t)r * linear->in;
        float *out = (float *)args->out + (size_t)r * linear->out;
        for (uint32_t n = 0; n < linear->out; n++) {
            const float *w = linear->weight + (size_t)n * linear->in;
            float sum = linear->bias[n];
            for (uint32_t k = 0; k < linear->in; k++) sum += x[k] * w[k];
            out[n] = sum;
        }
    }
}

// Half-split rotation: element i with element i + head_dim / 2.
static void rotate(float *head, const float *rope, uint32_t head_dim) {
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half], cosine = rope[i], sine = rope[i + half];
        head[i] = a * cosine - b * sine;
        head[i + half] = b * cosine + a * sine;
    }
}

static void plain_attention_prepare(struct backend *backend, const struct attention_args *args) {
    (void)backend;
    const struct step *step = args->step;
    uint32_t dim = args->head_dim, num_qk = args->num_heads + args->num_kv_heads;
    for (uint32_t t = 0; t < step->num_tokens; t++) {
        float *q = (float *)args->qkv + (size_t)t * (num_qk + args->num_kv_heads) * dim;
        const float *k = q + (size_t)args->num_heads * dim, *v = q + (size_t)num_qk * dim;
        size_t row = (size_t)step->positions[t] * dim;
        for (uint32_t h = 0; h < num_qk; h++) {
            float *head = q + (size_t)h * dim;
            bool is_q = h < args->num_heads;
            const float *norm = is_q ? args->q_norm : args->k_norm;
            if (norm) norm_row(head, norm, head, dim, args->eps);
            rotate(head, (is_q ? attention_q_rope(args) : args->rope) + row, dim);
        }
        int32_t slot = step_slots(step, args->kv_group)[t];
        if (slot < 0) continue;
        for (uint32_t h = 0; h < args->num_kv_heads; h++) {
            size_t at = slot_at(args->cache, args->layer, (size_t)slot, h);
            memcpy(args->cache->keys + at, k + (size_t)h * dim, dim * sizeof *k);
            memcpy(args->cache->values + at, v + (size_t)h * dim, dim * sizeof *v);
        }
    }
}

// One query head over positions .. last of a sequence, with the softmax's running maximum and sum
// (Milakov and Gimelshein 2018), so that scores need no memory. A sink is where both begin.
static void attend_head(const struct attention_args *args, const int32_t *block_table,
                        const float *q, uint32_t head, int32_t last, float *out) {
    uint32_t dim = args->head_dim, block_size = args->cache->spec.block_size;
    uint32_t kv_head = head / (args->num_heads / args->num_kv_heads), first = 0;
    if (args->window && (uint32_t)last >= args->window) first = (uint32_t)last - args->window + 1;
    float max = args->sinks ? args->sinks[head] : -INFINITY, sum = args->sinks ? 1 : 0;
    memset(out, 0, dim * sizeof *out);
    for (uint32_t position = first; position <= (uint32_t)last; position++) {
        size_t block = (size_t)block_table[position / block_size];
        size_t slot = block * block_size + position % block_size;
        size_t at = slot_at(args->cache, args->layer, slot, kv_head);
        const float *k = args->cache->keys + at, *v = args->cache->values + at;
        float score = 0;
        for (uint32_t i = 0; i < dim; i++) score += q[i] * k[i];
        score *= args->scale;
        if (args->softcap != 0) score = args->softcap * tanhf(score / args->softcap);
        float new_max = score > max ? score : max;
        float fade = expf(max - new_max), weight = expf(score - new_max);
        for (uint32_t i = 0; i < dim; i++) out[i] = out[i] * fade + weight * v[i];
        sum = sum * fade + weight;
        max = new_max;
    }
    for (uint32_t i = 0; i < dim; i++) out[i] /= sum;
}

static void plain_attention(struct backend *backend, const struct attention_args *args) {
    (void)backend;
    const struct step *step = args->step;
    uint32_t dim = args->head_dim;
    size_t row = (size_t)(args->num_heads + 2 * args->num_kv_heads) * dim;
    for (uint32_t s = 0; s < step->num_seqs; s++) {
        const int32_t *table = step_table(step, args->kv_group, s);
        int32_t first = step->query_start[s], end = step->query_start[s + 1];
        for (int32_t t = first; t < end; t++) {
            int32_t position = step->context_len[s] - (end - t); // of this query
            if (position < 0) continue; // padding
            const float *q = (const float *)args->qkv + (size_t)t * row;
            float *out = (float *)args->out + (size_t)t * args->num_heads * dim;
            for (uint32_t h = 0; h < args->num_heads; h++) {
                attend_head(args, table, q + (size_t)h * dim, h, position, out + (size_t)h * dim);
            }
        }
    }
}

static float plain_activation(enum activation activation, float v, float up) {
    if (activation == ACTIVATION_SILU) return v / (1 + expf(-v)) * up;
    if (activation == ACTIVATION_GELU_TANH) {
        return v / (1 + expf(-1.59576912f * (v + 0.044715f * v * v * v))) * up;
    }
    v = fminf(v, 7);
    return v / (1 + expf(-1.702f * v)) * (fminf(fmaxf(up, -7), 7) + 1);
}

static void plain_silu_mul(struct backend *backend, const struct silu_mul_args *args) {
    (void)backend;
    for (uint32_t r = 0; r < args->rows; r++) {
        const float *turn = (const float *)args->gate_up + (size_t)r * 2 * args->cols;
        const float *up = turn + args->cols;
        float *out = (float *)args->out + (size_t)r * args->cols;
        for (uint32_t i = 0; i < args->cols; i++) {
            out[i] = plain_activation(args->activation, turn[i], up[i]);
        }
    }
}

static void plain_sigmoid_mul(struct backend *backend, const struct sigmoid_mul_args *args) {
    (void)backend;
    for (uint32_t r = 0; r < args->rows; r++) {
        const float *gate = (const float *)args->gate + (size_t)r * args->gate_stride;
        float *x = (float *)args->x + (size_t)r * args->cols;
        for (uint32_t i = 0; i < args->cols; i++) {
            x[i] /= 1 + expf(-gate[args->is_per_row ? 0 : i]);
        }
    }
}

static void plain_scale(struct backend *backend, const struct scale_args *args) {
    (void)backend;
    const float *x = args->x;
    float *out = args->out;
    for (size_t i = 0; i < args->count; i++) {
        out[i] = args->adds ? out[i] + args->factor * x[i] : args->factor * x[i];
    }
}

static void plain_softcap(struct backend *backend, const struct softcap_args *args) {
    (void)backend;
    for (size_t i = 0; i < args->count; i++) {
        args->x[i] = args->cap * tanhf(args->x[i] / args->cap);
    }
}

static void plain_update_tables(struct backend *backend, const struct update_tables_args *args) {
    (void)backend;
    for (uint32_t i = 0; i < args->num_runs; i++) {
        const struct table_run run = args->runs[i];
        memcpy(args->tables + run.to, args->blocks + run.from, run.count * sizeof *args->tables);
    }
}

static void plain_gather_rows(struct backend *backend, const struct gather_rows_args *args) {
    (void)backend;
    for (uint32_t r = 0; r < args->rows; r++) {
        const float *from = (const float *)args->x + (size_t)args->index[r] * args->cols;
        memcpy((float *)args->out + (size_t)r * args->cols, from, args->cols * sizeof *from);
    }
}

static const struct backend_ops plain_ops = {
    .destroy = plain_destroy,
    .alloc = plain_alloc,
    .release = plain_release,
    .upload = plain_upload,
    .download = plain_download,
    .synchronize = plain_synchronize,
    .linear_create = plain_linear_create,
    .linear_destroy = plain_linear_destroy,
    .linear_bytes = plain_linear_bytes,
    .has_format = plain_has_format,
    .kv_cache_create = plain_kv_cache_create,
    .kv_cache_destroy = plain_kv_cache_destroy,
    .kv_cache_block_bytes = plain_kv_cache_block_bytes,
    .embed = plain_embed,
    .rms_norm = plain_rms_norm,
    .linear = plain_linear,
    .attention_prepare = plain_attention_prepare,
    .attention = plain_attention,
    .silu_mul = plain_silu_mul,
    .sigmoid_mul = plain_sigmoid_mul,
    .scale = plain_scale,
    .softcap = plain_softcap,
    .update_tables = plain_update_tables,
    .gather_rows = plain_gather_rows,
};

static enum status fake_available(struct err *err) {
    (void)err;
    return OK;
}

static enum status fake_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    (void)options;
    struct backend *backend = calloc(1, sizeof *backend);
    if (!backend) return err_nomem(err, "backend");
    *backend = (struct backend){
        .ops = &plain_ops,
        .name = "plain",
        .description = "plain",
        .activation_dtype = DTYPE_F32,
        .weight_dtype = DTYPE_F32,
        .kv_cache_dtype = DTYPE_F32,
    };
    *out = backend;
    return OK;
}

// Replaces the device of src/backend.
const struct device_kind device_cuda = {
    .name = "cuda",
    .title = "GPU",
    .has_numbers = true,
    .available = fake_available,
    .create = fake_create,
};
