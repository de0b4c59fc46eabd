#include "model/family.h"

const struct model_family *const model_families[] = {
    &family_llama, &family_mistral, &family_mixtral,
    &family_qwen2, &family_qwen3,   &family_qwen3_moe,
    NULL,
};
