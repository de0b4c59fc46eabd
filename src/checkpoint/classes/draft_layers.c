#include "checkpoint/classes/draft_layers.h"

#include <string.h>

#include "base/compiler.h"
#include "checkpoint/config_read.h"

enum { DRAFT_LAYERS_MAX = 1 << 12 };

enum status draft_layers_read(struct model_config *config, const json_t *root, const char *what,
                              struct err *err) {
    static const struct {
        const char *architecture, *key;
    } keys[] = {{"DeepseekV3ForCausalLM", "num_nextn_predict_layers"},
                {"Glm4MoeForCausalLM", "num_nextn_predict_layers"},
                {"Glm4MoeLiteForCausalLM", "num_nextn_predict_layers"},
                // Those of a folder have names of their own, "model.mtp_".
                {"Ernie4_5_MoeForCausalLM", "num_nextn_predict_layers"},
                {"MiniMaxM2ForCausalLM", "num_mtp_modules"},
                {"NemotronHForCausalLM", "num_nextn_predict_layers"},
                // Those of a folder have names of their own, "mtp.". A GGUF file has layers.
                {"ExaoneMoeForCausalLM", "num_nextn_predict_layers"},
                {"HYV3ForCausalLM", "num_nextn_predict_layers"},
                {"MellumForCausalLM", "num_nextn_predict_layers"},
                {"Qwen3_5ForCausalLM", "mtp_num_hidden_layers"},
                {"Qwen3_5MoeForCausalLM", "mtp_num_hidden_layers"},
                {"Qwen3NextForCausalLM", "mtp_num_hidden_layers"}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i].architecture, config->architecture) != 0) continue;
        return config_read_u32(root, keys[i].key, 0, DRAFT_LAYERS_MAX, &config->num_draft_layers,
                               what, err);
    }
    return OK;
}
