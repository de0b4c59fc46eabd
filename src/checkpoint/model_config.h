/* config.json, validated. Both forms are read: the published one (rope_theta, rope_scaling,
 * torch_dtype, num_experts) and that of transformers 5 (rope_parameters, dtype, num_local_experts).
 * A key that asks for a computation that is not supported is an error that names it, and never
 * ignored. Any architecture name parses, because model/family.h matches families. The name matters
 * here only where transformers' configuration classes differ: in the keys of a sliding window
 * (window_config.h) and of experts (moe_config.h), and in defaults.
 *
 * A missing or null key has transformers' default:
 *   head_dim             hidden_size / num_attention_heads
 *   num_key_value_heads  num_attention_heads
 *   rms_norm_eps         1e-6, or as the architecture's class has it, as the next four
 *   hidden_act           silu (Gemma: gelu_pytorch_tanh), the only one that is supported
 *   tie_word_embeddings  false
 *   rope_theta           10000
 *   dtype                float32; loading uses each tensor's own type
 * The other sizes and `architectures` are required.
 *
 * generation_config.json adds EOS ids and sampling defaults. They are used as they are, as in vLLM,
 * except that an explicit "do_sample": false means greedy, as in transformers. */
#ifndef CHECKPOINT_MODEL_CONFIG_H
#define CHECKPOINT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "checkpoint/classes/own_config.h"
#include "checkpoint/expert_stack.h"
#include "checkpoint/quantized/quantization_config.h"
#include "nanovllm.h"

struct checkpoint;

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_LONG,
    ROPE_PROPORTIONAL, // the first pairs of a whole head are rotated, and the others are not
};

enum { ROPE_FACTORS_MAX = 256 };

// Fields that the type does not use are 0.
struct rope_config {
    enum rope_type type;
    double theta;
    double factor; // linear, llama3, yarn, long, proportional; >= 1
    double original_max_position_embeddings; // llama3, yarn, long
    double low_freq_factor, high_freq_factor; // llama3; low <= high
    double beta_fast, beta_slow; // yarn; 32 and 1 by default
    double attention_factor; // yarn, long; 0: from factor (and mscale, mscale_all_dim)
    double mscale, mscale_all_dim; // yarn; 0: absent
    bool truncate; // yarn; true by default
    double proportion; // proportional: the share of the pairs that are rotated
    // Of Ministral 3 and Llama 4: q times 1 + beta ln(1 + floor((position + offset) / length)).
    // beta 0: as it is.
    double query_beta, query_length, query_offset;
    double alpha; // Hunyuan's, with which theta is theta alpha^(dim / (dim - 2)); 0: none
    double partial; // the share of a head that is rotated: its first elements; 1 by default
    bool is_reversed; // NanoChat's: pairs are rotated the other way
    // long: each frequency is divided by its factor, a short one for up to
    // original_max_position_embeddings positions.
    uint32_t num_factors;
    float short_factors[ROPE_FACTORS_MAX], long_factors[ROPE_FACTORS_MAX]; // [num_factors]
};

// Mixture of experts; all zero where every layer's MLP is dense.
struct moe_config {
    uint32_t num_experts;
    uint32_t num_experts_per_tok; // 1 .. num_experts
    uint32_t intermediate_size; // of one expert
    // Of the expert that all tokens go to, besides theirs; 0: there is none.
    uint32_t shared_intermediate_size;
    bool is_sigmoid; // scores of experts are sigmoids of the router's logits, not their softmax
    // Experts are chosen in the top_groups best of num_groups groups, which are as good as the sum
    // of their group_best best experts; num_groups 0: there are none.
    uint32_t num_groups, top_groups, group_best;
    bool norm_topk_prob; // scale the weights of a token's experts so that they sum to 1
    float weights_factor; // then multiply them by this; 1 by default
    enum expert_layout layout; // of a checkpoint that has experts in one tensor
    uint32_t num_sparse_layers;
    bool *is_sparse; // [num_layers]: experts instead of the dense MLP
};

// A boolean key for which absent and false mean different things.
enum config_flag { FLAG_ABSENT, FLAG_FALSE, FLAG_TRUE };

struct model_config {
    char architecture[64]; // "Qwen3ForCausalLM"
    // The checkpoint may have tensors of other models, which text_part.h knows.
    bool has_other_parts;
    uint32_t num_draft_layers; // as many layers more, which draft tokens behind the next one
    enum dtype dtype; // as config.json declares it: BF16, F16, F32
    uint32_t vocab_size;
    uint32_t hidden_size;
    uint32_t intermediate_size;
    uint32_t num_layers;
    uint32_t num_heads;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t max_position_embeddings; // yarn: the extended length, if it is more than declared
    float rms_norm_eps;
    bool tie_word_embeddings;
    // A model of embeddings has no lm_head. It counts as tied, and no text can be generated.
    bool lacks_lm_head;
    // The family decides what these and their absence mean: model/family.h.
    enum config_flag attention_bias, attention_out_bias, mlp_bias;
    uint32_t sliding_window; // tokens a query sees, itself included; 0: no layer has a window
    bool *is_sliding; // [num_layers] whether the layer has it; NULL: none has
    struct rope_config rope;
    // Of the layers with a window: Gemma 3 and OLMo 3 have another rotary embedding there. Of other
    // architectures it is the same.
    struct rope_config local_rope;
    struct own_config own;
    struct moe_config moe;
    struct quantization_config quantization;
    // [num_eos_token_ids]: those of config.json, then others of generation_config.json
    int32_t *eos_token_ids;
    uint32_t num_eos_token_ids;
};

// generation_config.json's sampling defaults: bool has_temperature; float temperature; ... of each
// NVLLM_MODEL_PARAMS. A value is meaningful only where has_* is set. A temperature of 0 also stands
// for "do_sample": false.
struct generation_config {
#define MODEL_DEFAULT(type, name, ...)                                                             \
    bool has_##name;                                                                               \
    NVLLM_TYPE_##type name;
    NVLLM_MODEL_PARAMS(MODEL_DEFAULT)
};

// Reads config.json and, where there is one, generation_config.json. After an error
// *config is empty, also after model_config_parse.
MUST_USE enum status model_config_load(struct model_config *config,
                                       struct generation_config *generation,
                                       const struct checkpoint *checkpoint, struct err *err);
// From JSON text (fuzzing and tests); `what` names it in errors.
MUST_USE enum status model_config_parse(struct model_config *config, const char *text, size_t len,
                                        const char *what, struct err *err);
// Adds generation_config.json's text: EOS ids to `config`, sampling defaults to `generation`, which
// is overwritten.
MUST_USE enum status generation_config_parse(struct model_config *config,
                                             struct generation_config *generation, const char *text,
                                             size_t len, const char *what, struct err *err);
// The elements of a head that are rotated, its first ones.
uint32_t model_config_rotary_dim(const struct model_config *config);
void model_config_fini(struct model_config *config); // all-zero is fine

#endif
