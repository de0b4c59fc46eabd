/* Mistral: Llama's layers without any bias. Where config.json has a sliding window, max_model_len
 * may be at most the window (engine_plan.c), so attention never reaches its end.
 * Source: Mistral 7B, arXiv 2310.06825, and the published config.json files. */
#include "model/family.h"

const struct model_family family_mistral = {
    .name = "Mistral",
    .architecture = "MistralForCausalLM",
};
