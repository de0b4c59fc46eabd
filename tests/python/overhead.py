"""Python's overhead over the engine: microseconds per step and per added request.

    PYTHONPATH=python python3 tests/python/overhead.py

Takes the time inside nvllm_engine_step, but for the callbacks, and nvllm_engine_add_request out of
generate's. The least of several runs, for another program's time is not Python's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nanovllm import LLM, SamplingParams, _engine

MODEL = str(Path(__file__).resolve().parents[2] / "models" / "tiny-qwen3")
NUM_RUNS = 15


class Clocked:
    """The library, with the time inside the two functions summed up."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.seconds = 0.0
        self.num_steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def nvllm_engine_step(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        status = self._library.nvllm_engine_step(*arguments)
        self.seconds += time.perf_counter() - start
        self.num_steps += 1
        return status

    def nvllm_engine_add_request(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        status = self._library.nvllm_engine_add_request(*arguments)
        self.seconds += time.perf_counter() - start
        return status


def clock_callbacks(clock: Clocked) -> None:
    """Gives the time of callbacks, which run inside a step, back to Python."""
    take = _engine._Sink.take

    def timed(*arguments: Any) -> None:
        start = time.perf_counter()
        take(*arguments)
        clock.seconds -= time.perf_counter() - start

    _engine._Sink.take = timed  # type: ignore[method-assign]


def overhead(llm: LLM, clock: Clocked, num_requests: int, num_tokens: int) -> float:
    """Seconds of one generate outside the engine."""
    prompts = [[i % 4000, 5, 6, 7] for i in range(num_requests)]
    params = [
        SamplingParams(temperature=0.6, ignore_eos=True, max_tokens=num_tokens)
        for _ in range(num_requests)
    ]
    clock.seconds, clock.num_steps = 0.0, 0
    start = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    return time.perf_counter() - start - clock.seconds


def main() -> None:
    clock: Any = Clocked(None)
    clock_callbacks(clock)
    llm = LLM(MODEL, device="cpu", kv_cache_gib=0.5)
    clock._library = llm._engine.lib
    llm._engine.lib = clock
    few = min(overhead(llm, clock, 1, 4) for _ in range(NUM_RUNS))
    steps = min(overhead(llm, clock, 1, 204) for _ in range(NUM_RUNS)) - few
    requests = min(overhead(llm, clock, 129, 4) for _ in range(NUM_RUNS)) - few
    print(f"per step: {steps / 200 * 1e6:.1f} us, per request: {requests / 128 * 1e6:.1f} us")


if __name__ == "__main__":
    main()
