/* Mistral: Llama's layers without any bias. Version 0.1 has a sliding window in all layers.
 * Ministral has it in some layers. Ministral 3 and Devstral 2 scale q by the logarithm of its
 * position. Source: Mistral 7B, arXiv 2310.06825, the published config.json files and
 * transformers' Ministral and Ministral3. */
#include "model/family.h"

const struct model_family family_mistral = {
    .name = "Mistral",
    .architecture = "MistralForCausalLM",
};

const struct model_family family_ministral = {
    .name = "Ministral",
    .architecture = "MinistralForCausalLM",
};

const struct model_family family_ministral3 = {
    .name = "Ministral 3",
    .architecture = "Ministral3ForCausalLM",
};
