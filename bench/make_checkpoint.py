#!/usr/bin/env python3
"""Writes a checkpoint with random weights for a config.json of bench/configs, to time loading it.

    bench/make_checkpoint.py CONFIG_FOLDER OUT_FOLDER [fp8|gptq]

Dense Qwen3: config.json, model.safetensors, and the bundled model's tokenizer. The weights repeat one
random chunk, so that 16 GB are written in seconds. They are bfloat16; with fp8 or gptq the linears of
the layers are e4m3 with a scale for 128 x 128 weights, or 4 bits with a scale for 128 of a row.
"""
import json
import os
import shutil
import struct
import sys

CHUNK_BYTES = 32 << 20


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


def tensors(config, kind):
    """Yields (name, dtype, shape) of what the checkpoint holds."""
    for name, shape in shapes(config):
        if kind == "" or "_proj." not in name:
            yield name, "BF16", shape
        elif kind == "fp8":
            yield name, "F8_E4M3", shape
            yield name + "_scale_inv", "BF16", tuple((n + 127) // 128 for n in shape)
        else:
            rows, cols = shape
            module = name[: -len("weight")]
            yield module + "qweight", "I32", (cols // 8, rows)
            yield module + "qzeros", "I32", (cols // 128, rows // 8)
            yield module + "scales", "F16", (cols // 128, rows)


QUANTIZATION = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False},
}
SIZES = {"BF16": 2, "F16": 2, "I32": 4, "F8_E4M3": 1}


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["fp8"], ["gptq"]):
        sys.exit(__doc__)
    source, out = sys.argv[1:3]
    kind = "".join(sys.argv[3:])
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    header, end = {}, 0
    for name, dtype, shape in tensors(config, kind):
        size = SIZES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # 16 random bits may be NaN. These are of either sign, with magnitudes from 0.008 to 0.03. As e4m3
    # they are no NaN either.
    chunk = bytearray(os.urandom(CHUNK_BYTES))
    chunk[0::2] = bytes(byte & 0xBF for byte in chunk[0::2])
    chunk[1::2] = bytes(0x3C | byte & 0x80 for byte in chunk[1::2])
    os.makedirs(out, exist_ok=True)
    if kind:
        config["quantization_config"] = QUANTIZATION[kind]
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    bundled = os.path.join(os.path.dirname(__file__), "..", "models", "tiny-qwen3")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(bundled, name), out)
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for at in range(0, end, CHUNK_BYTES):
            file.write(chunk[: end - at])


if __name__ == "__main__":
    main()
