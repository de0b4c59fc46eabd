#include "engine/plan/engine_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device_list.h"
#include "base/os/cpu.h"
#include "base/os/file.h"
#include "checkpoint/checkpoint.h"
#include "comm/mpi_comm.h"
#include "engine/plan/kv_dtype.h"
#include "engine/plan/plan_drafts.h"
#include "engine/plan/target_itl.h"

enum {
    DEFAULT_MODEL_LEN_MAX = 4096,
    TRIAL_BLOCKS = 1, // of the trial KV cache (warm_up.h)
};

// The option's name has been checked against the table.
static struct weight_format format_of(const char *quantization) {
    if (strcmp(quantization, "int8") == 0) return WEIGHTS_INT8;
    return strcmp(quantization, "int4") == 0 ? WEIGHTS_INT4 : WEIGHTS_NATIVE;
}

static enum collective_kind collective_kind_of(const char *name) {
    if (strcmp(name, "p2p") == 0) return COLLECTIVE_P2P;
    return strcmp(name, "auto") == 0 ? COLLECTIVE_AUTO : COLLECTIVE_LIBRARY;
}

static const double gib = 1024.0 * 1024.0 * 1024.0;
static const double default_kv_gib_max = 4.0;

uint32_t engine_plan_num_ranks(const struct nvllm_engine_options *options) {
    return (uint32_t)options->tensor_parallel_size * (uint32_t)options->data_parallel_size;
}

bool engine_plan_uses_mpi(const struct nvllm_engine_options *options) {
    return strcmp(options->distributed_executor_backend, "mpi") == 0;
}

// Finds out how many ranks are on this host: all of them, unless mpirun has started them.
static enum status find_host(struct engine_plan *plan, const struct nvllm_engine_options *options,
                             struct err *err) {
    uint32_t first = plan->engine * plan->world_size;
    plan->rank_on_host = first + plan->rank;
    plan->is_one_host = true;
    plan->num_on_host = plan->num_sharing = engine_plan_num_ranks(options);
    if (!engine_plan_uses_mpi(options)) return OK;
    const struct mpi_wire *wire;
    struct mpi_world world;
    enum status status = mpi_wire_open(&wire, &world, err);
    if (status) return status;
    plan->first_process = first;
    plan->rank_on_host = world.rank_on_host;
    bool is_row = world.last_on_host - world.first_on_host + 1 == world.num_on_host;
    plan->is_one_host = is_row && first >= world.first_on_host &&
                        first + plan->world_size <= world.last_on_host + 1;
    plan->num_on_host = world.num_on_host;
    plan->num_sharing = world.num_sharing;
    if (world.size == engine_plan_num_ranks(options)) return OK;
    return err_set(err, ERR_INVALID,
                   "mpirun has started %u processes, but tensor_parallel_size %d x "
                   "data_parallel_size %d is %u",
                   world.size, options->tensor_parallel_size, options->data_parallel_size,
                   engine_plan_num_ranks(options));
}

// The CPU threads of one rank. With one rank, 0 means one for each core.
static int threads_of_rank(const struct engine_plan *plan,
                           const struct nvllm_engine_options *options) {
    uint32_t world_size = engine_plan_num_ranks(options);
    uint32_t threads = (uint32_t)options->threads, num_sharing = world_size;
    if (world_size == 1) return options->threads;
    if (!threads) {
        threads = (uint32_t)cpu_core_count();
        num_sharing = plan->num_sharing;
    }
    return threads > num_sharing ? (int)(threads / num_sharing) : 1;
}

static enum status check_ranks(const struct engine_plan *plan, const char *comm, struct err *err) {
    const struct backend *backend = plan->backend;
    bool has_group = backend->queue ? backend->collective != NULL : backend->peers != NULL;
    const struct backend_collective *collective = backend->collective;
    if (collective && plan->collective_kind == COLLECTIVE_LIBRARY &&
        strcmp(comm, collective->library) != 0) {
        return err_set(err, ERR_INVALID, "comm is %s: the device %s has %s", comm, backend->name,
                       collective->library);
    }
    if (plan->world_size == 1 || has_group) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "tensor_parallel_size is %u: the device %s runs a model by one process only",
                   plan->world_size, plan->backend->name);
}

// The configuration as errors name it: a GGUF file has one inside.
static const char *config_name(const struct nvllm_engine_options *options,
                               struct document_name *out) {
    if (checkpoint_is_file(options->model)) {
        snprintf(out->text, sizeof out->text, "%s (as config.json)", options->model);
    } else {
        snprintf(out->text, sizeof out->text, "%s/config.json", options->model);
    }
    return out->text;
}

static enum status choose_backend(struct engine_plan *plan,
                                  const struct nvllm_engine_options *options, struct err *err) {
    char cache_path[FILE_PATH_MAX] = "";
    if (options->cache_dir) {
        enum status joined =
            file_join(cache_path, sizeof cache_path, options->cache_dir, "gemm.txt", err);
        if (joined) return joined;
    }
    const struct backend_options backend_options = {
        .device = options->device,
        .rank_on_host = plan->rank_on_host,
        .cpu_isa = options->cpu_isa,
        .threads = threads_of_rank(plan, options),
        .numa = strcmp(options->numa, "off") != 0,
        .weight_dtype = strcmp(options->dtype, "float32") == 0 ? DTYPE_F32 : DTYPE_BF16,
        .timings_path = options->cache_dir ? cache_path : NULL,
    };
    const struct device_kind *kind = device_list_find(options->device);
    struct gpu_choice gpus;
    enum status status = OK;
    plan->num_on_gpu = 1;
    if (kind && kind->has_numbers && gpu_choice_parse(&gpus, kind->name, options->device)) {
        status = gpu_choice_check(&gpus, plan->num_on_host, err);
        if (!status && gpus.count > 1) {
            plan->num_on_gpu = gpu_choice_num_sharing(&gpus, gpus.listed[plan->rank_on_host]);
        }
    }
    if (!status) status = backend_create(&plan->backend, &backend_options, err);
    if (status) return status;
    const struct {
        const char *what;
        bool is_missing;
    } groups[] = {
        {"experts", plan->config.moe.num_experts && !plan->backend->moe},
        {"experts beside a dense MLP",
         layer_table_has_branches(&plan->layers) &&
             !(plan->backend->moe && plan->backend->moe->has_branches)},
        {"inputs of layers, or layers that read the keys of others,",
         (plan->layers.layer_input_size || layer_table_shares_kv(&plan->layers)) &&
             !plan->backend->ops->gelu_mul},
        {"norms over all heads, which several ranks cut,",
         plan->world_size > 1 &&
             (layer_table_has_row_norms(&plan->layers) || plan->config.own.mamba.num_groups == 1) &&
             !plan->backend->ops->cut_norm},
        {"LayerNorms of heads",
         layer_table_has_own_head_norms(&plan->layers) && !plan->backend->has_grouped_layer_norms},
        {"LayerNorms", plan->layers.is_layer_norm && !plan->backend->ops->layer_norm},
        {"experts without a gate", layer_table_lacks_expert_gate(&plan->layers) &&
                                       plan->config.moe.num_experts &&
                                       !(plan->backend->moe && plan->backend->moe->has_ungated)},
        {"factors of experts' inputs",
         plan->layers.scales_expert_inputs && !plan->backend->ops->scale_rows},
        {"MLPs without a gate",
         layer_table_lacks_gate(&plan->layers) && !plan->backend->ops->activate},
        {"Mamba layers", plan->config.own.mamba.num_heads &&
                             !(plan->backend->recurrent && plan->backend->recurrent->mamba)},
        {"recurrent layers (linear attention)",
         layer_table_num_states(&plan->layers) && !plan->backend->recurrent},
        {"layers with latent attention",
         layer_table_has_latents(&plan->layers) && !plan->backend->latent},
        {"groups of experts",
         plan->config.moe.num_groups && !(plan->backend->moe && plan->backend->moe->has_groups)},
    };
    struct document_name name;
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        if (!groups[i].is_missing) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: %s are not supported on the device %s",
                       config_name(options, &name), groups[i].what, plan->backend->name);
    }
    return OK;
}

static enum status check_latents(const struct engine_plan *plan,
                                 const struct nvllm_engine_options *options, struct err *err) {
    const struct backend_latent *latent = plan->backend->latent;
    if (!layer_table_has_latents(&plan->layers) || !latent->check_shape) return OK;
    const struct latent_shape shape = decoder_latent_shape(&plan->layers, &plan->shape);
    enum status status = latent->check_shape(plan->backend, &shape, err);
    struct document_name name;
    return status ? err_prefix(err, status, "%s", config_name(options, &name)) : OK;
}

// With recurrent layers a hit needs the states at its end.
static bool has_prefix_cache(const struct engine_plan *plan,
                             const struct nvllm_engine_options *options) {
    if (!layer_table_num_states(&plan->layers)) return options->enable_prefix_caching != 0;
    return options->enable_prefix_caching && options->num_state_snapshots;
}

static enum status choose_format(struct engine_plan *plan,
                                 const struct nvllm_engine_options *options, struct err *err) {
    const struct backend *backend = plan->backend;
    plan->format = format_of(options->quantization);
    bool is_native = weight_format_is(plan->format, WEIGHTS_NATIVE);
    if (!is_native && strcmp(options->dtype, "float32") == 0) {
        return err_set(err, ERR_INVALID, "weights cannot be quantized and kept as float32 too");
    }
    if (backend->ops->has_format(backend, plan->format)) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "device %s does not quantize weights to %s; device cpu does", backend->name,
                   options->quantization);
}

// Whether the checkpoint may have linears in codes. Most GGUF files do.
static bool may_have_codes(const struct engine_plan *plan) {
    return plan->config.quantization.method != QUANTIZED_NOT ||
           (!plan->dummy_weights && checkpoint_is_file(checkpoint_path(plan->checkpoint)));
}

// Unless an option says otherwise, the linears of a quantized checkpoint stay as they are stored.
static enum status choose_formats(struct engine_plan *plan,
                                  const struct nvllm_engine_options *options, struct err *err) {
    struct linear_formats *formats = &plan->runner.decoder.formats;
    *formats = (struct linear_formats){.format = plan->format};
    bool is_packed = may_have_codes(plan) && weight_format_is(plan->format, WEIGHTS_NATIVE) &&
                     strcmp(options->dtype, "auto") == 0;
    struct weights *weights = NULL;
    // Where they cannot be opened, loading says why.
    if (!is_packed || engine_plan_open_weights(plan, &weights, NULL)) return OK;
    enum status status = linear_formats_find(formats, &plan->config, &plan->layers, &plan->shape,
                                             plan->backend, weights, err);
    weights_close(weights);
    return status;
}

_Static_assert((int)BLOCK_GROUPS_MAX == (int)KV_GROUPS_MAX, "the groups are those of a step");

// Some layer has a window, or chunks, that the device cannot compute.
static bool lacks_windows(const struct backend *backend, const struct layer_table *layers) {
    if (!layer_table_has_windows(layers)) return false;
    return !backend->has_windows || (layers->is_chunked && !backend->has_chunks);
}

// Needs max_model_len.
static enum status choose_kv_groups(struct engine_plan *plan,
                                    const struct nvllm_engine_options *options, struct err *err) {
    struct layer_table *layers = &plan->layers;
    const struct backend *backend = plan->backend;
    struct document_name name;
    layer_table_plan_kv(layers, plan->max_model_len, backend->has_kv_groups ? KV_GROUPS_MAX : 1,
                        plan->world_size);
    if (lacks_windows(backend, layers)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: sliding-window or chunked attention (%u tokens) is not supported on "
                       "the device %s; with max_model_len %u or less it has no effect",
                       config_name(options, &name), plan->config.sliding_window, backend->name,
                       plan->config.sliding_window);
    }
    if (layer_table_has_kv_shapes(layers) && !backend->has_kv_shapes) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: layers whose keys and values have different shapes are not supported "
                       "on the device %s",
                       config_name(options, &name), backend->name);
    }
    struct block_groups *groups = &plan->scheduler.groups;
    groups->num_groups = layers->num_kv_groups;
    memcpy(groups->windows, layers->kv_windows, sizeof groups->windows);
    plan->runner.decoder.limits.num_kv_groups = layers->num_kv_groups;
    return OK;
}

static enum status choose_lengths(struct engine_plan *plan,
                                  const struct nvllm_engine_options *options, struct err *err) {
    uint32_t model_max = plan->config.max_position_embeddings; // scalings included
    uint32_t wanted = (uint32_t)options->max_model_len;
    if (wanted > model_max) {
        return err_set(err, ERR_INVALID, "max_model_len is %u, but the model's maximum is %u",
                       wanted, model_max);
    }
    if (!wanted) wanted = model_max < DEFAULT_MODEL_LEN_MAX ? model_max : DEFAULT_MODEL_LEN_MAX;
    if (wanted < 2) {
        return err_set(err, ERR_INVALID,
                       "max_model_len is %u, want at least 2: a prompt and an answer", wanted);
    }
    plan->max_model_len = wanted;

    uint32_t max_num_tokens = (uint32_t)options->max_num_batched_tokens;
    uint32_t max_num_seqs = (uint32_t)options->max_num_seqs;
    if (max_num_seqs > max_num_tokens) max_num_seqs = max_num_tokens; // each runs a token a step
    uint32_t block_size = (uint32_t)options->block_size;
    plan->scheduler = (struct scheduler_config){
        .policy = strcmp(options->schedule, "prefill-first") == 0 ? SCHEDULE_PREFILL_FIRST
                                                                  : SCHEDULE_MIXED,
        .max_num_seqs = max_num_seqs,
        .max_num_batched_tokens = max_num_tokens,
        .block_size = block_size,
        .enable_prefix_caching = has_prefix_cache(plan, options),
    };
    if (plan->scheduler.enable_prefix_caching && layer_table_num_states(&plan->layers)) {
        uint32_t tokens = (uint32_t)options->state_snapshot_tokens + block_size - 1;
        plan->scheduler.num_snapshots = (uint32_t)options->num_state_snapshots;
        plan->scheduler.snapshot_tokens = tokens / block_size * block_size;
    }
    struct step_limits *limits = &plan->runner.decoder.limits;
    *limits = (struct step_limits){
        .max_num_tokens = max_num_tokens,
        .max_num_seqs = draft_options_rows(&plan->drafts, max_num_seqs, max_num_tokens),
        .max_positions = wanted,
        .max_blocks_per_seq = (wanted + block_size - 1) / block_size,
        .num_snapshots = plan->scheduler.num_snapshots,
    };
    enum status status = choose_kv_groups(plan, options, err);
    if (status) return status;
    if (batch_capacity_bytes(limits, plan->config.vocab_size) > UINT32_MAX) {
        return err_set(
            err, ERR_INVALID,
            "max_num_seqs %u and max_model_len %u together make a batch of more than 4 GiB",
            max_num_seqs, wanted);
    }
    return OK;
}

// For a device this is an upper bound: the warm-up measures what there is room for.
static size_t kv_bytes_by_default(const struct engine_plan *plan, size_t sequence_bytes) {
    size_t fixed = plan->weights_bytes + plan->workspace_bytes + plan->state_bytes;
    size_t available = plan->memory_available_bytes;
    size_t left = available > fixed ? available - fixed : 0;
    if (plan->backend->queue) return left;
    size_t bytes = left / 4;
    if (bytes > (size_t)(default_kv_gib_max * gib)) bytes = (size_t)(default_kv_gib_max * gib);
    // Without a prefix cache, more than all active sequences at full length is never used.
    size_t useful = sequence_bytes * plan->scheduler.max_num_seqs;
    if (!plan->scheduler.enable_prefix_caching && bytes > useful) bytes = useful;
    return bytes > sequence_bytes ? bytes : sequence_bytes;
}

static uint64_t blocks_for(const struct scheduler_config *s, uint32_t num_tokens) {
    uint32_t num_entries = num_tokens / s->block_size + (num_tokens % s->block_size != 0);
    return block_groups_most(&s->groups, s->block_size, num_entries, s->max_num_batched_tokens);
}

uint64_t engine_plan_blocks_for(const struct engine_plan *plan, uint32_t num_tokens) {
    return blocks_for(&plan->scheduler, num_tokens);
}

// The longest sequence, of at most `most` tokens, that fits into num_blocks blocks.
static uint32_t tokens_in(const struct scheduler_config *s, uint32_t most, uint64_t num_blocks) {
    uint32_t low = 0, high = most;
    if (blocks_for(s, high) <= num_blocks) return high;
    while (high - low > 1) { // low fits, high does not
        uint32_t middle = low + (high - low) / 2;
        if (blocks_for(s, middle) <= num_blocks) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t engine_plan_context_len(const struct engine_plan *plan) {
    return tokens_in(&plan->scheduler, plan->max_model_len, plan->scheduler.num_blocks);
}

// KV slots are numbered by int32_t.
uint64_t engine_plan_most_blocks(const struct engine_plan *plan) {
    return (uint64_t)INT32_MAX / plan->scheduler.block_size;
}

static void set_kv_layers(struct kv_cache_spec *spec, const struct layer_table *layers,
                          uint32_t world_size) {
    spec->num_layers = layers->layers_per_group;
    spec->block_end = layers->kv_block_end;
    memcpy(spec->shapes, layers->kv_shapes, sizeof spec->shapes);
    spec->num_shapes = layers->num_kv_shapes;
    spec->num_kv_heads = spec->head_dim = 0;
    for (uint32_t i = 0; i < layers->num_layers; i++) {
        const struct layer *layer = &layers->layers[i];
        if (!layer_attends(layer)) continue;
        if (layer->mixer == MIXER_LATENT_ATTENTION) spec->latent_rank = layers->latent.rank;
        uint32_t heads = layer_kv_heads(layer, world_size);
        if (heads > spec->num_kv_heads) spec->num_kv_heads = heads;
        if (layer->head_dim > spec->head_dim) spec->head_dim = layer->head_dim;
    }
}

// nano-vllm: allocate_kv_cache.
static enum status choose_kv_cache(struct engine_plan *plan,
                                   const struct nvllm_engine_options *options, struct err *err) {
    uint32_t block_size = plan->scheduler.block_size;
    struct kv_cache_spec spec = {
        .block_size = block_size,
        .num_heads = plan->shape.num_heads,
        .limits = plan->runner.decoder.limits,
    };
    set_kv_layers(&spec, &plan->layers, plan->world_size);
    enum status status = kv_dtype_choose(&spec.dtype, plan->backend, options->kv_cache_dtype, err);
    if (status) return status;
    if (spec.latent_rank && dtype_size(spec.dtype) == 1 &&
        !plan->backend->latent->has_narrow_caches) {
        return err_set(err, ERR_UNSUPPORTED,
                       "kv_cache_dtype is \"%s\", which is not supported for latent attention on "
                       "the device %s",
                       options->kv_cache_dtype, plan->backend->name);
    }
    const struct backend_ops *ops = plan->backend->ops;
    if (ops->kv_cache_workspace_bytes) {
        plan->workspace_bytes += ops->kv_cache_workspace_bytes(plan->backend, &spec);
    }
    uint64_t blocks_per_seq = engine_plan_blocks_for(plan, plan->max_model_len);
    if (!blocks_per_seq) return err_set(err, ERR_INVALID, "max_model_len is 0");
    plan->kv_block_bytes = ops->kv_cache_block_bytes(plan->backend, &spec);
    if (plan->kv_block_bytes > SIZE_MAX / 4 / blocks_per_seq) {
        return err_set(err, ERR_UNSUPPORTED,
                       "KV cache blocks of %zu bytes are too large to hold max_model_len %u",
                       plan->kv_block_bytes, plan->max_model_len);
    }
    size_t sequence_bytes = plan->kv_block_bytes * blocks_per_seq;
    uint64_t num_blocks = (uint64_t)options->num_kvcache_blocks;
    if (!num_blocks && options->kv_cache_gib > 0) {
        num_blocks = (uint64_t)(options->kv_cache_gib * gib / (double)plan->kv_block_bytes);
        if (num_blocks < blocks_per_seq) {
            return err_set(
                err, ERR_INVALID,
                "kv_cache_gib %g holds %u tokens, fewer than max_model_len %u, which needs %.3f",
                options->kv_cache_gib, tokens_in(&plan->scheduler, plan->max_model_len, num_blocks),
                plan->max_model_len, (double)sequence_bytes / gib);
        }
    }
    plan->fills_memory = !num_blocks && plan->backend->queue;
    if (!num_blocks) {
        num_blocks = kv_bytes_by_default(plan, sequence_bytes) / plan->kv_block_bytes;
        // Where these do not fit, engine_plan_check_memory says what is needed.
        if (num_blocks < blocks_per_seq) num_blocks = blocks_per_seq;
    }
    uint64_t most_blocks = engine_plan_most_blocks(plan);
    if (num_blocks > most_blocks) num_blocks = most_blocks;
    if (!num_blocks || plan->kv_block_bytes > SIZE_MAX / 4 / (size_t)num_blocks) {
        return err_set(err, ERR_UNSUPPORTED,
                       "a KV cache of %llu blocks of %zu bytes cannot be addressed",
                       (unsigned long long)num_blocks, plan->kv_block_bytes);
    }
    plan->scheduler.num_blocks = (uint32_t)num_blocks;
    spec.num_blocks = plan->fills_memory ? TRIAL_BLOCKS : plan->scheduler.num_blocks;
    plan->runner.kv_cache = spec;
    return OK;
}

// Finds the longest max_model_len for which the plan's KV cache is large enough. A longer one may
// bring windows into effect, and with them other groups of layers and smaller blocks.
static enum status find_longest(struct engine_plan *plan,
                                const struct nvllm_engine_options *options, struct err *err) {
    const struct backend *backend = plan->backend;
    uint32_t most = plan->config.max_position_embeddings;
    uint32_t max_groups = backend->has_kv_groups ? KV_GROUPS_MAX : 1;
    struct layer_table layers;
    enum status status = family_resolve(&layers, &plan->config, err);
    if (status) return status;
    if (lacks_windows(backend, &layers) && most > plan->config.sliding_window) {
        most = plan->config.sliding_window; // a longer one is refused
    }
    layer_table_plan_kv(&layers, most, max_groups, plan->world_size);
    struct scheduler_config scheduler = plan->scheduler;
    scheduler.groups.num_groups = layers.num_kv_groups;
    memcpy(scheduler.groups.windows, layers.kv_windows, sizeof scheduler.groups.windows);
    struct kv_cache_spec spec = plan->runner.kv_cache;
    set_kv_layers(&spec, &layers, plan->world_size);
    layer_table_fini(&layers);
    size_t bytes = plan->kv_block_bytes * plan->scheduler.num_blocks;
    uint64_t num_blocks = bytes / backend->ops->kv_cache_block_bytes(backend, &spec);
    if (options->num_kvcache_blocks) num_blocks = (uint64_t)options->num_kvcache_blocks;
    plan->longest_model_len = tokens_in(&scheduler, most, num_blocks);
    return OK;
}

// Models of embeddings are published without the matrix that they do not use.
static void find_lm_head(struct engine_plan *plan) {
    struct model_config *config = &plan->config;
    struct weights *weights = NULL;
    if (config->tie_word_embeddings || !plan->pooling.is_present) return;
    // Where they cannot be opened, loading says why.
    if (engine_plan_open_weights(plan, &weights, NULL)) return;
    config->lacks_lm_head = config->tie_word_embeddings = !weights_has(weights, "lm_head.weight");
    weights_close(weights);
}

static enum status open_model(struct engine_plan *plan, const char *model, struct err *err) {
    enum status status = checkpoint_open(&plan->checkpoint, model, err);
    if (status) return status;
    status = model_config_load(&plan->config, &plan->generation, plan->checkpoint, err);
    if (!status) status = pooling_config_load(&plan->pooling, plan->checkpoint, err);
    if (status) return status;
    status = family_resolve(&plan->layers, &plan->config, err);
    if (!status) return OK;
    struct document_name what;
    bool present = false;
    enum status found = checkpoint_find(plan->checkpoint, "config.json", &what, &present, NULL);
    return err_prefix(err, status, "%s", found ? model : what.text);
}

// Async scheduling needs `mixed`: prefill-first may admit a sequence in the step that preempted it,
// while its last token is pending.
static bool is_async(const struct engine_plan *plan, const struct nvllm_engine_options *options) {
    if (strcmp(options->schedule, "mixed") != 0) return false;
    if (strcmp(options->async_scheduling, "on") == 0) return true;
    return plan->backend->queue && strcmp(options->async_scheduling, "off") != 0;
}

static enum status make(struct engine_plan *plan, const struct nvllm_engine_options *options,
                        struct err *err) {
    enum status status = open_model(plan, options->model, err);
    if (status) return status;
    plan->world_size = (uint32_t)options->tensor_parallel_size;
    plan->collective_kind = collective_kind_of(options->comm);
    status = decoder_shape_of(&plan->shape, &plan->config, &plan->layers, plan->rank,
                              plan->world_size, err);
    if (status) return status;
    if ((status = find_host(plan, options, err))) return status;
    if ((status = choose_backend(plan, options, err))) return status;
    if ((status = check_latents(plan, options, err))) return status;
    if ((status = choose_format(plan, options, err))) return status;
    if ((status = check_ranks(plan, options->comm, err))) return status;
    plan->dummy_weights = strcmp(options->load_format, "dummy") == 0;
    plan->seed = (uint64_t)options->seed;
    plan->is_async = is_async(plan, options);
    find_lm_head(plan);
    if ((status = choose_formats(plan, options, err))) return status;
    if ((status = plan_drafts(plan, options, err))) return status;
    if ((status = choose_lengths(plan, options, err))) return status;
    if ((status = target_itl_read(&plan->scheduler.pace, options, err))) return status;

    struct decoder_options *decoder = &plan->runner.decoder;
    decoder->config = &plan->config;
    decoder->table = &plan->layers;
    decoder->shape = &plan->shape;
    decoder->backend = plan->backend;
    if ((status = engine_plan_find_memory(plan, options, err))) return status;
    if ((status = choose_kv_cache(plan, options, err))) return status;
    if ((status = find_longest(plan, options, err))) return status;
    decoder->spare_bytes = engine_plan_spare_bytes(plan);
    return OK;
}

enum status engine_plan_make(struct engine_plan *plan, const struct nvllm_engine_options *options,
                             uint32_t engine, uint32_t rank, struct err *err) {
    *plan = (struct engine_plan){.engine = engine, .rank = rank};
    enum status status = make(plan, options, err);
    if (status) engine_plan_fini(plan);
    return status;
}

enum status engine_plan_open_weights(const struct engine_plan *plan, struct weights **out,
                                     struct err *err) {
    enum status status = plan->dummy_weights ? weights_open_dummy(out, err)
                                             : weights_open(out, plan->checkpoint, err);
    if (!status) weights_set_quantization(*out, &plan->config.quantization);
    if (!status) {
        weights_set_experts(*out, plan->config.moe.layout, plan->config.moe.num_experts);
    }
    if (!status && plan->config.has_other_parts) weights_ignore_other_parts(*out);
    if (!status) {
        weights_ignore_layers(*out, plan->config.num_layers, plan->config.num_draft_layers);
    }
    if (status || !plan->layers.loses_factors_by_mlx || !weights_has_mlx_convs(*out)) return status;
    weights_close(*out);
    *out = NULL;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: MLX converted the weights of this %s, and left out factors of config.json; "
                   "want the weights as they were published",
                   checkpoint_path(plan->checkpoint), plan->layers.family);
}

struct weight_format engine_plan_weight_format(const struct engine_plan *plan) {
    const struct linear_formats *formats = &plan->runner.decoder.formats;
    struct weight_format packed = linear_formats_packed(formats, plan->layers.num_layers);
    return weight_format_is_packed(packed) ? packed : plan->format;
}

void engine_plan_fini(struct engine_plan *plan) {
    linear_formats_fini(&plan->runner.decoder.formats);
    backend_destroy(plan->backend);
    layer_table_fini(&plan->layers);
    model_config_fini(&plan->config);
    pooling_config_fini(&plan->pooling);
    checkpoint_close(plan->checkpoint);
    *plan = (struct engine_plan){0};
}
