/* Ops whose rows are independent and cheap: norms, SiLU, factors, gathering. Few rows run on the
 * caller alone. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"

// Fewer floats are not worth handing to another thread.
enum { ITEM_FLOATS = 8192, SUM_LANES = 16 };

static uint32_t rows_per_item(const struct cpu_backend *cpu, uint32_t rows, uint32_t cols) {
    return thread_pool_grain(cpu->pool, rows, ITEM_FLOATS / (cols ? cols : 1) + 1);
}

struct row_range {
    uint32_t begin, end;
};

static struct row_range item_rows(uint32_t item, uint32_t per_item, uint32_t rows) {
    uint32_t begin = item * per_item;
    uint32_t left = rows - begin;
    return (struct row_range){begin, begin + (left < per_item ? left : per_item)};
}

struct rms_norm_job {
    const struct cpu_kernels *kernels;
    const struct rms_norm_args *args;
    uint32_t per_item;
};

static void rms_norm_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct rms_norm_job *job = arg;
    const struct rms_norm_args *args = job->args;
    uint32_t groups = args->groups ? args->groups : 1;
    size_t stride = args->stride ? args->stride : (size_t)groups * args->cols;
    struct row_range range = item_rows(item, job->per_item, args->rows * groups);
    for (uint32_t row = range.begin; row < range.end; row++) {
        size_t in_row = (size_t)(row % groups) * args->cols, at = row / groups * stride + in_row;
        job->kernels->rms_norm((const float *)args->x + at,
                               args->residual ? (float *)args->residual + at : NULL,
                               args->weight + (args->has_group_weights ? in_row : 0),
                               (float *)args->out + at, args->cols, args->eps);
    }
}

void cpu_rms_norm(struct backend *backend, const struct rms_norm_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    uint32_t rows = args->rows * (args->groups ? args->groups : 1);
    struct rms_norm_job job = {&cpu->kernels, args, rows_per_item(cpu, rows, args->cols)};
    thread_pool_for(cpu->pool, (rows + job.per_item - 1) / job.per_item, rms_norm_item, &job);
}

struct silu_mul_job {
    const struct cpu_kernels *kernels;
    const struct silu_mul_args *args;
    uint32_t per_item;
};

// gelu(v) = v / (1 + exp(-s)) with s as in backend.h. That is silu(s) * (v / s), so the kernels of
// SiLU compute it. v / s is finite, and s only where v is large is not: then silu(s) = s.
static void before_gelu(float *gate, float *up, uint32_t count) {
    const float twice = 1.59576912f, cubic = 0.044715f, large = 1e4f; // 2 sqrt(2 / pi)
    for (uint32_t i = 0; i < count; i++) {
        float v = gate[i], bounded = v > large ? large : v < -large ? -large : v;
        float slope = twice * (1 + cubic * bounded * bounded);
        gate[i] = v * slope;
        up[i] /= slope;
    }
}

// g / (1 + exp(-a g)) * (u + 1) is silu(a g) * ((u + 1) / a).
static void before_clamped_silu(float *gate, float *up, uint32_t count) {
    const float alpha = CLAMPED_SILU_ALPHA, limit = CLAMPED_SILU_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        float g = gate[i] > limit ? limit : gate[i];
        float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = alpha * g;
        up[i] = (u + 1) / alpha;
    }
}

void activate(const struct cpu_kernels *kernels, enum activation activation, const float *gate,
              const float *up, float *out, uint32_t count) {
    enum { CHUNK = 256 };
    float gates[CHUNK], ups[CHUNK];
    if (activation == ACTIVATION_SILU) {
        kernels->silu_mul(gate, up, out, count);
        return;
    }
    // The others are silu(another gate) * another up.
    for (uint32_t start = 0; start < count; start += CHUNK) {
        uint32_t len = count - start < CHUNK ? count - start : CHUNK;
        memcpy(gates, gate + start, len * sizeof *gates);
        memcpy(ups, up + start, len * sizeof *ups);
        if (activation == ACTIVATION_GELU_TANH) {
            before_gelu(gates, ups, len);
        } else {
            before_clamped_silu(gates, ups, len);
        }
        kernels->silu_mul(gates, ups, out + start, len);
    }
}

static void silu_mul_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct silu_mul_job *job = arg;
    const struct silu_mul_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    for (uint32_t row = range.begin; row < range.end; row++) {
        const float *gate = (const float *)args->gate_up + (size_t)row * 2 * args->cols;
        activate(job->kernels, args->activation, gate, gate + args->cols,
                 (float *)args->out + (size_t)row * args->cols, args->cols);
    }
}

void cpu_silu_mul(struct backend *backend, const struct silu_mul_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct silu_mul_job job = {&cpu->kernels, args, rows_per_item(cpu, args->rows, args->cols)};
    thread_pool_for(cpu->pool, (args->rows + job.per_item - 1) / job.per_item, silu_mul_item, &job);
}

struct gelu_mul_job {
    const struct cpu_kernels *kernels;
    const struct gelu_mul_args *args;
    uint32_t per_item;
};

static void gelu_mul_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct gelu_mul_job *job = arg;
    const struct gelu_mul_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    for (uint32_t row = range.begin; row < range.end; row++) {
        size_t at = (size_t)row * args->cols;
        activate(job->kernels, ACTIVATION_GELU_TANH, (const float *)args->gate + at,
                 (const float *)args->up + (size_t)row * args->up_stride, (float *)args->out + at,
                 args->cols);
    }
}

void cpu_gelu_mul(struct backend *backend, const struct gelu_mul_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct gelu_mul_job job = {&cpu->kernels, args, rows_per_item(cpu, args->rows, args->cols)};
    thread_pool_for(cpu->pool, (args->rows + job.per_item - 1) / job.per_item, gelu_mul_item, &job);
}

struct sigmoid_mul_job {
    const struct cpu_kernels *kernels;
    const struct sigmoid_mul_args *args;
    uint32_t per_item;
};

// SiLU's kernel computes silu(g) * (x / g). g is not 0 and not so large that silu(g) is none.
static void sigmoid_mul_row(const struct cpu_kernels *kernels, const float *gate, float *x,
                            uint32_t count) {
    enum { CHUNK = 256 };
    float gates[CHUNK], parts[CHUNK];
    for (uint32_t start = 0; start < count; start += CHUNK) {
        uint32_t len = count - start < CHUNK ? count - start : CHUNK;
        for (uint32_t i = 0; i < len; i++) {
            float g = gate[start + i], bounded = g > 1e4f ? 1e4f : g < -1e4f ? -1e4f : g;
            gates[i] = fabsf(bounded) < 1e-20f ? 1e-20f : bounded;
            parts[i] = x[start + i] / gates[i];
        }
        kernels->silu_mul(gates, parts, x + start, len);
    }
}

static void sigmoid_mul_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct sigmoid_mul_job *job = arg;
    const struct sigmoid_mul_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    for (uint32_t row = range.begin; row < range.end; row++) {
        const float *gate = (const float *)args->gate + (size_t)row * args->gate_stride;
        float *x = (float *)args->x + (size_t)row * args->cols;
        if (!args->is_per_row) {
            sigmoid_mul_row(job->kernels, gate, x, args->cols);
            continue;
        }
        float factor = 1;
        sigmoid_mul_row(job->kernels, gate, &factor, 1);
        for (uint32_t i = 0; i < args->cols; i++) x[i] *= factor;
    }
}

void cpu_sigmoid_mul(struct backend *backend, const struct sigmoid_mul_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct sigmoid_mul_job job = {&cpu->kernels, args, rows_per_item(cpu, args->rows, args->cols)};
    uint32_t num_items = (args->rows + job.per_item - 1) / job.per_item;
    thread_pool_for(cpu->pool, num_items, sigmoid_mul_item, &job);
}

static void scale_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct scale_args *args = *(const struct scale_args *const *)arg;
    size_t begin = (size_t)item * ITEM_FLOATS, end = begin + ITEM_FLOATS;
    const float *x = args->x;
    float *out = args->out;
    if (end > args->count) end = args->count;
    for (size_t i = begin; i < end; i++) {
        out[i] = args->adds ? out[i] + args->factor * x[i] : args->factor * x[i];
    }
}

void cpu_scale(struct backend *backend, const struct scale_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    uint32_t num_items = (uint32_t)((args->count + ITEM_FLOATS - 1) / ITEM_FLOATS);
    thread_pool_for(cpu->pool, num_items, scale_item, &args);
}

struct scale_rows_job {
    const struct scale_rows_args *args;
    uint32_t per_item;
};

static void scale_rows_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct scale_rows_job *job = arg;
    const struct scale_rows_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    for (uint32_t row = range.begin; row < range.end; row++) {
        float *x = (float *)args->x + (size_t)row * args->cols;
        for (uint32_t i = 0; i < args->cols; i++) x[i] *= args->factors[row];
    }
}

void cpu_scale_rows(struct backend *backend, const struct scale_rows_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct scale_rows_job job = {args, rows_per_item(cpu, args->rows, args->cols)};
    uint32_t num_items = (args->rows + job.per_item - 1) / job.per_item;
    thread_pool_for(cpu->pool, num_items, scale_rows_item, &job);
}

static void softcap_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct softcap_args *args = *(const struct softcap_args *const *)arg;
    size_t begin = (size_t)item * ITEM_FLOATS, end = begin + ITEM_FLOATS;
    if (end > args->count) end = args->count;
    for (size_t i = begin; i < end; i++) args->x[i] = args->cap * tanhf(args->x[i] / args->cap);
}

void cpu_softcap(struct backend *backend, const struct softcap_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    uint32_t num_items = (uint32_t)((args->count + ITEM_FLOATS - 1) / ITEM_FLOATS);
    thread_pool_for(cpu->pool, num_items, softcap_item, &args);
}

struct cut_norm_job {
    const struct cut_norm_args *args;
    uint32_t per_item;
};

static struct cut_norm_job cut_norm_job_of(const struct cpu_backend *cpu,
                                           const struct cut_norm_args *args) {
    return (struct cut_norm_job){args, rows_per_item(cpu, args->rows, args->cols[0])};
}

// The lanes are added in their order, so the bits depend on nothing else.
static float square_sum(const float *x, uint32_t count) {
    float lanes[SUM_LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
        for (uint32_t k = 0; k < SUM_LANES; k++) lanes[k] += x[i + k] * x[i + k];
    }
    for (uint32_t k = 0; i + k < count; k++) lanes[k] += x[i + k] * x[i + k];
    for (uint32_t k = 0; k < SUM_LANES; k++) sum += lanes[k];
    return sum;
}

static void square_sums_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct cut_norm_job *job = arg;
    const struct cut_norm_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    size_t row_sums = (size_t)args->world_size * CUT_NORM_SUMS;
    for (uint32_t row = range.begin; row < range.end; row++) {
        const float *x = (const float *)args->x + (size_t)row * args->stride;
        float *sums = (float *)args->sums + row * row_sums;
        memset(sums, 0, row_sums * sizeof *sums);
        sums += args->rank * (size_t)CUT_NORM_SUMS;
        for (uint32_t v = 0; v < CUT_NORM_VECTORS; x += args->cols[v++]) {
            sums[v * CUT_NORM_TERMS] = square_sum(x, args->cols[v]);
        }
    }
}

void cpu_square_sums(struct backend *backend, const struct cut_norm_args *args) {
    struct cut_norm_job job = cut_norm_job_of(cpu_backend_of(backend), args);
    size_t used = (size_t)args->rows * args->world_size * CUT_NORM_SUMS;
    memset((float *)args->sums + used, 0, (args->count - used) * sizeof(float));
    thread_pool_for(cpu_backend_of(backend)->pool, (args->rows + job.per_item - 1) / job.per_item,
                    square_sums_item, &job);
}

static void cut_norm_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct cut_norm_job *job = arg;
    const struct cut_norm_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    for (uint32_t row = range.begin; row < range.end; row++) {
        float *x = (float *)args->x + (size_t)row * args->stride;
        const float *sums = (const float *)args->sums;
        sums += (size_t)row * args->world_size * CUT_NORM_SUMS;
        for (uint32_t v = 0; v < CUT_NORM_VECTORS; x += args->cols[v++]) {
            float sum = 0, cols = (float)args->cols[v] * (float)args->world_size;
            for (uint32_t r = 0; r < args->world_size; r++) {
                sum += sums[r * CUT_NORM_SUMS + v * CUT_NORM_TERMS];
            }
            float scale = 1 / sqrtf(sum / cols + args->eps);
            for (uint32_t i = 0; i < args->cols[v]; i++) x[i] = x[i] * scale * args->weights[v][i];
        }
    }
}

void cpu_cut_norm(struct backend *backend, const struct cut_norm_args *args) {
    struct cut_norm_job job = cut_norm_job_of(cpu_backend_of(backend), args);
    thread_pool_for(cpu_backend_of(backend)->pool, (args->rows + job.per_item - 1) / job.per_item,
                    cut_norm_item, &job);
}

// Lanes are added in their order, as in square_sum. `center` is subtracted first.
static float centered_sum(const float *x, float center, bool squares, uint32_t count) {
    float lanes[SUM_LANES] = {0}, sum = 0;
    uint32_t i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
        for (uint32_t k = 0; k < SUM_LANES; k++) {
            float v = x[i + k] - center;
            lanes[k] += squares ? v * v : v;
        }
    }
    for (uint32_t k = 0; i + k < count; k++) {
        float v = x[i + k] - center;
        lanes[k] += squares ? v * v : v;
    }
    for (uint32_t k = 0; k < SUM_LANES; k++) sum += lanes[k];
    return sum;
}

struct layer_norm_job {
    const struct layer_norm_args *args;
    uint32_t num_vectors, per_item;
};

static void layer_norm_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct layer_norm_job *job = arg;
    const struct layer_norm_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, job->num_vectors);
    uint32_t cols = args->cols;
    uint32_t groups = args->groups ? args->groups : 1, stride = args->groups ? args->stride : cols;
    for (uint32_t vector = range.begin; vector < range.end; vector++) {
        uint32_t group = vector % groups;
        size_t at = (size_t)(vector / groups) * stride + (size_t)group * cols;
        const float *x = (const float *)args->x + at, *weight = args->weight + group * cols;
        float *residual = args->residual ? (float *)args->residual + at : NULL;
        float *out = (float *)args->out + at;
        for (uint32_t i = 0; residual && i < cols; i++) residual[i] += x[i];
        if (residual) x = residual;
        float mean = centered_sum(x, 0, false, cols) / (float)cols;
        float variance = centered_sum(x, mean, true, cols) / (float)cols;
        float scale = 1 / sqrtf(variance + args->eps);
        for (uint32_t i = 0; i < cols; i++) {
            float bias = args->bias ? args->bias[i] : 0;
            out[i] = (x[i] - mean) * scale * weight[i] + bias;
        }
    }
}

void cpu_layer_norm(struct backend *backend, const struct layer_norm_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    uint32_t num_vectors = args->rows * (args->groups ? args->groups : 1);
    struct layer_norm_job job = {args, num_vectors, rows_per_item(cpu, num_vectors, args->cols)};
    uint32_t num_items = (num_vectors + job.per_item - 1) / job.per_item;
    thread_pool_for(cpu->pool, num_items, layer_norm_item, &job);
}

struct activate_job {
    const struct cpu_kernels *kernels;
    const struct activate_args *args;
};

// Gelu with an up of 1 is gelu alone.
static void gelu_alone(const struct cpu_kernels *kernels, float *x, size_t count) {
    enum { CHUNK = 256 };
    float ones[CHUNK];
    for (uint32_t i = 0; i < CHUNK; i++) ones[i] = 1;
    for (size_t start = 0; start < count; start += CHUNK) {
        uint32_t len = count - start < CHUNK ? (uint32_t)(count - start) : CHUNK;
        activate(kernels, ACTIVATION_GELU_TANH, x + start, ones, x + start, len);
    }
}

static void activate_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct activate_job *job = arg;
    const struct activate_args *args = job->args;
    size_t begin = (size_t)item * ITEM_FLOATS, left = args->count - begin;
    size_t count = left < ITEM_FLOATS ? left : ITEM_FLOATS;
    float *x = (float *)args->x + begin;
    if (args->activation == ACTIVATION_GELU_TANH) {
        gelu_alone(job->kernels, x, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float v = x[i], bounded = v < 0 ? 0 : v; // NaN stays NaN
        if (args->activation == ACTIVATION_RELU_SQUARED) {
            x[i] = bounded * bounded;
        } else if (v > 0) {
            x[i] = v / 2 + args->positive * v * v;
        } else {
            x[i] = v / 2 + args->negative * (expm1f(v < XIELU_EPS ? v : XIELU_EPS) - v);
        }
    }
}

void cpu_activate(struct backend *backend, const struct activate_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct activate_job job = {&cpu->kernels, args};
    uint32_t num_items = (uint32_t)((args->count + ITEM_FLOATS - 1) / ITEM_FLOATS);
    thread_pool_for(cpu->pool, num_items, activate_item, &job);
}

struct gather_rows_job {
    const struct gather_rows_args *args;
    uint32_t per_item;
};

static void gather_rows_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct gather_rows_job *job = arg;
    const struct gather_rows_args *args = job->args;
    struct row_range range = item_rows(item, job->per_item, args->rows);
    for (uint32_t row = range.begin; row < range.end; row++) {
        memcpy((float *)args->out + (size_t)row * args->cols,
               (const float *)args->x + (size_t)args->index[row] * args->cols,
               args->cols * sizeof(float));
    }
}

void cpu_gather_rows(struct backend *backend, const struct gather_rows_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    struct gather_rows_job job = {args, rows_per_item(cpu, args->rows, args->cols)};
    thread_pool_for(cpu->pool, (args->rows + job.per_item - 1) / job.per_item, gather_rows_item,
                    &job);
}

// `count` elements from i on; constant where called, so that they stay in registers.
static inline void sum_lanes(const struct sum_args *args, size_t i, size_t count) {
    float sum[SUM_LANES];
    float *out = (float *)args->out + i;
    memcpy(sum, (const float *)args->parts[0] + i, count * sizeof *sum);
    for (uint32_t p = 1; p < args->num_parts; p++) {
        const float *part = (const float *)args->parts[p] + i;
        for (size_t k = 0; k < count; k++) sum[k] += part[k];
    }
    for (size_t k = 0; !args->is_first && k < count; k++) sum[k] = out[k] + sum[k];
    memcpy(out, sum, count * sizeof *sum);
}

static void sum_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct sum_args *args = *(const struct sum_args *const *)arg;
    size_t i = (size_t)item * ITEM_FLOATS, end = i + ITEM_FLOATS;
    if (end > args->count) end = args->count;
    for (; i + SUM_LANES <= end; i += SUM_LANES) sum_lanes(args, i, SUM_LANES);
    if (i < end) sum_lanes(args, i, end - i);
}

void cpu_sum(struct backend *backend, const struct sum_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    uint32_t num_items = (uint32_t)((args->count + ITEM_FLOATS - 1) / ITEM_FLOATS);
    thread_pool_for(cpu->pool, num_items, sum_item, &args);
}

void cpu_update_tables(struct backend *backend, const struct update_tables_args *args) {
    (void)backend;
    for (uint32_t i = 0; i < args->num_runs; i++) {
        const struct table_run *run = &args->runs[i];
        memcpy(args->tables + run->to, args->blocks + run->from, run->count * sizeof *args->tables);
    }
}
