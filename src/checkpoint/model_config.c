/* Reads config.json's object: refuses keys that are not supported, reads the sizes with bounds that
 * keep every product of them far from overflow, and checks the relations between sizes. */
#include "checkpoint/model_config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/text/c_locale.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/classes/class_defaults.h"
#include "checkpoint/classes/draft_layers.h"
#include "checkpoint/classes/moe_config.h"
#include "checkpoint/classes/own_config.h"
#include "checkpoint/classes/rope_config.h"
#include "checkpoint/classes/window_config.h"
#include "checkpoint/config_read.h"
#include "checkpoint/quantized/quantization_document.h"
#include "checkpoint/text_part.h"

// Several times the sizes of the largest published models. vocab_size * hidden_size * 8 bytes and
// heads * head_dim * hidden_size * 8 bytes stay below 2^51.
enum {
    VOCAB_MAX = 1 << 24,
    HIDDEN_MAX = 1 << 18,
    INTERMEDIATE_MAX = 1 << 21,
    LAYERS_MAX = 1 << 12,
    HEADS_MAX = 1 << 12,
    HEAD_DIM_MAX = 1 << 12,
    POSITIONS_MAX = 1 << 30,
};

enum neutral_kind { NEUTRAL_ABSENT, NEUTRAL_FALSE, NEUTRAL_TRUE, NEUTRAL_ONE };

// A key that changes the computation in an unsupported way, and its only value that does not.
struct neutral_key {
    const char *key;
    enum neutral_kind neutral;
};

static const struct neutral_key neutral_keys[] = {
    {"vision_config", NEUTRAL_ABSENT}, // several models in one, which are not as text_part.h wants
    {"audio_config", NEUTRAL_ABSENT},
    {"is_encoder_decoder", NEUTRAL_FALSE},
    {"add_cross_attention", NEUTRAL_FALSE},
    {"is_causal", NEUTRAL_TRUE}, // attention
    {"use_bidirectional_attention", NEUTRAL_FALSE},
    {"attention_chunk_size", NEUTRAL_ABSENT},
    {"attn_temperature_tuning", NEUTRAL_FALSE},
    {"attn_logit_softcapping", NEUTRAL_ABSENT},
    {"query_pre_attn_scalar", NEUTRAL_ABSENT},
    {"attention_multiplier", NEUTRAL_ABSENT},
    {"dual_chunk_attention_config", NEUTRAL_ABSENT},
    {"clip_qkv", NEUTRAL_ABSENT},
    {"kv_lora_rank", NEUTRAL_ABSENT},
    {"q_lora_rank", NEUTRAL_ABSENT},
    {"alibi", NEUTRAL_FALSE},
    {"use_alibi", NEUTRAL_FALSE},
    {"parallel_attn", NEUTRAL_FALSE}, // the residual
    {"use_parallel_residual", NEUTRAL_FALSE},
    {"residual_multiplier", NEUTRAL_ONE},
    {"scale_depth", NEUTRAL_ABSENT},
    {"embedding_multiplier", NEUTRAL_ONE}, // embedding and logits
    {"scale_emb", NEUTRAL_ONE},
    {"dim_model_base", NEUTRAL_ABSENT},
    {"logits_scaling", NEUTRAL_ONE},
    {"logit_scale", NEUTRAL_ONE},
    {"final_logit_softcapping", NEUTRAL_ABSENT},
    {"partial_rotary_factor", NEUTRAL_ONE}, // rope
    {"rotary_pct", NEUTRAL_ONE},
    {"rope_interleave", NEUTRAL_FALSE},
    {"rope_interleaved", NEUTRAL_FALSE},
    {"rope_local_base_freq", NEUTRAL_ABSENT},
    {"use_mrope", NEUTRAL_FALSE},
    {"swiglu_limit", NEUTRAL_ABSENT}, // the activation
    {"swiglu_alpha", NEUTRAL_ABSENT},
    {"moe_latent_size", NEUTRAL_ABSENT}, // experts
    {"no_rope_layers", NEUTRAL_ABSENT},
    {"no_rope_layer_interval", NEUTRAL_ABSENT},
};

static bool is_neutral(const json_t *value, enum neutral_kind neutral) {
    switch (neutral) {
    case NEUTRAL_ABSENT:
        return false;
    case NEUTRAL_FALSE:
        return json_is_false(value);
    case NEUTRAL_TRUE:
        return json_is_true(value);
    case NEUTRAL_ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    }
    return false;
}

static enum status check_unsupported(const json_t *root, const char *architecture, const char *what,
                                     struct err *err) {
    static const char *const wants[] = {[NEUTRAL_ABSENT] = "absent or null",
                                        [NEUTRAL_FALSE] = "false",
                                        [NEUTRAL_TRUE] = "true",
                                        [NEUTRAL_ONE] = "1"};
    for (size_t i = 0; i < ARRAY_LEN(neutral_keys); i++) {
        const json_t *value = jread_get(root, neutral_keys[i].key);
        if (!value || is_neutral(value, neutral_keys[i].neutral)) continue;
        if (own_config_has(architecture, neutral_keys[i].key)) continue;
        char found[64];
        if (json_is_number(value)) {
            c_locale_snprintf(found, sizeof found, "%.9g", json_number_value(value));
        } else {
            const char *flag = json_is_true(value) ? "true" : "false";
            snprintf(found, sizeof found, "%s",
                     json_is_boolean(value) ? flag : jread_type_name(value));
        }
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %s, which is not supported, want it %s",
                       what, neutral_keys[i].key, found, wants[neutral_keys[i].neutral]);
    }
    return OK;
}

static enum status read_architecture(struct model_config *config, const json_t *root,
                                     const char *what, struct err *err) {
    const json_t *list = jread_get(root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (!json_is_array(list)) {
        return err_set(err, ERR_FORMAT, "%s: \"architectures\" is %s, want a list of one string",
                       what, jread_type_name(list));
    }
    if (json_array_size(list) != 1) {
        return err_set(err, ERR_FORMAT, "%s: \"architectures\" has %zu entries, want one string",
                       what, json_array_size(list));
    }
    if (!name) {
        return err_set(err, ERR_FORMAT, "%s: \"architectures\" has %s, want one string", what,
                       jread_type_name(json_array_get(list, 0)));
    }
    size_t len = strlen(name);
    bool plain = len > 0 && len < sizeof config->architecture;
    for (size_t i = 0; i < len && plain; i++) plain = c_locale_is_alnum(name[i]) || name[i] == '_';
    if (!plain) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"architectures\" has \"%.80s\", want a name of 1 to %zu letters and "
                       "digits",
                       what, name, sizeof config->architecture - 1);
    }
    memcpy(config->architecture, name, len + 1);
    // K-EXAONE is published with this name, transformers' class has another.
    static const char published[] = "ExaoneMoEForCausalLM", class_name[] = "ExaoneMoeForCausalLM";
    if (strcmp(name, published) == 0) memcpy(config->architecture, class_name, sizeof class_name);
    return OK;
}

static enum status read_dtype(struct model_config *config, const json_t *root, const char *what,
                              struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    config->dtype = DTYPE_F32;
    const char *key = jread_get(root, "dtype") ? "dtype" : "torch_dtype";
    const char *name = NULL;
    enum status status = jread_string(root, key, &name, what, err);
    if (status || !name) return status;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        config->dtype = names[i].dtype;
        return OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" is \"%.40s\", want bfloat16, float16 or float32", what, key, name);
}

// transformers 5 writes no number of Nemotron-H's layers, but a list of them.
static enum status read_num_layers(struct model_config *config, const json_t *root,
                                   const char *what, struct err *err) {
    static const char key[] = "num_hidden_layers";
    bool has_blocks = own_config_has(config->architecture, "hybrid_override_pattern");
    size_t count = has_blocks ? json_array_size(jread_get(root, "layers_block_type")) : 0;
    if (jread_get(root, key) || count < 1 || count > LAYERS_MAX) {
        return config_require_u32(root, key, 1, LAYERS_MAX, &config->num_layers, what, err);
    }
    config->num_layers = (uint32_t)count;
    return OK;
}

static enum status read_sizes(struct model_config *config, const json_t *root, const char *what,
                              struct err *err) {
    struct class_defaults defaults = class_defaults_of(config->architecture);
    bool has_own_key = own_config_has(config->architecture, "block_ff_dim");
    if (has_own_key && jread_get(root, "block_ff_dim")) defaults.mlp_key = "block_ff_dim";
    static const char dense_key[] = "prefix_dense_intermediate_size";
    if (own_config_has(config->architecture, dense_key) && jread_get(root, dense_key)) {
        defaults.mlp_key = dense_key;
    }
    const struct {
        const char *key;
        uint32_t max;
        uint32_t *out;
    } sizes[] = {
        {"vocab_size", VOCAB_MAX, &config->vocab_size},
        {"hidden_size", HIDDEN_MAX, &config->hidden_size},
        {defaults.mlp_key, INTERMEDIATE_MAX, &config->intermediate_size},
        {"num_attention_heads", HEADS_MAX, &config->num_heads},
        {"max_position_embeddings", POSITIONS_MAX, &config->max_position_embeddings},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        bool may_miss = defaults.has_no_dense_layer && sizes[i].out == &config->intermediate_size;
        if (may_miss && !jread_get(root, sizes[i].key)) continue;
        enum status status =
            config_require_u32(root, sizes[i].key, 1, sizes[i].max, sizes[i].out, what, err);
        if (status) return status;
    }
    return read_num_layers(config, root, what, err);
}

static enum status read_heads(struct model_config *config, const json_t *root, const char *what,
                              struct err *err) {
    uint32_t num_heads = config->num_heads;
    config->num_kv_heads = num_heads;
    enum status status = config_read_u32(root, "num_key_value_heads", 1, num_heads,
                                         &config->num_kv_heads, what, err);
    if (status) return status;
    if (num_heads % config->num_kv_heads) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"num_attention_heads\" is %u, want a multiple of "
                       "\"num_key_value_heads\", %u",
                       what, num_heads, config->num_kv_heads);
    }
    config->head_dim = class_defaults_of(config->architecture).head_dim;
    if (own_config_has(config->architecture, "kv_lora_rank")) {
        config->num_kv_heads = 1; // of latents
        config->head_dim = 64; // what is rotated; own_config.c has the other parts of a head
        return config_read_u32(root, "qk_rope_head_dim", 1, HEAD_DIM_MAX, &config->head_dim, what,
                               err);
    }
    if (!jread_get(root, "head_dim") && !config->head_dim) {
        if (config->hidden_size % num_heads || config->hidden_size / num_heads > HEAD_DIM_MAX) {
            return err_set(err, ERR_FORMAT,
                           "%s: \"head_dim\" is missing and \"hidden_size\", %u, is not a multiple "
                           "(at most %d times) of \"num_attention_heads\", %u",
                           what, config->hidden_size, HEAD_DIM_MAX, num_heads);
        }
        config->head_dim = config->hidden_size / num_heads;
    }
    status = config_read_u32(root, "head_dim", 1, HEAD_DIM_MAX, &config->head_dim, what, err);
    if (status || config->head_dim % 2 == 0) return status;
    return err_set(err, ERR_FORMAT, "%s: \"head_dim\" is %u, want an even number", what,
                   config->head_dim);
}

static enum status read_activation(struct model_config *config, const json_t *root,
                                   const char *what, struct err *err) {
    static const char *const keys[] = {"hidden_act", "hidden_activation"};
    const struct class_defaults defaults = class_defaults_of(config->architecture);
    const char *want = defaults.activation, *too = defaults.activation_too;
    // Gemma's classes from the second on read hidden_activation alone. Some folders have another
    // value beside it.
    bool is_gemma = strncmp(config->architecture, "Gemma", strlen("Gemma")) == 0 &&
                    strcmp(config->architecture, "GemmaForCausalLM") != 0;
    for (size_t i = is_gemma && jread_get(root, keys[1]); i < ARRAY_LEN(keys); i++) {
        const char *name = want;
        enum status status = jread_string(root, keys[i], &name, what, err);
        if (status) return status;
        if (strcmp(name, want) == 0 || (too && strcmp(name, too) == 0)) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is \"%.40s\", only %s is supported", what,
                       keys[i], name, want);
    }
    return OK;
}

static enum status read_flag(const json_t *root, const char *key, enum config_flag *out,
                             const char *what, struct err *err) {
    *out = FLAG_ABSENT;
    if (!jread_get(root, key)) return OK;
    bool value = false;
    enum status status = jread_bool(root, key, &value, what, err);
    *out = value ? FLAG_TRUE : FLAG_FALSE;
    return status;
}

static enum status read_flags(struct model_config *config, const json_t *root, const char *what,
                              struct err *err) {
    const struct class_defaults defaults = class_defaults_of(config->architecture);
    double eps = defaults.rms_norm_eps;
    const char *eps_key = defaults.eps_key;
    // Command A+ may have RMS norms in place of LayerNorms.
    if (own_config_has(config->architecture, "prefix_dense_intermediate_size") &&
        jread_get(root, "rms_norm_eps")) {
        eps_key = "rms_norm_eps";
    }
    enum status status = config_read_double(root, eps_key, 1e-30, 1, &eps, what, err);
    config->rms_norm_eps = (float)eps;
    const struct {
        const char *key, *other;
        enum config_flag *out;
    } flags[] = {
        {"attention_bias", defaults.attention_bias_key, &config->attention_bias},
        {"attention_out_bias", NULL, &config->attention_out_bias},
        {"mlp_bias", defaults.mlp_bias_key, &config->mlp_bias},
    };
    for (size_t i = 0; i < ARRAY_LEN(flags) && !status; i++) {
        status = read_flag(root, flags[i].key, flags[i].out, what, err);
        if (status || !flags[i].other || *flags[i].out != FLAG_ABSENT) continue;
        status = read_flag(root, flags[i].other, flags[i].out, what, err);
    }
    if (status) return status;
    config->tie_word_embeddings = defaults.ties_embeddings;
    status = jread_bool(root, "tie_word_embeddings", &config->tie_word_embeddings, what, err);
    if (status || !own_config_has(config->architecture, "tie_embedding")) return status;
    return jread_bool(root, "tie_embedding", &config->tie_word_embeddings, what, err);
}

// The elements of a head that are rotated are pairs, and of longrope each pair has its factor.
static enum status check_rotary_dim(const struct model_config *config, const char *what,
                                    struct err *err) {
    uint32_t dim = model_config_rotary_dim(config), num = config->rope.num_factors;
    if (dim % 2 || !dim) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"partial_rotary_factor\" is %.9g, want an even number of the %u "
                       "elements of a head",
                       what, config->rope.partial, config->head_dim);
    }
    if (config->rope.type != ROPE_LONG || num == dim / 2) return OK;
    return err_set(err, ERR_FORMAT, "%s: \"short_factor\" has %u numbers, want %u", what, num,
                   dim / 2);
}

// Whether one of the places where it may stand has partial_rotary_factor.
static bool has_partial(const json_t *root) {
    static const char *const places[] = {"rope_parameters", "rope_scaling"};
    static const char key[] = "partial_rotary_factor";
    bool found = jread_get(root, key) != NULL;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        found |= jread_get(jread_get(root, places[i]), key) != NULL;
    }
    return found;
}

// The share of a head that is rotated, where no key has it. In most of transformers' classes a null
// outside of the sections is 1, and the class' share is that of a missing key.
static enum status default_partial(struct model_config *config, const json_t *root,
                                   const char *what, struct err *err) {
    const struct class_defaults defaults = class_defaults_of(config->architecture);
    bool is_null = json_is_null(json_object_get(root, "partial_rotary_factor"));
    double partial = defaults.partial;
    uint32_t dim = config->head_dim;
    if (has_partial(root) || (is_null && !defaults.has_one_partial)) return OK;
    if (partial != 0) config->rope.partial = partial;
    if (!own_config_has(config->architecture, "rotary_dim")) return OK;
    enum status status = config_read_u32(root, "rotary_dim", 1, dim, &dim, what, err);
    config->rope.partial = (double)dim / config->head_dim;
    return status;
}

// Mistral 4 writes which part of a head of q and k is rotated, and the sizes of the parts too.
static enum status check_latent_partial(struct model_config *config, const char *what,
                                        struct err *err) {
    const struct latent_config *latent = &config->own.latent;
    double partial = config->rope.partial;
    if (!latent->rank || !own_config_has(config->architecture, "partial_rotary_factor")) return OK;
    double want = (double)latent->rope_dim / (latent->nope_dim + latent->rope_dim);
    config->rope.partial = 1;
    if (partial == 1 || fabs(partial - want) < 1e-6) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"partial_rotary_factor\" is %.9g, which is not supported, want %.9g", what,
                   partial, want);
}

static enum status read_rope(struct model_config *config, const json_t *root, const char *what,
                             struct err *err) {
    double theta = class_defaults_of(config->architecture).rope_theta;
    double local_theta = class_defaults_of(config->architecture).local_theta;
    uint32_t positions = config->max_position_embeddings;
    const char *layer_type = local_theta != 0 ? "full_attention" : NULL;
    enum status status =
        rope_config_read(&config->rope, root, layer_type, positions, theta, what, err);
    if (!status) status = default_partial(config, root, what, err);
    if (!status) status = check_latent_partial(config, what, err);
    config->local_rope = config->rope;
    if (!status && local_theta != 0) {
        if (local_theta == SAME_THETA) local_theta = config->rope.theta;
        status =
            rope_config_read_local(&config->local_rope, root, positions, local_theta, what, err);
    }
    if (!status && (config->local_rope.partial != config->rope.partial ||
                    (local_theta != 0 && config->local_rope.type == ROPE_LONG))) {
        status =
            err_set(err, ERR_UNSUPPORTED,
                    "%s: \"sliding_attention\" of \"rope_parameters\" has a longrope, or another "
                    "\"partial_rotary_factor\" than other layers, which is not supported",
                    what);
    }
    if (!status && config->rope.partial != 1 &&
        !own_config_has(config->architecture, "partial_rotary_factor")) {
        status = err_set(err, ERR_UNSUPPORTED,
                         "%s: \"partial_rotary_factor\" is %.9g, which is not supported, want it 1",
                         what, config->rope.partial);
    }
    if (!status && config->rope.query_beta != 0 &&
        !own_config_has(config->architecture, "llama_4_scaling_beta")) {
        status = err_set(err, ERR_UNSUPPORTED,
                         "%s: \"llama_4_scaling_beta\" is %.9g, which is not supported, want it 0",
                         what, config->rope.query_beta);
    }
    if (!status && config->rope.alpha != 0) {
        if (!own_config_has(config->architecture, "alpha")) {
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: \"alpha\" is %.9g, which is not supported, want it absent", what,
                           config->rope.alpha);
        }
        double dim = config->head_dim;
        config->rope.theta *= pow(config->rope.alpha, dim / (dim - 2));
    }
    if (!status) status = check_rotary_dim(config, what, err);
    if (status || config->rope.type != ROPE_YARN) return status;
    // A configuration with yarn wants the longer context, but the published recipe for adding yarn
    // leaves max_position_embeddings as it was.
    double extended = config->rope.original_max_position_embeddings * config->rope.factor;
    if (extended > POSITIONS_MAX) extended = POSITIONS_MAX;
    if (extended > config->max_position_embeddings) {
        config->max_position_embeddings = (uint32_t)extended;
    }
    return OK;
}

// Reads the rotary embedding, or without any section the one that the class has then.
static enum status read_rope_or_default(struct model_config *config, const json_t *root,
                                        const char *what, struct err *err) {
    static const char length_key[] = "original_max_position_embeddings";
    const struct class_defaults defaults = class_defaults_of(config->architecture);
    bool has_section = jread_get(root, "rope_scaling") || jread_get(root, "rope_parameters");
    bool needs_section = defaults.rope && !has_section;
    bool needs_length = defaults.original_length && !jread_get(root, length_key);
    if (!needs_section && !needs_length) return read_rope(config, root, what, err);
    json_t *filled = json_object();
    int failed = filled ? 0 : -1;
    if (needs_section) {
        failed |= json_object_set_new(filled, "rope_parameters", jread_literal(defaults.rope));
    }
    if (needs_length) {
        failed |= json_object_set_new(filled, length_key, json_integer(defaults.original_length));
    }
    failed |= json_object_update_missing(filled, (json_t *)(uintptr_t)root);
    enum status status =
        failed ? err_nomem(err, "config.json") : read_rope(config, filled, what, err);
    json_decref(filled);
    return status;
}

// LFM2's MLP is two thirds of the size in config.json, times a factor, rounded up to a multiple.
static enum status adjust_mlp_size(struct model_config *config, const json_t *root,
                                   const char *what, struct err *err) {
    bool adjusts = true;
    uint32_t multiple = 256;
    double factor = 1;
    if (!own_config_has(config->architecture, "block_ff_dim")) return OK;
    enum status status = jread_bool(root, "block_auto_adjust_ff_dim", &adjusts, what, err);
    if (!status) {
        status = config_read_u32(root, "block_multiple_of", 1, UINT16_MAX, &multiple, what, err);
    }
    if (!status) {
        status = config_read_double(root, "block_ffn_dim_multiplier", 1e-3, 64, &factor, what, err);
    }
    if (status || !adjusts) return status;
    uint32_t two_thirds = 2 * config->intermediate_size / 3;
    uint32_t size = (uint32_t)(factor * two_thirds);
    size = (size + multiple - 1) / multiple * multiple;
    if (size < 1 || size > INTERMEDIATE_MAX) {
        return err_set(err, ERR_FORMAT,
                       "%s: the MLP's size, %u, becomes %u by \"block_auto_adjust_ff_dim\", want 1 "
                       "to %d",
                       what, config->intermediate_size, size, INTERMEDIATE_MAX);
    }
    config->intermediate_size = size;
    return OK;
}

static enum status read_config(struct model_config *config, const json_t *root, const char *what,
                               struct err *err) {
    enum status status = read_architecture(config, root, what, err);
    if (!status) status = check_unsupported(root, config->architecture, what, err);
    if (!status) status = read_dtype(config, root, what, err);
    if (!status) status = read_sizes(config, root, what, err);
    if (!status) status = adjust_mlp_size(config, root, what, err);
    if (!status) status = read_heads(config, root, what, err);
    if (!status) status = read_activation(config, root, what, err);
    if (!status) status = read_flags(config, root, what, err);
    if (!status) {
        status = own_config_read(&config->own, root, config->architecture, config->num_layers, what,
                                 err);
    }
    if (!status) status = window_config_read(config, root, what, err);
    if (!status) status = moe_config_read(config, root, what, err);
    if (!status) status = quantization_config_read(&config->quantization, root, what, err);
    if (!status) status = read_rope_or_default(config, root, what, err);
    if (!status) status = draft_layers_read(config, root, what, err);
    if (!status) status = config_read_eos(root, config, what, err);
    // Drafts, in the same file.
    config->has_other_parts |= config->own.delta.num_heads || config->num_draft_layers;
    return status;
}

uint32_t model_config_rotary_dim(const struct model_config *config) {
    return (uint32_t)(config->head_dim * config->rope.partial);
}

enum status model_config_parse(struct model_config *config, const char *text, size_t len,
                               const char *what, struct err *err) {
    *config = (struct model_config){0};
    json_t *root = NULL;
    enum status status = config_read_object(&root, text, len, what, err);
    if (status) return status;
    json_t *text_root = NULL;
    status = text_part_config(&text_root, root, what, err);
    config->has_other_parts = text_root && text_root != root;
    if (!status) status = read_config(config, text_root, what, err);
    json_decref(text_root);
    json_decref(root);
    if (status) model_config_fini(config);
    return status;
}

// Appends config.json; says what is wrong with the checkpoint where there is none.
static enum status read_config_text(const struct checkpoint *checkpoint, struct buf *text,
                                    struct document_name *what, struct err *err) {
    static const char name[] = "config.json";
    bool present = false;
    enum status status = checkpoint_find(checkpoint, name, what, &present, err);
    if (!status && present) status = checkpoint_read(checkpoint, name, text, err);
    if (!status && !present) status = checkpoint_explain(checkpoint, name, err);
    if (status || present) return status;
    return err_set(err, ERR_IO, "%s has no %s: it is not the folder of a model",
                   checkpoint_path(checkpoint), name);
}

// A document that exists but cannot be read is an error: its sampling defaults would be missing.
static enum status load_generation(struct model_config *config,
                                   struct generation_config *generation,
                                   const struct checkpoint *checkpoint, struct err *err) {
    static const char name[] = "generation_config.json";
    struct document_name what;
    struct buf text = {0};
    bool present = false;
    enum status status = checkpoint_find(checkpoint, name, &what, &present, err);
    if (status || !present) return status;
    status = checkpoint_read(checkpoint, name, &text, err);
    if (!status) {
        status = generation_config_parse(config, generation, text.data, text.len, what.text, err);
    }
    buf_fini(&text);
    return status;
}

enum status model_config_load(struct model_config *config, struct generation_config *generation,
                              const struct checkpoint *checkpoint, struct err *err) {
    *config = (struct model_config){0};
    *generation = (struct generation_config){0};
    struct document_name what;
    struct buf text = {0};
    enum status status = read_config_text(checkpoint, &text, &what, err);
    if (!status) status = model_config_parse(config, text.data, text.len, what.text, err);
    buf_fini(&text);
    if (!status && config->quantization.method == QUANTIZED_NOT) {
        status = quantization_document_read(&config->quantization, checkpoint, err);
    }
    if (!status) status = load_generation(config, generation, checkpoint, err);
    if (status) model_config_fini(config);
    return status;
}

void model_config_fini(struct model_config *config) {
    free(config->eos_token_ids);
    free(config->moe.is_sparse);
    quantization_config_fini(&config->quantization);
    free(config->is_sliding);
    own_config_fini(&config->own);
    *config = (struct model_config){0};
}
