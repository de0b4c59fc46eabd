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
static enum status refuse_missing_bias(const struct family_traits *traits,
                                       const struct model_config *config, struct err *err) {
    const struct {
        const char *key;
        enum config_flag flag;
        bool has_bias;
    } cases[] = {
        {"attention_bias", config->attention_bias, traits->qkv_bias},
        {"attention_out_bias", config->attention_out_bias, traits->o_bias},
        {"mlp_bias", config->mlp_bias, traits->mlp_bias},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (cases[i].flag != FLAG_TRUE || cases[i].has_bias) continue;
        return err_set(err, ERR_UNSUPPORTED, "%s with %s is not supported", config->architecture,
                       cases[i].key);
    }
    return OK;
}

enum status family_apply(struct family_traits *out, const struct model_family *family,
                         const struct model_config *config, struct err *err) {
    CHECK(!config->moe.num_experts || family->expert_names, "%s", family->name);
    *out = (struct family_traits){
        .family = family->name,
        .qk_norm = family->qk_norm,
        .qkv_bias = has_bias(family->qkv_bias, config),
        .o_bias = has_bias(family->o_bias, config),
        .mlp_bias = has_bias(family->mlp_bias, config),
        .expert_names = family->expert_names,
    };
    return refuse_missing_bias(out, config, err);
}

enum status family_resolve(struct family_traits *out, const struct model_config *config,
                           struct err *err) {
    const struct model_family *family = find(config->architecture);
    if (!family) return unknown_architecture(config->architecture, err);
    return family_apply(out, family, config, err);
}
