#include "model/family.h"

// By the architectures' names.
const struct model_family *const model_families[] = {
    &family_apertus,       &family_arcee,          &family_bamba,
    &family_cohere,        &family_cohere2,        &family_cwm,
    &family_deepseek_v2,   &family_deepseek_v3,    &family_dots1,
    &family_ernie4_5,      &family_ernie4_5_moe,   &family_exaone4,
    &family_exaone_moe,    &family_falcon_h1,      &family_gemma,
    &family_gemma2,        &family_gemma3,         &family_gemma4,
    &family_glm,           &family_glm4,           &family_glm4_moe,
    &family_glm4_moe_lite, &family_gpt_oss,        &family_granite,
    &family_granite_moe,   &family_granite_hybrid, &family_granite_swa,
    &family_helium,        &family_hunyuan_dense,  &family_hunyuan_moe,
    &family_hyperclovax,   &family_internlm3,      &family_jais2,
    &family_lfm2,          &family_lfm2_moe,       &family_llama,
    &family_llama4,        &family_minimax_m2,     &family_ministral,
    &family_ministral3,    &family_mistral,        &family_mixtral,
    &family_nemotron,      &family_nemotron_h,     &family_olmo2,
    &family_olmo3,         &family_olmoe,          &family_phi,
    &family_phi3,          &family_qwen2,          &family_qwen2_moe,
    &family_qwen3,         &family_qwen3_5,        &family_qwen3_5_moe,
    &family_qwen3_moe,     &family_qwen3_next,     &family_seed_oss,
    &family_smollm3,       &family_solar_open,     &family_stablelm,
    &family_starcoder2,    &family_vault_gemma,    NULL,
};
