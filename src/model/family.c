#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const struct model_family *const families[] = {
    &family_llama, &family_mistral, &family_mixtral,
    &family_qwen2, &family_qwen3,   &family_qwen3_moe,
};

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

static bool bias_of(enum bias_rule rule, bool by_config) {
    return rule == BIAS_BY_CONFIG ? by_config : rule == BIAS_ALWAYS;
}

// A bias that the configuration asks for and the family does not have is refused, not left out.
static enum status refuse_bias(enum bias_rule rule, bool wanted, const char *key,
                               const struct model_config *config, struct err *err) {
    if (rule != BIAS_NEVER || !wanted) return OK;
    return err_set(err, ERR_UNSUPPORTED, "%s with %s is not supported", config->architecture, key);
}

enum status family_resolve(struct family_traits *out, const struct model_config *config,
                           struct err *err) {
    const struct model_family *family = find(config->architecture);
    if (!family) return unknown_architecture(config->architecture, err);
    enum status status =
        refuse_bias(family->qkv_bias, config->attention_bias, "attention_bias", config, err);
    if (!status) status = refuse_bias(family->mlp_bias, config->mlp_bias, "mlp_bias", config, err);
    if (status) return status;
    CHECK(!config->moe.num_experts || family->expert_names, "%s", family->name);
    *out = (struct family_traits){
        .family = family->name,
        .qk_norm = family->qk_norm,
        .qkv_bias = bias_of(family->qkv_bias, config->attention_bias),
        .o_bias = bias_of(family->o_bias, config->attention_bias),
        .mlp_bias = bias_of(family->mlp_bias, config->mlp_bias),
        .expert_names = family->expert_names,
    };
    return OK;
}
