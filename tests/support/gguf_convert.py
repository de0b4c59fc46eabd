#!/usr/bin/env python3
"""Writes a checkpoint folder as GGUF, by the published format and with nothing but Python.

    gguf_convert.py FOLDER OUT.gguf [--type bf16|f16|f32|q8_0|q4_0|mixed] [--tokenizer FILE] [--parts N]

Plain matrices keep their type unless --type says otherwise. --type q8_0 and q4_0
have a scale of each 32 elements; mixed has v and the MLP's last matrix in q8_0, the others in q4_0.
Routers, and matrices whose rows are not whole blocks of 32, are not put into blocks.
"""
import argparse
import array
import glob
import json
import math
import os
import struct

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
FORMATS = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
PLAIN = {"F32": 0, "F16": 1, "BF16": 30}
ALIGNMENT = 32
BLOCKED = ("q8_0", "q4_0", "mixed") # --type

MODULES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.query_layernorm": "attn_q_norm",
    "self_attn.key_layernorm": "attn_k_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "mlp.gate.wg": "ffn_gate_inp",
    "mlp.shared_mlp.gate_proj": "ffn_gate_shexp",
    "mlp.shared_mlp.up_proj": "ffn_up_shexp",
    "mlp.shared_mlp.down_proj": "ffn_down_shexp",
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "router.proj": "ffn_gate_inp",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mamba.in_proj": "ssm_in",
    "mamba.conv1d": "ssm_conv1d",
    "mamba.norm": "ssm_norm",
    "mamba.out_proj": "ssm_out",
    "pre_ff_layernorm": "ffn_norm",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
    "norm": "attn_norm",
    "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k",
    "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp",
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "feed_forward.gate": "ffn_gate_inp",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
# Tensors with names that are no module's.
WHOLE_NAMES = {"self_attn.sinks": "attn_sinks.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
               "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
               "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias", "linear_attn.A_log": "ssm_a",
               "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
               "mamba.A_log": "ssm_a", "mamba.D": "ssm_d", "mamba.dt_bias": "ssm_dt.bias",
               "linear_attn.dt_bias": "ssm_dt.bias", "layer_scalar": "layer_output_scale.weight",
               "feed_forward.expert_bias": "exp_probs_b.bias", "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}
EXPERT_PARTS = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
                "w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down"}
GLOBALS = {"model.embed_tokens_per_layer": "per_layer_token_embd",
           "model.per_layer_model_projection": "per_layer_model_proj",
           "model.per_layer_projection_norm": "per_layer_proj_norm", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.embedding_norm": "token_embd_norm", "lm_head": "output",
           "model.final_layernorm": "output_norm"}
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "MixtralForCausalLM": "llama",
                 "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3moe",
                 "Gemma3ForCausalLM": "gemma3", "GraniteForCausalLM": "granite", "Olmo2ForCausalLM": "olmo2",
                 "Olmo3ForCausalLM": "olmo2", "Phi3ForCausalLM": "phi3", "SmolLM3ForCausalLM": "smollm3",
                 "Qwen3VLForConditionalGeneration": "qwen3vl", "Glm4MoeForCausalLM": "glm4moe",
                 "MiniMaxM2ForCausalLM": "minimax-m2", "Ministral3ForCausalLM": "mistral3",
                 "GptOssForCausalLM": "gpt-oss", "Qwen3_5ForConditionalGeneration": "qwen35",
                 "Qwen3_5MoeForCausalLM": "qwen35moe", "Qwen3NextForCausalLM": "qwen3next",
                 "Gemma4ForCausalLM": "gemma4", "GemmaForCausalLM": "gemma", "Gemma2ForCausalLM": "gemma2",
                 "Glm4ForCausalLM": "glm4", "HunYuanDenseV1ForCausalLM": "hunyuan-dense",
                 "HunYuanMoEV1ForCausalLM": "hunyuan-moe", "GraniteMoeForCausalLM": "granitemoe",
                 "GraniteMoeHybridForCausalLM": "granitehybrid", "NemotronHForCausalLM": "nemotron_h",
                 "FalconH1ForCausalLM": "falcon-h1",
                 "Dots1ForCausalLM": "dots1", "OlmoeForCausalLM": "olmoe", "Ernie4_5ForCausalLM": "ernie4_5",
                 "Ernie4_5_MoeForCausalLM": "ernie4_5-moe", "SeedOssForCausalLM": "seed_oss",
                 "ArceeForCausalLM": "arcee", "CohereForCausalLM": "command-r",
                 "Cohere2ForCausalLM": "cohere2", "Lfm2ForCausalLM": "lfm2", "Lfm2MoeForCausalLM": "lfm2moe",
                 "NemotronForCausalLM": "nemotron", "StableLmForCausalLM": "stablelm",
                 "Starcoder2ForCausalLM": "starcoder2", "InternLM3ForCausalLM": "llama",
                 "Exaone4ForCausalLM": "exaone4", "DeepseekV2ForCausalLM": "deepseek2",
                 "DeepseekV3ForCausalLM": "deepseek2", "Glm4MoeLiteForCausalLM": "deepseek2"}
LATENT_MODULES = {"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
                  "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
                  "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"}
# Names that are changed to those of other models.
NEMOTRON_H = {"backbone.embeddings.": "model.embed_tokens.", "backbone.norm_f.": "model.norm.", "backbone.": "model."}
MAMBA_PARTS = ("in_proj", "conv1d", "norm", "out_proj", "A_log", "D", "dt_bias")
NEMOTRON_H.update({f"mixer.{part}": f"mamba.{part}" for part in MAMBA_PARTS})
# Rows of q and k are stored for a rotation of neighbours.
DELTA = ("qwen35", "qwen35moe", "qwen3next")
LAYER_NORMS = ("command-r", "cohere2", "nemotron", "stablelm", "starcoder2")
INTERLEAVED = ("llama", "arcee", "granite", "granitehybrid", "granitemoe", "smollm3", "mistral3")


def string(text) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value) -> bytes:
    return string(value) if kind == STRING else struct.pack(FORMATS[kind], value)


def entry(key: str, kind: int, value) -> bytes:
    """A key with its value; a list is an array of `kind`."""
    if not isinstance(value, list):
        return string(key) + struct.pack("<I", kind) + scalar(kind, value)
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(value))
            + b"".join(scalar(kind, item) for item in value))


def pad(data: bytes, alignment: int = ALIGNMENT) -> bytes:
    return data + bytes(-len(data) % alignment)


def write(path: str, entries: list, tensors: list) -> None:
    """`tensors`: (name, type's number, shape with the innermost dimension last, bytes)."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries)
    offset = 0
    for name, kind, shape, data in tensors:
        header += string(name) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        header += struct.pack("<IQ", kind, offset)
        offset += len(pad(data))
    with open(path, "wb") as file:
        file.write(pad(header))
        for _, _, _, data in tensors:
            file.write(pad(data))


def read_safetensors(folder: str) -> dict:
    """Name -> (dtype, shape, bytes)."""
    tensors = {}
    for path in sorted(glob.glob(os.path.join(folder, "model*.safetensors"))):
        with open(path, "rb") as file:
            data = file.read()
        length = struct.unpack("<Q", data[:8])[0]
        for name, item in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = item["data_offsets"]
            if name.startswith(("model.visual.", "mtp.")):
                continue
            name = name.replace("model.language_model.", "model.")
            for own, usual in NEMOTRON_H.items():
                name = name.replace(own, usual)
            tensors[name] = (item["dtype"], item["shape"], data[8 + length + begin:8 + length + end])
    return tensors


def decode_fp8(tensors: dict) -> dict:
    """E4M3 codes with one scale for each matrix become F32. Other tensors stay."""
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith(("_scale_inv", ".activation_scale")):
            continue
        if dtype == "F8_E4M3":
            scale = floats(*tensors[f"{name}_scale_inv"][::2])[0]
            steps = [(code & 7) / 512 if not code & 120 else (8 + (code & 7)) * 2.0 ** ((code >> 3 & 15) - 10)
                     for code in range(256)]
            values = array.array("f", [scale * (-steps[code] if code & 128 else steps[code]) for code in data])
            dtype, data = "F32", values.tobytes()
        out[name] = (dtype, shape, data)
    return out


def floats(dtype: str, data: bytes) -> array.array:
    if dtype == "BF16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return array.array("f", bytes(wide))
    if dtype == "F16":
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))
    return array.array("f", data)


ROUND = 1.5 * 2.0 ** 52 # a number plus this has the rounded number in its lowest bits
AT_MOST_15 = bytes(min(k, 15) for k in range(256))


def q8_0(values: array.array) -> bytes:
    out = []
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        half = struct.pack("<e", max(max(block), -min(block)) / 127)
        scale = struct.unpack("<e", half)[0]
        inverse = 1 / scale if scale else 0.0
        if max(max(block), -min(block)) * inverse < 127.5:
            codes = array.array("d", [x * inverse + ROUND for x in block]).tobytes()[::8]
        else: # of a scale that is too small for half precision
            codes = array.array("b", [max(-127, min(127, round(x * inverse))) for x in block]).tobytes()
        out += half, codes
    return b"".join(out)


def q4_0(values: array.array) -> bytes:
    out = []
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        high, low = max(block), min(block)
        farthest = max(block, key=abs) if high == -low else high if high > -low else low
        half = struct.pack("<e", farthest / -8)
        scale = struct.unpack("<e", half)[0]
        inverse = 1 / scale if scale else 0.0
        codes = bytes([int(x * inverse + 8.5) for x in block]).translate(AT_MOST_15)
        both = int.from_bytes(codes[:16], "little") | int.from_bytes(codes[16:], "little") << 4
        out += half, both.to_bytes(16, "little")
    return b"".join(out)


def kind_of(name: str, kind: str) -> str:
    """The type of the weights of one matrix."""
    if kind in BLOCKED and name.endswith(".gate.weight"):
        return ""
    if kind != "mixed":
        return kind
    return "q8_0" if any(part in name for part in (".v_proj.", ".down_proj.", ".w2.")) else "q4_0"


def convert_data(dtype: str, shape: list, data: bytes, kind: str) -> tuple:
    """(type's number, bytes); vectors are F32, as in all files."""
    if len(shape) == 1:
        return PLAIN["F32"], floats(dtype, data).tobytes()
    if kind in BLOCKED and shape[-1] % 32:
        return PLAIN[dtype], data
    if kind == "q8_0":
        return 8, q8_0(floats(dtype, data))
    if kind == "q4_0":
        return 2, q4_0(floats(dtype, data))
    if kind in ("", dtype.lower()):
        return PLAIN[dtype], data
    values = floats(dtype, data)
    if kind == "f32":
        return PLAIN["F32"], values.tobytes()
    if kind == "f16":
        return PLAIN["F16"], struct.pack(f"<{len(values)}e", *values)
    raise SystemExit(f"cannot make {kind} of {dtype}")


def interleave(shape: list, data: bytes, head_dim: int) -> bytes:
    """Rows for a rotation of neighbours: of a head, row 2i + j is row j * head_dim / 2 + i."""
    size, half = len(data) // shape[0], head_dim // 2
    rows = [data[i * size:(i + 1) * size] for i in range(shape[0])]
    return b"".join(rows[i - i % head_dim + i % 2 * half + i % head_dim // 2] for i in range(shape[0]))


def tile(rows: list, config: dict, width: int, first: int = 0) -> list:
    """Heads of `width` rows, from `first` on: the first head of each key head, then the second of each ..."""
    keys = config["linear_num_key_heads"]
    members, items = config["linear_num_value_heads"] // keys, rows[first:]
    heads = [items[i:i + width] for i in range(0, len(items), width)]
    return rows[:first] + [row for member in range(members) for key in range(keys)
                           for row in heads[key * members + member]]


def delta_tensor(name: str, shape: list, data: bytes, config: dict) -> bytes:
    """A gated delta net's tensor as llama.cpp stores it, where heads are tiled."""
    size = len(data) // shape[0]
    rows = [data[i * size:(i + 1) * size] for i in range(shape[0])]
    keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    width, part = config["linear_value_head_dim"], name.split("linear_attn.")[1]
    if part.startswith(("in_proj_qkv.", "conv1d.")):
        rows = tile(rows, config, width, keys)
    elif part.startswith("in_proj_z."):
        rows = tile(rows, config, width)
    elif part.startswith(("in_proj_a.", "in_proj_b.", "A_log", "dt_bias")):
        rows = tile(rows, config, 1)
    elif part.startswith("out_proj."):
        element = size // shape[1]
        rows = [b"".join(tile([row[i:i + element] for i in range(0, size, element)], config, width)) for row in rows]
    return b"".join(rows)


def next_tensors(name: str, dtype: str, shape: list, data: bytes, config: dict) -> list:
    """Qwen3-Next's q, k, v and z, which lie together by key head, as the two tensors of a file."""
    layer = name.split(".")[2]
    keys, key_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    size, stride = len(data) // shape[0], 2 * (key_dim + values)
    rows = [data[i * size:(i + 1) * size] for i in range(shape[0])]
    q, k, v, z = ([row for key in range(keys) for row in rows[key * stride + begin:key * stride + end]]
                  for begin, end in ((0, key_dim), (key_dim, 2 * key_dim), (2 * key_dim, 2 * key_dim + values),
                                     (2 * key_dim + values, stride)))
    return [(f"blk.{layer}.{part}.weight", PLAIN[dtype], [len(own), shape[1]], b"".join(own))
            for part, own in (("attn_qkv", q + k + v), ("attn_gate", z))]


def tensor_name(name: str, arch: str) -> str:
    module, _, suffix = name.rpartition(".")
    if arch in ("gemma2", "gemma3", "gemma4", "olmo2", "exaone4", "seed_oss") and module.endswith("post_attention_layernorm"):
        return f"blk.{module.split('.')[2]}.post_attention_norm.{suffix}"
    if module in GLOBALS:
        return f"{GLOBALS[module]}.{suffix}"
    layer, _, whole = name.removeprefix("model.layers.").partition(".")
    if whole == "pre_ff_layernorm.weight":
        return f"blk.{layer}.ffn_norm"  # as llama.cpp's converter writes it
    if whole in WHOLE_NAMES:
        return f"blk.{layer}.{WHOLE_NAMES[whole]}"
    layer, _, module = module.removeprefix("model.layers.").partition(".")
    if arch == "glm4" and module == "post_self_attn_layernorm":
        return f"blk.{layer}.post_attention_norm.{suffix}"
    if arch in ("glm4moe", "gpt-oss", *DELTA) and module == "post_attention_layernorm":
        return f"blk.{layer}.post_attention_norm.{suffix}"
    return f"blk.{layer}.{LATENT_MODULES.get(module) or MODULES[module]}.{suffix}"


def latent_heads(name: str, dtype: str, shape: list, data: bytes, config: dict) -> list:
    """Keys and values of heads made of latents, as newer files have them: in two tensors, the keys' transposed."""
    layer, heads, width = name.split(".")[2], config["num_attention_heads"], len(data) // shape[0] // shape[1]
    key, value, rank = config["qk_nope_head_dim"], config["v_head_dim"], shape[1]
    rows = [data[i * rank * width:(i + 1) * rank * width] for i in range(shape[0])]
    keys, values = [], []
    for head in range(heads):
        own = rows[head * (key + value):(head + 1) * (key + value)]
        keys += [row[r * width:(r + 1) * width] for r in range(rank) for row in own[:key]]
        values += own[key:]
    return [(f"blk.{layer}.attn_k_b.weight", PLAIN[dtype], [heads, rank, key], b"".join(keys)),
            (f"blk.{layer}.attn_v_b.weight", PLAIN[dtype], [heads, value, rank], b"".join(values))]


def latent_entries(config: dict) -> list:
    """V2 in the older form, with one tensor for keys and values of heads; the others in the newer one."""
    is_v2 = "DeepseekV2ForCausalLM" in config["architectures"]
    key, rope, value, rank = (config[name] for name in
                              ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
    values = [("rope.dimension_count", U32, rope), ("attention.kv_lora_rank", U32, rank),
              ("attention.head_count_kv", U32, config["num_attention_heads"] if is_v2 else 1),
              ("attention.key_length", U32, key + rope if is_v2 else rank + rope),
              ("attention.value_length", U32, value if is_v2 else rank),
              ("expert_gating_func", U32, 1 if is_v2 else 2),
              ("expert_group_count", U32, config["n_group"]), ("expert_group_used_count", U32, config["topk_group"]),
              ("expert_shared_count", U32, config["n_shared_experts"]),
              ("leading_dense_block_count", U32, config["first_k_dense_replace"]),
              ("expert_weights_norm", BOOL, config["norm_topk_prob"]),
              ("expert_weights_scale", F32, config["routed_scaling_factor"])]
    if config["q_lora_rank"]:
        values += [("attention.q_lora_rank", U32, config["q_lora_rank"])]
    if not is_v2:
        values += [("attention.key_length_mla", U32, key + rope), ("attention.value_length_mla", U32, value)]
    if "mscale_all_dim" in config["rope_parameters"]:
        values += [("rope.scaling.yarn_log_multiplier", F32, 0.1 * config["rope_parameters"]["mscale_all_dim"])]
    return values


def llama3_divisors(rope: dict, head_dim: int) -> bytes:
    out = []
    for i in range(head_dim // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * i / head_dim)
        low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
        high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
        if wavelength < high:
            out.append(1.0)
        elif wavelength > low:
            out.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return struct.pack(f"<{len(out)}f", *out)


def nemotron_entries(config: dict) -> list:
    """Which block a layer is, and the sizes of Mamba-2; its own scaling of the attention's scores is the usual one."""
    blocks, has_experts = config["layers_block_type"], "moe" in config["layers_block_type"]
    width = config["moe_intermediate_size" if has_experts else "intermediate_size"]
    values = [("attention.head_count_kv", I32, [config["num_key_value_heads"] * (block == "full_attention")
                                                for block in blocks]),
              ("feed_forward_length", I32, [width * (block in ("mlp", "moe")) for block in blocks]),
              ("ssm.conv_kernel", U32, config["conv_kernel"]), ("ssm.state_size", U32, config["ssm_state_size"]),
              ("ssm.group_count", U32, config["n_groups"]), ("ssm.time_step_rank", U32, config["mamba_num_heads"]),
              ("ssm.inner_size", U32, config["mamba_num_heads"] * config["mamba_head_dim"]),
              ("attention.layer_norm_epsilon", F32, config["layer_norm_epsilon"]), # read by llama.cpp, but not used
              ("rope.scaling.finetuned", BOOL, False)]
    if has_experts:
        values += [("expert_shared_count", U32, config["n_shared_experts"]),
                   ("expert_shared_feed_forward_length", U32, config["moe_shared_expert_intermediate_size"]),
                   ("expert_group_count", U32, config["n_group"]), ("expert_group_used_count", U32, config["topk_group"]),
                   ("expert_weights_norm", BOOL, config["norm_topk_prob"]),
                   ("expert_weights_scale", F32, config["routed_scaling_factor"])]
    return values


def full_rope(config: dict) -> dict:
    """The rotation of layers without a window."""
    rope = config.get("rope_parameters", {"rope_type": "default", "rope_theta": 1e4})
    return rope.get("full_attention", rope)


def config_entries(config: dict, arch: str) -> list:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = full_rope(config)
    eps = next(config[key] for key in ("layer_norm_eps", "norm_epsilon", "norm_eps", "rms_norm_eps",
                                         "layer_norm_epsilon") if key in config)
    eps_key = "layer_norm_epsilon" if arch in LAYER_NORMS else "layer_norm_rms_epsilon"
    values = [
        ("context_length", U32, config["max_position_embeddings"]),
        ("embedding_length", U32, config["hidden_size"]),
        ("block_count", U32, config.get("num_hidden_layers") or len(config["layers_block_type"])),
        ("feed_forward_length", U32, config.get("intermediate_size") or config["moe_intermediate_size"]),
        ("attention.head_count", U32, heads),
        ("attention.head_count_kv", U32, config["num_key_value_heads"]),
        ("attention.key_length", U32, head_dim),
        ("attention.value_length", U32, head_dim),
        (f"attention.{eps_key}", F32, eps),
        ("rope.freq_base", F32, rope["rope_theta"] * rope.get("alpha", 1) ** (head_dim / (head_dim - 2))),
        ("rope.dimension_count", U32, int(head_dim * rope.get("partial_rotary_factor", 1))),
    ]
    if arch in ("lfm2", "lfm2moe"):
        size, multiple = config["intermediate_size"], config.get("block_multiple_of")
        if multiple:
            size = -(-int(config["block_ffn_dim_multiplier"] * int(2 * size / 3)) // multiple) * multiple
        values = [value for value in values if value[0] not in ("attention.head_count_kv", "feed_forward_length")]
        values += [("attention.head_count_kv", I32, [config["num_key_value_heads"] * (kind == "full_attention")
                                                     for kind in config["layer_types"]]),
                   ("feed_forward_length", U32, size), ("shortconv.l_cache", U32, config["conv_L_cache"])]
    if arch == "granitehybrid":
        heads_of_layers = [config["num_key_value_heads"] * (kind != "linear_attention") for kind in config["layer_types"]]
        size = config["intermediate_size" if config["num_local_experts"] else "shared_intermediate_size"]
        values = [value for value in values if value[0] not in ("attention.head_count_kv", "feed_forward_length")]
        values += [("attention.head_count_kv", I32, heads_of_layers), ("feed_forward_length", U32, size),
                   ("ssm.conv_kernel", U32, config["mamba_d_conv"]), ("ssm.state_size", U32, config["mamba_d_state"]),
                   ("ssm.group_count", U32, config["mamba_n_groups"]),
                   ("ssm.inner_size", U32, config["mamba_n_heads"] * config["mamba_d_head"]),
                   ("ssm.time_step_rank", U32, config["mamba_n_heads"]),
                   ("expert_shared_feed_forward_length", U32, config["shared_intermediate_size"]),
                   ("rope.scaling.finetuned", BOOL, config["position_embedding_type"] == "rope")]
    if arch.startswith("nemotron_h"):
        values = [value for value in values if value[0] not in ("attention.head_count_kv", "feed_forward_length")]
        values += nemotron_entries(config)
    if arch == "falcon-h1":
        values += [("ssm.conv_kernel", U32, config["mamba_d_conv"]), ("ssm.state_size", U32, config["mamba_d_state"]),
                   ("ssm.group_count", U32, config["mamba_n_groups"]),
                   ("ssm.inner_size", U32, config["mamba_n_heads"] * config["mamba_d_head"]),
                   ("ssm.time_step_rank", U32, config["mamba_n_heads"])]
    if arch == "lfm2moe":
        values += [("leading_dense_block_count", U32, config["num_dense_layers"]), ("expert_gating_func", U32, 2),
                   ("expert_weights_norm", BOOL, config["norm_topk_prob"]),
                   ("expert_weights_scale", F32, config["routed_scaling_factor"])]
    if arch == "stablelm":
        values += [("use_parallel_residual", BOOL, config["use_parallel_residual"])]
    if arch in ("command-r", "cohere2"):
        values += [("logit_scale", F32, config["logit_scale"])]
    if arch == "gemma4":
        shared = config["num_kv_shared_layers"]
        other = next(iter(config["per_layer_config"].values()))
        wide, kv_heads = other["head_dim"], config["num_key_value_heads"]
        local = [kind == "sliding_attention" for kind in config["layer_types"]]
        changed = ("attention.key_length", "attention.value_length", "rope.dimension_count", "attention.head_count_kv")
        values = [value for value in values if value[0] not in changed]
        values += [("attention.head_count_kv", I32, [kv_heads if is_local else other.get("num_key_value_heads", kv_heads)
                                                     for is_local in local])]
        values += [("attention.key_length", U32, wide), ("attention.value_length", U32, wide),
                   ("attention.key_length_swa", U32, head_dim), ("attention.value_length_swa", U32, head_dim),
                   ("rope.dimension_count", U32, wide), ("rope.dimension_count_swa", U32, head_dim),
                   ("rope.freq_base_swa", F32, config["rope_parameters"]["sliding_attention"]["rope_theta"]),
                   ("attention.sliding_window_pattern", BOOL, local), ("attention.shared_kv_layers", U32, shared),
                   ("embedding_length_per_layer_input", U32, config["hidden_size_per_layer_input"])]
        if config["use_double_wide_mlp"]:
            width, own = config["intermediate_size"], config["num_hidden_layers"] - shared
            values = [value for value in values if value[0] != "feed_forward_length"]
            values += [("feed_forward_length", I32, [width] * own + [2 * width] * shared)]
        if config["final_logit_softcapping"]:
            values += [("final_logit_softcapping", F32, config["final_logit_softcapping"])]
    if arch == "deepseek2":
        own = latent_entries(config)
        values = [value for value in values if value[0] not in [key for key, _, _ in own]] + own
    if arch == "gemma2":
        values += [("attn_logit_softcapping", F32, config["attn_logit_softcapping"]),
                   ("final_logit_softcapping", F32, config["final_logit_softcapping"])]
    for key, name in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                      ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
        if name in config and arch != "falcon-h1":
            values += [(key, F32, config[name])]
    if arch == "qwen3vl":
        values += [("n_deepstack_layers", U32, 1), ("rope.dimension_sections", I32, [head_dim // 2 - 8, 4, 4, 0])]
    if config.get("sliding_window") and arch in ("gemma2", "gemma3", "gemma4", "olmo2", "phi3", "gpt-oss", "exaone4",
                                                 "cohere2"):
        values += [("attention.sliding_window", U32, config["sliding_window"])]
    if rope["rope_type"] == "longrope":
        values += [("rope.scaling.original_context_length", U32, rope["original_max_position_embeddings"]),
                   ("rope.scaling.attn_factor", F32, rope.get("attention_factor", 1))]
    if rope["rope_type"] in ("linear", "yarn"):
        values += [("rope.scaling.type", STRING, rope["rope_type"]), ("rope.scaling.factor", F32, rope["factor"])]
    if rope["rope_type"] == "yarn":
        values += [("rope.scaling.original_context_length", U32, rope["original_max_position_embeddings"])]
        values += [("rope.scaling.yarn_attn_factor", F32, rope.get("attention_factor", 1))]
    if arch == "mistral3":
        values += [("rope.scaling.yarn_log_multiplier", F32, rope["mscale_all_dim"]),
                   ("attention.temperature_scale", F32, rope["llama_4_scaling_beta"])]
    if arch == "glm4moe":
        values += [("nextn_predict_layers", U32, 0)]
    top_k = next((config[key] for key in ("num_experts_per_tok", "top_k_experts", "moe_k", "moe_topk")
                  if config.get(key)), 0)
    if arch == "hunyuan-moe":
        top_k = top_k if isinstance(top_k, int) else top_k[0]
        values += [("expert_shared_count", U32, 1), ("expert_feed_forward_length", U32, config["intermediate_size"]),
                   ("expert_shared_feed_forward_length", U32, config["intermediate_size"])]
    if arch in ("dots1", "glm4moe"):
        values += [("expert_shared_count", U32, config["n_shared_experts"]),
                   ("leading_dense_block_count", U32, config["first_k_dense_replace"]),
                   ("expert_group_count", U32, 1), ("expert_weights_norm", BOOL, config["norm_topk_prob"]),
                   ("expert_weights_scale", F32, config["routed_scaling_factor"])]
    if arch == "ernie4_5-moe":
        values += [("expert_shared_count", U32, config["moe_num_shared_experts"]),
                   ("leading_dense_block_count", U32, config["moe_layer_start_index"]),
                   ("interleave_moe_layer_step", U32, config["moe_layer_interval"]),
                   ("expert_shared_feed_forward_length", U32,
                    config["moe_num_shared_experts"] * config["moe_intermediate_size"])]
    if arch in ("dots1", "glm4moe", "minimax-m2"):
        values += [("expert_gating_func", U32, 2)]
    if arch in DELTA:
        heads, width = config["linear_num_value_heads"], config["linear_value_head_dim"]
        values += [("ssm.conv_kernel", U32, config["linear_conv_kernel_dim"]), ("full_attention_interval", U32, 4),
                   ("ssm.state_size", U32, config["linear_key_head_dim"]), ("ssm.time_step_rank", U32, heads),
                   ("ssm.group_count", U32, config["linear_num_key_heads"]), ("ssm.inner_size", U32, heads * width)]
        if "shared_expert_intermediate_size" in config:
            values += [("expert_shared_feed_forward_length", U32, config["shared_expert_intermediate_size"])]
        if arch != "qwen3next":
            values += [("rope.dimension_sections", I32, rope["mrope_section"] + [0])]
    experts = 0 if arch == "nemotron_h" else next((config[key] for key in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
                    if config.get(key)), 0)
    if experts:
        values += [("expert_count", U32, experts), ("expert_used_count", U32, top_k)]
    if config.get("moe_intermediate_size") and arch != "nemotron_h":
        values += [("expert_feed_forward_length", U32, config["moe_intermediate_size"])]
    return [entry("general.architecture", STRING, arch), entry("general.type", STRING, "model")] + [
        entry(f"{arch}.{key}", kind, value) for key, kind, value in values]


def tokenizer_entries(tokenizer: dict, config: dict, vocab_size: int) -> list:
    """Byte-level BPE with Qwen2's pattern, or a model converted from SentencePiece. Gemma 4's adds no blank in front
    of a text, and its files have the merges. Tokens beyond the vocabulary are left out."""
    model = tokenizer["model"]
    is_spm = bool(model.get("byte_fallback"))
    size = vocab_size or max(model["vocab"].values()) + 1
    tokens, types = [f"[PAD{i}]" for i in range(size)], [5] * size
    for text, i in model["vocab"].items():
        if i >= size:
            continue
        is_byte = is_spm and len(text) == 6 and text.startswith("<0x")
        tokens[i], types[i] = text, 6 if is_byte else 1
    for token in tokenizer["added_tokens"]:
        if token["id"] >= size:
            continue
        tokens[token["id"]], types[token["id"]] = token["content"], 3 if token["special"] else 4
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    is_gemma4 = is_spm and "Prepend" not in json.dumps(tokenizer["normalizer"])
    kind = "gemma4" if is_gemma4 else "llama" if is_spm else "gpt2"
    entries = [entry("tokenizer.ggml.model", STRING, kind),
               entry("tokenizer.ggml.tokens", STRING, tokens),
               entry("tokenizer.ggml.token_type", I32, types)]
    if is_gemma4:
        entries += [entry("tokenizer.ggml.merges", STRING, merges), entry("tokenizer.ggml.bos_token_id", U32, 1),
                    entry("tokenizer.ggml.add_space_prefix", BOOL, False)]
    elif is_spm:
        scores, rank = [0.0] * size, {}
        for pair in merges:
            rank.setdefault(pair.replace(" ", "", 1), len(rank))
        for i, text in enumerate(tokens):
            scores[i] = -float(rank.get(text, size))
        entries += [entry("tokenizer.ggml.scores", F32, scores)]
    else:
        entries += [entry("tokenizer.ggml.pre", STRING, "qwen2"), entry("tokenizer.ggml.merges", STRING, merges),
                    entry("tokenizer.ggml.add_bos_token", BOOL, False)]
    if config.get("bos_token_id") is not None:
        entries += [entry("tokenizer.ggml.bos_token_id", U32, config["bos_token_id"])]
    if isinstance(config.get("eos_token_id"), int):
        entries += [entry("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"])]
    return entries


def shared_mlp_tensors(name: str, dtype: str, shape: list, data: bytes, config: dict) -> list:
    """Granite 4's MLP that all tokens go to, whose gate and up are one tensor of a folder."""
    layer, ending = name.split(".")[2], "_shexp" if config["num_local_experts"] else ""
    if ".output_linear." in name:
        return [(f"blk.{layer}.ffn_down{ending}.weight", PLAIN[dtype], shape, data)]
    half = [shape[0] // 2, shape[1]]
    return [(f"blk.{layer}.ffn_gate{ending}.weight", PLAIN[dtype], half, data[:len(data) // 2]),
            (f"blk.{layer}.ffn_up{ending}.weight", PLAIN[dtype], half, data[len(data) // 2:])]


def falcon_factors(name: str, rows: int, config: dict) -> list:
    """What each row of a tensor of Falcon-H1 is multiplied by, in files."""
    gate, down = config["mlp_multipliers"]
    width, states = config["mamba_n_heads"] * config["mamba_d_head"], config["mamba_n_groups"] * config["mamba_d_state"]
    attended = config["attention_in_multiplier"]
    factors = {"down_proj": down, "gate_proj": gate, "k_proj": config["key_multiplier"] * attended, "q_proj": attended,
               "v_proj": attended, "o_proj": config["attention_out_multiplier"],
               "out_proj": config["ssm_out_multiplier"], "lm_head": config["lm_head_multiplier"],
               "embed_tokens": config["embedding_multiplier"]}
    module = name.rsplit(".", 2)[-2]
    if module == "in_proj":
        sizes = (width, width, states, states, config["mamba_n_heads"])
        return [config["ssm_in_multiplier"] * factor for factor, size in zip(config["ssm_multipliers"], sizes)
                for _ in range(size)]
    return [factors.get(module, 1)] * rows


def mamba_shape(name: str, shape: list, config: dict) -> list:
    """llama.cpp stores numbers of heads in columns, and the norm by groups."""
    if name.endswith(("mamba.A_log", "mamba.D")):
        return [shape[0], 1]
    if name.endswith("mamba.norm.weight"):
        groups = config.get("mamba_n_groups") or config["n_groups"]
        return [groups, shape[0] // groups]
    return shape


def expert_tensors(tensors: dict, kind: str) -> list:
    """The parts of a layer's experts, which are one tensor each."""
    groups, out = {}, []
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            part = "ffn_gate_up_exps" if name.endswith("gate_up_proj") else "ffn_down_exps"
            out.append((f"blk.{name.split('.')[2]}.{part}.weight", PLAIN[dtype], shape, data))
        elif "shared_mlp." in name and "put_linear." in name:
            continue
        elif name.endswith((".input_linear.weight", ".output_linear.weight")):
            half, size = shape[1] // 2, len(data) // shape[0]
            experts = [data[i:i + size] for i in range(0, len(data), size)]
            parts = {"ffn_gate": [e[:size // 2] for e in experts], "ffn_up": [e[size // 2:] for e in experts]}
            if ".output_linear." in name:
                half, parts = shape[1], {"ffn_down": experts}
            for part, made in parts.items():
                out.append((f"blk.{name.split('.')[2]}.{part}_exps.weight", PLAIN[dtype], [shape[0], half, shape[2]],
                            b"".join(made)))
        elif ".experts." in name:
            layer, _, rest = name.removeprefix("model.layers.").partition(".")
            expert, part, _ = rest.rpartition("experts.")[2].split(".")
            groups.setdefault((int(layer), EXPERT_PARTS[part]), {})[int(expert)] = name
    for (layer, part), names in sorted(groups.items()):
        items = [tensors[names[i]] for i in range(len(names))]
        made = [convert_data(*item, kind_of(names[0], kind)) for item in items]
        shape = [len(items)] + items[0][1]
        out.append((f"blk.{layer}.{part}_exps.weight", made[0][0], shape, b"".join(data for _, data in made)))
    return out


MXFP4 = 39


def gpt_oss_experts(tensors: dict) -> list:
    """gpt-oss' experts, which are one tensor each there too: gate and up are divided. ggml's blocks have a byte of
    scale before 16 of codes, and a byte has the elements i and i + 16."""
    out = []
    for name, (dtype, shape, data) in tensors.items():
        module, _, kind = name.rpartition("experts.")[2].partition("_proj_")
        if ".experts." not in name or kind == "scales":
            continue
        layer, rows, size = name.split(".")[2], shape[1], len(data) // (shape[0] * shape[1])
        parts = {"gate_up": ("ffn_gate", "ffn_up")}.get(module, ("ffn_down",))
        scales = tensors[name.replace("_blocks", "_scales")][2] if kind == "blocks" else b""
        for part, target in enumerate(parts):
            made = bytearray()
            for row in range(part, shape[0] * rows, len(parts)):
                piece = data[row * size:(row + 1) * size]
                if kind == "bias":
                    made += floats(dtype, piece).tobytes()
                    continue
                for group in range(size // 16):
                    codes = [nibble for byte in piece[group * 16:group * 16 + 16] for nibble in (byte & 15, byte >> 4)]
                    made += scales[row * (size // 16) + group:][:1]
                    made += bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
            own = [shape[0], rows // len(parts)] + ([shape[2] * 32] if kind == "blocks" else [])
            ending = "bias" if kind == "bias" else "weight"
            out.append((f"blk.{layer}.{target}_exps.{ending}", 0 if kind == "bias" else MXFP4, own, bytes(made)))
    return out


def convert(folder: str, out: str, kind: str = "", tokenizer: str = "", parts: int = 1) -> None:
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config = {**config, **config.get("text_config", {})}
    arch = ARCHITECTURES[config["architectures"][0]]
    if "moe" in config.get("layers_block_type", []):
        arch = "nemotron_h_moe"
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    tensors = decode_fp8(read_safetensors(folder))
    made = []
    for name, (dtype, shape, data) in tensors.items():
        if "shared_mlp." in name and "put_linear." in name:
            made += shared_mlp_tensors(name, dtype, shape, data, config)
            continue
        if ".experts." in name or "put_linear." in name or (name == "lm_head.weight" and config["tie_word_embeddings"]):
            continue
        if arch in INTERLEAVED and (".q_proj." in name or ".k_proj." in name):
            data = interleave(shape, data, head_dim)
        if name.endswith("kv_b_proj.weight") and "DeepseekV2ForCausalLM" not in config["architectures"]:
            made += latent_heads(name, dtype, shape, data, config)
            continue
        if name.endswith("in_proj_qkvz.weight"):
            made += next_tensors(name, dtype, shape, data, config)
            continue
        if "linear_attn." in name and arch != "qwen3next":
            data = delta_tensor(name, shape, data, config)
        if name.endswith(("conv1d.weight", "conv.conv.weight")):
            shape, dtype, data = [shape[0], shape[2]], "F32", floats(dtype, data).tobytes()
        if arch == "falcon-h1":
            values, width = floats(dtype, data), len(data) // shape[0] // (4 if dtype == "F32" else 2)
            factors = falcon_factors(name, shape[0], config)
            dtype, data = "F32", array.array("f", [value * factors[i // width] for i, value in enumerate(values)]).tobytes()
        if name.endswith("moe_statics.e_score_correction_bias"):
            shape = shape[1:]
        number, data = convert_data(dtype, shape, data, kind_of(name, kind))
        if name.endswith("A_log"):
            data = array.array("f", [-math.exp(value) for value in array.array("f", data)]).tobytes()
        is_norm = name.endswith("norm.weight") and "linear_attn." not in name
        if is_norm and arch in ("gemma", "gemma2", "gemma3", "nemotron", *DELTA):
            data = array.array("f", [value + 1 for value in array.array("f", data)]).tobytes()
        made.append((tensor_name(name, arch), number, mamba_shape(name, shape, config), data))
        is_tied = name == "model.embed_tokens.weight" and config["tie_word_embeddings"]
        if arch in ("dots1", "olmo2", "olmoe") and is_tied:
            made.append(("output.weight", number, shape, data))  # llama.cpp wants it
    made += gpt_oss_experts(tensors) if arch == "gpt-oss" else expert_tensors(tensors, kind)
    rope = full_rope(config)
    if rope["rope_type"] == "longrope":
        for key in ("long", "short"):
            factors = array.array("f", rope[f"{key}_factor"])
            made.append((f"rope_factors_{key}.weight", PLAIN["F32"], [len(factors)], factors.tobytes()))
    if rope["rope_type"] == "llama3":
        made.append(("rope_freqs.weight", 0, [head_dim // 2], llama3_divisors(rope, head_dim)))
    if rope["rope_type"] == "proportional":
        wide = next(layer["head_dim"] for layer in config["per_layer_config"].values()) // 2
        rotated = int(wide * rope["partial_rotary_factor"])
        made.append(("rope_freqs.weight", 0, [wide], struct.pack(f"<{wide}f", *[1.0] * rotated,
                                                                 *[1e30] * (wide - rotated))))
    entries = config_entries(config, arch)
    own = os.path.join(folder, "tokenizer.json")
    if tokenizer or os.path.exists(own):
        with open(tokenizer or own) as file:
            entries += tokenizer_entries(json.load(file), {} if tokenizer else config, config["vocab_size"])
    chat = os.path.join(folder, "chat_template.jinja")
    if os.path.exists(chat):
        with open(chat) as file:
            entries += [entry("tokenizer.chat_template", STRING, file.read())]
    if parts == 1:
        write(out, entries, made)
        return
    for i in range(parts):
        own_entries = [entry("split.no", U32, i), entry("split.count", U32, parts),
                       entry("split.tensors.count", I32, len(made))]
        first, end = len(made) * i // parts, len(made) * (i + 1) // parts
        name = f"{out.removesuffix('.gguf')}-{i + 1:05}-of-{parts:05}.gguf"
        write(name, (entries if i == 0 else []) + own_entries, made[first:end])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", default="")
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--parts", type=int, default=1)
    args = parser.parse_args()
    convert(args.folder, args.out, args.type, args.tokenizer, args.parts)


if __name__ == "__main__":
    main()
