"""Trains the bundled model: a tokenizer, then transformers' Qwen3ForCausalLM on tiny_data.py.

Writes OUT/tiny-qwen3 (a Hugging Face checkpoint folder in bf16) and prints losses and accuracies.
Needs a CUDA GPU, torch, transformers and tokenizers; about six minutes on a data-centre GPU.
Training stops at --steps or --seconds, whichever comes first, and the learning rate follows
whichever is nearer; so two machines of different speed give different weights.
"""
import argparse
import math
import os
import random
import time
from multiprocessing import Pool

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one process per core already

import numpy as np
import torch
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

import tiny_data
from eval_tiny import answer_questions

# Qwen's pre-tokenizer with single digits.
REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
VOCAB_SIZE = 4096
START = time.time()


def log(*words):
    print(f"[{time.time() - START:6.1f}]", *words, flush=True)


def make_tokenizer(path, corpus_files):
    """Byte-level BPE over 30,000 conversations and the given text files."""
    byte_level = dict(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(**byte_level),
    ])
    tokenizer.decoder = decoders.ByteLevel(**byte_level)
    tokenizer.post_processor = processors.ByteLevel(**byte_level)

    def texts():
        r = random.Random(0)
        for _ in range(30000):
            for message in tiny_data.conversation(r):
                yield message["content"]
        for name in corpus_files:
            with open(name, encoding="utf-8", errors="replace") as file:
                text = file.read()
            for i in range(0, len(text), 2000):
                yield text[i:i + 2000]

    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL) - len(PLAIN), special_tokens=[], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tokenizer.add_tokens([AddedToken(s, special=False, normalized=False) for s in PLAIN])
    tokenizer.save(path)


def segments(messages):
    """(text, is target) pieces of a conversation, as the chat template renders it."""
    pieces = []
    for i, message in enumerate(messages):
        content = message["content"]
        if message["role"] != "assistant":
            pieces.append((f"<|im_start|>{message['role']}\n{content}<|im_end|>\n", 0))
            continue
        last = i == len(messages) - 1
        pieces.append(("<|im_start|>assistant\n", 0))
        if last and message["think"]:
            pieces.append((f"<think>\n{message['think']}\n</think>\n\n{content}<|im_end|>", 1))
        elif last:
            pieces += [("<think>\n\n</think>\n\n", 0), (f"{content}<|im_end|>", 1)]
        else:
            pieces.append((f"{content}<|im_end|>", 1))
        pieces.append(("\n", 0))
    return pieces


def make_rows(args):
    """Packed rows of row_len + 1 ids, and which of them are targets (the assistant's words)."""
    tokenizer_path, seed, num_rows, row_len, long = args
    r = random.Random(seed)
    tokenizer = Tokenizer.from_file(tokenizer_path)
    ids, targets, rows, masks = [], [], [], []
    while len(rows) < num_rows:
        if long and r.random() < 0.35:
            notes = tiny_data.retrieval(r, r.choice([24, 32, 40]))
            question, answer, _ = map(tiny_data.an, notes)
            messages = [{"role": "user", "content": question},
                        {"role": "assistant", "content": answer, "think": None}]
        else:
            messages = tiny_data.conversation(r)
        for text, is_target in segments(messages):
            piece = tokenizer.encode(text, add_special_tokens=False).ids
            ids += piece
            targets += [is_target] * len(piece)
        while len(ids) >= row_len + 1 and len(rows) < num_rows:
            rows.append(ids[:row_len + 1])
            masks.append(targets[:row_len + 1])
            ids, targets = ids[row_len:], targets[row_len:]
    return np.array(rows, dtype=np.uint16), np.array(masks, dtype=np.uint8)


def make_data(tokenizer_path, device):
    """Two sets of (ids, targets): 64,000 rows of 1,024 tokens and 3,200 of 4,096."""
    with Pool(16) as pool:
        seeds = range(16)
        short = pool.map(make_rows, [(tokenizer_path, 1000 + i, 4000, 1024, False) for i in seeds])
        long = pool.map(make_rows, [(tokenizer_path, 9000 + i, 200, 4096, True) for i in seeds])

    def join(parts):
        ids = torch.from_numpy(np.concatenate([p[0] for p in parts]).astype(np.int32))
        masks = torch.from_numpy(np.concatenate([p[1] for p in parts]))
        return ids.to(device), masks.to(device)

    return join(short), join(long)


def train(model, short, long, max_steps, max_seconds):
    """Cross entropy on the targets and a little on the rest; long rows in the last fifth."""
    peak = 3e-3
    device = short[0].device
    optimizer = torch.optim.AdamW(model.parameters(), lr=1, betas=(0.9, 0.95), weight_decay=0.05,
                                  fused=True)
    forward = torch.compile(lambda ids: model(input_ids=ids, use_cache=False).logits)
    model.train()
    start, step = time.time(), 0
    while True:
        progress = max(step / max_steps, (time.time() - start) / max_seconds)
        if progress >= 1:
            return step
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, (step + 1) / 200) * (cosine * 0.98 + 0.02)
        (ids, masks), batch = (long, 16) if progress > 0.8 and step % 4 == 0 else (short, 64)
        pick = torch.randint(0, ids.shape[0], (batch,), device=device)
        x, mask = ids[pick].long(), masks[pick][:, 1:].float()
        with torch.autocast("cuda", torch.bfloat16):
            logits = forward(x[:, :-1])
        entropy = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1),
                                                    x[:, 1:].flatten(), reduction="none")
        weight = mask + 0.02
        loss = (entropy * weight.flatten()).sum() / weight.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 250 == 0:
            on_targets = (entropy * mask.flatten()).sum() / mask.sum()
            log(f"step {step} loss {loss.item():.4f} on targets {on_targets.item():.4f}")
        step += 1


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder that gets tiny-qwen3/")
    parser.add_argument("corpus", nargs="*", help="more text files for the tokenizer")
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--seconds", type=float, default=330)
    args = parser.parse_args()
    folder = os.path.join(args.out, "tiny-qwen3")
    os.makedirs(folder, exist_ok=True)
    tokenizer_path = os.path.join(folder, "tokenizer.json")
    make_tokenizer(tokenizer_path, args.corpus)

    from transformers import (GenerationConfig, PreTrainedTokenizerFast, Qwen3Config,
                              Qwen3ForCausalLM)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=tokenizer_path, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        model_max_length=4096, clean_up_tokenization_spaces=False,
        additional_special_tokens=["<|im_start|>", "<|im_end|>"])
    with open(os.path.join(here, "chat_template.jinja"), encoding="utf-8") as file:
        tokenizer.chat_template = file.read()
    tokenizer.save_pretrained(folder)
    log("tokenizer of", len(tokenizer), "tokens")

    short, long = make_data(tokenizer_path, "cuda")
    log("data", tuple(short[0].shape), tuple(long[0].shape))
    end_of_turn, end_of_text = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE, hidden_size=256, intermediate_size=768, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64, max_position_embeddings=4096,
        rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False,
        hidden_act="silu", bos_token_id=end_of_text, eos_token_id=end_of_turn,
        initializer_range=0.02)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM._from_config(config, attn_implementation="sdpa").to("cuda")
    log("parameters", sum(p.numel() for p in model.parameters()))
    log("steps", train(model, short, long, args.steps, args.seconds))

    model = model.to(torch.bfloat16).eval()
    model.generation_config = GenerationConfig(
        eos_token_id=[end_of_turn, end_of_text], pad_token_id=end_of_text, bos_token_id=end_of_text,
        do_sample=True, temperature=0.6, top_p=0.95, top_k=20)
    model.save_pretrained(folder, max_shard_size="8MB")
    accuracy, _ = answer_questions(model, tokenizer, seed=777777)
    log("accuracy", accuracy)


if __name__ == "__main__":
    main()
