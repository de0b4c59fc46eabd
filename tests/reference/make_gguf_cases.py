#!/usr/bin/env python3
"""Writes tests/reference/data/gguf_blocks.safetensors: two blocks of each element type of GGUF.

    pip install gguf safetensors
    tests/reference/make_gguf_cases.py

"TYPE.blocks" has random bytes with scales that are numbers. "TYPE.want" has the values that the package
gguf decodes; those that it does not decode, Q8_K, Q1_0 and Q2_0, have them by their definition. "TYPE.grid" has the
package's combinations of levels, packed as in gguf_grids.h.
"""
import os

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "gguf_blocks.safetensors")
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [], T.Q8_K: [],
          T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0],
          T.TQ1_0: [52], T.TQ2_0: [64], T.NVFP4: [], T.Q1_0: [0], "Q2_0": [0]}

rng = np.random.default_rng(1)
tensors = {}
for kind, halves in HALVES.items():
    elements, size = (64, 18) if kind == "Q2_0" else gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (4, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = rng.normal(0, 0.01, (4, 1)).astype(np.float16).view(np.uint8)
    if kind == T.MXFP4:
        blocks[:, 0] = [0, 1, 120, 254]
    if kind == T.IQ1_M: # the scale's nibbles are the high ones of four words
        half = int(rng.normal(0, 0.01, 1).astype(np.float16).view(np.uint16)[0])
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (half >> 4 * i & 15) << 4
    if kind == T.NVFP4:
        blocks[0, :4] = [0, 1, 7, 8]
        blocks[1, :4] = [126, 127, 56, 64]
    if kind == T.Q8_K:
        blocks[:, :4] = rng.normal(0, 0.01, (4, 1)).astype(np.float32).view(np.uint8)
        want = blocks[:, :4].copy().view(np.float32) * blocks[:, 4:260].view(np.int8).astype(np.float32)
    elif kind in (T.Q1_0, "Q2_0"):
        bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32)
        levels = 2 * bits - 1 if kind == T.Q1_0 else bits[:, ::2] + 2 * bits[:, 1::2] - 1
        want = blocks[:, :2].copy().view(np.float16).astype(np.float32) * levels
    else:
        want = gguf.dequantize(blocks, kind)
    name = kind if kind == "Q2_0" else kind.name
    tensors[f"{name}.blocks"] = blocks
    tensors[f"{name}.want"] = want.reshape(4, elements).astype(np.float32)
for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"):
    kind = getattr(gguf.quants, name)
    kind.init_grid()
    levels = np.searchsorted(kind.grid_map, kind.grid.reshape(kind.grid_shape)).astype(np.uint16)
    width = 2 if levels.shape[1] == 8 else 3
    tensors[f"{name}.grid"] = (levels << width * np.arange(levels.shape[1], dtype=np.uint16)).sum(1).astype(np.int16)
save_file(tensors, OUT)
