#!/usr/bin/env python3
"""Writes a GGUF file with random blocks for a config.json of bench/configs, to time loading and running it.

    bench/make_gguf.py CONFIG_FOLDER OUT.gguf q4_k_m|q4_0|q8_0

Dense Qwen3, without a tokenizer: run it with --skip-tokenizer-init. q4_k_m has llama.cpp's mix of Q4_K and Q6_K.
q4_0 has its lm_head in Q6_K, as llama.cpp's files do. The blocks of a type repeat one random chunk.
"""
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "support"))
from gguf_convert import config_entries, entry, string, tensor_name, U32  # noqa: E402
from make_checkpoint import shapes  # noqa: E402

ALIGNMENT = 32
CHUNK_BLOCKS = 1 << 16
# Number, elements and bytes of a block, and where its floats in F16 are.
TYPES = {"F32": (0, 1, 4, ()), "Q4_0": (2, 32, 18, (0,)), "Q8_0": (8, 32, 34, (0,)), "Q4_K": (12, 256, 144, (0, 2)),
         "Q6_K": (14, 256, 210, (208,))}


def type_of(kind, name, num_layers, is_tied):
    """The type of a matrix in a file of llama.cpp."""
    if name == "lm_head.weight" or (is_tied and "embed_tokens" in name):
        return "Q8_0" if kind == "q8_0" else "Q6_K"
    if kind != "q4_k_m":
        return kind.upper()
    if "v_proj" not in name and "down_proj" not in name:
        return "Q4_K"
    layer = int(name.split(".")[2])
    is_more = layer < num_layers // 8 or layer >= 7 * num_layers // 8 or (layer - num_layers // 8) % 3 == 2
    return "Q6_K" if is_more else "Q4_K"


def make_chunk(type_name):
    """Random blocks whose floats are of a usual size: random bits would be infinite, or slow subnormals."""
    _, _, size, floats = TYPES[type_name]
    if type_name == "F32":
        return struct.pack("<f", 1) * CHUNK_BLOCKS
    block = bytearray(os.urandom(size * CHUNK_BLOCKS))
    for at in floats:
        block[at::size] = os.urandom(CHUNK_BLOCKS)
        block[at + 1 :: size] = b"\x08" * CHUNK_BLOCKS # 0.00012 to 0.00018
    return bytes(block)


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in ("q4_k_m", "q4_0", "q8_0"):
        sys.exit(__doc__)
    source, out, kind = sys.argv[1:]
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": config.get("rope_theta")})
    is_tied = bool(config.get("tie_word_embeddings"))
    header, end, sizes = b"", 0, []
    for name, shape in shapes(config):
        type_name = "F32" if len(shape) == 1 else type_of(kind, name, config["num_hidden_layers"], is_tied)
        number, elements, size, _ = TYPES[type_name]
        for n in shape:
            size *= n
        size //= elements
        header += string(tensor_name(name, "qwen3")) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", number, end)
        sizes.append((type_name, size))
        end += size + -size % ALIGNMENT
    entries = config_entries(config, "qwen3") + [entry("qwen3.vocab_size", U32, config["vocab_size"])]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(sizes), len(entries)) + b"".join(entries) + header
    chunks = {type_name: make_chunk(type_name) for type_name in TYPES}
    with open(out, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for type_name, size in sizes:
            chunk = chunks[type_name]
            for at in range(0, size, len(chunk)):
                file.write(chunk[: size - at])
            file.write(bytes(-size % ALIGNMENT))


if __name__ == "__main__":
    main()
