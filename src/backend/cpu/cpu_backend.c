#include "backend/cpu/cpu_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/sample/sample.h"
#include "base/os/cpu.h"
#include "base/text/suggest.h"

static void cpu_destroy(struct backend *backend) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    thread_pool_destroy(cpu->pool);
    cpu_memory_free(cpu->linear_scratch);
    cpu_memory_free(cpu->linear_x_scale);
    cpu_memory_free(cpu->linear_sums);
    cpu_memory_free(cpu->attention_scratch);
    free(cpu);
}

static enum status cpu_alloc(struct backend *backend, size_t bytes, void **dev, struct err *err) {
    *dev = cpu_memory_alloc_on(bytes, cpu_backend_of(backend)->nodes);
    return *dev ? OK : err_set(err, ERR_NOMEM, "out of memory: %zu bytes", bytes);
}

static void cpu_release(struct backend *backend, void *dev) {
    (void)backend;
    cpu_memory_free(dev);
}

static void cpu_upload(struct backend *backend, void *dev, const void *host, size_t bytes) {
    (void)backend;
    if (bytes) memcpy(dev, host, bytes);
}

static void cpu_download(struct backend *backend, void *host, const void *dev, size_t bytes) {
    (void)backend;
    if (bytes) memcpy(host, dev, bytes);
}

static enum status cpu_synchronize(struct backend *backend, struct err *err) {
    (void)backend, (void)err;
    return OK; // ops are done when they return
}

static const struct backend_ops cpu_ops = {
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_upload,
    .download = cpu_download,
    .synchronize = cpu_synchronize,
    .linear_create = cpu_linear_create,
    .linear_destroy = cpu_linear_destroy,
    .linear_bytes = cpu_linear_bytes,
    .has_format = cpu_has_format,
    .kv_cache_create = cpu_kv_cache_create,
    .kv_cache_destroy = cpu_kv_cache_destroy,
    .kv_cache_block_bytes = cpu_kv_cache_block_bytes,
    .update_tables = cpu_update_tables,
    .embed = cpu_embed,
    .rms_norm = cpu_rms_norm,
    .linear = cpu_linear,
    .linear_set_next = cpu_linear_set_next,
    .attention_prepare = cpu_attention_prepare,
    .attention = cpu_attention,
    .silu_mul = cpu_silu_mul,
    .gelu_mul = cpu_gelu_mul,
    .sigmoid_mul = cpu_sigmoid_mul,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .layer_norm = cpu_layer_norm,
    .activate = cpu_activate,
    .scale_rows = cpu_scale_rows,
    .square_sums = cpu_square_sums,
    .cut_norm = cpu_cut_norm,
    .gather_rows = cpu_gather_rows,
};

static const struct backend_sampler cpu_sampler = {
    .sample = cpu_sample,
    .scratch_floats = cpu_sample_scratch_floats,
    .counts_create = cpu_counts_create,
    .counts_destroy = cpu_counts_destroy,
    .counts_bytes = cpu_counts_bytes,
    .counts_begin = cpu_counts_begin,
};

static const struct backend_moe cpu_moe = {
    .experts_create = cpu_experts_create,
    .experts_destroy = cpu_experts_destroy,
    .experts_bytes = cpu_experts_bytes,
    .experts_scratch_bytes = cpu_experts_scratch_bytes,
    .route = cpu_route,
    .experts = cpu_experts,
    .experts_set_next = cpu_experts_set_next,
    .has_branches = true,
    .has_groups = true,
    .has_ungated = true,
};

static const struct backend_recurrent cpu_recurrent = {
    .gated_delta_bytes = cpu_gated_delta_bytes,
    .gated_delta = cpu_gated_delta,
    .short_conv = cpu_short_conv,
    .mamba_bytes = cpu_mamba_bytes,
    .mamba = cpu_mamba,
};

static const struct backend_latent cpu_latent = {
    .create = cpu_latent_create,
    .destroy = cpu_latent_destroy,
    .bytes = cpu_latent_bytes,
    .scratch_bytes = cpu_latent_scratch_bytes,
    .attend = cpu_latent_attend,
    .has_narrow_caches = true,
};

static const struct backend_peers cpu_peers = {.sum = cpu_sum};

// Writes the names of the ISAs that can run here: "scalar, avx2".
static void list_isas(const struct cpu_isa table[CPU_ISA_COUNT], char *out, size_t out_size) {
    size_t len = 0;
    out[0] = 0;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (!table[i].is_here) continue;
        int written = snprintf(out + len, out_size - len, "%s%s", len ? ", " : "", table[i].name);
        len += (size_t)written; // the names are known to fit
    }
}

static enum status select_kernels(const char *isa, struct cpu_kernels *out, struct err *err) {
    struct cpu_isa table[CPU_ISA_COUNT];
    const char *names[CPU_ISA_COUNT + 1] = {"auto"};
    char available[128];
    cpu_isa_table(table);
    list_isas(table, available, sizeof available);
    if (!isa || strcmp(isa, "auto") == 0) {
        cpu_kernels_choose(cpu_isa_features(), out);
        return OK;
    }
    bool is_known = false;
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        bool wanted = strcmp(isa, table[i].name) == 0;
        names[i + 1] = table[i].name;
        is_known = is_known || wanted;
        if (!wanted || !table[i].is_here) continue;
        *out = table[i].kernels;
        return OK;
    }
    if (is_known) {
        return err_set(err, ERR_UNSUPPORTED, "this machine cannot run cpu isa \"%s\" (it has: %s)",
                       isa, available);
    }
    const char *nearest = suggest_nearest(isa, names, CPU_ISA_COUNT + 1);
    return err_set(err, ERR_INVALID, "unknown cpu isa \"%s\" (auto, %s)%s%s%s", isa, available,
                   nearest ? ", did you mean \"" : "", nearest ? nearest : "",
                   nearest ? "\"?" : "");
}

enum status cpu_backend_create(struct backend **out, const struct backend_options *options,
                               struct err *err) {
    struct cpu_kernels kernels;
    enum status status = select_kernels(options->cpu_isa, &kernels, err);
    if (status != OK) return status;
    int threads = options->threads ? options->threads : cpu_core_count();
    if (threads < 0 || options->threads > THREAD_POOL_THREADS_MAX) {
        return err_set(err, ERR_INVALID, "threads is %d, want 0 (all cores) to %d", threads,
                       THREAD_POOL_THREADS_MAX);
    }
    if (threads > THREAD_POOL_THREADS_MAX) threads = THREAD_POOL_THREADS_MAX;
    if (options->weight_dtype != DTYPE_BF16 && options->weight_dtype != DTYPE_F32) {
        return err_set(err, ERR_UNSUPPORTED, "weights kept as %s, want BF16 or F32",
                       dtype_name(options->weight_dtype));
    }
    struct cpu_backend *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return err_nomem(err, "CPU backend");
    cpu->base = (struct backend){
        .ops = &cpu_ops,
        .sampler = &cpu_sampler,
        .moe = &cpu_moe,
        .recurrent = &cpu_recurrent,
        .latent = &cpu_latent,
        .peers = &cpu_peers,
        .fusion = &cpu_fusion,
        .name = "cpu",
        .activation_dtype = DTYPE_F32,
        .weight_dtype = options->weight_dtype,
        .kv_cache_dtype = DTYPE_BF16,
        .has_cheap_rows = kernels.has_cheap_rows,
        .has_kv_groups = true,
        .has_windows = true,
        .has_chunks = true,
        .has_grouped_layer_norms = true,
        .has_kv_shapes = true,
        .kv_cache_dtypes = 1u << DTYPE_F32 | 1u << DTYPE_I8 | 1u << DTYPE_F8_E4M3,
    };
    cpu->kernels = kernels;
    cpu->nodes = options->numa ? cpu_memory_nodes() : 0;
    snprintf(cpu->base.description, sizeof cpu->base.description, "cpu %s, %d thread%s",
             kernels.isa, threads, threads == 1 ? "" : "s");
    status = thread_pool_create(&cpu->pool, (uint32_t)threads, err);
    if (status != OK) {
        cpu_destroy(&cpu->base);
        return status;
    }
    *out = &cpu->base;
    return OK;
}
