/* Mistral: Llama's layers without any bias. A sliding window is not implemented: where config.json
 * has one, it bounds the length of sequences (engine_plan.c).
 * Source: Mistral 7B, arXiv 2310.06825, and the published config.json files. */
#include "model/family.h"

const struct model_family family_mistral = {
    .name = "Mistral",
    .architecture = "MistralForCausalLM",
};
