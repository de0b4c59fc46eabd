/* All layers of a dense model in one call, for linears whose x is narrow (fusion's `layers`). The
 * arithmetic is that of the single ops, so the bits are the same. What differs is how results
 * travel: each is converted where it is computed, into the form that the next step reads.
 *
 *   norm, conversion    one pass over the residual
 *   q, k, v             a part is one head: normalised, rotated, then stored as bf16 queries or in
 *                       the cache
 *   attention           leaves x of the output projection
 *   gate, up            side by side, so that x of `down` is what reaches memory
 *   o, down             are added to the residual
 *
 * A prefill writes a quarter of the bytes of single ops that way, and a layer has seven loops over
 * the threads instead of thirteen. Where x is bytes, whose scale needs the whole row, or 16-bit
 * integers with a scale for each chunk (linear/fixed.h), attention and gate x up leave floats and
 * are converted in a loop of their own. Integers of spans are left packed for many rows, where
 * heads and parts of gate and up are whole spans. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/ops.h"
#include "base/check.h"

enum { MANY_ROWS = 33 }; // from here on a part of q, k, v is a whole head; fewer need finer items

// What x of a linear becomes.
enum x_kind { X_FLOATS, X_BF16, X_BYTES, X_FIXED };

struct fused_model {
    struct fused_model_spec spec;
    struct fused_layer *layers; // [num_layers]
    enum x_kind x; // of all linears; X_FLOATS: they differ, or the shapes do not fit
};

// One call.
struct pass {
    struct cpu_backend *cpu;
    const struct fused_model_spec *spec;
    const struct layers_args *args;
    const struct fused_layer *layer;
    struct attention_args attention;
    struct kv_layer kv;
    struct attention_narrow narrow;
    enum x_kind x; // of linears
};

static enum x_kind x_kind_of(const struct cpu_backend *cpu, const struct linear *linear) {
    if (!linear || !linear_is_narrow(cpu, linear)) return X_FLOATS;
    if (linear_is_fixed(cpu, linear) || linear_is_spans(cpu, linear)) return X_FIXED;
    return weight_format_has_bytes(linear->format) ? X_BYTES : X_BF16;
}

static bool all_take(const struct cpu_backend *cpu, const struct fused_layer *layer,
                     enum x_kind x) {
    const struct linear *linears[] = {layer->qkv, layer->o, layer->gate_up, layer->down};
    for (size_t i = 0; i < ARRAY_LEN(linears); i++) {
        if (x_kind_of(cpu, linears[i]) != x) return false;
    }
    return true;
}

enum status cpu_model_create(struct backend *backend, const struct fused_model_spec *spec,
                             struct fused_model **out, struct err *err) {
    struct fused_model *model = calloc(1, sizeof *model);
    if (!model) return err_nomem(err, "fused layers");
    model->spec = *spec;
    model->layers = calloc(spec->num_layers, sizeof *model->layers);
    if (!model->layers) {
        cpu_model_destroy(backend, model);
        return err_nomem(err, "fused layers");
    }
    memcpy(model->layers, spec->layers, spec->num_layers * sizeof *model->layers);
    model->spec.layers = model->layers;
    // Halves of whole blocks; a row fits a thread's memory; a head is whole chunks of bf16.
    bool fits = spec->is_whole && spec->intermediate % LANES == 0 && spec->hidden <= LINEAR_SUMS &&
                spec->head_dim % (CHUNK_BYTES / 2) == 0 && spec->head_dim <= 512;
    const struct cpu_backend *cpu = cpu_backend_of(backend);
    model->x = fits ? x_kind_of(cpu, model->layers[0].qkv) : X_FLOATS;
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        if (!all_take(cpu, &model->layers[i], model->x)) model->x = X_FLOATS;
    }
    *out = model;
    return OK;
}

void cpu_model_destroy(struct backend *backend, struct fused_model *model) {
    (void)backend;
    if (!model) return;
    free(model->layers);
    free(model);
}

static void add_to_residual(void *arg, const struct linear_part *part) {
    const struct pass *pass = arg;
    size_t hidden = pass->spec->hidden;
    float *residual = (float *)pass->args->residual + part->row * hidden + part->col;
    for (uint32_t row = 0; row < part->num_rows; row++, residual += hidden) {
        const float *sums = part->sums + row * part->stride;
        for (uint32_t i = 0; i < part->num_cols; i++) residual[i] += sums[i];
    }
}

// q, k, v of some rows, the first of which is row `first` of the step.
struct head_sink {
    const struct pass *pass;
    uint32_t first;
};

static void take_head(void *arg, const struct linear_part *part) {
    const struct head_sink *heads = arg;
    const struct pass *pass = heads->pass;
    const struct attention_args *a = &pass->attention;
    const struct step *step = a->step;
    const struct cpu_kernels *kernels = &pass->cpu->kernels;
    uint32_t head_dim = a->head_dim, group = a->num_heads / a->num_kv_heads;
    uint32_t head = part->col / head_dim;
    uint16_t *queries = a->qkv;
    for (uint32_t i = 0; i < part->num_rows; i++) {
        float *x = part->sums + i * part->stride;
        uint32_t token = heads->first + part->row + i;
        int32_t slot = step->slot_mapping[token];
        const float *rope = a->rope + (size_t)step->positions[token] * head_dim;
        if (head < a->num_heads) {
            size_t at = (size_t)(head / group) * step->num_tokens + token;
            uint16_t *out = queries + (at * group + head % group) * head_dim;
            kernels->rope_head(x, a->q_norm, rope, head_dim, a->eps);
            kernels->narrow_bf16(x, a->scale, head_dim, (unsigned char *)out, CHUNK_BYTES);
        } else if (head < a->num_heads + a->num_kv_heads) {
            kernels->rope_head(x, a->k_norm, rope, head_dim, a->eps);
            if (slot < 0) continue;
            kv_cache_store(kernels, &pass->kv, (uint32_t)slot, head - a->num_heads, x, NULL);
        } else if (slot >= 0) {
            kv_cache_store(kernels, &pass->kv, (uint32_t)slot,
                           head - a->num_heads - a->num_kv_heads, NULL, x);
        }
    }
}

// Blocks of a part of q, k, v; 0: any number.
static uint32_t qkv_part(const struct pass *pass) {
    return pass->narrow.queries ? pass->attention.head_dim / LANES : 0;
}

// Whether a linear's x is left packed by the step before, in parts of `cols` outputs.
static bool is_left_packed(const struct pass *pass, const struct linear *linear, uint32_t cols,
                           uint32_t num_rows) {
    if (pass->x == X_BF16) return true;
    return linear_is_spans(pass->cpu, linear) && num_rows >= MANY_ROWS &&
           cols % linear_span(linear) == 0;
}

// Blocks of a part of gate and up; 0: any number.
static uint32_t gate_part(const struct pass *pass, uint32_t num_rows) {
    const struct linear *down = pass->layer->down;
    if (pass->x == X_BF16 || !is_left_packed(pass, down, down->in, num_rows)) return 0;
    return linear_span(down) / LANES;
}

// A run over the rows of `x`, converted into the linears' scratch memory.
static void run(const struct pass *pass, const struct linear *linear, struct linear_run *run,
                uint32_t num_rows) {
    struct linear_group group = {.linear = linear, .num_rows = num_rows};
    struct linear_run next = {.num_groups = 1, .is_gated = linear->next == pass->layer->gate_up};
    if (linear == pass->layer->down) { // the next layer's q, k, v
        next.blocks_per_part = qkv_part(pass);
    } else {
        next.sink = add_to_residual; // any: its items have memory for sums
        if (next.is_gated) next.blocks_per_part = gate_part(pass, num_rows);
    }
    run->next = &next;
    run->groups = &group;
    run->num_groups = 1;
    if (!run->is_packed) {
        run->packed = pass->cpu->linear_scratch;
        run->x_scale = pass->cpu->linear_x_scale;
    }
    linear_run(pass->cpu, run);
}

static const float *residual_row(const struct pass *pass, uint32_t row) {
    return (const float *)pass->args->residual + (size_t)row * pass->spec->hidden;
}

static void project_qkv(struct pass *pass) {
    const struct attention_args *a = &pass->attention;
    uint32_t num_tokens = a->step->num_tokens;
    size_t cols = pass->layer->qkv->out;
    uint32_t most = linear_rows_max(pass->cpu, pass->layer->qkv);
    for (uint32_t first = 0; first < num_tokens; first += most) {
        uint32_t left = num_tokens - first;
        struct head_sink heads = {pass, first};
        struct linear_run qkv = {.x = residual_row(pass, first),
                                 .norm = pass->layer->input_norm,
                                 .eps = pass->spec->eps,
                                 .blocks_per_part = qkv_part(pass)};
        if (pass->narrow.queries) {
            qkv.sink = take_head;
            qkv.sink_arg = &heads;
        } else {
            qkv.out = (float *)a->qkv + first * cols;
        }
        run(pass, pass->layer->qkv, &qkv, left < most ? left : most);
    }
}

// residual += linear(x) for rows from `first` on, where x is packed already, or floats.
static void project_out(struct pass *pass, const struct linear *linear, void *x, uint32_t first,
                        uint32_t num_rows, bool is_packed) {
    struct pass part = *pass; // the sink counts rows from `first`
    struct layers_args args = *pass->args;
    part.args = &args;
    for (uint32_t row = 0; row < num_rows;) {
        uint32_t count = num_rows - row, most = linear_rows_max(pass->cpu, linear);
        if (!is_packed && count > most) count = most;
        args.residual = (float *)pass->args->residual + (size_t)(first + row) * pass->spec->hidden;
        struct linear_run out = {.sink = add_to_residual, .sink_arg = &part};
        if (!is_packed) {
            out.x = (const float *)x + (size_t)row * linear->in;
        } else {
            out.packed = x;
            out.is_packed = true;
        }
        run(pass, linear, &out, count);
        row += count;
    }
}

static void run_mlp(struct pass *pass) {
    uint32_t num_tokens = pass->args->step->num_tokens;
    uint32_t most = linear_rows_max(pass->cpu, pass->layer->gate_up);
    for (uint32_t first = 0; first < num_tokens; first += most) {
        uint32_t left = num_tokens - first;
        uint32_t num_rows = left < most ? left : most;
        const struct linear *down = pass->layer->down;
        struct gated_sink gated = {pass->cpu, ACTIVATION_SILU, down, pass->args->activated,
                                   is_left_packed(pass, down, down->in, num_rows)};
        struct linear_run gate_up = {.x = residual_row(pass, first),
                                     .norm = pass->layer->mlp_norm,
                                     .eps = pass->spec->eps,
                                     .is_gated = true,
                                     .blocks_per_part = gate_part(pass, num_rows),
                                     .sink = linear_sink_gated,
                                     .sink_arg = &gated};
        run(pass, pass->layer->gate_up, &gate_up, num_rows);
        project_out(pass, down, pass->args->activated, first, num_rows, gated.is_packed);
    }
}

void cpu_layers(struct backend *backend, struct fused_model *model,
                const struct layers_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    const struct fused_model_spec *spec = &model->spec;
    enum dtype dtype = args->cache->spec.dtype;
    bool has_narrow_queries = attention_kernels_of(&cpu->kernels, dtype)->queries == QUERIES_BF16;
    kv_cache_touch(cpu, args->cache, args->step, 0);
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const struct fused_layer *layer = &model->layers[i];
        struct pass pass = {.cpu = cpu,
                            .spec = spec,
                            .args = args,
                            .layer = layer,
                            .attention = {.step = args->step,
                                          .cache = args->cache,
                                          .layer = i,
                                          .num_heads = spec->num_heads,
                                          .num_kv_heads = spec->num_kv_heads,
                                          .head_dim = spec->head_dim,
                                          .qkv = args->qkv,
                                          .out = args->attended,
                                          .q_norm = layer->q_norm,
                                          .k_norm = layer->k_norm,
                                          .rope = args->rope,
                                          .eps = spec->eps,
                                          .scale = args->scale},
                            .x = model->x};
        pass.kv = kv_cache_layer(&pass.attention);
        if (has_narrow_queries && args->step->num_tokens >= MANY_ROWS) {
            pass.narrow.queries = args->qkv;
        }
        bool is_packed = is_left_packed(&pass, layer->o, spec->head_dim, args->step->num_tokens);
        if (is_packed) {
            pass.narrow.out = args->attended;
            pass.narrow.reader = layer->o;
        }
        project_qkv(&pass);
        if (!pass.narrow.queries) cpu_attention_prepare(backend, &pass.attention);
        attention_run(cpu, &pass.attention, &pass.narrow);
        project_out(&pass, layer->o, args->attended, 0, args->step->num_tokens, is_packed);
        run_mlp(&pass);
    }
}

static bool cpu_takes_layers(const struct fused_model *model, const struct kv_cache *cache,
                             const struct step *step) {
    (void)cache, (void)step;
    return model->x != X_FLOATS;
}

const struct backend_fusion cpu_fusion = {
    .model_create = cpu_model_create,
    .model_destroy = cpu_model_destroy,
    .takes_layers = cpu_takes_layers,
    .layers = cpu_layers,
};
