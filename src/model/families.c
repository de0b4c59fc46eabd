#include "model/family.h"

const struct model_family *const model_families[] = {
    &family_gemma3,
    &family_gpt_oss,
    &family_granite,
    &family_llama,
    &family_mistral,
    &family_mixtral,
    &family_olmo2,
    &family_olmo3,
    &family_phi3,
    &family_qwen2,
    &family_qwen3,
    &family_qwen3_5,
    &family_qwen3_5_moe,
    &family_qwen3_moe,
    &family_qwen3_next,
    &family_smollm3,
    NULL,
};
