#!/usr/bin/env python3
"""Writes what MLX makes, with its packages, under tests/reference/data:

  quantized/mlx-*.safetensors   one small linear for each number of bits; "want.weight" has its values
  quantized/other_cases.json    what config.json has for each
  mlx-qwen3, mlx-qwen3-moe      small random checkpoints that mlx-lm quantized, with other sizes for some
                                modules; expected.safetensors has transformers' float32 logits of the
                                values that the codes stand for
  mlx-*                         others of the folder's checkpoints as mlx-lm writes them. Those whose
                                values it keeps have the other's expected.safetensors. Those that it
                                quantized have mlx-lm's logits in float32

    pip install torch "mlx[cpu]" mlx-lm
    tests/reference/make_mlx_cases.py
"""
import json
import os
import shutil
import tempfile

import mlx.core as mx
import numpy as np
import torch
from mlx.utils import tree_map
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from pathlib import Path
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

OUT, IN = 32, 64
LENGTHS = (1, 2, 17, 257, 300)
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
cases = {}


def to_torch(array) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def values_of(codes, scales, biases, group_size: int, bits: int) -> torch.Tensor:
    """MLX's own decoding, in float32."""
    floats = [x.astype(mx.float32) for x in (scales, biases)]
    return to_torch(mx.dequantize(codes, *floats, group_size, bits))


def linear(bits: int, group_size: int, dtype) -> None:
    mx.random.seed(bits)
    weights = (mx.random.normal((OUT, IN)) * mx.random.uniform(shape=(OUT, 1)) * 0.1).astype(dtype)
    codes, scales, biases = mx.quantize(weights, group_size, bits)
    name = f"mlx-{bits}bit-g{group_size}"
    tensors = {"m.weight": codes, "m.scales": scales, "m.biases": biases}
    want = mx.array(values_of(codes, scales, biases, group_size, bits).numpy())
    mx.save_safetensors(os.path.join(DATA, "quantized", name), tensors | {"want.weight": want})
    cases[name] = {
        "architectures": ["Qwen3ForCausalLM"],
        "quantization": {"group_size": group_size, "bits": bits, "mode": "affine"},
    }


def linear_of_floats(mode: str, has_global_scale: bool = False) -> None:
    mx.random.seed(28)
    weights = (mx.random.normal((OUT, IN)) * mx.random.uniform(shape=(OUT, 1)) * 0.1).astype(mx.bfloat16)
    kwargs, name = {"mode": mode}, f"mlx-{mode}"
    if has_global_scale:
        kwargs["global_scale"] = mx.max(mx.abs(weights)).astype(mx.float32)
        name += "-global"
    codes, scales = mx.quantize(weights, **kwargs)
    if mode == "mxfp8":  # all codes that are numbers
        bytes_ = [b for b in range(256) if b & 127 != 127]
        codes[:4] = mx.array((bytes_ + bytes_[:2]), dtype=mx.uint8).view(mx.uint32).reshape(4, -1)
    tensors = {"m.weight": codes, "m.scales": scales}
    if has_global_scale:
        tensors["m.global_scale"] = kwargs["global_scale"].reshape(1)
    want = mx.dequantize(codes, scales, dtype=mx.float32, **kwargs)
    mx.save_safetensors(os.path.join(DATA, "quantized", name), tensors | {"want.weight": want})
    cases[name] = {"quantization": {"group_size": 64, "bits": 4, "m": {"mode": mode}}, "architectures": []}
    if has_global_scale:
        cases[name]["quantization"]["m"]["global_scale"] = True


def sizes_of(path: str, module):
    """Other bits for some modules, as mixed recipes have them; layer 1's down_proj stays in BF16."""
    bits = {"k_proj": 3, "v_proj": 6, "o_proj": 8, "gate_proj": 5, "gate": 8, "lm_head": 6}
    last = path.split(".")[-1]
    if path == "model.layers.1.mlp.down_proj":
        return False
    if last == "up_proj" and ".1." in path:
        return {"group_size": 32, "bits": 2}
    if last in bits:
        return {"group_size": 32 if last == "o_proj" else 64, "bits": bits[last]}
    return True


def randomize(model) -> None:
    torch.manual_seed(28)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.08)


def load_decoded(model, folder: str, config: dict) -> None:
    """Gives a model of transformers the values of MLX's tensors."""
    quantization, state = config["quantization"], {}
    tensors = mx.load(os.path.join(folder, "model.safetensors"))
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if module + ".scales" not in tensors:
            state[name] = to_torch(tensor.astype(mx.float32))
            continue
        sizes = quantization.get(module, quantization)
        state[name] = values_of(
            tensor, tensors[module + ".scales"], tensors[module + ".biases"],
            sizes["group_size"], sizes["bits"])
        if module.endswith(".mlp.gate"):  # routers are decoded to BF16
            state[name] = state[name].bfloat16().float()
    for name in [n for n in state if n.endswith("switch_mlp.gate_proj.weight")]:
        prefix = name.removesuffix("switch_mlp.gate_proj.weight")
        gate, up, down = (state.pop(f"{prefix}switch_mlp.{part}_proj.weight") for part in ("gate", "up", "down"))
        state[prefix + "experts.gate_up_proj"] = torch.cat((gate, up), 1)
        state[prefix + "experts.down_proj"] = down
    if config["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)


def published_config(path: str) -> None:
    """Keys as published checkpoints have them, which mlx-lm reads."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    if "num_local_experts" in config:
        config["num_experts"] = config.pop("num_local_experts")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def family(name: str, model_class, config) -> None:
    folder = os.path.join(DATA, name)
    os.makedirs(folder, exist_ok=True)
    model = model_class(config)
    randomize(model)
    with tempfile.TemporaryDirectory() as original:
        model.to(torch.bfloat16).save_pretrained(original)
        published_config(os.path.join(original, "config.json"))
        loaded, mlx_config = load_model(Path(original))
        loaded, mlx_config = quantize_model(loaded, mlx_config, 64, 4, quant_predicate=sizes_of)
        save_model(folder, loaded)
        save_config(mlx_config, os.path.join(folder, "config.json"))
    os.remove(os.path.join(folder, "model.safetensors.index.json"))
    model = model_class(config).eval()
    load_decoded(model, folder, mlx_config)
    tensors = {}
    torch.manual_seed(29)
    for k, length in enumerate(LENGTHS):
        ids = torch.randint(2, config.vocab_size, (length,))
        with torch.no_grad():
            logits = model(ids[None]).logits[0]
        tensors[f"seq{k}.input_ids"] = ids.to(torch.int32)
        tensors[f"seq{k}.last_logits"] = logits[-1].clone()
    save_file(tensors, os.path.join(folder, "expected.safetensors"))


def convert(source: str, mode: str | None = None, patch: dict | None = None) -> None:
    """Another of the checkpoints as mlx-lm writes it; `patch`: keys of config.json that it wants."""
    source_folder, folder = os.path.join(DATA, source), os.path.join(DATA, "mlx-" + source)
    expected = os.path.join(source_folder, "expected.safetensors")
    with tempfile.TemporaryDirectory() as original:
        tensors = mx.load(os.path.join(source_folder, "model.safetensors"))
        with open(os.path.join(source_folder, "config_published_form.json"), encoding="utf-8") as file:
            config = json.load(file) | (patch or {})
        if not config["tie_word_embeddings"] and "lm_head.weight" not in tensors:
            tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        mx.save_safetensors(os.path.join(original, "model.safetensors"), tensors)
        with open(os.path.join(original, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        model, config = load_model(Path(original))
        if mode:
            model, config = quantize_model(model, config, None, None, mode=mode)
        save_model(folder, model)
        save_config(config, os.path.join(folder, "config.json"))
    os.remove(os.path.join(folder, "model.safetensors.index.json"))
    if not mode:
        shutil.copy(expected, folder)
        return
    model.update(tree_map(
        lambda v: v.astype(mx.float32) if mx.issubdtype(v.dtype, mx.floating) else v, model.parameters()))
    tensors = {name: ids for name, ids in mx.load(expected).items() if name.endswith("input_ids")}
    for name, ids in list(tensors.items()):
        logits = model(ids[None])[0, -1].astype(mx.float32)
        tensors[name.replace("input_ids", "last_logits")] = logits
    mx.save_safetensors(os.path.join(folder, "expected.safetensors"), tensors)


def main() -> None:
    for bits, group_size in ((2, 32), (3, 64), (4, 32), (5, 32), (6, 64), (8, 32)):
        linear(bits, group_size, mx.bfloat16)
    linear(4, 64, mx.float16)
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        linear_of_floats(mode)
    linear_of_floats("nvfp4", has_global_scale=True)
    convert("deepseek-v3", "nvfp4", {"tie_word_embeddings": False})
    convert("exaone-moe", None, {
        "is_moe_layer": [False, True, True, True],
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"]})
    convert("gemma4-moe")
    convert("gpt-oss")
    convert("granite-moe")
    convert("qwen3-5", "mxfp8")
    sizes = {
        "vocab_size": 503, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "bos_token_id": 0,
        "eos_token_id": 1, "max_position_embeddings": 2048,
    }
    family("mlx-qwen3", Qwen3ForCausalLM, Qwen3Config(**sizes, tie_word_embeddings=True))
    moe = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    family("mlx-qwen3-moe", Qwen3MoeForCausalLM, Qwen3MoeConfig(**sizes, **moe, tie_word_embeddings=False))
    path = os.path.join(DATA, "quantized", "other_cases.json")
    with open(path, encoding="utf-8") as file:
        others = json.load(file)  # bitsandbytes' are there too
    with open(path, "w", encoding="utf-8") as file:
        json.dump(others | cases, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
