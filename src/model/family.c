#include "model/family.h"

#include <stdio.h>
#include <string.h>

static const struct model_family *const families[] = {
    &family_qwen3,
};

static bool bias_of(enum bias_rule rule, const struct model_config *config) {
    if (rule == BIAS_BY_CONFIG) return config->has_attention_bias && config->attention_bias;
    return rule == BIAS_ALWAYS;
}

static const struct model_family *find(const char *architecture) {
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        if (strcmp(families[i]->architecture, architecture) == 0) return families[i];
    }
    return NULL;
}

static enum status unknown_architecture(const char *architecture, struct err *err) {
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_LEN(families) && used < sizeof known; i++) {
        int n = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                         families[i]->architecture);
        used += n > 0 ? (size_t)n : 0;
    }
    return err_set(err, ERR_UNSUPPORTED, "architecture %s is not supported (supported: %s)",
                   architecture, known);
}

enum status family_resolve(struct family_traits *out, const struct model_config *config,
                           struct err *err) {
    const struct model_family *family = find(config->architecture);
    if (!family) return unknown_architecture(config->architecture, err);
    if (config->mlp_bias) {
        return err_set(err, ERR_UNSUPPORTED, "%s with mlp_bias is not supported",
                       config->architecture);
    }
    *out = (struct family_traits){
        .qk_norm = family->qk_norm,
        .qkv_bias = bias_of(family->qkv_bias, config),
        .o_bias = bias_of(family->o_bias, config),
    };
    return OK;
}
