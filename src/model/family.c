#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const struct model_family *find(const char *architecture) {
    for (size_t i = 0; model_families[i]; i++) {
        if (strcmp(model_families[i]->architecture, architecture) == 0) return model_families[i];
    }
    return NULL;
}

// A message has no room for all names behind a long path, so it has those that begin alike.
static enum status unknown_architecture(const char *architecture, struct err *err) {
    enum { ALIKE = 3 }; // letters
    char names[200] = "";
    size_t used = 0;
    for (size_t i = 0; model_families[i] && used < sizeof names; i++) {
        const char *name = model_families[i]->architecture;
        if (strncmp(name, architecture, ALIKE) != 0) continue;
        int n = snprintf(names + used, sizeof names - used, "%s%s",
                         used ? ", " : "; supported are ", name);
        used += n > 0 ? (size_t)n : 0;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "architecture %s is not supported%s; doc/models.md lists the models that run",
                   architecture, names);
}

static bool has_bias(struct bias_rule rule, const struct model_config *config) {
    enum config_flag flag = FLAG_ABSENT;
    switch (rule.key) {
    case BIAS_NO_KEY:
        break;
    case BIAS_ATTENTION:
        flag = config->attention_bias;
        break;
    case BIAS_ATTENTION_OUT:
        flag = config->attention_out_bias;
        break;
    case BIAS_MLP:
        flag = config->mlp_bias;
        break;
    }
    return flag == FLAG_ABSENT ? rule.by_default : flag == FLAG_TRUE;
}

// Refuses a bias that the configuration asks for but the family does not have.
static enum status refuse_missing_bias(const struct layer *layer, const struct model_config *config,
                                       struct err *err) {
    const struct {
        const char *key;
        enum config_flag flag;
        bool has_bias;
    } cases[] = {
        {"attention_bias", config->attention_bias, layer->has_qkv_bias},
        {"attention_out_bias", config->attention_out_bias, layer->has_o_bias},
        {"mlp_bias", config->mlp_bias, layer->has_mlp_bias},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (cases[i].flag != FLAG_TRUE || cases[i].has_bias) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s with %s is not supported", config->architecture,
                       cases[i].key);
    }
    return OK;
}

enum status family_apply(struct layer_table *out, const struct model_family *family,
                         const struct model_config *config, struct err *err) {
    CHECK(!config->moe.num_experts || family->expert_names, "%s", family->name);
    enum status status = layer_table_init(out, config, err);
    if (status) return status;
    out->family = family->name;
    out->expert_names = family->expert_names;
    for (uint32_t i = 0; i < out->num_layers; i++) {
        struct layer *layer = &out->layers[i];
        layer->head_norm = family->head_norm;
        layer->has_qkv_bias = has_bias(family->qkv_bias, config);
        layer->has_o_bias = has_bias(family->o_bias, config);
        layer->has_mlp_bias = has_bias(family->mlp_bias, config);
    }
    if (family->change) family->change(out, config);
    status = refuse_missing_bias(&out->layers[0], config, err);
    if (!status) status = layer_table_check(out, err);
    if (status) layer_table_fini(out);
    return status;
}

enum status family_resolve(struct layer_table *out, const struct model_config *config,
                           struct err *err) {
    *out = (struct layer_table){0};
    const struct model_family *family = find(config->architecture);
    if (!family) return unknown_architecture(config->architecture, err);
    return family_apply(out, family, config, err);
}
