#!/usr/bin/env python3
"""Writes tests/reference/data/quantized: one small linear in each format of quantized checkpoints.

    pip install torch compressed-tensors auto-round
    tests/reference/make_quantized_cases.py

The codes, scales and packing are those of the packages. "want.weight" has the values by the format's
definition, computed in float32. cases.json has what each package writes as "quantization_config".
"""
import json
import os
import tempfile

import torch
from auto_round.export.export_to_awq.utils import WQLinear_GEMM
from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

OUT, IN = 32, 64
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "quantized")
cases = {}


def weights() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(OUT, IN) * torch.rand(OUT, 1) * 0.1


def save(name: str, tensors: dict, want: torch.Tensor, config: dict) -> None:
    tensors = {"m." + key: value.contiguous() for key, value in tensors.items()}
    tensors["want.weight"] = want.float().contiguous()
    save_file(tensors, os.path.join(FOLDER, name + ".safetensors"))
    cases[name] = config
    error = (want - weights()).pow(2).sum() / weights().pow(2).sum()
    print(name, {k: (str(v.dtype), tuple(v.shape)) for k, v in tensors.items()}, float(error.sqrt()))
    assert error.sqrt() < (0.6 if "int2" in name or "w2" in name else 0.3), name


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.m = torch.nn.Linear(IN, OUT, bias=False, dtype=torch.bfloat16)
        self.m.weight.data = weights().to(torch.bfloat16)


def ranges(w: torch.Tensor, args):
    strategy = getattr(args.strategy, "value", args.strategy)
    if strategy == "tensor":
        return w.amin().reshape(1), w.amax().reshape(1)
    if strategy == "channel":
        return w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    if strategy == "block":
        r, c = args.block_structure
        g = w.reshape(OUT // r, r, IN // c, c)
        return g.amin((1, 3)), g.amax((1, 3))
    g = w.reshape(OUT, -1, args.group_size)
    return g.amin(-1), g.amax(-1)


def definition(name: str, t: dict, args) -> torch.Tensor:
    """The values that the stored tensors stand for."""
    if "FP4" in name:
        codes = unpack_fp4_from_uint8(t["weight_packed"], OUT, IN, dtype=torch.float32)
        scale = t["weight_scale"]
        if "MX" in name:
            scale = torch.exp2(scale.to(torch.int32).float() - 127)
        else:
            scale = scale.float() / t["weight_global_scale"].float()
        return codes * scale.repeat_interleave(args.group_size, 1)
    scale = t["weight_scale"].float()
    if "weight_packed" in t:
        codes = unpack_from_int32(t["weight_packed"], args.num_bits, torch.Size((OUT, IN))).float()
        group = args.group_size or IN
        if "weight_zero_point" in t:
            zeros = unpack_from_int32(
                t["weight_zero_point"], args.num_bits, torch.Size(scale.shape), packed_dim=0
            )
            codes = codes - zeros.float().repeat_interleave(group, 1)
        return codes * scale.repeat_interleave(group, 1)
    codes = t["weight"].float()
    strategy = getattr(args.strategy, "value", args.strategy)
    if "MX" in name:
        scale = torch.exp2(scale - 127)
    if strategy == "group":
        scale = scale.repeat_interleave(args.group_size, 1)
    if strategy == "block":
        r, c = args.block_structure
        scale = scale.repeat_interleave(r, 0).repeat_interleave(c, 1)
    return codes * scale


def compressed(name: str, preset: str, targets=("Linear",), others=None, **changes) -> None:
    """`others`: presets of more groups, with their targets, before the one of the linear."""
    model = Model()
    if others:  # the package keeps a group that some linear has
        model.other = torch.nn.Linear(IN, OUT, bias=False, dtype=torch.bfloat16)
    scheme = preset_name_to_scheme(preset, list(targets))
    for key, value in changes.items():
        setattr(scheme.weights, key, value)
    groups = [preset_name_to_scheme(*other) for other in (others or {}).items()] + [scheme]
    groups = {f"group_{number}": group for number, group in enumerate(groups)}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["lm_head"]))
    m = model.m
    args = m.quantization_scheme.weights
    low, high = ranges(m.weight.float(), args)
    global_scale = None
    if hasattr(m, "weight_global_scale"):
        global_scale = torch.tensor([448 * 6.0 / float(m.weight.abs().max())])
        m.weight_global_scale.data.copy_(global_scale)
    scale, zero = calculate_qparams(low, high, args, global_scale=global_scale)
    m.weight_scale.data.copy_(scale.to(m.weight_scale.dtype).reshape(m.weight_scale.shape))
    if hasattr(m, "weight_zero_point"):
        zero = zero.to(m.weight_zero_point.dtype)
        m.weight_zero_point.data.copy_(zero.reshape(m.weight_zero_point.shape))
    for key, value in (("input_scale", 0.02), ("input_global_scale", 400.0)):
        if hasattr(m, key):
            getattr(m, key).data.fill_(value)
    if others:
        model.other.weight_scale.data.fill_(0.01)
        model.other.quantization_status = QuantizationStatus.FROZEN
    m.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    with tempfile.TemporaryDirectory() as folder:
        compressor.update_config(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)["quantization_config"]
    tensors = {k[2:]: v for k, v in model.state_dict().items() if k.startswith("m.")}
    save(name, tensors, definition(preset, tensors, args), config)


def modelopt_nvfp4() -> None:
    """ModelOpt multiplies by weight_scale_2 where compressed-tensors divides by its global scale."""
    from safetensors.torch import load_file

    t = load_file(os.path.join(FOLDER, "ct-nvfp4.safetensors"))
    factor = 1.0 / t["m.weight_global_scale"].reshape(())
    tensors = {
        "weight": t["m.weight_packed"],
        "weight_scale": t["m.weight_scale"],
        "weight_scale_2": factor,
        "input_scale": torch.tensor(0.001),
    }
    codes = unpack_fp4_from_uint8(t["m.weight_packed"], OUT, IN, dtype=torch.float32)
    want = codes * (t["m.weight_scale"].float() * factor).repeat_interleave(16, 1)
    config = {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
        "producer": {"name": "modelopt", "version": "0.40.0"},
        "config_groups": {"group_0": {"targets": ["Linear"]}},
    }
    save("modelopt-nvfp4", tensors, want, config)


def fp8_rows() -> tuple:
    """Codes, a scale for each output, and the values."""
    scale = weights().abs().amax(1) / 448
    codes = (weights() / scale[:, None]).to(torch.float8_e4m3fn)
    return codes, scale, codes.float() * scale[:, None]


def fbgemm() -> None:
    codes, scale, want = fp8_rows()
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
    save("fbgemm-fp8", {"weight": codes, "weight_scale": scale[:, None]}, want, config)


def modelopt_fp8_blocks() -> None:
    """Blocks of 128 x 128: this linear is a part of one. The package keeps four dimensions."""
    scale = (weights().abs().max() / 448).reshape(1, 1, 1, 1)
    codes = (weights() / scale.reshape(1, 1)).to(torch.float8_e4m3fn)
    config = {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "ignore": ["lm_head"],
              "producer": {"name": "modelopt", "version": "0.47.0"}}
    save("modelopt-fp8-blocks", {"weight": codes, "weight_scale": scale}, codes.float() * scale.reshape(1, 1), config)


def quark_config(weight: dict, inputs) -> dict:
    """As the package writes it, without the keys of a scheme that are null."""
    scheme = {"global_quant_config": {"weight": weight, "input_tensors": inputs, "output_tensors": None, "bias": None}}
    return scheme | {
        "quant_method": "quark", "algo_config": None, "exclude": ["lm_head"], "kv_cache_post_rope": False,
        "kv_cache_quant_config": {}, "layer_quant_config": {}, "layer_type_quant_config": {},
        "quant_mode": "eager_mode", "softmax_quant_spec": None, "version": "0.13",
        "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
    }


def quark() -> None:
    from safetensors.torch import load_file

    codes, scale, want = fp8_rows()
    rows = {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "group_size": None, "is_dynamic": False,
            "scale_format": None, "symmetric": True}
    save("quark-fp8-rows", {"weight": codes, "weight_scale": scale}, want, quark_config(rows, None))
    t = load_file(os.path.join(FOLDER, "ct-mxfp4.safetensors"))
    blocks = {"dtype": "fp4", "qscheme": "per_group", "ch_axis": -1, "group_size": 32, "is_dynamic": False,
              "scale_format": "e8m0", "symmetric": None}
    tensors = {"weight": t["m.weight_packed"], "weight_scale": t["m.weight_scale"]}
    save("quark-mxfp4", tensors, t["want.weight"], quark_config(blocks, blocks | {"is_dynamic": True}))


def auto_round_mxfp8() -> None:
    """Packed by the package, which takes scales as exponents."""
    from auto_round.export.export_to_autoround.qlinear_fp import QuantLinear

    exponents = torch.ceil(torch.log2(weights().reshape(OUT, -1, 32).abs().amax(-1) / 448))
    layer = QuantLinear(8, 32, IN, OUT, False, data_type="mx_fp8", act_bits=8)
    layer.pack(linear_of(weights()), exponents.reshape(-1, 1), device="cpu")
    tensors = {key: getattr(layer, key) for key in ("weight", "weight_scale")}
    tensors["weight_scale"] = tensors["weight_scale"].reshape(OUT, -1)
    config = {
        "quant_method": "auto-round", "bits": 8, "group_size": 32, "sym": True, "data_type": "mx_fp",
        "act_bits": 8, "act_data_type": "mx_fp", "act_group_size": 32, "act_sym": True, "act_dynamic": True,
        "packing_format": "auto_round:llm_compressor", "block_name_to_quantize": "model.layers",
        "autoround_version": "0.16.1", "iters": 0,
    }
    want = tensors["weight"].float() * torch.exp2(exponents).repeat_interleave(32, 1)
    save("auto-round-mxfp8", tensors, want, config)


def grid(w: torch.Tensor, bits: int, group: int, sym: bool):
    """Scales and zeros of float groups, [out][groups]; scales are rounded to float16 as stored."""
    g = w.reshape(OUT, -1, group)
    most = 2**bits - 1
    if sym:
        scale = g.abs().amax(-1) / max(most // 2, 1)
        return scale.half().float(), most // 2 + 1
    scale = (g.amax(-1) - g.amin(-1)) / most
    scale = scale.half().float()
    return scale, torch.round(-g.amin(-1) / scale).clamp(1, most)


def rounded(w: torch.Tensor, scale, zero, bits: int, group: int) -> torch.Tensor:
    scale = scale.repeat_interleave(group, 1)
    if isinstance(zero, torch.Tensor):
        zero = zero.repeat_interleave(group, 1)
    codes = torch.round(w / scale + zero).clamp(0, 2**bits - 1)
    return (codes - zero) * scale


def linear_of(w: torch.Tensor) -> torch.nn.Linear:
    linear = torch.nn.Linear(IN, OUT, bias=False)
    linear.weight.data = w.clone()
    return linear


def gptq_config(bits: int, group: int, sym: bool, version: str, desc_act: bool = False) -> dict:
    return {
        "bits": bits, "group_size": group, "sym": sym, "desc_act": desc_act,
        "checkpoint_format": version, "quant_method": "gptq", "lm_head": False,
        "pack_dtype": "int32", "damp_percent": 0.01, "static_groups": False,
        "true_sequential": False, "provider": "auto-round", "autoround_version": "0.16.1",
        "block_name_to_quantize": "model.layers", "dynamic": {"-:.*gate": {}},
        "meta": {"quantizer": ["gptqmodel:7.7"]},
    }


def gptq(name: str, bits: int, group: int, sym: bool, version: str) -> None:
    module = qlinear_torch if version == "gptq_v2" else qlinear_torch_zp
    size = IN if group == -1 else group
    scale, zero = grid(weights(), bits, size, sym)
    layer = module.QuantLinear(bits, size, IN, OUT, False, g_idx=True)
    layer.device = "cpu"
    layer.pack(linear_of(weights()), scale, zero, None, "cpu")
    tensors = {k: getattr(layer, k) for k in ("qweight", "qzeros", "scales")}
    tensors["g_idx"] = torch.arange(IN, dtype=torch.int32) // size
    want = rounded(weights(), scale, zero, bits, size)
    save(name, tensors, want, gptq_config(bits, group, sym, version))


def gptq_act_order() -> None:
    """Inputs in the order of the model, and their groups in another."""
    bits, group = 4, 32
    order = torch.randperm(IN, generator=torch.Generator().manual_seed(2))
    place = torch.argsort(order)
    sorted_weights = weights()[:, order]
    scale, zero = grid(sorted_weights, bits, group, False)
    layer = qlinear_torch_zp.QuantLinear(bits, group, IN, OUT, False, g_idx=True)
    layer.pack(linear_of(sorted_weights), scale, zero, None, "cpu")
    shifts = torch.arange(0, 32, bits)
    codes = (layer.qweight[:, None, :] >> shifts[None, :, None]) & 15
    codes = codes.reshape(IN, OUT)[place].reshape(IN // 8, 8, OUT)
    tensors = {
        "qweight": (codes << shifts[None, :, None]).sum(1).to(torch.int32),
        "qzeros": layer.qzeros,
        "scales": layer.scales,
        "g_idx": (place // group).to(torch.int32),
    }
    want = rounded(sorted_weights, scale, zero, bits, group)[:, place]
    save("gptq-act-order", tensors, want, gptq_config(bits, group, False, "gptq", True))


def awq(name: str, group: int, sym: bool) -> None:
    size = IN if group == -1 else group
    scale, zero = grid(weights(), 4, size, sym)
    layer = WQLinear_GEMM.from_linear(
        linear_of(weights()), 4, group, False, scale.t().contiguous(),
        int(zero) if sym else zero.t().contiguous(),
    )
    tensors = {k: getattr(layer, k) for k in ("qweight", "qzeros", "scales")}
    config = {
        "bits": 4, "group_size": group, "zero_point": not sym, "sym": sym, "version": "gemm",
        "quant_method": "awq", "provider": "auto-round", "modules_to_not_convert": ["lm_head"],
    }
    save(name, tensors, rounded(weights(), scale, zero, 4, size), config)


def compressed_act_order() -> None:
    """The package has no more weight_g_idx, but published checkpoints have it."""
    bits, group = 4, 32
    order = torch.randperm(IN, generator=torch.Generator().manual_seed(3))
    place = torch.argsort(order)
    sorted_weights = weights()[:, order]
    scale, zero = grid(sorted_weights, bits, group, True)
    codes = torch.round(sorted_weights / scale.repeat_interleave(group, 1)).clamp(-8, 7)
    tensors = {
        "weight_packed": pack_to_int32(codes[:, place].to(torch.int8), bits),
        "weight_scale": scale,
        "weight_shape": torch.tensor([OUT, IN]),
        "weight_g_idx": (place // group).to(torch.int32),
    }
    config = json.loads(json.dumps(cases["ct-w4a16"]))
    config["config_groups"]["group_0"]["weights"]["actorder"] = "group"
    save("ct-w4a16-actorder", tensors, rounded(sorted_weights, scale, zero, bits, group)[:, place], config)


def main() -> None:
    os.makedirs(FOLDER, exist_ok=True)
    compressed("ct-fp8-tensor", "FP8")
    compressed("ct-fp8-channel", "FP8_DYNAMIC")
    compressed("ct-fp8-block", "FP8_BLOCK", block_structure=[16, 32])
    compressed("ct-w8a8", "W8A8")
    compressed("ct-w8a16", "W8A16", strategy="channel", group_size=None)
    compressed("ct-w8a16-group", "W8A16", group_size=32)
    compressed("ct-w4a16", "W4A16", group_size=32)
    compressed("ct-w4a16-asym", "W4A16_ASYM", group_size=32)
    compressed("ct-nvfp4", "NVFP4")
    compressed("ct-nvfp4a16", "NVFP4A16")
    compressed("ct-mxfp4", "MXFP4")
    compressed("ct-groups", "W4A16", targets=["re:m$"], others={"FP8_DYNAMIC": ["Linear"]}, group_size=32)
    compressed("ct-w3a16-asym", "W3A16", group_size=32, symmetric=False)
    compressed("ct-w2a16", "W2A16", group_size=32)
    compressed("ct-w4a8", "W4A8", group_size=32)
    compressed("ct-mxfp8", "MXFP8")
    modelopt_nvfp4()
    modelopt_fp8_blocks()
    fbgemm()
    quark()
    auto_round_mxfp8()
    compressed_act_order()
    gptq("gptq-sym", 4, 32, True, "gptq")
    gptq("gptq-asym", 4, 32, False, "gptq")
    gptq("gptq-asym-v2", 4, 32, False, "gptq_v2")
    gptq("gptq-int8", 8, 32, True, "gptq")
    gptq("gptq-int8-asym", 8, -1, False, "gptq")
    gptq_act_order()
    gptq("gptq-int2", 2, 32, False, "gptq")
    gptq("gptq-int3", 3, 32, True, "gptq")
    gptq("gptq-int3-asym", 3, 32, False, "gptq")
    gptq("gptq-int3-asym-v2", 3, 32, False, "gptq_v2")
    gptq("gptq-int6-asym-v2", 6, 32, False, "gptq_v2")
    # Says that it is of the first version, but has the zeros of the second.
    gptq("gptq-sym-v2-named-v1", 4, 32, True, "gptq_v2")
    cases["gptq-sym-v2-named-v1"]["checkpoint_format"] = "gptq"
    awq("awq", 32, False)
    awq("awq-sym", 32, True)
    awq("awq-whole-rows", -1, False)
    with open(os.path.join(FOLDER, "cases.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
