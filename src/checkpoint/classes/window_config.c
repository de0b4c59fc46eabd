/* The defaults of missing keys differ between transformers' configuration classes: see the
 * table. */
#include "checkpoint/classes/window_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "checkpoint/config_read.h"

// What max_window_layers says.
enum window_limit {
    LIMIT_IGNORED,
    LIMIT_IS_FIRST, // the first layer with a window
    LIMIT_IS_END, // no layer from it on has a window
};

struct window_rule {
    const char *architecture;
    uint32_t window; // default of sliding_window, tokens; an explicit null means no window
    bool use; // false: use_sliding_window is a key of the class, and off by default
    enum window_limit limit_kind;
    uint32_t limit; // default of max_window_layers
    // Default of sliding_window_pattern: each such layer has none; 0: all have one.
    uint32_t pattern;
    bool last_is_full; // the last layer has none, whatever the configuration says
    // Which layers have none: those whose index, or whose number from 1 on, the pattern divides.
    bool first_is_full;
};

// Qwen's configurations give a window that is off by default, SmolLM3's too. Mistral's have only
// sliding_window.
static const struct window_rule rules[] = {
    {"Qwen2ForCausalLM", 4096, false, LIMIT_IS_FIRST, 28, 0, false, false},
    {"Qwen2MoeForCausalLM", 4096, false, LIMIT_IS_END, 28, 2, false, false},
    {"Qwen3ForCausalLM", 4096, false, LIMIT_IS_FIRST, 28, 0, false, false},
    {"Qwen3MoeForCausalLM", 4096, false, LIMIT_IGNORED, 0, 0, false, false},
    {"AfmoeForCausalLM", 1024, true, LIMIT_IGNORED, 0, 4, false, false},
    {"MellumForCausalLM", 1024, true, LIMIT_IGNORED, 0, 1, false, false},
    {"Cohere2ForCausalLM", 4096, true, LIMIT_IGNORED, 0, 4, false, false},
    {"Cohere2MoeForCausalLM", 4096, true, LIMIT_IGNORED, 0, 4, false, false},
    {"Dots1ForCausalLM", 4096, true, LIMIT_IS_FIRST, 62, 0, false, false},
    {"CwmForCausalLM", 8192, true, LIMIT_IGNORED, 0, 4, false, true},
    {"GraniteMoeSWAForCausalLM", 128, true, LIMIT_IGNORED, 0, 4, false, true},
    {"GraniteSWAForCausalLM", 128, true, LIMIT_IGNORED, 0, 4, false, true},
    {"MistralForCausalLM", 4096, true, LIMIT_IGNORED, 0, 0, false, false},
    {"MinistralForCausalLM", 4096, true, LIMIT_IGNORED, 0, 0, false, false},
    {"Ministral3ForCausalLM", 0, true, LIMIT_IGNORED, 0, 0, false, false},
    {"Olmo3ForCausalLM", 4096, true, LIMIT_IGNORED, 0, 4, false, false},
    {"Exaone4ForCausalLM", 4096, true, LIMIT_IGNORED, 0, 4, false, false},
    {"ExaoneMoeForCausalLM", 4096, true, LIMIT_IGNORED, 0, 4, false, false},
    {"Gemma2ForCausalLM", 4096, true, LIMIT_IGNORED, 0, 2, false, false},
    {"VaultGemmaForCausalLM", 4096, true, LIMIT_IGNORED, 0, 2, false, false},
    {"Gemma3ForCausalLM", 4096, true, LIMIT_IGNORED, 0, 6, false, false},
    {"Gemma4ForCausalLM", 512, true, LIMIT_IGNORED, 0, 6, true, false},
    {"GptOssForCausalLM", 128, true, LIMIT_IGNORED, 0, 2, false, false},
    {"Starcoder2ForCausalLM", 0, true, LIMIT_IGNORED, 0, 0, false, false},
    {"SmolLM3ForCausalLM", 0, false, LIMIT_IGNORED, 0, 0, false, false},
};

// In transformers these have no windows, whatever their configuration says.
static const char *const without_windows[] = {"ApertusForCausalLM",
                                              "ArceeForCausalLM",
                                              "GemmaForCausalLM",
                                              "AXK1ForCausalLM",
                                              "FlexOlmoForCausalLM",
                                              "GraniteMoeSharedForCausalLM",
                                              "HYV3ForCausalLM",
                                              "Mistral4ForCausalLM",
                                              "YoutuForCausalLM",
                                              "InternLM3ForCausalLM",
                                              "Jais2ForCausalLM",
                                              "Lfm2ForCausalLM",
                                              "Lfm2MoeForCausalLM",
                                              "NanoChatForCausalLM",
                                              "NemotronForCausalLM",
                                              "PhiForCausalLM",
                                              "StableLmForCausalLM",
                                              "CohereForCausalLM",
                                              "GlmForCausalLM",
                                              "Ernie4_5ForCausalLM",
                                              "Ernie4_5_MoeForCausalLM",
                                              "Glm4ForCausalLM",
                                              "Glm4MoeForCausalLM",
                                              "GraniteForCausalLM",
                                              "GraniteMoeForCausalLM",
                                              "GraniteMoeHybridForCausalLM",
                                              "HunYuanDenseV1ForCausalLM",
                                              "HunYuanMoEV1ForCausalLM",
                                              "SarvamMoEForCausalLM",
                                              "SolarOpenForCausalLM",
                                              "HeliumForCausalLM",
                                              "HyperCLOVAXForCausalLM",
                                              "LlamaForCausalLM",
                                              "MiniCPMForCausalLM",
                                              "MiniMaxM2ForCausalLM",
                                              "Olmo2ForCausalLM",
                                              "OlmoeForCausalLM",
                                              "SeedOssForCausalLM",
                                              "Qwen3NextForCausalLM",
                                              "Qwen3_5ForCausalLM",
                                              "Qwen3_5MoeForCausalLM"};

// These have no key sliding_window_pattern.
static const char *const without_pattern_key[] = {
    "AfmoeForCausalLM",      "CwmForCausalLM",    "GraniteMoeSWAForCausalLM",
    "GraniteSWAForCausalLM", "MellumForCausalLM", "VaultGemmaForCausalLM"};

static const struct window_rule other_rule = {.use = true};

static bool is_in(const char *architecture, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], architecture) == 0) return true;
    }
    return false;
}

static const struct window_rule *rule_of(const char *architecture) {
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (strcmp(rules[i].architecture, architecture) == 0) return &rules[i];
    }
    return &other_rule;
}

// Where windows are off, a sliding layer has full attention.
static enum status read_layer_types(struct model_config *config, const json_t *types,
                                    const char *what, struct err *err) {
    if (!json_is_array(types)) {
        return err_set(err, ERR_FORMAT, "%s: \"layer_types\" is %s, want a list of strings", what,
                       jread_type_name(types));
    }
    if (json_array_size(types) != config->num_layers) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"layer_types\" has %zu entries, want one for each of the %u layers",
                       what, json_array_size(types), config->num_layers);
    }
    for (size_t i = 0; i < config->num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type) {
            return err_set(err, ERR_FORMAT, "%s: \"layer_types\" has %s at %zu, want a string",
                           what, jread_type_name(json_array_get(types, i)), i);
        }
        config->is_sliding[i] = strcmp(type, "sliding_attention") == 0;
        if (config->is_sliding[i] || strcmp(type, "full_attention") == 0) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"layer_types\" has \"%.60s\" at %zu, only full_attention and "
                       "sliding_attention are supported",
                       what, type, i);
    }
    return OK;
}

// Llama 4's chunks, in layers with a rotary embedding unless "layer_types" names others.
static enum status read_chunks(struct model_config *config, const json_t *root, const char *what,
                               struct err *err) {
    static const char key[] = "attention_chunk_size";
    const json_t *types = jread_get(root, "layer_types");
    uint32_t size = 8192;
    if (json_is_null(json_object_get(root, key))) size = 0;
    enum status status = config_read_u32(root, key, 1, INT32_MAX, &size, what, err);
    if (status || !size) return status;
    if (types && json_array_size(types) != config->num_layers) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"layer_types\" has %zu entries, want one for each of the %u layers",
                       what, json_array_size(types), config->num_layers);
    }
    config->is_sliding = calloc(config->num_layers, sizeof *config->is_sliding);
    if (!config->is_sliding) return err_nomem(err, "layers with chunks");
    for (uint32_t i = 0; i < config->num_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool is_chunked = type && strcmp(type, "chunked_attention") == 0;
        config->is_sliding[i] = types ? is_chunked : !config->own.has_no_rope[i];
        if (!types || is_chunked || (type && strcmp(type, "full_attention") == 0)) continue;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: \"layer_types\" has \"%.60s\" at %u, only full_attention and "
                       "chunked_attention are supported",
                       what, type ? type : "no string", i);
    }
    config->sliding_window = size;
    return OK;
}

// EXAONE's files have "LLLG", local and global, in place of a number. transformers writes 0 for it
// where there is no window.
static enum status read_pattern(uint32_t *pattern, const json_t *root, bool is_needed,
                                const char *what, struct err *err) {
    static const char key[] = "sliding_window_pattern";
    const char *text = json_string_value(jread_get(root, key));
    size_t len = text ? strspn(text, "L") : 0;
    if (!text || strcmp(text + len, "G") != 0) {
        return config_read_u32(root, key, is_needed, INT32_MAX, pattern, what, err);
    }
    *pattern = (uint32_t)len + 1;
    return OK;
}

// layer_types says which layers have a window. Without it, max_window_layers and the pattern do.
enum status window_config_read(struct model_config *config, const json_t *root, const char *what,
                               struct err *err) {
    if (is_in(config->architecture, without_windows, ARRAY_LEN(without_windows))) return OK;
    if (own_config_has(config->architecture, "attention_chunk_size")) {
        return read_chunks(config, root, what, err);
    }
    const struct window_rule *rule = rule_of(config->architecture);
    const bool *has_no_rope = config->own.has_no_rope; // SmolLM3's windows are in these layers
    bool use = rule->use;
    uint32_t window = json_object_get(root, "sliding_window") ? 0 : rule->window;
    uint32_t limit = rule->limit;
    enum status status = OK;
    if (!rule->use) status = jread_bool(root, "use_sliding_window", &use, what, err);
    // Qwen2 MoE's class writes 0 where windows are off.
    uint32_t least = use ? 1 : 0;
    if (!status) {
        status = config_read_u32(root, "sliding_window", least, INT32_MAX, &window, what, err);
    }
    if (!status)
        status = config_read_u32(root, "max_window_layers", 0, INT32_MAX, &limit, what, err);
    uint32_t pattern = rule->pattern;
    const json_t *types = jread_get(root, "layer_types");
    uint32_t prefix = 0,
             prefix_pattern = 1; // Command A+'s dense layers have a pattern of their own
    if (!status && own_config_has(config->architecture, "prefix_dense_sliding_window_pattern")) {
        status = config_read_u32(root, "first_k_dense_replace", 0, INT32_MAX, &prefix, what, err);
        if (!status) {
            status = config_read_u32(root, "prefix_dense_sliding_window_pattern", 1, INT32_MAX,
                                     &prefix_pattern, what, err);
        }
    }
    bool has_key = pattern && !is_in(config->architecture, without_pattern_key,
                                     ARRAY_LEN(without_pattern_key));
    if (!status && has_key) status = read_pattern(&pattern, root, window && !types, what, err);
    if (status) return status;
    config->is_sliding = calloc(config->num_layers, sizeof *config->is_sliding);
    if (!config->is_sliding) return err_nomem(err, "layers with a window");
    if (types) status = read_layer_types(config, types, what, err);
    use |= types && has_no_rope; // SmolLM3's layer_types count whatever use_sliding_window says
    uint32_t first = rule->limit_kind == LIMIT_IS_FIRST ? limit : 0;
    uint32_t end = rule->limit_kind == LIMIT_IS_END ? limit : UINT32_MAX;
    bool has_window = false;
    for (uint32_t i = 0; i < config->num_layers; i++) {
        if (!types && has_no_rope) {
            config->is_sliding[i] = has_no_rope[i];
        } else if (!types) {
            uint32_t number = rule->first_is_full ? i : i + 1;
            uint32_t of = i < prefix ? prefix_pattern : pattern;
            if (i >= prefix) number -= prefix;
            config->is_sliding[i] = i >= first && i < end && (!of || number % of);
        }
        if (rule->last_is_full && i + 1 == config->num_layers) config->is_sliding[i] = false;
        has_window |= config->is_sliding[i];
    }
    if (status || (use && window && has_window)) {
        config->sliding_window = window;
        return status;
    }
    free(config->is_sliding);
    config->is_sliding = NULL;
    return OK;
}
