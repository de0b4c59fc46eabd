#!/usr/bin/env python3
"""The workloads of bench/speed.csv's engines, on any engine with nano-vllm's Python API, or on vLLM. Prints one JSON line
for each: seconds, and generated, prompt and all tokens a second.

    python3 bench/engines.py MODEL                  # nanovllm, or nano-vllm where that is installed
    python3 bench/engines.py MODEL --module vllm --load-format dummy

MODEL is a checkpoint's folder; bench/make_checkpoint.py makes one of random weights. Token ids are drawn with a fixed
seed, so that all engines get the same."""

import argparse
import importlib
import json
import random
import time


def workloads(largest_id):
    """name -> (prompts as token ids, tokens to generate of each). The first is nano-vllm's bench.py number for number:
    it draws a prompt's length, then its tokens."""
    draw = random.Random(0)
    prompts = lambda sizes: [[draw.randint(0, largest_id) for _ in range(size)] for size in sizes]
    several = prompts(draw.randint(100, 1024) for _ in range(256))
    lengths = [draw.randint(100, 1024) for _ in several]
    shared = prompts([2048])[0]
    return {
        "bench.py": (several, lengths),
        "1 stream, 128/512": (prompts([128]), [512]),
        "8 streams, 512/512": (prompts([512] * 8), [512] * 8),
        "256 streams, 32/512": (prompts([32] * 256), [512] * 256),
        "128 prompts of 1,024 tokens": (prompts([1024] * 128), [1] * 128),
        "256 x (2,048 shared + 64)/64": ([shared + own for own in prompts([64] * 256)], [64] * 256),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--module", default="nanovllm", help="nanovllm or vllm")
    parser.add_argument("--load-format", help="vllm's and ours: dummy needs no weights")
    parser.add_argument("--largest-id", type=int, default=10000, help="of a token")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--scale", type=float, default=1, help="the first part of each workload's requests")
    args = parser.parse_args()
    module = importlib.import_module(args.module)
    more = {"load_format": args.load_format} if args.load_format else {}
    start = time.perf_counter()
    llm = module.LLM(args.model, max_model_len=args.max_model_len, **more)
    print(json.dumps({"workload": "start", "seconds": round(time.perf_counter() - start, 2)}), flush=True)

    def generate(prompts, lengths):
        params = [module.SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=length) for length in lengths]
        inputs = [{"prompt_token_ids": ids} for ids in prompts] if args.module == "vllm" else prompts
        start = time.perf_counter()
        llm.generate(inputs, params, use_tqdm=False)
        return time.perf_counter() - start

    generate([[1, 2, 3]], [16])  # what only the first request pays for
    for name, (prompts, lengths) in workloads(args.largest_id).items():
        count = max(1, round(len(prompts) * args.scale))
        prompts, lengths = prompts[:count], lengths[:count]
        seconds = generate(prompts, lengths)
        num_prompt, num_out = sum(map(len, prompts)), sum(lengths)
        rates = {"out_tok_s": num_out, "prompt_tok_s": num_prompt, "all_tok_s": num_out + num_prompt}
        print(json.dumps({"workload": name, "seconds": round(seconds, 3),
                          **{rate: round(tokens / seconds, 1) for rate, tokens in rates.items()}}), flush=True)


if __name__ == "__main__":
    main()
