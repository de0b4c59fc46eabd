#include "checkpoint/own_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json/jread.h"
#include "checkpoint/config_read.h"

enum { KEYS_MAX = 4 };

static const struct {
    const char *architecture;
    const char *keys[KEYS_MAX];
} owners[] = {
    {"Gemma3ForCausalLM", {"query_pre_attn_scalar", "rope_local_base_freq"}},
    {"GraniteForCausalLM",
     {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}},
    {"Phi3ForCausalLM", {"partial_rotary_factor"}},
    {"SmolLM3ForCausalLM", {"no_rope_layers", "no_rope_layer_interval"}},
};

bool own_config_has(const char *architecture, const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(owners); i++) {
        if (strcmp(owners[i].architecture, architecture) != 0) continue;
        for (size_t k = 0; k < KEYS_MAX && owners[i].keys[k]; k++) {
            if (strcmp(owners[i].keys[k], key) == 0) return true;
        }
    }
    return false;
}

static enum status read_factors(struct own_config *out, const json_t *root,
                                const char *architecture, const char *what, struct err *err) {
    const struct {
        const char *key;
        double value;
        float *out;
    } factors[] = {
        {"embedding_multiplier", 1, &out->embedding_multiplier},
        {"residual_multiplier", 1, &out->residual_multiplier},
        {"attention_multiplier", 0, &out->attention_multiplier},
        {"logits_scaling", 1, &out->logits_scaling},
        {"query_pre_attn_scalar", 0, &out->query_pre_attn_scalar},
    };
    for (size_t i = 0; i < ARRAY_LEN(factors); i++) {
        double value = factors[i].value;
        if (own_config_has(architecture, factors[i].key)) {
            enum status status =
                config_read_double(root, factors[i].key, 1e-6, 1e6, &value, what, err);
            if (status) return status;
        }
        *factors[i].out = (float)value;
    }
    return OK;
}

// "no_rope_layers" has a 1 for each layer *with* a rotary embedding, and may be longer than the
// model. Without it each layer whose number from 1 on is a multiple of the interval has none.
static enum status read_no_rope(struct own_config *out, const json_t *root, uint32_t num_layers,
                                const char *what, struct err *err) {
    const json_t *list = jread_get(root, "no_rope_layers");
    uint32_t interval = 4;
    enum status status =
        config_read_u32(root, "no_rope_layer_interval", 1, UINT16_MAX, &interval, what, err);
    if (status) return status;
    if (list && (!json_is_array(list) || json_array_size(list) < num_layers)) {
        return err_set(err, ERR_FORMAT,
                       "%s: \"no_rope_layers\" is %s of %zu, want a list of 0 and 1 for each of "
                       "the %u layers",
                       what, jread_type_name(list), json_array_size(list), num_layers);
    }
    out->has_no_rope = calloc(num_layers, sizeof *out->has_no_rope);
    if (!out->has_no_rope) return err_nomem(err, "layers without a rotary embedding");
    for (uint32_t i = 0; i < num_layers; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t value = list ? json_integer_value(item) : (i + 1) % interval != 0;
        if (list && (!json_is_integer(item) || (value != 0 && value != 1))) {
            return err_set(err, ERR_FORMAT, "%s: \"no_rope_layers\" has %s at %u, want 0 or 1",
                           what, json_is_integer(item) ? "another number" : jread_type_name(item),
                           i);
        }
        out->has_no_rope[i] = value == 0;
    }
    return OK;
}

enum status own_config_read(struct own_config *out, const json_t *root, const char *architecture,
                            uint32_t num_layers, const char *what, struct err *err) {
    *out = (struct own_config){0};
    enum status status = read_factors(out, root, architecture, what, err);
    if (!status && own_config_has(architecture, "no_rope_layers")) {
        status = read_no_rope(out, root, num_layers, what, err);
    }
    if (status) own_config_fini(out);
    return status;
}

void own_config_fini(struct own_config *config) {
    free(config->has_no_rope);
    *config = (struct own_config){0};
}
