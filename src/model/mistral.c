/* Mistral: Llama's layers without any bias. Version 0.1 has a sliding window in all layers.
 * Source: Mistral 7B, arXiv 2310.06825, and the published config.json files. */
#include "model/family.h"

const struct model_family family_mistral = {
    .name = "Mistral",
    .architecture = "MistralForCausalLM",
};
