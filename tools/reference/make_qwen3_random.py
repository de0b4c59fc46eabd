"""A Qwen3 of a published shape with random bf16 weights, as a Hugging Face checkpoint.

With --gguf the same weights are also written as GGUF, so that engines of the llama.cpp family can
be measured beside this one on equal weights. Needs numpy; --gguf needs the gguf package.
"""
import argparse
import json
import os
import shutil

import numpy as np

# hidden size, intermediate size, layers, heads, KV heads
SHAPES = {
    "0.6b": (1024, 3072, 28, 16, 8),
    "1.7b": (2048, 6144, 28, 16, 8),
    "tiny": (256, 512, 2, 4, 2),
}
VOCAB_SIZE, HEAD_DIM = 151936, 128


def make_config(shape):
    hidden, intermediate, layers, heads, kv_heads = shape
    return dict(
        architectures=["Qwen3ForCausalLM"], attention_bias=False, attention_dropout=0.0,
        bos_token_id=151643, eos_token_id=151645, head_dim=HEAD_DIM, hidden_act="silu",
        hidden_size=hidden, initializer_range=0.02, intermediate_size=intermediate,
        max_position_embeddings=40960, max_window_layers=layers, model_type="qwen3",
        num_attention_heads=heads, num_hidden_layers=layers, num_key_value_heads=kv_heads,
        rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000, sliding_window=None,
        tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, use_sliding_window=False,
        vocab_size=VOCAB_SIZE)


def make_tensors(shape, seed):
    """{name: uint16 array of bf16 bits}"""
    hidden, intermediate, layers, heads, kv_heads = shape
    r = np.random.default_rng(seed)

    def matrix(rows, cols):
        values = r.standard_normal((rows, cols), dtype=np.float32) * 0.02
        return ((values.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)

    def ones(n):
        return np.full(n, 0x3f80, np.uint16)

    tensors = {"model.embed_tokens.weight": matrix(VOCAB_SIZE, hidden)}
    for layer in range(layers):
        attention = f"model.layers.{layer}.self_attn."
        mlp = f"model.layers.{layer}.mlp."
        tensors |= {
            attention + "q_proj.weight": matrix(heads * HEAD_DIM, hidden),
            attention + "k_proj.weight": matrix(kv_heads * HEAD_DIM, hidden),
            attention + "v_proj.weight": matrix(kv_heads * HEAD_DIM, hidden),
            attention + "o_proj.weight": matrix(hidden, heads * HEAD_DIM),
            attention + "q_norm.weight": ones(HEAD_DIM),
            attention + "k_norm.weight": ones(HEAD_DIM),
            mlp + "gate_proj.weight": matrix(intermediate, hidden),
            mlp + "up_proj.weight": matrix(intermediate, hidden),
            mlp + "down_proj.weight": matrix(hidden, intermediate),
            f"model.layers.{layer}.input_layernorm.weight": ones(hidden),
            f"model.layers.{layer}.post_attention_layernorm.weight": ones(hidden),
        }
    tensors["model.norm.weight"] = ones(hidden)
    return tensors


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    parts = name.split(".")
    return f"blk.{parts[2]}.{GGUF_NAMES['.'.join(parts[3:-1])]}.weight"


def write_gguf(path, name, shape, tensors, tokenizer_json):
    import gguf
    hidden, intermediate, layers, heads, kv_heads = shape
    out = gguf.GGUFWriter(path, "qwen3")
    out.add_name(name)
    out.add_context_length(40960)
    out.add_embedding_length(hidden)
    out.add_block_count(layers)
    out.add_feed_forward_length(intermediate)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_key_length(HEAD_DIM)
    out.add_value_length(HEAD_DIM)
    out.add_rope_freq_base(1e6)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)

    with open(tokenizer_json, encoding="utf-8") as file:
        tokenizer = json.load(file)
    tokens = [f"[PAD{i}]" for i in range(VOCAB_SIZE)]
    types = [gguf.TokenType.UNUSED] * VOCAB_SIZE
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], gguf.TokenType.CONTROL
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list(tokens)
    out.add_token_types(types)
    merges = tokenizer["model"]["merges"]
    out.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    out.add_eos_token_id(151645)
    out.add_pad_token_id(151643)
    out.add_bos_token_id(151643)

    for tensor_name, tensor in tensors.items():
        if tensor.ndim == 1:
            wide = (tensor.astype(np.uint32) << 16).view(np.float32)
            out.add_tensor(gguf_name(tensor_name), wide)
        else:
            out.add_tensor(gguf_name(tensor_name), tensor.view(np.uint8),
                           raw_dtype=gguf.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", help="folder to write")
    parser.add_argument("tokenizer", help="folder whose files are copied beside the weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gguf", action="store_true", help="also write model-bf16.gguf")
    args = parser.parse_args()

    shape = SHAPES[args.shape]
    os.makedirs(args.out, exist_ok=True)
    for name in os.listdir(args.tokenizer):
        shutil.copy(os.path.join(args.tokenizer, name), args.out)
    with open(f"{args.out}/config.json", "w", encoding="utf-8") as file:
        json.dump(make_config(shape), file, indent=2)
    generation = dict(bos_token_id=151643, do_sample=True, eos_token_id=[151645, 151643],
                      pad_token_id=151643, temperature=0.6, top_k=20, top_p=0.95)
    with open(f"{args.out}/generation_config.json", "w", encoding="utf-8") as file:
        json.dump(generation, file)
    tensors = make_tensors(shape, args.seed)
    write_safetensors(f"{args.out}/model.safetensors", tensors)
    if args.gguf:
        write_gguf(f"{args.out}/model-bf16.gguf", args.shape, shape, tensors,
                   f"{args.tokenizer}/tokenizer.json")
    print(args.shape, sum(t.size for t in tensors.values()), "parameters")


if __name__ == "__main__":
    main()
