#!/usr/bin/env python3
"""Perplexity of the bundled model by kind of weights and KV cache, on conversations it has not seen.

    bench/quality.py [--conversations N] [--isa NAME] [PROGRAM]     default: build/release/nanovllm

The conversations come from tools/tiny-model/tiny_data.py, with a seed that training did not use.
Only the assistant's words count: they are what the model was trained to predict. Standard library
only.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "models", "tiny-qwen3")
HEAD = "<|im_start|>assistant\n"
END = "<|im_end|>"
SEED = 27182818

sys.path.insert(0, os.path.join(ROOT, "tools", "tiny-model"))
import tiny_data  # noqa: E402


def conversations(count):
    """Texts in the form that the chat template gives to turns without thinking."""
    r = random.Random(SEED)
    for _ in range(count):
        yield "".join(f"<|im_start|>{message['role']}\n{message['content']}{END}\n"
                      for message in tiny_data.conversation(r))


def tokens_of(program, text):
    out = subprocess.run([program, "tokenize", "-m", MODEL, "--json", text], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)


def is_answer(ids, head, end):
    """For each token whether it is a word of the assistant, or the end of its turn."""
    inside, result = False, []
    for i, token in enumerate(ids):
        if not inside:
            inside = ids[max(0, i - len(head)):i] == head
        result.append(inside)
        inside = inside and token != end
    return result


def perplexity(program, requests, marks, flags):
    """(perplexity, counted tokens) of one run over all requests."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.jsonl")
        subprocess.run([program, "generate", "-m", MODEL, "--device", "cpu", "--input", requests,
                        "--output", out, *flags], check=True, stderr=subprocess.DEVNULL)
        total, count = 0.0, 0
        with open(out, encoding="utf-8") as file:
            for line in file:
                result = json.loads(line)
                answer = is_answer(result["prompt_token_ids"], *marks)
                for logprob, counts in zip(result["prompt_logprobs"], answer):
                    if counts:
                        total, count = total - logprob["logprob"], count + 1
    return math.exp(total / count), count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default="build/release/nanovllm")
    parser.add_argument("--conversations", type=int, default=400)
    parser.add_argument("--isa", default="auto", help="instruction set of the kernels")
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    marks = (tokens_of(program, HEAD), tokens_of(program, END)[0])
    kinds = [("float32", "none", "float32"), ("bfloat16", "none", "float32"),
             ("bfloat16", "none", "bfloat16"), ("bfloat16", "none", "int8"),
             ("bfloat16", "int8", "bfloat16"), ("bfloat16", "int4", "bfloat16")]
    with tempfile.TemporaryDirectory() as folder:
        requests = os.path.join(folder, "requests.jsonl")
        with open(requests, "w", encoding="utf-8") as file:
            for text in conversations(args.conversations):
                json.dump({"prompt": text, "max_tokens": 1, "prompt_logprobs": 0}, file)
                file.write("\n")
        print("weights    quantization  KV cache   tokens  perplexity")
        for dtype, quantization, cache in kinds:
            flags = ["--dtype", dtype, "--quantization", quantization, "--kv-cache-dtype", cache,
                     "--cpu-isa", args.isa]
            value, count = perplexity(program, requests, marks, flags)
            print(f"{dtype:<10} {quantization:<13} {cache:<10} {count:6} {value:11.5f}", flush=True)


if __name__ == "__main__":
    main()
