#include "checkpoint/classes/mamba_config.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/config_read.h"

enum { HEADS_MAX = 1 << 12, DIM_MAX = 256, CONV_TAPS = 4 };

// A class's names of keys, and what it has where they are missing.
struct mamba_keys {
    const char *architecture;
    const char *heads, *groups, *state_dim, *head_dim, *taps;
    const char *conv_bias; // only true is supported
    const char *proj_bias; // only false
    const char *expand; // heads are so many times as wide as hidden_size; NULL: as wide as they are
    const char *width; // that says how wide they are instead; its default: default_width
    uint32_t default_width;
    const char *attended; // the numbers of layers with attention, where there are no types
    struct mamba_config defaults; // head_dim 0: of the width
};

// Names and defaults that three of the classes share.
#define BAMBA_KEYS                                                                                 \
    .heads = "mamba_n_heads", .groups = "mamba_n_groups", .state_dim = "mamba_d_state",            \
    .head_dim = "mamba_d_head", .taps = "mamba_d_conv", .conv_bias = "mamba_conv_bias",            \
    .proj_bias = "mamba_proj_bias", .expand = "mamba_expand",                                      \
    .defaults = {.num_heads = 128, .num_groups = 1, .state_dim = 256}

static const struct mamba_keys classes[] = {
    {.architecture = "BambaForCausalLM", BAMBA_KEYS, .attended = "attn_layer_indices"},
    {.architecture = "FalconH1ForCausalLM",
     BAMBA_KEYS,
     .width = "mamba_d_ssm",
     .default_width = 1024},
    {.architecture = "GraniteMoeHybridForCausalLM", BAMBA_KEYS},
    {.architecture = "NemotronHForCausalLM",
     .heads = "mamba_num_heads",
     .groups = "n_groups",
     .state_dim = "ssm_state_size",
     .head_dim = "mamba_head_dim",
     .taps = "conv_kernel",
     .conv_bias = "use_conv_bias",
     .proj_bias = "mamba_proj_bias",
     .defaults = {.num_heads = 128, .num_groups = 8, .state_dim = 128, .head_dim = 64}},
};

static const struct mamba_keys *keys_of(const char *architecture) {
    for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
        if (strcmp(classes[i].architecture, architecture) == 0) return &classes[i];
    }
    return NULL;
}

// Published files name the layers with a state "mamba", transformers 5 "linear_attention". Without
// the list all layers are such.
static enum status read_is_linear(struct own_config *out, const json_t *root,
                                  const struct mamba_keys *keys, uint32_t num_layers,
                                  const char *what, struct err *err) {
    static const char key[] = "layer_types";
    const json_t *types = jread_get(root, key);
    if (types && (!json_is_array(types) || json_array_size(types) != num_layers)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" is %s of %zu, want a list of strings for each of the %u layers",
                       what, key, jread_type_name(types), json_array_size(types), num_layers);
    }
    out->is_linear = calloc(num_layers, sizeof *out->is_linear);
    if (!out->is_linear) return err_nomem(err, "layers with a state");
    for (uint32_t i = 0; i < num_layers; i++) {
        const char *type = types ? json_string_value(json_array_get(types, i)) : "mamba";
        bool is_mamba =
            type && (strcmp(type, "mamba") == 0 || strcmp(type, "linear_attention") == 0);
        bool attends =
            type && (strcmp(type, "attention") == 0 || strcmp(type, "full_attention") == 0);
        out->is_linear[i] = is_mamba;
        if (is_mamba || attends) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" has %.60s at %u, only attention and mamba are supported", what,
                       key, type ? type : "no string", i);
    }
    if (types || !keys->attended) return OK;
    return config_clear_layers(root, keys->attended, num_layers, out->is_linear, what, err);
}

// transformers' names of blocks, and older ones.
static char block_of(const char *name) {
    static const struct {
        const char *name;
        char block;
    } names[] = {{"mamba", BLOCK_MAMBA},
                 {"linear_attention", BLOCK_MAMBA},
                 {"attention", BLOCK_ATTENTION},
                 {"full_attention", BLOCK_ATTENTION},
                 {"mlp", BLOCK_MLP},
                 {"moe", BLOCK_EXPERTS}};
    for (size_t i = 0; i < ARRAY_LEN(names) && name; i++) {
        if (strcmp(names[i].name, name) == 0) return names[i].block;
    }
    return 0;
}

// Nemotron-H's layers have one block each: a letter of a pattern, or a name of a list.
static enum status read_blocks(struct own_config *out, const json_t *root, uint32_t num_layers,
                               const char *what, struct err *err) {
    static const char list_key[] = "layers_block_type", pattern_key[] = "hybrid_override_pattern";
    const json_t *list = jread_get(root, list_key);
    const char *pattern = NULL, *key = list ? list_key : pattern_key;
    enum status status = OK;
    if (!list) status = jread_string(root, pattern_key, &pattern, what, err);
    if (status) return status;
    size_t count = list ? json_array_size(list) : pattern ? strlen(pattern) : 0;
    if (count != num_layers) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" has %zu blocks, want one for each of %u layers",
                       what, key, count, num_layers);
    }
    out->is_linear = calloc(count + 1, sizeof *out->is_linear); // there may be no layers
    out->blocks = calloc(count + 1, sizeof *out->blocks);
    if (!out->is_linear || !out->blocks) return err_nomem(err, "blocks of layers");
    for (uint32_t i = 0; i < num_layers; i++) {
        const char letter[] = {pattern ? pattern[i] : '?', 0};
        const char *name = list ? json_string_value(json_array_get(list, i)) : letter;
        bool is_block = strchr("M*-E", letter[0]) != NULL;
        out->blocks[i] = list ? block_of(name) : is_block ? letter[0] : 0;
        out->is_linear[i] = out->blocks[i] == BLOCK_MAMBA;
        if (out->blocks[i]) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" has %.60s at %u, only Mamba (M), attention (*), MLPs (-) and "
                       "experts (E) are supported",
                       what, key, name ? name : "no string", i);
    }
    return OK;
}

// A list of factors; without the key they are 1.
static enum status read_factors(const json_t *root, const char *key, size_t count, float *out,
                                const char *what, struct err *err) {
    const json_t *list = jread_get(root, key);
    if (list && json_array_size(list) != count) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s of %zu, want a list of %zu numbers", what,
                       key, jread_type_name(list), json_array_size(list), count);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        double number = list ? json_number_value(item) : 1;
        out[i] = (float)number;
        if (fabs(number) >= 1e-6 && fabs(number) <= 1e6) continue;
        return err_set(err, ERR_FORMAT, "%s: \"%s\" has no number from 1e-06 to 1e+06 at %zu", what,
                       key, i);
    }
    return OK;
}

// Falcon-H1's layers, which have attention and Mamba-2, and their factors.
static enum status read_hybrid(struct own_config *out, const json_t *root, const char *what,
                               struct err *err) {
    static const char in_key[] = "attention_in_multiplier";
    struct hybrid_factors *f = &out->factors;
    const struct {
        const char *key;
        float *out;
    } factors[] = {{"key_multiplier", &f->key},
                   {in_key, &f->attention_in},
                   {"attention_out_multiplier", &f->attention_out},
                   {"ssm_in_multiplier", &f->ssm_in},
                   {"ssm_out_multiplier", &f->ssm_out},
                   {"lm_head_multiplier", &f->lm_head}};
    float mlp[2];
    bool has_norm = false, is_norm_first = true, has_bias = false;
    enum status status =
        read_factors(root, "ssm_multipliers", ARRAY_LEN(f->ssm), f->ssm, what, err);
    if (!status) status = read_factors(root, "mlp_multipliers", ARRAY_LEN(mlp), mlp, what, err);
    if (status) return status;
    f->gate = mlp[0];
    f->down = mlp[1];
    for (size_t i = 0; i < ARRAY_LEN(factors) && !status; i++) {
        double value = 1;
        status = config_read_double(root, factors[i].key, 1e-6, 1e6, &value, what, err);
        *factors[i].out = (float)value;
    }
    if (!status) status = jread_bool(root, "mamba_rms_norm", &has_norm, what, err);
    if (!status) status = jread_bool(root, "mamba_norm_before_gate", &is_norm_first, what, err);
    if (!status) status = jread_bool(root, "attention_bias", &has_bias, what, err);
    out->lacks_mamba_norm = !has_norm;
    if (!status && has_norm && is_norm_first) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"mamba_norm_before_gate\" is true, which is not supported with "
                       "\"mamba_rms_norm\", want it false",
                       what);
    }
    if (status || !has_bias || f->attention_in == 1) return status;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: \"%s\" is another number than 1, which is not supported with "
                   "\"attention_bias\"",
                   what, in_key);
}

static bool has_state(const struct own_config *own, uint32_t num_layers) {
    for (uint32_t i = 0; i < num_layers; i++) {
        if (own->is_linear[i]) return true;
    }
    return false;
}

static enum status check_flags(const json_t *root, const struct mamba_keys *keys, const char *what,
                               struct err *err) {
    const struct {
        const char *key;
        bool want;
    } flags[] = {{keys->conv_bias, true}, {keys->proj_bias, false}};
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        bool value = flags[i].want;
        enum status status = config_read_bool(root, flags[i].key, &value, what, err);
        if (status) return status;
        if (value == flags[i].want) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %s, which is not supported, want it %s",
                       what, flags[i].key, value ? "true" : "false", value ? "false" : "true");
    }
    return OK;
}

// An infinite number: transformers 5 writes an object.
static bool is_infinite(const json_t *value) {
    const char *tag = json_string_value(json_object_get(value, "__float__"));
    const char *word = json_string_value(value);
    return (tag && strcmp(tag, "Infinity") == 0) || (word && strcmp(word, CONFIG_INFINITY) == 0);
}

static bool read_limit(const json_t *value, float *out) {
    double number = is_infinite(value) ? (double)FLT_MAX : json_number_value(value);
    *out = number < (double)FLT_MAX ? (float)number : FLT_MAX;
    return (is_infinite(value) || json_is_number(value)) && number >= 0;
}

// transformers' NemotronH takes time_step_min for the lower limit. That key is of dt_bias' first
// values alone: the kernels that these models are published for have no such limit.
static enum status read_limits(struct mamba_config *out, const json_t *root, const char *what,
                               struct err *err) {
    static const char key[] = "time_step_limit";
    const json_t *list = jread_get(root, key);
    out->dt_min = 0;
    out->dt_max = FLT_MAX;
    if (!list) return OK;
    bool is_pair = json_array_size(list) == 2 &&
                   read_limit(json_array_get(list, 0), &out->dt_min) &&
                   read_limit(json_array_get(list, 1), &out->dt_max);
    if (is_pair && out->dt_min <= out->dt_max) return OK;
    return err_set(err, ERR_FORMAT, "%s: \"%s\" is %s, want two numbers in ascending order", what,
                   key, jread_type_name(list));
}

// A head's size may be "auto".
static enum status read_sizes(struct mamba_config *out, const json_t *root,
                              const struct mamba_keys *keys, const char *what, struct err *err) {
    const char *head_dim = json_string_value(jread_get(root, keys->head_dim));
    bool is_auto = head_dim && strcmp(head_dim, "auto") == 0;
    uint32_t taps = CONV_TAPS, expand = 2, hidden = 0;
    const struct {
        const char *key;
        uint32_t max, *out;
    } sizes[] = {
        {keys->heads, HEADS_MAX, &out->num_heads},
        {keys->groups, HEADS_MAX, &out->num_groups},
        {keys->state_dim, DIM_MAX, &out->state_dim},
        {keys->taps, UINT16_MAX, &taps},
        {"hidden_size", INT32_MAX, &hidden},
        {keys->expand, UINT16_MAX, &expand},
        {is_auto ? NULL : keys->head_dim, DIM_MAX, &out->head_dim},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if (!sizes[i].key) continue;
        enum status status =
            config_read_u32(root, sizes[i].key, 1, sizes[i].max, sizes[i].out, what, err);
        if (status) return status;
    }
    uint64_t width = (uint64_t)expand * hidden;
    bool has_width = keys->width && !json_is_null(json_object_get(root, keys->width));
    if (has_width) {
        uint32_t own = keys->default_width;
        enum status status = config_read_u32(root, keys->width, 1, INT32_MAX, &own, what, err);
        if (status) return status;
        width = own;
    }
    if (!out->head_dim) out->head_dim = (uint32_t)(width / out->num_heads);
    if (keys->expand && (uint64_t)out->num_heads * out->head_dim != width) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"%s\" is %u and \"%s\" %u, want together \"%s\"%s, %llu", what,
                       keys->heads, out->num_heads, keys->head_dim, out->head_dim,
                       has_width ? keys->width : keys->expand,
                       has_width ? "" : " times \"hidden_size\"", (unsigned long long)width);
    }
    if (taps == CONV_TAPS) return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s: \"%s\" is %u, only %d is supported", what, keys->taps,
                   taps, CONV_TAPS);
}

static enum status check_sizes(const struct mamba_config *mamba, const struct mamba_keys *keys,
                               const char *what, struct err *err) {
    if (mamba->num_heads % mamba->num_groups) {
        return err_set(err, ERR_FORMAT, "%s: \"%s\" is %u, want a multiple of \"%s\", %u", what,
                       keys->heads, mamba->num_heads, keys->groups, mamba->num_groups);
    }
    const struct {
        const char *key;
        uint32_t size;
    } dims[] = {{keys->state_dim, mamba->state_dim}, {keys->head_dim, mamba->head_dim}};
    for (size_t i = 0; i < ARRAY_LEN(dims); i++) {
        if (dims[i].size % 16 == 0 && dims[i].size && dims[i].size <= DIM_MAX) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"%s\" is %u, only multiples of 16 up to %d are supported", what,
                       dims[i].key, dims[i].size, DIM_MAX);
    }
    return OK;
}

enum status mamba_config_read(struct own_config *out, const json_t *root, const char *architecture,
                              uint32_t num_layers, const char *what, struct err *err) {
    const struct mamba_keys *keys = keys_of(architecture);
    if (!keys) return OK;
    bool is_hybrid = own_config_has(architecture, "ssm_multipliers"); // in each layer
    enum status status = is_hybrid ? read_hybrid(out, root, what, err)
                         : own_config_has(architecture, "hybrid_override_pattern")
                             ? read_blocks(out, root, num_layers, what, err)
                             : read_is_linear(out, root, keys, num_layers, what, err);
    if (status || (!is_hybrid && !has_state(out, num_layers))) return status;
    out->mamba = keys->defaults;
    status = check_flags(root, keys, what, err);
    if (!status) status = read_sizes(&out->mamba, root, keys, what, err);
    if (!status) status = check_sizes(&out->mamba, keys, what, err);
    return status ? status : read_limits(&out->mamba, root, what, err);
}
