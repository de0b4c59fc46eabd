#!/usr/bin/env python3
"""Writes tests/reference/data/gguf_blocks.safetensors: two blocks of each element type of GGUF.

    pip install gguf safetensors
    tests/reference/make_gguf_cases.py

"TYPE.blocks" has random bytes with scales that are numbers. "TYPE.want" has the values that the package
gguf decodes; Q8_K, which it does not decode, has them by its definition.
"""
import os

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "gguf_blocks.safetensors")
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [], T.Q8_K: []}

rng = np.random.default_rng(1)
tensors = {}
for kind, halves in HALVES.items():
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (4, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = rng.normal(0, 0.01, (4, 1)).astype(np.float16).view(np.uint8)
    if kind == T.MXFP4:
        blocks[:, 0] = [0, 1, 120, 254]
    if kind == T.Q8_K:
        blocks[:, :4] = rng.normal(0, 0.01, (4, 1)).astype(np.float32).view(np.uint8)
        want = blocks[:, :4].copy().view(np.float32) * blocks[:, 4:260].view(np.int8).astype(np.float32)
    else:
        want = gguf.dequantize(blocks, kind)
    tensors[f"{kind.name}.blocks"] = blocks
    tensors[f"{kind.name}.want"] = want.reshape(4, elements).astype(np.float32)
save_file(tensors, OUT)
