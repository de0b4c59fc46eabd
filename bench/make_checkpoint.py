#!/usr/bin/env python3
"""Writes a checkpoint with random weights for a config.json of bench/configs, to time loading it.

    bench/make_checkpoint.py CONFIG_FOLDER OUT_FOLDER

Dense Qwen3 in bfloat16: config.json, model.safetensors, and the bundled model's tokenizer. The
weights repeat one random piece, so that 16 GB are written in seconds.
"""
import json
import os
import shutil
import struct
import sys

PIECE_BYTES = 32 << 20


def shapes(c):
    """Yields (name, shape) of all tensors of the model that `c`, its config.json, describes."""
    hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "self_attn.q_proj.weight", (q, hidden)
        yield at + "self_attn.k_proj.weight", (kv, hidden)
        yield at + "self_attn.v_proj.weight", (kv, hidden)
        yield at + "self_attn.o_proj.weight", (hidden, q)
        yield at + "self_attn.q_norm.weight", (head,)
        yield at + "self_attn.k_norm.weight", (head,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        yield at + "mlp.gate_proj.weight", (inner, hidden)
        yield at + "mlp.up_proj.weight", (inner, hidden)
        yield at + "mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", (c["vocab_size"], hidden)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = sys.argv[1:]
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    header, end = {}, 0
    for name, shape in shapes(config):
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # 16 random bits may be NaN. These are of either sign, with magnitudes from 0.008 to 0.03.
    piece = bytearray(os.urandom(PIECE_BYTES))
    piece[1::2] = bytes(0x3C | byte & 0x80 for byte in piece[1::2])
    os.makedirs(out, exist_ok=True)
    shutil.copy(os.path.join(source, "config.json"), out)
    bundled = os.path.join(os.path.dirname(__file__), "..", "models", "tiny-qwen3")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(bundled, name), out)
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for at in range(0, end, PIECE_BYTES):
            file.write(piece[: end - at])


if __name__ == "__main__":
    main()
