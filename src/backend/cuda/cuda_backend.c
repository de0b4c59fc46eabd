#include "backend/cuda/cuda_backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/gemm/gemm_library.h"
#include "backend/cuda/latent/latent.h"
#include "backend/cuda/linear/e4m3_run.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/packed_load.h"
#include "backend/cuda/ranks/collective.h"
#include "backend/cuda/recurrent/gated_delta.h"
#include "backend/cuda/staging.h"
#include "base/check.h"
#include "base/os/cpu.h"

enum { COPY_THREADS_MAX = 8 };

enum status cuda_error(struct err *err, cudaError_t error, const char *call) {
    enum status status = error == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_DEVICE;
    // The error is reported here. Clear it, so that the next wait, possibly another engine's, does
    // not report it again. An error that broke the device is not cleared by this.
    (void)cudaGetLastError();
    return err_set(err, status, "CUDA: %s: %s", call, cudaGetErrorString(error));
}

struct cuda_backend *cuda_enter(const struct backend *backend) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    (void)cudaSetDevice(cuda->device); // takes some 20 ns where it is already
    return cuda;
}

void cuda_fail(struct cuda_backend *cuda, const char *what) {
    if (cuda->failure) return;
    cuda->failure = ERR_DEVICE;
    snprintf(cuda->failure_text, sizeof cuda->failure_text, "CUDA: %s", what);
}

void cuda_check(struct cuda_backend *cuda, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    char text[200];
    snprintf(text, sizeof text, "%s: %s", what, cudaGetErrorString(error));
    cuda_fail(cuda, text);
}

static enum status cuda_alloc(struct backend *backend, size_t bytes, void **dev, struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    enum status status = OK;
    void *memory = NULL;
    CU(cudaMalloc(&memory, bytes ? bytes : 1));
    CU(cudaMemsetAsync(memory, 0, bytes, cuda->stream));
    *dev = memory;
    return OK;
fail:
    cudaFree(memory);
    return status;
}

static void cuda_release(struct backend *backend, void *dev) {
    (void)backend;
    cudaFree(dev);
}

// Whether kernels reach this host memory: pinned memory from cudaHostAlloc has the same address on
// the device.
static cudaError_t is_reached(const void *host, bool *is_pinned) {
    struct cudaPointerAttributes attributes = {0};
    cudaError_t error = cudaPointerGetAttributes(&attributes, host); // no error for pageable memory
    *is_pinned =
        !error && attributes.type == cudaMemoryTypeHost && attributes.devicePointer == host;
    return error;
}

// Copies by a kernel if possible, which is faster for the small copies that a step waits for.
static cudaError_t copy(struct cuda_backend *cuda, void *to, const void *from, size_t bytes,
                        enum cudaMemcpyKind kind) {
    const void *host = kind == cudaMemcpyHostToDevice ? from : to;
    bool is_pinned = false;
    cudaError_t error = is_reached(host, &is_pinned);
    if (error) return error;
    bool is_aligned = ((uintptr_t)to | (uintptr_t)from) % 16 == 0 && bytes % 4 == 0;
    if (!is_pinned || !is_aligned || bytes > CUDA_COPY_BYTES) {
        return cudaMemcpyAsync(to, from, bytes, kind, cuda->stream);
    }
    cuda_copy_launch(to, from, bytes, cuda->stream);
    return cudaSuccess; // a refused launch is reported by synchronize
}

static void cuda_upload(struct backend *backend, void *dev, const void *host, size_t bytes) {
    struct cuda_backend *cuda = cuda_enter(backend);
    if (!bytes) return;
    cuda_check(cuda, copy(cuda, dev, host, bytes, cudaMemcpyHostToDevice), "upload");
}

static void cuda_download(struct backend *backend, void *host, const void *dev, size_t bytes) {
    struct cuda_backend *cuda = cuda_enter(backend);
    if (!bytes) return;
    cuda_check(cuda, copy(cuda, host, dev, bytes, cudaMemcpyDeviceToHost), "download");
}

static void cuda_download_results(struct backend *backend, struct sample_result *host,
                                  const struct sample_result *results,
                                  const struct sample_row *rows, uint32_t num_rows) {
    struct cuda_backend *cuda = cuda_enter(backend);
    bool is_pinned = false;
    if (!num_rows) return;
    cuda_check(cuda, is_reached(host, &is_pinned), "download of results");
    if (is_pinned) {
        cuda_download_results_launch(host, results, rows, num_rows, cuda->stream);
    } else {
        cuda_download(backend, host, results, num_rows * sizeof *host);
    }
}

static enum status cuda_memory(struct backend *backend, size_t *free_bytes, size_t *total_bytes,
                               struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    enum status status = OK;
    // Not free for others. Read first: what is loaded meanwhile is counted twice, not left out.
    size_t later_bytes = cuda_gemm_later_bytes(cuda->gemm);
    CU(cudaMemGetInfo(free_bytes, total_bytes));
    uint32_t num_sharing = gpu_choice_num_sharing(&cuda->gpus, (uint32_t)cuda->device);
    *free_bytes /= num_sharing;
    *total_bytes /= num_sharing;
    *free_bytes -= *free_bytes < later_bytes ? *free_bytes : later_bytes;
    return OK;
fail:
    return status;
}

static enum status cuda_alloc_host(struct backend *backend, size_t bytes, void **host,
                                   struct err *err) {
    cuda_enter(backend);
    enum status status = OK;
    CU(cudaHostAlloc(host, bytes ? bytes : 1, cudaHostAllocDefault));
    memset(*host, 0, bytes);
    return OK;
fail:
    return status;
}

static void cuda_release_host(struct backend *backend, void *host) {
    (void)backend;
    cudaFreeHost(host);
}

static enum status cuda_register_host(struct backend *backend, void *host, size_t bytes,
                                      struct err *err) {
    cuda_enter(backend);
    enum status status = OK;
    CU(cudaHostRegister(host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
fail:
    return status;
}

static void cuda_unregister_host(struct backend *backend, void *host) {
    cuda_enter(backend);
    if (host) cudaHostUnregister(host);
}

static void cuda_wait_loaded(struct backend *backend) {
    cuda_gemm_wait_loaded(cuda_backend_of(backend)->gemm);
}

static void cuda_timings_write(struct backend *backend) {
    cuda_gemm_write_timings(cuda_backend_of(backend)->gemm);
}

static void cuda_timings_read(struct backend *backend) {
    cuda_gemm_read_timings(cuda_backend_of(backend)->gemm);
}

// A backend_event is a cudaEvent_t.
static enum status cuda_event_create(struct backend *backend, struct backend_event **out,
                                     struct err *err) {
    cuda_enter(backend);
    enum status status = OK;
    cudaEvent_t event = NULL;
    CU(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *out = (struct backend_event *)event;
    return OK;
fail:
    return status;
}

static void cuda_event_destroy(struct backend *backend, struct backend_event *event) {
    (void)backend;
    if (event) cudaEventDestroy((cudaEvent_t)event);
}

static void cuda_event_record(struct backend *backend, struct backend_event *event) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_check(cuda, cudaEventRecord((cudaEvent_t)event, cuda->stream), "recording an event");
}

static void cuda_upload_beside(struct backend *backend, struct backend_event *after, void *dev,
                               const void *host, size_t bytes) {
    struct cuda_backend *cuda = cuda_enter(backend);
    cudaError_t error = cudaStreamWaitEvent(cuda->copies, (cudaEvent_t)after, 0);
    if (!error) error = cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, cuda->copies);
    if (!error) error = cudaEventRecord(cuda->copied, cuda->copies);
    if (!error) error = cudaStreamWaitEvent(cuda->stream, cuda->copied, 0);
    cuda_check(cuda, error, "upload");
}

// Keeps what was refused since the last call.
static void check_launches(struct cuda_backend *cuda) {
    cuda_check(cuda, cuda->refusal.error, cuda->refusal.call);
    cuda_check(cuda, cudaGetLastError(), "a kernel could not be started");
}

enum status cuda_report(struct cuda_backend *cuda, struct err *err) {
    check_launches(cuda);
    if (!cuda->failure) return OK;
    return err_set(err, cuda->failure, "%s", cuda->failure_text);
}

static enum status cuda_poll(struct backend *backend, struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    enum status status = cuda_report(cuda, err);
    if (status) return status;
    cudaError_t error = cudaStreamQuery(cuda->stream);
    (void)cudaGetLastError(); // clears cudaErrorNotReady: a busy stream is no failure
    if (error != cudaErrorNotReady) cuda_check(cuda, error, "the device failed");
    return cuda_report(cuda, err);
}

static enum status cuda_synchronize(struct backend *backend, struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    cuda_check(cuda, cudaStreamSynchronize(cuda->stream), "the device failed");
    return cuda_report(cuda, err);
}

static bool cuda_event_is_done(struct backend *backend, struct backend_event *event) {
    check_launches(cuda_enter(backend)); // before the query's error is cleared, and others with it
    if (cudaEventQuery((cudaEvent_t)event) != cudaErrorNotReady) return true; // perhaps an error
    (void)cudaGetLastError(); // not one
    return false;
}

static enum status cuda_event_wait(struct backend *backend, struct backend_event *event,
                                   struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    cuda_check(cuda, cudaEventSynchronize((cudaEvent_t)event), "the device failed");
    return cuda_report(cuda, err);
}

static void cuda_destroy(struct backend *backend) {
    struct cuda_backend *cuda = cuda_enter(backend);
    cuda_gemm_destroy(cuda->gemm);
    cudaFree(cuda->unpacked);
    cuda_staging_destroy(cuda->staging);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    if (cuda->copies) cudaStreamDestroy(cuda->copies);
    if (cuda->copied) cudaEventDestroy(cuda->copied);
    free(cuda);
}

// Makes the threads and pinned memory at the first copy. A backend that only describes a model
// needs none.
enum status cuda_copy_weights(struct cuda_backend *cuda, void *dev,
                              const struct matrix_slice *slice, struct err *err) {
    enum status status = OK;
    if (!cuda->staging) status = cuda_staging_create(&cuda->staging, cuda->num_copy_threads, err);
    return status ? status : cuda_staging_copy(cuda->staging, dev, slice, err);
}

enum status cuda_copy_codes(struct cuda_backend *cuda, void *dev, const struct matrix_slice *slice,
                            const struct cuda_code_rows *rows, struct err *err) {
    enum status status = OK;
    if (!cuda->staging) status = cuda_staging_create(&cuda->staging, cuda->num_copy_threads, err);
    if (!status) status = cuda_staging_copy_codes(cuda->staging, dev, slice, rows, err);
    return status ? status : cuda_staging_finish(cuda->staging, err);
}

static enum status cuda_weights_finish(struct backend *backend, size_t spare_bytes,
                                       struct err *err) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    enum status status = cuda->staging ? cuda_staging_finish(cuda->staging, err) : OK;
    cuda_staging_destroy(cuda->staging);
    cuda->staging = NULL;
    if (!status) cuda_e4m3_keep_plain(cuda, spare_bytes);
    return status;
}

static void cuda_embed(struct backend *backend, const struct embed_args *args) {
    const struct cuda_linear_view table = cuda_linear_view_of(args->table);
    cudaStream_t stream = cuda_backend_of(backend)->stream;
    if (table.code) {
        cuda_packed_embed_launch(args, &table, stream);
    } else {
        cuda_embed_launch(args, &table, stream);
    }
}

static void cuda_update_tables(struct backend *backend, const struct update_tables_args *args) {
    cuda_update_tables_launch(args, cuda_backend_of(backend)->stream);
}

// Where rows are gathered, gather_rows.cu's ordinary launch ends the layers.
static void cuda_layers_end(struct backend *backend, const struct step *step) {
    if (step->num_logits < step->num_tokens) return;
    cuda_layers_end_launch(cuda_backend_of(backend)->stream);
}

static void cuda_gather_rows(struct backend *backend, const struct gather_rows_args *args) {
    cuda_gather_rows_launch(args, cuda_backend_of(backend)->stream);
}

static const struct backend_ops cuda_ops = {
    .destroy = cuda_destroy,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .synchronize = cuda_synchronize,
    .linear_create = cuda_linear_create,
    .linear_destroy = cuda_linear_destroy,
    .linear_bytes = cuda_linear_bytes,
    .linear_scratch_bytes = cuda_packed_scratch_bytes,
    .has_format = cuda_has_format,
    .kv_cache_create = cuda_kv_cache_create,
    .kv_cache_destroy = cuda_kv_cache_destroy,
    .kv_cache_block_bytes = cuda_kv_cache_block_bytes,
    .kv_cache_workspace_bytes = cuda_kv_cache_workspace_bytes,
    .shares_prefixes = cuda_shares_prefixes,
    .update_tables = cuda_update_tables,
    .embed = cuda_embed,
    .rms_norm = cuda_rms_norm,
    .linear = cuda_linear,
    .attention_begin = cuda_attention_begin,
    .attention_prepare = cuda_attention_prepare,
    .attention = cuda_attention,
    .silu_mul = cuda_silu_mul,
    .gelu_mul = cuda_gelu_mul,
    .sigmoid_mul = cuda_sigmoid_mul,
    .scale = cuda_scale,
    .softcap = cuda_softcap,
    .layer_norm = cuda_layer_norm,
    .activate = cuda_activate,
    .scale_rows = cuda_scale_rows,
    .square_sums = cuda_square_sums,
    .cut_norm = cuda_cut_norm,
    .layers_end = cuda_layers_end,
    .gather_rows = cuda_gather_rows,
};

static const struct backend_queue cuda_queue = {
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .register_host = cuda_register_host,
    .unregister_host = cuda_unregister_host,
    .wait_loaded = cuda_wait_loaded,
    .timings_write = cuda_timings_write,
    .timings_read = cuda_timings_read,
    .poll = cuda_poll,
    .memory = cuda_memory,
    .weights_finish = cuda_weights_finish,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_is_done = cuda_event_is_done,
    .upload_beside = cuda_upload_beside,
    .event_wait = cuda_event_wait,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
};

static const struct backend_sampler cuda_sampler = {
    .sample = cuda_sample,
    .download_results = cuda_download_results,
    .scratch_floats = cuda_scratch_floats,
    .counts_create = cuda_counts_create,
    .counts_destroy = cuda_counts_destroy,
    .counts_bytes = cuda_counts_bytes,
    .counts_begin = cuda_counts_begin,
};

static const struct backend_moe cuda_moe = {
    .experts_create = cuda_experts_create,
    .experts_destroy = cuda_experts_destroy,
    .experts_bytes = cuda_experts_bytes,
    .experts_scratch_bytes = cuda_experts_scratch_bytes,
    .route = cuda_route,
    .norm_route = cuda_norm_route,
    .experts = cuda_experts,
    .takes_shared = cuda_experts_take_shared,
    .adds_sums = cuda_experts_add_sums,
    .has_branches = true,
    .has_groups = true,
    .has_ungated = true,
};

static size_t cuda_gated_delta_bytes(const struct backend *backend,
                                     const struct gated_delta_shape *shape) {
    (void)backend;
    return cuda_gated_delta_slot_bytes(shape);
}

static size_t cuda_gated_delta_scratch_bytes(const struct backend *backend,
                                             const struct gated_delta_shape *shape,
                                             uint32_t num_tokens) {
    (void)backend;
    return cuda_delta_chunks_scratch_bytes(shape, num_tokens);
}

static void cuda_gated_delta(struct backend *backend, const struct gated_delta_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    struct cuda_linear_view gates = {0};
    if (!args->gates) gates = cuda_linear_view_of(args->gates_linear);
    cuda_gated_delta_launch(args, &gates, &cuda->info, cuda->stream);
}

static bool cuda_computes_gates(const struct backend *backend,
                                const struct gated_delta_args *args) {
    const struct cuda_linear_view gates = cuda_linear_view_of(args->gates_linear);
    (void)backend;
    return cuda_gated_delta_computes_gates(args, &gates);
}

static size_t cuda_mamba_bytes(const struct backend *backend, const struct mamba_shape *shape) {
    (void)backend;
    return cuda_mamba_slot_bytes(shape);
}

// Convolved channels, in bf16.
static size_t cuda_mamba_scratch_bytes(const struct backend *backend,
                                       const struct mamba_shape *shape, uint32_t num_tokens) {
    (void)backend;
    return (size_t)num_tokens * mamba_channels(shape) * 2;
}

static void cuda_mamba(struct backend *backend, const struct mamba_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_mamba_launch(args, &cuda->info, cuda->stream);
}

static const struct backend_recurrent cuda_recurrent = {
    .gated_delta_bytes = cuda_gated_delta_bytes,
    .gated_delta_scratch_bytes = cuda_gated_delta_scratch_bytes,
    .gated_delta = cuda_gated_delta,
    .computes_gates = cuda_computes_gates,
    .short_conv = cuda_short_conv,
    .mamba_bytes = cuda_mamba_bytes,
    .mamba_scratch_bytes = cuda_mamba_scratch_bytes,
    .mamba = cuda_mamba,
};

static const struct backend_fusion cuda_fusion = {
    .model_create = cuda_fused_model_create,
    .model_destroy = cuda_fused_model_destroy,
    .takes_layers = cuda_takes_layers,
    .layers = cuda_layers,
    .project_in = cuda_project_in,
    .project_out = cuda_project_out,
    .attend = cuda_attend,
    .norms_sums = true,
};

// Looks up a function of the driver. The CUDA runtime keeps the driver loaded, so the address stays
// valid.
static void *find_in_driver(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return NULL;
    void *address = dlsym(driver, name);
    dlclose(driver);
    return address;
}

static enum status find_device(struct cuda_backend *cuda, const struct backend_options *options,
                               char *name, size_t name_size, struct err *err) {
    enum status status = OK;
    struct cudaDeviceProp properties;
    int code_major = 0, count = 0;
    uint32_t gpu;
    CU(cudaGetDeviceCount(&count));
    CHECK(gpu_choice_parse(&cuda->gpus, "cuda", options->device), "%s", options->device);
    cuda->rank_on_host = options->rank_on_host;
    status = gpu_choice_of_rank(&cuda->gpus, cuda->rank_on_host, (uint32_t)count, &gpu, err);
    if (status) goto fail;
    cuda->device = (int)gpu;
    CU(cudaGetDeviceProperties(&properties, cuda->device));
    CU(cudaSetDevice(cuda->device));
    CU(cuda_code_major(&code_major));
    cuda->info = (struct cuda_device_info){
        .num_sms = properties.multiProcessorCount,
        .major = properties.major < code_major ? properties.major : code_major,
        .minor = properties.minor,
        .shared_bytes_max = (int)properties.sharedMemPerBlockOptin,
        .refusal = &cuda->refusal,
    };
    if (cuda_code_has_sm90a() && properties.major == 9) {
        cuda->info.encode_tensor_map = find_in_driver("cuTensorMapEncodeTiled");
    }
    cuda_attention_max_clusters(&cuda->info);
    snprintf(name, name_size, "%s", properties.name);
    return OK;
fail:
    return status;
}

enum status cuda_backend_create(struct backend **out, const struct backend_options *options,
                                struct err *err) {
    *out = NULL;
    if (options->weight_dtype != DTYPE_BF16) {
        return err_set(err, ERR_UNSUPPORTED, "device cuda keeps weights as BF16, not as %s",
                       dtype_name(options->weight_dtype));
    }
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return err_nomem(err, "CUDA backend");
    char name[256] = "";
    struct gemm_library_load library;
    gemm_library_begin(&library); // while the driver, which has been started, makes its context
    enum status status = find_device(cuda, options, name, sizeof name, err);
    gemm_library_wait(&library);
    if (status) goto fail;
    cuda->base = (struct backend){
        .ops = &cuda_ops,
        .queue = &cuda_queue,
        .sampler = &cuda_sampler,
        .moe = &cuda_moe,
        .recurrent = &cuda_recurrent,
        .latent = &cuda_latent,
        .collective = &cuda_collective,
        .fusion = &cuda_fusion,
        .name = "cuda",
        .activation_dtype = DTYPE_BF16,
        .weight_dtype = DTYPE_BF16,
        .kv_cache_dtype = DTYPE_BF16,
        .kv_cache_dtypes = 1u << DTYPE_I8 | 1u << DTYPE_F8_E4M3,
        .has_windows = true,
        .has_chunks = true,
        .has_grouped_layer_norms = true,
        .has_cheap_rows = true,
        .has_kv_groups = true,
        .has_kv_shapes = true,
    };
    snprintf(cuda->base.description, sizeof cuda->base.description, "cuda %.100s", name);
    CU(cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking));
    CU(cudaStreamCreateWithFlags(&cuda->copies, cudaStreamNonBlocking));
    CU(cudaEventCreateWithFlags(&cuda->copied, cudaEventDisableTiming));
    const struct cuda_gemm_options gemm = {options->timings_path, name, &cuda->info};
    status = cuda_gemm_create(&cuda->gemm, &gemm, err);
    if (status) goto fail;
    int threads = options->threads ? options->threads : cpu_count();
    if (threads > COPY_THREADS_MAX) threads = COPY_THREADS_MAX;
    cuda->num_copy_threads = (uint32_t)(threads > 0 ? threads : 1);
    *out = &cuda->base;
    return OK;
fail:
    cuda_destroy(&cuda->base);
    return status;
}
