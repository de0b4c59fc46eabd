#include "checkpoint/classes/class_defaults.h"

#include <string.h>

#include "base/compiler.h"

#define GPT_OSS_ROPE                                                                               \
    "{\"rope_type\": \"yarn\", \"factor\": 32, \"truncate\": false, "                              \
    "\"original_max_position_embeddings\": 4096}"
#define MINISTRAL3_ROPE                                                                            \
    "{\"rope_type\": \"yarn\", \"rope_theta\": 1000000, \"factor\": 16, \"mscale\": 1, "           \
    "\"mscale_all_dim\": 1, \"original_max_position_embeddings\": 16384, "                         \
    "\"llama_4_scaling_beta\": 0.1}"

#define MISTRAL4_ROPE                                                                              \
    "{\"rope_type\": \"yarn\", \"factor\": 128, \"mscale\": 1, \"mscale_all_dim\": 1, "            \
    "\"original_max_position_embeddings\": 8192, \"llama_4_scaling_beta\": 0.1}"

#define APERTUS_ROPE                                                                               \
    "{\"rope_type\": \"llama3\", \"rope_theta\": 12000000, \"factor\": 8, "                        \
    "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "                                            \
    "\"original_max_position_embeddings\": 8192}"
#define CWM_ROPE                                                                                   \
    "{\"rope_type\": \"llama3\", \"factor\": 16, \"low_freq_factor\": 1, \"high_freq_factor\": "   \
    "4, "                                                                                          \
    "\"original_max_position_embeddings\": 8192}"
#define GEMMA4_ROPE                                                                                \
    "{\"sliding_attention\": {\"rope_theta\": 10000}, \"full_attention\": {\"rope_theta\": "       \
    "1000000, "                                                                                    \
    "\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25}}"

static const struct class_defaults others[] = {
    {.architecture = "CohereForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_eps",
     .rope_theta = 5e5,
     .ties_embeddings = true},
    {.architecture = "Cohere2MoeForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_eps",
     .head_dim = 128,
     .ties_embeddings = true},
    {.architecture = "Cohere2ForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_eps",
     .ties_embeddings = true},
    {.architecture = "BambaForCausalLM",
     .rms_norm_eps = 1e-5,
     .partial = 0.5,
     .has_one_partial = true},
    {.architecture = "FalconH1ForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "ApertusForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 12e6,
     .activation = "xielu",
     .rope = APERTUS_ROPE},
    {.architecture = "ArceeForCausalLM", .rms_norm_eps = 1e-5, .activation = "relu2"},
    {.architecture = "CwmForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 1e6,
     .head_dim = 128,
     .rope = CWM_ROPE},
    {.architecture = "GraniteSWAForCausalLM", .rms_norm_eps = 1e-5, .ties_embeddings = true},
    {.architecture = "Jais2ForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_eps",
     .activation = "relu2"},
    {.architecture = "InternLM3ForCausalLM",
     .rms_norm_eps = 1e-5,
     .head_dim = 128,
     .attention_bias_key = "qkv_bias",
     .mlp_bias_key = "bias"},
    {.architecture = "Lfm2ForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "norm_eps",
     .rope_theta = 1e6,
     .ties_embeddings = true},
    {.architecture = "Lfm2MoeForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "norm_eps",
     .rope_theta = 1e6,
     .ties_embeddings = true},
    {.architecture = "Llama4ForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 5e5,
     .head_dim = 128,
     .mlp_key = "intermediate_size_mlp"},
    {.architecture = "PhiForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_eps",
     .activation = "gelu_new",
     .partial = 0.5},
    {.architecture = "NanoChatForCausalLM", .activation = "relu2", .logits_softcap = 15},
    {.architecture = "NemotronForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "norm_eps",
     .activation = "relu2",
     .partial = 0.5},
    {.architecture = "NemotronHForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_epsilon",
     .head_dim = 128},
    {.architecture = "StableLmForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "layer_norm_eps",
     .partial = 0.25,
     .attention_bias_key = "use_qkv_bias"},
    {.architecture = "Starcoder2ForCausalLM",
     .rms_norm_eps = 1e-5,
     .eps_key = "norm_epsilon",
     .ties_embeddings = true,
     .activation = "gelu_pytorch_tanh",
     .attention_bias_key = "use_bias",
     .mlp_bias_key = "use_bias"},
    {.architecture = "MixtralForCausalLM", .rms_norm_eps = 1e-5, .rope_theta = 1e6},
    {.architecture = "Phi3ForCausalLM", .rms_norm_eps = 1e-5, .original_length = 4096},
    {.architecture = "OlmoeForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "Olmo2ForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "Olmo3ForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 5e5,
     .local_theta = SAME_THETA},
    {.architecture = "GptOssForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 1.5e5,
     .head_dim = 64,
     .rope = GPT_OSS_ROPE},
    {.architecture = "GraniteMoeHybridForCausalLM", .mlp_key = "shared_intermediate_size"},
    {.architecture = "AfmoeForCausalLM", .rms_norm_eps = 1e-5, .head_dim = 128},
    {.architecture = "FlexOlmoForCausalLM", .rope_theta = 5e5},
    {.architecture = "HYV3ForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 11158840,
     .head_dim = 128},
    {.architecture = "MellumForCausalLM", .rope_theta = 5e5, .local_theta = 1e4, .head_dim = 128},
    {.architecture = "YoutuForCausalLM", .ties_embeddings = true},
    {.architecture = "GlmForCausalLM", .rms_norm_eps = 1.5625e-7, .head_dim = 128, .partial = 0.5},
    {.architecture = "Glm4ForCausalLM", .rms_norm_eps = 1.5625e-7, .head_dim = 128, .partial = 0.5},
    {.architecture = "Glm4MoeForCausalLM", .rms_norm_eps = 1e-5, .partial = 0.5},
    {.architecture = "Glm4MoeLiteForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "HunYuanDenseV1ForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "HunYuanMoEV1ForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "MiniCPMForCausalLM", .ties_embeddings = true},
    {.architecture = "MiniMaxM2ForCausalLM", .rope_theta = 5e6, .head_dim = 128},
    {.architecture = "Mistral4ForCausalLM", .rope = MISTRAL4_ROPE},
    {.architecture = "Ministral3ForCausalLM",
     .rms_norm_eps = 1e-5,
     .head_dim = 128,
     .rope = MINISTRAL3_ROPE},
    {.architecture = "Ernie4_5ForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 5e5,
     .ties_embeddings = true,
     .head_dim = 128},
    {.architecture = "Ernie4_5_MoeForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 5e5,
     .ties_embeddings = true},
    {.architecture = "Exaone4ForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "ExaoneMoeForCausalLM", .rms_norm_eps = 1e-5},
    {.architecture = "SeedOssForCausalLM", .head_dim = 128},
    {.architecture = "SolarOpenForCausalLM",
     .rms_norm_eps = 1e-5,
     .rope_theta = 1e6,
     .head_dim = 128,
     .has_no_dense_layer = true},
    {.architecture = "HeliumForCausalLM", .rms_norm_eps = 1e-8, .rope_theta = 1e5, .head_dim = 128},
    {.architecture = "SmolLM3ForCausalLM", .rope_theta = 2e6, .ties_embeddings = true},
    {.architecture = "GemmaForCausalLM",
     .ties_embeddings = true,
     .activation = "gelu_pytorch_tanh",
     .activation_too = "gelu",
     .head_dim = 256},
    {.architecture = "VaultGemmaForCausalLM",
     .ties_embeddings = true,
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256},
    {.architecture = "Gemma2ForCausalLM",
     .ties_embeddings = true,
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256},
    {.architecture = "Gemma3ForCausalLM",
     .rope_theta = 1e6,
     .local_theta = 1e4,
     .ties_embeddings = true,
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256},
    {.architecture = "Gemma4ForCausalLM",
     .rope_theta = 1e6,
     .local_theta = 1e4,
     .ties_embeddings = true,
     .activation = "gelu_pytorch_tanh",
     .head_dim = 256,
     .rope = GEMMA4_ROPE},
    {.architecture = "SarvamMoEForCausalLM",
     .rope_theta = 8e6,
     .head_dim = 64,
     .attention_bias_key = "use_qkv_bias"},
    {.architecture = "Qwen3NextForCausalLM", .head_dim = 256, .partial = 0.25},
    {.architecture = "Qwen3_5ForCausalLM", .head_dim = 256, .partial = 0.25},
    {.architecture = "Qwen3_5MoeForCausalLM",
     .head_dim = 256,
     .partial = 0.25,
     .has_no_dense_layer = true},
};

struct class_defaults class_defaults_of(const char *architecture) {
    struct class_defaults found = {0};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (strcmp(others[i].architecture, architecture) == 0) found = others[i];
    }
    if (found.rms_norm_eps == 0) found.rms_norm_eps = 1e-6;
    if (found.rope_theta == 0) found.rope_theta = 1e4;
    if (!found.eps_key) found.eps_key = "rms_norm_eps";
    if (!found.activation) {
        found.activation = "silu";
        found.activation_too = "swish"; // the same function
    }
    if (!found.mlp_key) found.mlp_key = "intermediate_size";
    return found;
}
