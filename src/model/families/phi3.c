/* Phi-3, Phi-4 and Phi-4-mini: Llama's layers with q, k and v in one tensor, and gate and up in
 * another. Phi-4-mini rotates a part of each head. Sources: arXiv 2404.14219, 2412.08905 and
 * 2503.01743. */
#include "model/family.h"

static const char gate_up[] = "mlp.gate_up_proj";

static void change(struct layer_table *table, const struct model_config *config) {
    (void)config;
    table->is_qkv_stacked = true;
    table->mlp = (struct mlp_names){gate_up, gate_up, "mlp.down_proj"};
}

const struct model_family family_phi3 = {
    .name = "Phi-3",
    .architecture = "Phi3ForCausalLM",
    .change = change,
};
