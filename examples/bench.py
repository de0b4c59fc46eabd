"""Measures requests of random ids, all at once.   usage: bench.py [MODEL_FOLDER [REQUESTS]]"""

import sys
import time
from random import randint, seed

from nanovllm import LLM, SamplingParams


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "models/tiny-qwen3"
    num_requests = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    llm = LLM(model, enforce_eager=False, max_model_len=4096)

    seed(0)
    prompts = [[randint(0, 4000) for _ in range(randint(100, 1024))] for _ in range(num_requests)]
    params = [
        SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=randint(100, 1024))
        for _ in range(num_requests)
    ]
    llm.generate(["Benchmark: "], SamplingParams())

    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    num_tokens = sum(one.max_tokens for one in params)
    print(f"{num_tokens} tokens, {seconds:.2f} s, {num_tokens / seconds:.2f} tok/s")


if __name__ == "__main__":
    main()
