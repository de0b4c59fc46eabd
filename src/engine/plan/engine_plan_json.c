// The JSON of nvllm_inspect: the model's description and the memory plan.
#include <jansson.h>

#include "base/json/jwrite.h"
#include "engine/plan/engine_plan.h"

static const char *rope_name(enum rope_type type) {
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3",
        [ROPE_YARN] = "yarn",       [ROPE_LONG] = "longrope", [ROPE_PROPORTIONAL] = "proportional",
    };
    return names[type];
}

// Some layer rotates q and k.
static bool has_rotation(const struct layer_table *table) {
    for (uint32_t i = 0; i < table->num_layers; i++) {
        const struct layer *layer = &table->layers[i];
        bool rotates = layer->rope != ROPE_NONE && layer->rotary_dim;
        if (layer_attends(layer) && rotates) return true;
    }
    return false;
}

static json_t *sampling_defaults_json(const struct generation_config *g) {
    json_t *defaults = json_object();
    if (!defaults) return NULL;
    int failed = 0;
#define JSON_FLOAT(number) json_real((double)(number))
#define JSON_INT(number) json_integer(number)
#define ADD(type, name, ...)                                                                       \
    if (g->has_##name) failed |= json_object_set_new(defaults, #name, JSON_##type(g->name));
    NVLLM_MODEL_PARAMS(ADD)
    if (!failed) return defaults;
    json_decref(defaults);
    return NULL;
}

static json_t *eos_json(const struct model_config *config) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < config->num_eos_token_ids; i++) {
        if (json_array_append_new(list, json_integer(config->eos_token_ids[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

// How many sequences of max_model_len fit, and what max_num_seqs of them would need.
static json_t *users_json(const struct engine_plan *plan) {
    uint64_t blocks_each = engine_plan_blocks_for(plan, plan->max_model_len);
    uint64_t wanted = plan->scheduler.max_num_seqs;
    size_t bytes_each = plan->kv_block_bytes * blocks_each;
    size_t fixed = plan->weights_bytes + plan->workspace_bytes + plan->state_bytes +
                   engine_plan_scheduler_bytes(plan);
    size_t available = plan->memory_available_bytes;
    uint64_t in_cache = plan->scheduler.num_blocks / blocks_each;
    uint64_t in_memory = available > fixed ? (available - fixed) / bytes_each : 0;
    bool fits = in_cache >= wanted && (!available || engine_plan_total_bytes(plan) <= available);
    return json_pack("{s:I s:I s:I s:I s:I s:b}", "max_num_seqs", (json_int_t)wanted,
                     "kv_bytes_each", (json_int_t)bytes_each, "num_in_kv_cache",
                     (json_int_t)in_cache, "num_in_memory", (json_int_t)in_memory, "total_bytes",
                     (json_int_t)(fixed + bytes_each * wanted), "fits", (int)fits);
}

// Adds what only a model with windows has. 0: done.
static int add_kv_groups(json_t *memory, const struct engine_plan *plan) {
    const struct block_groups *groups = &plan->scheduler.groups;
    if (!memory || !layer_table_has_windows(&plan->layers)) return 0;
    json_t *windows = json_array();
    int failed = windows ? 0 : -1;
    for (uint32_t g = 0; g < groups->num_groups && !failed; g++) {
        failed = json_array_append_new(windows, json_integer(groups->windows[g]));
    }
    if (!failed) failed = json_object_set(memory, "kv_group_windows", windows);
    json_decref(windows);
    json_int_t blocks = (json_int_t)engine_plan_blocks_for(plan, plan->max_model_len);
    if (!failed) {
        failed = json_object_set_new(memory, "layers_per_kv_group",
                                     json_integer(plan->layers.layers_per_group));
    }
    return failed ? failed
                  : json_object_set_new(memory, "kv_blocks_per_sequence", json_integer(blocks));
}

// Adds what only a model with recurrent layers has. 0: done.
static int add_states(json_t *memory, const struct engine_plan *plan) {
    if (!memory || !plan->state_bytes) return 0;
    json_int_t num_slots =
        (json_int_t)plan->scheduler.max_num_seqs + (json_int_t)plan->scheduler.num_snapshots;
    json_t *more =
        json_pack("{s:I s:I s:I s:b}", "state_bytes", (json_int_t)plan->state_bytes,
                  "state_bytes_each", (json_int_t)plan->state_bytes / num_slots, "num_state_slots",
                  num_slots, "enable_prefix_caching", (int)plan->scheduler.enable_prefix_caching);
    int failed = more ? json_object_update(memory, more) : -1;
    json_decref(more);
    return failed;
}

static json_t *memory_json(const struct engine_plan *plan) {
    uint64_t blocks = plan->scheduler.num_blocks;
    // A token has a slot in each group.
    uint64_t tokens = blocks / plan->scheduler.groups.num_groups * plan->scheduler.block_size;
    json_t *memory = json_pack(
        "{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:o}", "weights_bytes",
        (json_int_t)plan->weights_bytes, "workspace_bytes", (json_int_t)plan->workspace_bytes,
        "kv_block_bytes", (json_int_t)plan->kv_block_bytes, "num_kv_blocks", (json_int_t)blocks,
        "block_size", (json_int_t)plan->scheduler.block_size, "kv_cache_bytes",
        (json_int_t)(plan->kv_block_bytes * blocks), "kv_cache_tokens", (json_int_t)tokens,
        "longest_model_len", (json_int_t)plan->longest_model_len, "scheduler_bytes",
        (json_int_t)engine_plan_scheduler_bytes(plan), "total_bytes",
        (json_int_t)engine_plan_total_bytes(plan), "memory_available_bytes",
        (json_int_t)plan->memory_available_bytes, "full_length", users_json(plan));
    if (!add_kv_groups(memory, plan) && !add_states(memory, plan)) return memory;
    json_decref(memory);
    return NULL;
}

// Adds what only a mixture of experts has. 0: done.
static int add_moe(json_t *root, const struct engine_plan *plan) {
    const struct moe_config *moe = &plan->config.moe;
    if (!root || !moe->num_experts) return 0;
    json_int_t active = (json_int_t)decoder_num_active_parameters(&plan->config, &plan->layers);
    json_t *more = json_pack(
        "{s:I s:I s:I s:I s:I s:b}", "num_active_parameters", active, "num_experts",
        (json_int_t)moe->num_experts, "num_experts_per_tok", (json_int_t)moe->num_experts_per_tok,
        "moe_intermediate_size", (json_int_t)moe->intermediate_size, "num_sparse_layers",
        (json_int_t)moe->num_sparse_layers, "norm_topk_prob", (int)moe->norm_topk_prob);
    int failed = more ? json_object_update(root, more) : -1;
    json_decref(more);
    return failed;
}

static const char *weight_name(const struct engine_plan *plan) {
    static const char *const of_code[WEIGHT_CODE_COUNT] = {
        [WEIGHT_CODE_INT4] = "INT4", [WEIGHT_CODE_E2M1] = "F4_E2M1", [WEIGHT_CODE_IQ4] = "IQ4",
        [WEIGHT_CODE_IQ3] = "IQ3",   [WEIGHT_CODE_IQ2] = "IQ2",      [WEIGHT_CODE_ODD] = "INT4",
        [WEIGHT_CODE_INT8] = "INT8", [WEIGHT_CODE_E4M3] = "F8_E4M3",
    };
    struct weight_format format = engine_plan_weight_format(plan);
    if (weight_format_is_packed(format)) return of_code[format.code];
    if (weight_format_is(format, WEIGHTS_INT8)) return "INT8";
    if (weight_format_is(format, WEIGHTS_INT4)) return "INT4";
    return dtype_name(plan->backend->weight_dtype);
}

// Like weights, which have scales too.
static const char *kv_cache_name(enum dtype dtype) {
    if (dtype == DTYPE_F8_E4M3) return "FP8";
    return dtype == DTYPE_I8 ? "INT8" : dtype_name(dtype);
}

enum status engine_plan_json(const struct engine_plan *plan, char **json, struct err *err) {
    const struct model_config *c = &plan->config;
    bool has_latents = layer_table_has_latents(&plan->layers);
    bool has_rope = has_rotation(&plan->layers);
    uint32_t head_dim = has_latents ? plan->layers.layers[0].head_dim : c->head_dim;
    json_t *root = json_pack(
        "{s:s s:s s:s s:s s:s s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:b s:s s:o* s:o s:o s:s "
        "s:o}",
        "family", plan->layers.family, "architecture", c->architecture, "dtype",
        dtype_name(c->dtype), "weight_dtype", weight_name(plan), "kv_cache_dtype",
        kv_cache_name(plan->runner.kv_cache.dtype), "num_parameters",
        (json_int_t)decoder_num_parameters(c, &plan->layers), "vocab_size",
        (json_int_t)c->vocab_size, "hidden_size", (json_int_t)c->hidden_size, "intermediate_size",
        (json_int_t)c->intermediate_size, "num_layers", (json_int_t)c->num_layers, "num_heads",
        (json_int_t)c->num_heads, "num_kv_heads", (json_int_t)c->num_kv_heads, "head_dim",
        (json_int_t)head_dim, "max_position_embeddings", (json_int_t)c->max_position_embeddings,
        "max_model_len", (json_int_t)plan->max_model_len, "tie_word_embeddings",
        (int)c->tie_word_embeddings, "rope_type", has_rope ? rope_name(c->rope.type) : "none",
        "rope_theta", has_rope ? json_real(c->rope.theta) : NULL, "eos_token_ids", eos_json(c),
        "sampling_defaults", sampling_defaults_json(&plan->generation), "device",
        plan->backend->description, "plan", memory_json(plan));
    static const char what[] = "model description";
    struct buf text = {0};
    bool is_whole = root && (!has_rope || json_object_get(root, "rope_theta"));
    enum status status = is_whole && !add_moe(root, plan) ? OK : err_nomem(err, what);
    if (!status) status = jwrite(&text, root, JSON_INDENT(2), what, err);
    json_decref(root);
    if (status) buf_fini(&text);
    *json = text.data;
    return status;
}
