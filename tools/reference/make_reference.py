"""Writes reference outputs of transformers: the data under tests/reference/data.

1. greedy.json, greedy.safetensors: 24 conversations with the trained model, arithmetic in float32.
2. tokenizer.json: texts, their ids and decodings.
3. <family>/: small checkpoints with random weights, and their logits at five lengths.
Needs torch (CPU is enough), transformers and safetensors.
"""
import argparse
import copy
import json
import os
import random
import sys

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tiny-model"))
import tiny_data

LENGTHS = [1, 2, 17, 257, 300]
DELTA_NETS = ["qwen3-next", "qwen3-5", "qwen3-5-moe"]
FIXED_TEXTS = [
    "", " ", "  ", "\n", "\n\n \n", "Hello, world!", "I'm you'RE he'll WE'D",
    "   leading and trailing   ", "tabs\tand\r\nCRLF", "12345 3.14 1,000,000", "你好,世界!谢谢",
    "naïve café — “quotes” …", "e\u0301 vs \u00e9 (NFC)", "\u1e9b\u0323 \u212b Å",
    "🙂👩‍👩‍👧‍👦🇫🇷", "مرحبا بالعالم", "हिन्दी पाठ", "<|im_start|>user\nhi<|im_end|>", "<|im_start|",
    "<think>\nx\n</think>", "a<|endoftext|>b", "def f(x):\n    return x**2  # sq\n",
    "\u00a0nbsp\u2003em\u3000ideographic", "ZWJ\u200dZWNJ\u200c\ufeffBOM", "\x00\x01\x7f",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ⅷ ²³ ½", "x" * 300, "ab " * 100, "!?!?!?...", "don't DON'T Don'T ’s",
    "\U0010ffff\ue000",
]
RANGES = [(32, 126), (32, 126), (0xa0, 0x24f), (0x370, 0x5ff), (0x900, 0x97f), (0x3040, 0x30ff),
          (0x4e00, 0x4fff), (0xac00, 0xad00), (0x1f300, 0x1f640)]
OTHERS = [10, 32, 32, 9, 0x301]


def greedy_messages(r, index):
    if index >= 18:  # long notes
        notes = tiny_data.retrieval(r, [8, 20, 30, 40, 40, 40][index - 18])
        question, _, _ = map(tiny_data.an, notes)
        return [{"role": "user", "content": question}]
    if index == 0:
        return [{"role": "user", "content": "introduce yourself"}]
    return [{"role": m["role"], "content": m["content"]} for m in tiny_data.conversation(r)[:-1]]


def write_greedy(out, model, tokenizer, r):
    cases, tensors = [], {}
    for i in range(24):
        # Later cases draw a conversation and drop it, so that the random numbers stay the same.
        if i >= 18:
            tiny_data.conversation(r)
        messages = greedy_messages(r, i)
        thinking = r.random() < 0.3
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True,
                                             enable_thinking=thinking)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        n = len(ids)
        with torch.no_grad():
            prompt = torch.tensor([ids])
            all_ids = model.generate(prompt, attention_mask=torch.ones_like(prompt),
                                     max_new_tokens=96, do_sample=False, temperature=None,
                                     top_p=None, top_k=None)[0].tolist()
            logits = model(torch.tensor([all_ids])).logits[0]
        completion = all_ids[n:]
        predicting = logits[n - 1:len(all_ids) - 1]
        best = predicting.topk(2).values
        chosen = predicting.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]
        tensors[f"case{i}.last_prompt_logits"] = logits[n - 1].clone()
        tensors[f"case{i}.completion_logprobs"] = chosen.clone()
        cases.append({
            "messages": messages, "enable_thinking": thinking, "prompt": text,
            "prompt_token_ids": ids, "completion_token_ids": completion,
            "completion_text": tokenizer.decode(completion, skip_special_tokens=True),
            "min_top2_margin": (best[:, 0] - best[:, 1]).min().item(),
        })
    with open(f"{out}/greedy.json", "w", encoding="utf-8") as file:
        json.dump(cases, file, ensure_ascii=False, indent=0)
    save_file(tensors, f"{out}/greedy.safetensors")


def write_tokenizer_vectors(out, tokenizer, r):
    texts = list(FIXED_TEXTS)
    for _ in range(150):
        length = r.randint(1, 60)
        texts.append("".join(
            chr(r.choice([r.randint(*pair) for pair in RANGES] + OTHERS)) for _ in range(length)))
    for _ in range(60):
        texts.append(" ".join(m["content"] for m in tiny_data.conversation(r)))
    vectors = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        vectors.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids),
                        "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True)})
    with open(f"{out}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(vectors, file, ensure_ascii=True, indent=0)


def kv_shapes_class(t):
    """Qwen3 as tests/support/kv_shape_families.c changes it: every second layer has one KV head,
    heads of half as many elements more, and a rotary embedding of its own."""
    from transformers.models.qwen3 import modeling_qwen3 as qwen3

    class Qwen3ForCausalLM(t.Qwen3ForCausalLM):  # the name becomes config.json's architecture
        def __init__(self, config):
            super().__init__(config)
            own = copy.deepcopy(config)
            own.num_key_value_heads = 1
            own.head_dim = config.head_dim * 3 // 2
            own.rope_parameters = {"rope_type": "default", "rope_theta": 500.0}

            def rotate(module, args, kwargs):
                positions = torch.arange(kwargs["hidden_states"].shape[1])[None]
                rotary = qwen3.Qwen3RotaryEmbedding(own)  # not made before: it would be a meta tensor
                kwargs["position_embeddings"] = rotary(kwargs["hidden_states"], positions)
                return args, kwargs

            for i, layer in enumerate(self.model.layers):
                if i % 2:
                    layer.self_attn = qwen3.Qwen3Attention(own, i)
                    layer.self_attn.register_forward_pre_hook(rotate, with_kwargs=True)
            self.post_init()

    return Qwen3ForCausalLM


def internlm3_class(t):
    """transformers runs InternLM3 by Llama's class."""

    class InternLM3ForCausalLM(t.LlamaForCausalLM):  # the name becomes config.json's architecture
        config_class = t.InternLM3Config

    return InternLM3ForCausalLM


def families(vocab_size):
    """{name: (model class, config)}"""
    import transformers as t
    base = dict(hidden_size=128, intermediate_size=320, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=2048, vocab_size=vocab_size,
                bos_token_id=0, eos_token_id=1)
    yarn = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
            "original_max_position_embeddings": 512}
    llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    # Half as wide, for cases that were added later.
    small = dict(hidden_size=64, intermediate_size=96, tie_word_embeddings=True)
    qwen3 = (t.Qwen3ForCausalLM, t.Qwen3Config)
    llama = (t.LlamaForCausalLM, t.LlamaConfig)
    table = {
        "qwen3": (*qwen3, dict(head_dim=128, rope_theta=1e6, tie_word_embeddings=False)),
        "qwen3-tied-bias": (*qwen3, dict(head_dim=64, rope_theta=1e6, tie_word_embeddings=True,
                                         attention_bias=True)),
        "qwen3-yarn": (*qwen3, dict(head_dim=64, rope_theta=1e6, tie_word_embeddings=False,
                                    rope_scaling=yarn)),
        "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config,
                  dict(rope_theta=1e6, tie_word_embeddings=True)),
        "llama3-rope": (*llama, dict(head_dim=64, tie_word_embeddings=False, rope_scaling=llama3)),
        "llama-mha": (*llama, dict(num_key_value_heads=4, tie_word_embeddings=False)),
        "mistral": (t.MistralForCausalLM, t.MistralConfig,
                    dict(head_dim=64, sliding_window=None, tie_word_embeddings=False)),
        "qwen3-moe": (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig,
                      dict(head_dim=64, num_experts=8, num_experts_per_tok=2,
                           moe_intermediate_size=96, decoder_sparse_step=1, norm_topk_prob=True,
                           tie_word_embeddings=False, mlp_only_layers=[])),
        # Of layers 0 to 5, layers 1 and 5 have experts.
        "qwen3-moe-mixed": (t.Qwen3MoeForCausalLM, t.Qwen3MoeConfig,
                            dict(small, head_dim=32, num_hidden_layers=6, num_experts=5,
                                 num_experts_per_tok=3, moe_intermediate_size=40,
                                 decoder_sparse_step=2, norm_topk_prob=False,
                                 attention_bias=True, mlp_only_layers=[3])),
        "mixtral": (t.MixtralForCausalLM, t.MixtralConfig,
                    dict(small, head_dim=32, num_local_experts=4, num_experts_per_tok=2)),
        "llama-bias": (*llama, dict(small, attention_bias=True, mlp_bias=True)),
        # Windows in all layers, and in layers 3 and 4 of 5.
        "mistral-window": (t.MistralForCausalLM, t.MistralConfig,
                           dict(small, head_dim=32, sliding_window=32)),
        "qwen2-window": (t.Qwen2ForCausalLM, t.Qwen2Config,
                         dict(small, num_hidden_layers=5, use_sliding_window=True,
                              sliding_window=48, max_window_layers=3)),
    }
    longrope = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
                "short_factor": [1 + i / 7 for i in range(12)],
                "long_factor": [2 + i / 3 for i in range(12)],
                "original_max_position_embeddings": 2048}
    # Longer contexts than the original one have the long factors, at every length of the test.
    longer = dict(longrope, short_factor=longrope["long_factor"],
                  original_max_position_embeddings=2, attention_factor=1.2)
    gemma = {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    olmo3 = {"full_attention": dict(yarn, rope_theta=5e5),
             "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}
    phi3 = (t.Phi3ForCausalLM, t.Phi3Config)
    wide = dict(small, pad_token_id=0, hidden_size=128)  # heads of 32, as device cuda wants them
    table.update({
        "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config,
                    dict(wide, num_hidden_layers=5)),
        "granite": (t.GraniteForCausalLM, t.GraniteConfig,
                    dict(wide, embedding_multiplier=12.0, residual_multiplier=0.22,
                         attention_multiplier=0.1, logits_scaling=8.0)),
        "olmo2": (t.Olmo2ForCausalLM, t.Olmo2Config,
                  dict(wide, tie_word_embeddings=False)),
        "olmo3": (t.Olmo3ForCausalLM, t.Olmo3Config,
                  dict(wide, num_hidden_layers=5, sliding_window=48, rope_parameters=olmo3)),
        "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig,
                   dict(small, num_hidden_layers=7, head_dim=32, sliding_window=48,
                        query_pre_attn_scalar=20, rope_parameters=gemma)),
        "phi3": (*phi3, dict(wide, original_max_position_embeddings=2048)),
        "phi3-short": (*phi3, dict(wide, rope_parameters=longrope,
                                   original_max_position_embeddings=2048)),
        "phi3-long": (*phi3, dict(wide, rope_parameters=longer,
                                  original_max_position_embeddings=2)),
        "kv-shapes": (kv_shapes_class(t), t.Qwen3Config,
                      dict(small, head_dim=32, num_hidden_layers=5, use_sliding_window=True,
                           sliding_window=48, max_window_layers=3)),
    })
    oss_rope = {"rope_type": "yarn", "rope_theta": 1.5e5, "factor": 8.0, "truncate": False,
                "original_max_position_embeddings": 256}
    oss = dict(small, tie_word_embeddings=False, num_hidden_layers=4, head_dim=64,
               num_local_experts=4, num_experts_per_tok=3, sliding_window=48,
               rope_parameters=oss_rope)
    table["gpt-oss"] = table["gpt-oss-bf16"] = (t.GptOssForCausalLM, t.GptOssConfig, oss)
    # Each has another eps. They differ so much that a neighbour's eps would change the logits.
    eps = {name: (10 + 2 * i) / 1000 for i, name in enumerate(table)}
    known = {name: (model, config(**{**base, "rms_norm_eps": eps[name], **own}))
             for name, (model, config, own) in table.items()}
    known.update(wrappers(t, {**base, "rms_norm_eps": 0.05}, small))
    known.update(delta_nets(t, {**base, **small, "rms_norm_eps": 0.03}))
    known.update(tiny_families(t))
    known.update(sparse_families(t))
    return known


def tiny_families(t):
    """Those that came last, as small as they can be."""
    tiny = dict(hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, max_position_embeddings=2048, vocab_size=67, bos_token_id=0,
                eos_token_id=1, pad_token_id=None, rms_norm_eps=0.04, tie_word_embeddings=True)
    experts = dict(head_dim=16, num_experts_per_tok=2)
    half = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.3}
    mscale = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 0.9,
              "mscale_all_dim": 0.707, "original_max_position_embeddings": 64}
    latent = dict(tiny, hidden_size=64, num_key_value_heads=4, kv_lora_rank=48, qk_nope_head_dim=32,
                  qk_rope_head_dim=16, v_head_dim=16, n_routed_experts=8, num_experts_per_tok=3,
                  moe_intermediate_size=16, first_k_dense_replace=1)
    alpha = {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}
    small_tiny = {**tiny, "hidden_size": 64}
    nemotron_h = {key: value for key, value in small_tiny.items()
                  if key not in ("num_hidden_layers", "rms_norm_eps", "tie_word_embeddings")}
    nemotron_h.update(head_dim=32, layer_norm_epsilon=0.04, mamba_num_heads=8, mamba_head_dim=16,
                      ssm_state_size=32, n_groups=4, chunk_size=64)
    granite_h = dict(small_tiny, num_hidden_layers=3, shared_intermediate_size=40, head_dim=32,
                     embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1,
                     logits_scaling=8.0, mamba_d_state=48, mamba_chunk_size=64,
                     layer_types=["linear_attention", "full_attention", "linear_attention"])
    # Other sizes than those of the residual. Factors that become part of weights are powers of 2.
    falcon_h1 = dict({**small_tiny, "tie_word_embeddings": False}, head_dim=32, mamba_d_state=48, mamba_chunk_size=64, mamba_n_groups=2,
                     embedding_multiplier=3.0, lm_head_multiplier=0.7, mlp_multipliers=[0.5, 1.7], key_multiplier=0.4,
                     attention_in_multiplier=1.3, attention_out_multiplier=0.9, ssm_in_multiplier=0.5,
                     ssm_out_multiplier=0.3, ssm_multipliers=[1.0, 4.0, 0.5, 8.0, 0.25])
    lfm2 = dict({k: v for k, v in tiny.items() if k != "rms_norm_eps"}, norm_eps=0.04, num_hidden_layers=4,
                layer_types=["conv", "full_attention", "conv", "conv"])
    return {
        "apertus": (t.ApertusForCausalLM, t.ApertusConfig(**small_tiny, head_dim=32)),
        "arcee": (t.ArceeForCausalLM, t.ArceeConfig(
            **small_tiny, head_dim=32, attention_bias=True, mlp_bias=True)),
        "internlm3": (internlm3_class(t), t.InternLM3Config(
            **{**tiny, "num_hidden_layers": 1}, head_dim=16, attention_bias=True, mlp_bias=True)),
        "lfm2": (t.Lfm2ForCausalLM, t.Lfm2Config(
            **{**lfm2, "hidden_size": 64, "intermediate_size": 60}, head_dim=32, block_multiple_of=24)),
        "lfm2-moe": (t.Lfm2MoeForCausalLM, t.Lfm2MoeConfig(
            **{**lfm2, "hidden_size": 64}, num_dense_layers=1, num_experts=5, num_experts_per_tok=3,
            moe_intermediate_size=16, routed_scaling_factor=1.5)),
        "llama4": (t.Llama4ForCausalLM, t.Llama4TextConfig(
            **{**tiny, "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 16}, head_dim=32,
            intermediate_size_mlp=24, num_local_experts=5, interleave_moe_layer_step=2,
            attention_chunk_size=48, floor_scale=20, attn_scale=0.3)),
        "nemotron": (t.NemotronForCausalLM, t.NemotronConfig(
            **tiny, head_dim=32, norm_eps=0.04, attention_bias=True, mlp_bias=True)),
        "phi": (t.PhiForCausalLM, t.PhiConfig(
            **{**small_tiny, "tie_word_embeddings": False}, layer_norm_eps=0.04)),
        "stablelm": (t.StableLmForCausalLM, t.StableLmConfig(
            **small_tiny, layer_norm_eps=0.04, use_qkv_bias=True, partial_rotary_factor=0.25)),
        "stablelm-parallel": (t.StableLmForCausalLM, t.StableLmConfig(
            **{**small_tiny, "num_hidden_layers": 3}, layer_norm_eps=0.04, use_parallel_residual=True)),
        "starcoder2": (t.Starcoder2ForCausalLM, t.Starcoder2Config(
            **small_tiny, head_dim=32, norm_epsilon=0.04, sliding_window=48)),
        "cohere": (t.CohereForCausalLM, t.CohereConfig(
            **small_tiny, head_dim=32, layer_norm_eps=0.04, attention_bias=True)),
        "cohere-plus": (t.CohereForCausalLM, t.CohereConfig(
            **{**small_tiny, "num_key_value_heads": 2}, head_dim=32, layer_norm_eps=0.04, use_qk_norm=True)),
        "stablelm-norms": (t.StableLmForCausalLM, t.StableLmConfig(
            **{**small_tiny, "num_hidden_layers": 1, "num_key_value_heads": 2}, layer_norm_eps=0.04,
            use_parallel_residual=True, qk_layernorm=True)),
        "cohere2": (t.Cohere2ForCausalLM, t.Cohere2Config(
            **{**small_tiny, "num_hidden_layers": 4}, head_dim=32, layer_norm_eps=0.03, logit_scale=0.25,
            sliding_window=48)),
        "ernie4-5": (t.Ernie4_5ForCausalLM, t.Ernie4_5Config(
            **{**tiny, "num_hidden_layers": 1}, head_dim=16)),
        "ernie4-5-moe": (t.Ernie4_5_MoeForCausalLM, t.Ernie4_5_MoeConfig(
            **{**tiny, "hidden_size": 64}, moe_num_experts=4, moe_k=2, moe_intermediate_size=16,
            moe_num_shared_experts=2)),
        "olmoe": (t.OlmoeForCausalLM, t.OlmoeConfig(
            **{**tiny, "hidden_size": 64, "num_key_value_heads": 4}, num_experts=5, num_experts_per_tok=3)),
        "deepseek-v2": (t.DeepseekV2ForCausalLM, t.DeepseekV2Config(
            **latent, q_lora_rank=None, n_shared_experts=2, routed_scaling_factor=2.0, n_group=4,
            topk_group=2, topk_method="group_limited_greedy", rope_parameters=mscale)),
        "deepseek-v3": (t.DeepseekV3ForCausalLM, t.DeepseekV3Config(
            **latent, q_lora_rank=24, n_shared_experts=1, routed_scaling_factor=2.5, n_group=4,
            topk_group=2, norm_topk_prob=True, rope_parameters=dict(mscale, mscale=1.0))),
        # Lengths as device cuda wants them. A token has all experts, so rounding chooses none.
        "glm4-moe-lite": (t.Glm4MoeLiteForCausalLM, t.Glm4MoeLiteConfig(
            **{**latent, "kv_lora_rank": 512, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64,
               "v_head_dim": 64, "n_routed_experts": 3, "num_attention_heads": 2,
               "num_key_value_heads": 2}, q_lora_rank=40, n_shared_experts=1,
            routed_scaling_factor=1.5)),
        "dots1": (t.Dots1ForCausalLM, t.Dots1Config(
            **{**tiny, "num_key_value_heads": 4}, **experts, n_routed_experts=5,
            moe_intermediate_size=16, n_shared_experts=2,
            first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True, sliding_window=48,
            max_window_layers=1)),
        "granite-moe": (t.GraniteMoeForCausalLM, t.GraniteMoeConfig(
            **{**tiny, "hidden_size": 64, "num_hidden_layers": 1}, num_local_experts=5, num_experts_per_tok=3,
            embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1,
            logits_scaling=8.0)),
        "hunyuan": (t.HunYuanDenseV1ForCausalLM, t.HunYuanDenseV1Config(
            **tiny, head_dim=16, rope_parameters=alpha)),
        "hunyuan-moe": (t.HunYuanMoEV1ForCausalLM, t.HunYuanMoEV1Config(
            **{**tiny, "num_hidden_layers": 1}, head_dim=16, num_experts=5, moe_topk=[3],
            rope_parameters=alpha)),
        "solar-open": (t.SolarOpenForCausalLM, t.SolarOpenConfig(
            **{**{k: v for k, v in tiny.items() if k != "intermediate_size"}, "num_hidden_layers": 1},
            **experts, n_routed_experts=5, moe_intermediate_size=16, routed_scaling_factor=1.5)),
        "helium": (t.HeliumForCausalLM, t.HeliumConfig(
            **{**tiny, "num_hidden_layers": 1, "hidden_size": 64}, head_dim=16, attention_bias=True)),
        "hyperclovax": (t.HyperCLOVAXForCausalLM, t.HyperCLOVAXConfig(
            **{**tiny, "hidden_size": 64}, embedding_multiplier=10.0,
            residual_multiplier=0.5, attention_multiplier=0.1, logits_scaling=0.125)),
        "glm": (t.GlmForCausalLM, t.GlmConfig(
            **{**tiny, "num_hidden_layers": 1}, head_dim=16, attention_bias=True, rope_parameters=half)),
        "glm4": (t.Glm4ForCausalLM, t.Glm4Config(
            **tiny, head_dim=16, attention_bias=False, rope_parameters=half)),
        "glm4-moe": (t.Glm4MoeForCausalLM, t.Glm4MoeConfig(
            **tiny, **experts, n_routed_experts=4, moe_intermediate_size=16, n_shared_experts=1,
            first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True,
            attention_bias=True, rope_parameters=half)),
        "gemma4": (t.Gemma4ForCausalLM, t.Gemma4TextConfig(
            **tiny, head_dim=16, global_head_dim=32, sliding_window=48, attention_k_eq_v=True,
            num_global_key_value_heads=1, hidden_size_per_layer_input=0,
            final_logit_softcapping=5.0, layer_types=["sliding_attention", "full_attention"])),
        "gemma4-moe": (t.Gemma4ForCausalLM, t.Gemma4TextConfig(
            **tiny, head_dim=16, global_head_dim=32, sliding_window=48,
            hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5, top_k_experts=2,
            moe_intermediate_size=16, layer_types=["sliding_attention", "full_attention"])),
        "gemma4-e2b": (t.Gemma4ForCausalLM, t.Gemma4TextConfig(
            **{**tiny, "num_hidden_layers": 4}, head_dim=16, global_head_dim=32, sliding_window=48,
            hidden_size_per_layer_input=8, vocab_size_per_layer_input=67, num_kv_shared_layers=2,
            use_double_wide_mlp=True, final_logit_softcapping=5.0,
            layer_types=["sliding_attention", "full_attention"] * 2)),
        "minimax-m2": (t.MiniMaxM2ForCausalLM, t.MiniMaxM2Config(
            **{**tiny, **experts, "intermediate_size": 16, "num_hidden_layers": 1}, num_local_experts=4,
            rope_parameters=dict(half, rope_theta=5e6))),
        "ministral3": (t.Ministral3ForCausalLM, t.Ministral3Config(
            **tiny, head_dim=16, rope_parameters=yarn)),
        "granite4": (t.GraniteMoeHybridForCausalLM, t.GraniteMoeHybridConfig(
            **{**tiny, "num_hidden_layers": 1}, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=24,
            embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1,
            logits_scaling=8.0, position_embedding_type="rope", mamba_n_heads=2,
            head_dim=16, layer_types=["full_attention"])),
        # Mamba-2 with a group for all heads, and with four; a layer of attention without a rope.
        "granite4-h": (t.GraniteMoeHybridForCausalLM, t.GraniteMoeHybridConfig(
            **granite_h, mamba_n_groups=1, mamba_n_heads=4, mamba_d_head=32, num_local_experts=0,
            num_experts_per_tok=0)),
        "granite4-h-moe": (t.GraniteMoeHybridForCausalLM, t.GraniteMoeHybridConfig(
            **granite_h, mamba_n_groups=4, mamba_n_heads=8, mamba_d_head=16, num_local_experts=5,
            num_experts_per_tok=3, time_step_limit=(0.2, 1.5))),
        "bamba": (t.BambaForCausalLM, t.BambaConfig(
            **{**small_tiny, "num_hidden_layers": 3, "num_attention_heads": 2}, mamba_n_groups=1, mamba_n_heads=4, mamba_d_head=32,
            mamba_d_state=48, mamba_chunk_size=64, attn_layer_indices=[1], mlp_bias=True, attention_bias=True)),
        # Attention and Mamba-2 in each layer, without a norm behind Mamba-2 and with one.
        "falcon-h1": (t.FalconH1ForCausalLM, t.FalconH1Config(
            **falcon_h1, mamba_d_ssm=96, mamba_n_heads=6, mamba_d_head=16, mlp_bias=True)),
        "falcon-h1-norm": (t.FalconH1ForCausalLM, t.FalconH1Config(
            **{**falcon_h1, "mamba_n_groups": 1}, mamba_d_ssm=None, mamba_n_heads=4, mamba_d_head=32, mamba_rms_norm=True,
            mamba_norm_before_gate=False)),
        # Each layer is one block: Mamba-2, attention, an MLP, or experts beside a shared one.
        "nemotron-h": (t.NemotronHForCausalLM, t.NemotronHConfig(
            **nemotron_h, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"])),
        "nemotron-h-moe": (t.NemotronHForCausalLM, t.NemotronHConfig(
            **nemotron_h, layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
            n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, n_group=2,
            topk_group=1, moe_shared_expert_intermediate_size=56, routed_scaling_factor=2.5)),
        "cwm": (t.CwmForCausalLM, t.CwmConfig(
            **{**small_tiny, "num_hidden_layers": 2}, head_dim=32, sliding_window=48, layer_types=None)),
        "gemma": (t.GemmaForCausalLM, t.GemmaConfig(
            **{**small_tiny, "num_key_value_heads": 1}, head_dim=32)),
        "granite-swa": (t.GraniteSWAForCausalLM, t.GraniteSWAConfig(
            **{**small_tiny, "num_hidden_layers": 4}, head_dim=32, sliding_window=48, embedding_multiplier=12.0,
            residual_multiplier=0.22, attention_multiplier=0.1, logits_scaling=8.0, layer_rope_theta=[1e4, 500.0, 0, 1e4])),
        "jais2": (t.Jais2ForCausalLM, t.Jais2Config(**small_tiny, head_dim=32, layer_norm_eps=0.04)),
        "minicpm": (t.GraniteForCausalLM, t.GraniteConfig(
            **small_tiny, head_dim=32, embedding_multiplier=12.0, residual_multiplier=0.7, attention_multiplier=32**-0.5,
            logits_scaling=8.0)),
        "ministral": (t.MinistralForCausalLM, t.MinistralConfig(
            **{**small_tiny, "num_hidden_layers": 2}, head_dim=32, sliding_window=48)),
        "nanochat": (t.NanoChatForCausalLM, t.NanoChatConfig(
            **{**small_tiny, "tie_word_embeddings": False}, head_dim=32)),
        "vaultgemma": (t.VaultGemmaForCausalLM, t.VaultGemmaConfig(
            **{**small_tiny, "num_hidden_layers": 2}, head_dim=32, sliding_window=48, query_pre_attn_scalar=20,
            attn_logit_softcapping=0.5, final_logit_softcapping=4.0)),
        "gemma2": (t.Gemma2ForCausalLM, t.Gemma2Config(
            **tiny, head_dim=32, sliding_window=48, query_pre_attn_scalar=20,
            attn_logit_softcapping=0.5, final_logit_softcapping=4.0)),
        "seed-oss": (t.SeedOssForCausalLM, t.SeedOssConfig(
            **tiny, head_dim=16, attention_bias=True, attention_out_bias=True, mlp_bias=True)),
        "exaone4": (t.Exaone4ForCausalLM, t.Exaone4Config(
            **{**tiny, "num_hidden_layers": 4, "hidden_size": 64}, sliding_window=48,
            sliding_window_pattern=4)),
        "exaone-moe": (t.ExaoneMoeForCausalLM, t.ExaoneMoeConfig(
            **{**tiny, "num_hidden_layers": 4}, **experts, num_experts=6, moe_intermediate_size=16,
            n_group=2, topk_group=1, num_shared_experts=2, sliding_window=48)),
        "qwen2-moe": (t.Qwen2MoeForCausalLM, t.Qwen2MoeConfig(
            **{**tiny, "hidden_size": 64}, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
            shared_expert_intermediate_size=24, mlp_only_layers=[0])),
    }


def sparse_families(t):
    """Models with experts or latent attention that came later still."""
    tiny = dict(hidden_size=64, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, max_position_embeddings=2048, vocab_size=67, bos_token_id=0,
                eos_token_id=1, pad_token_id=None, rms_norm_eps=0.04, tie_word_embeddings=True)
    experts = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16)
    windows = dict(sliding_window=48, layer_types=["sliding_attention", "full_attention"])
    routed = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
                  n_shared_experts=1, routed_scaling_factor=2.5, norm_topk_prob=True)
    latent = dict(tiny, num_key_value_heads=4, kv_lora_rank=48, qk_nope_head_dim=32,
                  qk_rope_head_dim=16, v_head_dim=16)
    mscale = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 1.0,
              "mscale_all_dim": 0.707, "original_max_position_embeddings": 64}
    scaled = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": 1.0,
              "mscale_all_dim": 1.0, "original_max_position_embeddings": 64,
              "llama_4_scaling_beta": 0.3}
    local = {"full_attention": {"rope_type": "default", "rope_theta": 5e5},
             "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    mrope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
             "mrope_section": [2, 1, 1]}
    factors = dict(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1,
                   logits_scaling=8.0)
    return {
        "youtu": (t.YoutuForCausalLM, t.YoutuConfig(**latent, q_lora_rank=24, embedding_initializer_range=0.08)),
        "mistral4": (t.Mistral4ForCausalLM, t.Mistral4Config(
            **latent, **routed, q_lora_rank=24, n_group=4, topk_group=2, first_k_dense_replace=1,
            rope_parameters=scaled)),
        "sarvam-mla": (t.DeepseekV3ForCausalLM, t.SarvamMLAConfig(
            **latent, **routed, first_k_dense_replace=1, rope_parameters=mscale)),
        "axk1": (t.AXK1ForCausalLM, t.AXK1Config(
            **latent, **routed, q_lora_rank=24, n_group=4, topk_group=2)),
        "flex-olmo": (t.FlexOlmoForCausalLM, t.FlexOlmoConfig(
            **{**tiny, "intermediate_size": 16}, num_experts=5, num_experts_per_tok=3)),
        "mellum": (t.MellumForCausalLM, t.MellumConfig(
            **tiny, **experts, **windows, head_dim=32, mlp_layer_types=["sparse", "dense"],
            rope_parameters=local)),
        "hy-v3": (t.HYV3ForCausalLM, t.HYV3Config(
            **tiny, **experts, head_dim=32, num_shared_experts=2)),
        "sarvam-moe": (t.Glm4MoeForCausalLM, t.SarvamMoEConfig(
            **tiny, **routed, head_dim=32, first_k_dense_replace=1, attention_bias=True)),
        "granite-moe-shared": (t.GraniteMoeSharedForCausalLM, t.GraniteMoeSharedConfig(
            **{**tiny, "num_hidden_layers": 1}, **factors, num_local_experts=5, num_experts_per_tok=3,
            shared_intermediate_size=24)),
        "granite-moe-swa": (t.GraniteMoeSWAForCausalLM, t.GraniteMoeSWAConfig(
            **tiny, **factors, **windows, num_local_experts=5, num_experts_per_tok=3,
            layer_rope_theta=[500.0, 0])),
        "afmoe": (t.AfmoeForCausalLM, t.AfmoeConfig(
            **tiny, **experts, **windows, head_dim=32, num_shared_experts=2, route_scale=2.5,
            mup_enabled=True, num_dense_layers=1)),
        "cohere2-moe": (t.Cohere2MoeForCausalLM, t.Cohere2MoeConfig(
            **{**{k: v for k, v in tiny.items() if k != "rms_norm_eps"}, "num_hidden_layers": 3},
            num_experts=5, num_experts_per_tok=2, head_dim=32, layer_norm_eps=0.03, sliding_window=48,
            logit_scale=0.25, num_shared_experts=2, expert_selection_fn="sigmoid",
            prefix_dense_intermediate_size=56,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            mlp_layer_types=["dense", "sparse", "sparse"])),
        # The text parts of models of text and images.
        "kimi-k25": (t.Kimi_K25ForConditionalGeneration, t.Kimi_K25Config(
            text_config=dict(latent, **routed, model_type="deepseek_v3", q_lora_rank=24, n_group=1,
                             topk_group=1, first_k_dense_replace=1, num_hidden_layers=2),
            vision_config=dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                               num_attention_heads=1), tie_word_embeddings=False)),
        "glm4v": (t.Glm4vForConditionalGeneration, t.Glm4vConfig(
            text_config=dict(tiny, rope_parameters=mrope),
            vision_config=dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=1,
                               out_hidden_size=64, patch_size=2, image_size=8),
            tie_word_embeddings=False)),
    }


def delta_nets(t, base):
    """Layers with a state, and every fourth one with attention."""
    own = dict(base, num_hidden_layers=5, head_dim=32, linear_num_key_heads=4,
               linear_key_head_dim=16, tie_word_embeddings=False)
    experts = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
                   shared_expert_intermediate_size=48)
    rope = {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25}
    parts = dict(rope, mrope_section=[2, 1, 1], mrope_interleaved=True)
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=1, out_hidden_size=64,
                  patch_size=2, num_position_embeddings=4)
    no_size = {key: value for key, value in own.items() if key != "intermediate_size"}
    return {
        "qwen3-next": (t.Qwen3NextForCausalLM, t.Qwen3NextConfig(
            **own, **experts, linear_num_value_heads=8, linear_value_head_dim=32,
            mlp_only_layers=[1], rope_parameters=rope)),
        "qwen3-5": (t.Qwen3_5ForConditionalGeneration, t.Qwen3_5Config(
            text_config=dict(own, linear_num_value_heads=4, linear_value_head_dim=16,
                             rope_parameters=parts),
            vision_config=vision, tie_word_embeddings=False)),
        "qwen3-5-moe": (t.Qwen3_5MoeForCausalLM, t.Qwen3_5MoeTextConfig(
            **no_size, **experts, linear_num_value_heads=12, linear_value_head_dim=16,
            rope_parameters=parts)),
    }


def write_as_published(folder, with_fused_experts):
    """Adds a tensor of multi-token prediction. With fused experts their matrices become one."""
    from safetensors.torch import load_file
    path = f"{folder}/model.safetensors"
    tensors = load_file(path)
    tensors["mtp.fc.weight"] = torch.zeros(2, 4, dtype=torch.bfloat16)
    for name in sorted(tensors) if with_fused_experts else []:
        if not name.endswith("mlp.experts.0.gate_proj.weight"):
            continue
        at = name[:-len("0.gate_proj.weight")]
        take = lambda part: torch.stack([tensors.pop(f"{at}{e}.{part}_proj.weight")
                                         for e in range(8)])
        tensors[at + "gate_up_proj"] = torch.cat([take("gate"), take("up")], 1)
        tensors[at + "down_proj"] = take("down")
    save_file(tensors, path, metadata={"format": "pt"})


def wrappers(t, base, small):
    """Models of text and images. The logits are those of text."""
    own = dict(base, **small)
    del own["tie_word_embeddings"]
    qwen = dict(own, head_dim=32, rope_parameters={
        "rope_type": "default", "rope_theta": 5e6, "mrope_section": [6, 5, 5],
        "mrope_interleaved": True})
    qwen_vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=1,
                       out_hidden_size=64, patch_size=2, num_position_embeddings=4,
                       deepstack_visual_indexes=[0])
    pixtral = dict(model_type="pixtral", hidden_size=16, intermediate_size=16, head_dim=16,
                   num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=2)
    mistral = dict(own, model_type="mistral", head_dim=32, sliding_window=None)
    return {
        "qwen3-vl": (t.Qwen3VLForConditionalGeneration,
                     t.Qwen3VLConfig(text_config=qwen, vision_config=qwen_vision,
                                     tie_word_embeddings=True)),
        "mistral3": (t.Mistral3ForConditionalGeneration,
                     t.Mistral3Config(text_config=mistral, vision_config=pixtral,
                                      tie_word_embeddings=False)),
    }


def write_published_config(folder):
    """The same configuration as published checkpoints write it, beside transformers 5's form."""
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config", config)
    if text["model_type"] == "gemma4_text":  # it is published in this form; the class has the rope
        del text["rope_parameters"]
        text["global_head_dim"] = text.pop("per_layer_config")["1"]["head_dim"]
        with open(f"{folder}/config_published_form.json", "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
        return
    if text["model_type"] == "nemotron_h":
        blocks = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        text["hybrid_override_pattern"] = "".join(map(blocks.get, text.pop("layers_block_type")))
        text["num_hidden_layers"] = len(text["hybrid_override_pattern"])
        text["time_step_limit"] = [0.0, float("inf")]
        text["torch_dtype"] = text.pop("dtype")
        with open(f"{folder}/config_published_form.json", "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
        return
    if text["model_type"] == "mellum":  # its class is younger than transformers 5
        text["torch_dtype"] = text.pop("dtype")
        with open(f"{folder}/config_published_form.json", "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
        return
    rope = text.pop("rope_parameters")
    if "sliding_attention" in rope:
        local = rope["sliding_attention"]
        rope = rope["full_attention"]
        if local["rope_theta"] != rope["rope_theta"]:
            text["rope_local_base_freq"] = local["rope_theta"]
        if text["model_type"] == "gemma3_text":
            text["sliding_window_pattern"] = 6
            text.pop("_sliding_window_pattern", None)
    text["rope_theta"] = rope.pop("rope_theta")
    config["torch_dtype"] = config.pop("dtype")
    types = text.pop("layer_types", [])
    if config["model_type"] == "lfm2":
        text["full_attn_idxs"] = [i for i, kind in enumerate(types) if kind == "full_attention"]
    if config["model_type"] in ("lfm2_moe", "afmoe"):
        text["layer_types"] = types
    if config["model_type"] == "internlm3":
        text["qkv_bias"], text["bias"] = text.pop("attention_bias"), text.pop("mlp_bias")
    is_plain = rope.get("rope_type", "default") == "default" and "mrope_section" not in rope
    text["rope_scaling"] = None if is_plain else rope
    if "partial_rotary_factor" in rope:
        text["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if config["model_type"] == "minimax_m2":
        text["rotary_dim"] = int(text.pop("partial_rotary_factor") * text["head_dim"])
    if config["model_type"] == "granitemoehybrid":
        text["layer_types"] = [{"full_attention": "attention"}.get(kind, "mamba") for kind in types]
    if config["model_type"] == "bamba":
        del text["partial_rotary_factor"]  # it is the class'
        text["attn_rotary_emb"] = text["hidden_size"] // text["num_attention_heads"] // 2
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    with open(f"{folder}/config_published_form.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def pack_experts(folder):
    """Replaces the experts' matrices by MXFP4 as gpt-oss is published."""
    steps = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    tensors = load_file(f"{folder}/model.safetensors")
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        weights = tensors.pop(name).float().transpose(1, 2)  # [experts][rows][columns]
        groups = weights.reshape(*weights.shape[:2], -1, 32)
        exponents = groups.abs().amax(-1).clamp(min=2**-100).log2().floor() - 2
        scaled = groups / 2**exponents[..., None]
        codes = (scaled.abs()[..., None] - steps).abs().argmin(-1) + 8 * (scaled < 0)
        tensors[f"{name}_blocks"] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        tensors[f"{name}_scales"] = (exponents + 127).to(torch.uint8)
    save_file({n: v.contiguous() for n, v in tensors.items()}, f"{folder}/model.safetensors",
              metadata={"format": "pt"})
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = {
        "quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]}
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def pack_fp8(folder):
    """Replaces the layers' matrices by FP8 with one scale each, as Ministral 3 is published. Returns
    what they are then."""
    tensors = load_file(f"{folder}/model.safetensors")
    exact = {}
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        weights = tensors[name].float()
        scale = (weights.abs().max() / 448).to(torch.bfloat16)
        tensors[name] = (weights / scale.float()).to(torch.float8_e4m3fn)
        exact[name] = tensors[name].float() * scale.float()
        tensors[f"{name}_scale_inv"] = scale
        tensors[name.replace(".weight", ".activation_scale")] = torch.tensor(0.5).bfloat16()
    save_file(tensors, f"{folder}/model.safetensors", metadata={"format": "pt"})
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = {
        "quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
        "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"]}
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    return exact


def rename_to_minicpm(folder):
    """transformers has no class for MiniCPM. Granite computes the same with factors of other names."""
    for form in ("config.json", "config_published_form.json"):
        with open(f"{folder}/{form}", encoding="utf-8") as file:
            config = json.load(file)
        config.update(architectures=["MiniCPMForCausalLM"], model_type="minicpm", scale_emb=config.pop("embedding_multiplier"),
                      scale_depth=config.pop("residual_multiplier") * config["num_hidden_layers"] ** 0.5,
                      dim_model_base=config["hidden_size"] / config.pop("logits_scaling"))
        del config["attention_multiplier"], config["mlp_bias"]
        with open(f"{folder}/{form}", "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)


def write_family(out, name, model_class, config, seed):
    text = config.get_text_config()
    text.initializer_range = 0.08
    torch.manual_seed(seed * 31 + len(name))
    model = model_class(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name or parameter_name.endswith("scale"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif parameter_name.endswith("bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.3)
            elif parameter_name.endswith("sinks"):
                parameter.copy_(torch.randn_like(parameter) * 2)
            elif parameter_name.endswith("experts.gate_up_proj") and "gpt-oss" in name:
                parameter.mul_(6)  # so that some numbers reach the activation's limit
            elif parameter_name.endswith(("alpha_p", "alpha_n", ".D")):
                parameter.copy_(torch.randn_like(parameter))
            elif parameter_name.endswith("A_log"):
                parameter.copy_(torch.randn_like(parameter) - 3)  # states that last
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.copy_(torch.randn_like(buffer) * 0.2)
            elif buffer_name.endswith("layer_scalar"):
                buffer.copy_(torch.rand_like(buffer) + 0.3)
    folder = f"{out}/{name}"
    model.to(torch.bfloat16).save_pretrained(folder)
    how = {}
    if name == "gpt-oss":
        pack_experts(folder)
        how = {"quantization_config": sys.modules["transformers"].Mxfp4Config(dequantize=True)}
    # Load it again: a model that was cast keeps rotary frequencies rounded to bf16.
    model = model_class.from_pretrained(folder, dtype=torch.float32, **how).eval()
    if name == "ministral3":
        model.load_state_dict(pack_fp8(folder), strict=False)
    write_published_config(folder)
    tensors = {}
    known_small = {**tiny_families(sys.modules["transformers"]), **sparse_families(sys.modules["transformers"])}
    for k, length in enumerate(LENGTHS):
        ids = torch.randint(2, text.vocab_size, (length,))
        with torch.no_grad():
            logits = model(ids[None]).logits[0]
        tensors[f"seq{k}.input_ids"] = ids.to(torch.int32)
        tensors[f"seq{k}.last_logits"] = logits[-1].clone()
        if name not in known_small:
            tensors[f"seq{k}.argmax"] = logits.argmax(-1).to(torch.int32)
    save_file(tensors, f"{folder}/expected.safetensors")
    if name == "minicpm":
        rename_to_minicpm(folder)
    if name == "kimi-k25":  # transformers writes "blocks" where published files have "layers"
        path = f"{folder}/model.safetensors"
        save_file({k.replace("language_model.model.blocks.", "language_model.model.layers."): v
                   for k, v in load_file(path).items()}, path, metadata={"format": "pt"})
    if name in DELTA_NETS:
        write_as_published(folder, with_fused_experts=name == "qwen3-5-moe")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="the tiny model's folder")
    parser.add_argument("out", help="folder to write")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--families", nargs="+", metavar="NAME",
                        help="write only these families' folders")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    known = families(1003 + args.seed % 7)
    if args.families:
        for name in args.families:
            write_family(args.out, name, *known[name], args.seed)
        return

    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.manual_seed(args.seed)
    r = random.Random(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    write_greedy(args.out, model, tokenizer, r)
    write_tokenizer_vectors(args.out, tokenizer, r)
    for name, (model_class, config) in known.items():
        write_family(args.out, name, model_class, config, args.seed)
    print("wrote", args.out)


if __name__ == "__main__":
    main()
