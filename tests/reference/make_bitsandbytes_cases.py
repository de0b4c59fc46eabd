#!/usr/bin/env python3
"""Adds small linears as bitsandbytes writes them to tests/reference/data/quantized.

    pip install torch bitsandbytes safetensors
    tests/reference/make_bitsandbytes_cases.py

"want.weight" has the values by the format's definition, computed in float32, which are those of the
package's own decoding within a rounding. other_cases.json gets what transformers writes as
"quantization_config".
"""
import json
import os

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

OUT, IN = 32, 64
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "quantized")
CONFIG = {
    "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True, "llm_int8_enable_fp32_cpu_offload": False,
    "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": ["lm_head"],
    "llm_int8_threshold": 6.0, "load_in_4bit": True, "load_in_8bit": False,
    "quant_method": "bitsandbytes",
}
cases = {}


def weights() -> torch.Tensor:
    torch.manual_seed(4)
    return torch.randn(OUT, IN) * torch.rand(OUT, 1) * 0.1


def save(name: str, tensors: dict, want: torch.Tensor, **changes) -> None:
    tensors = {"m." + key: value.contiguous() for key, value in tensors.items()}
    save_file(tensors | {"want.weight": want.float()}, os.path.join(FOLDER, name + ".safetensors"))
    cases[name] = CONFIG | changes


def four_bits(name: str, kind: str, is_nested: bool, block: int) -> None:
    packed, state = bnb.quantize_4bit(
        weights(), blocksize=block, compress_statistics=is_nested, quant_type=kind)
    tensors = {"weight": packed}
    for key, value in state.as_dict(packed=True).items():
        tensors["weight." + key] = value
    scales = state.absmax
    if is_nested:
        nested = state.state2
        inner = nested.absmax.repeat_interleave(nested.blocksize)[: scales.numel()]
        scales = nested.code[scales.int()] * inner + state.offset
    codes = torch.stack((packed >> 4, packed & 15), -1).flatten().int()
    want = (state.code[codes].reshape(-1, block) * scales[:, None]).reshape(OUT, IN)
    torch.testing.assert_close(want, bnb.dequantize_4bit(packed, state), rtol=1e-5, atol=1e-7)
    save(name, tensors, want, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=is_nested)


def eight_bits(name: str) -> None:
    codes, scb, _ = bnb.int8_vectorwise_quant(weights().half())
    want = codes.float() * (scb.float() / 127)[:, None]
    torch.testing.assert_close(want, bnb.int8_vectorwise_dequant(codes, scb).float(), rtol=1e-5, atol=1e-7)
    tensors = {"weight": codes, "SCB": scb, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    save(name, tensors, want, load_in_4bit=False, load_in_8bit=True, _load_in_4bit=False, _load_in_8bit=True)


def main() -> None:
    path = os.path.join(FOLDER, "other_cases.json")
    with open(path, encoding="utf-8") as file:
        cases.update(json.load(file))
    four_bits("bnb-nf4", "nf4", False, 64)
    four_bits("bnb-nf4-nested", "nf4", True, 64)
    four_bits("bnb-fp4-nested", "fp4", True, 64)
    eight_bits("bnb-int8")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
