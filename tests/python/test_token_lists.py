"""Events of several tokens: the engine's own events are merged before Python sees them. What a program
reads is the same, in fewer chunks."""

from __future__ import annotations

import asyncio
import ctypes
from typing import Any

import pytest
from conftest import MODEL, QUESTION, small
from nanovllm import LLM, AsyncLLM, SamplingParams, _structs


class Merger:
    """The events of one output, which become one event of `width` tokens."""

    def __init__(self, take: Any, width: int) -> None:
        self.take = take
        self.width = width
        self.reset()

    def reset(self) -> None:
        self.ids: list[int] = []
        self.rows: list[tuple[int, float]] = []
        self.text = b""
        self.ends: list[int] = []
        self.num_top = 0

    def add(self, event: Any, key: Any) -> None:
        if event.text_len:
            self.text += ctypes.string_at(event.text, event.text_len)
        if event.num_tokens:
            self.ids += event.token_ids[: event.num_tokens]
            self.ends.append(len(self.text))
            count = event.num_tokens * (1 + event.num_top) if event.logprobs else 0
            self.rows += [(row.token_id, row.logprob) for row in event.logprobs[:count]]
            self.num_top = event.num_top
        if len(self.ids) < self.width and not event.finish_reason:
            return
        text = ctypes.create_string_buffer(self.text)
        event.token_ids = (ctypes.c_int32 * len(self.ids))(*self.ids)
        event.num_tokens = len(self.ids)
        event.text = ctypes.cast(text, ctypes.POINTER(ctypes.c_char))
        event.text_len = len(self.text)
        event.text_ends = (ctypes.c_uint32 * len(self.ends))(*self.ends)
        if self.rows:
            rows = [_structs.Logprob(*row) for row in self.rows]
            event.logprobs = (_structs.Logprob * len(rows))(*rows)
            event.num_top = self.num_top
        self.reset()
        self.take(ctypes.pointer(event), key)


def merge(engine: Any, width: int) -> Any:
    """Requests added from now on get events of `width` tokens. Returns what puts it back."""
    mergers: dict[tuple[int, int], Merger] = {}
    before = engine.handle.callback

    def merged(pointer: Any, key: Any) -> None:
        event = pointer.contents
        if not event.num_tokens and not event.finish_reason:  # an echo
            engine._sink.take(pointer, key)
            return
        merger = mergers.setdefault((key, event.index), Merger(engine._sink.take, width))
        merger.add(event, key)

    engine.handle.callback = _structs.EventFn(merged)
    return before


PARAMS = {
    "logprobs": SamplingParams(0, 9, True, logprobs=2),
    "stop": SamplingParams(0, 60, stop="58 =", logprobs=1),
    "eos": SamplingParams(0, 60, logprobs=0),
    "special": SamplingParams(0, 60, skip_special_tokens=True, stop="never"),
    "echo": SamplingParams(0, 5, True, echo=True, logprobs=0),
    "outputs": SamplingParams(0.9, 7, True, n=3, seed=5, logprobs=1),
    "one": SamplingParams(0, 1, True, logprobs=1),
}


def told(output: Any) -> Any:
    fields = {key: value for key, value in output.items() if key not in ("times", "num_cached_tokens")}
    outputs = [(one.text, one.token_ids, one.logprobs, one.stop_reason) for one in output.outputs]
    return fields, outputs


@pytest.mark.parametrize("name", PARAMS)
def test_generate(own: LLM, name: str) -> None:
    engine = own._engine
    want = told(own.generate([QUESTION], PARAMS[name], False)[0])
    for width in (2, 3, 8):
        kept = merge(engine, width)
        assert told(own.generate([QUESTION], PARAMS[name], False)[0]) == want
        engine.handle.callback = kept


async def read(llm: AsyncLLM, params: SamplingParams) -> tuple[dict[int, Any], int, int]:
    """By output: text, ids, log-probabilities and why it ended. Then the numbers of chunks, and of the most
    tokens in one."""
    outputs: dict[int, Any] = {}
    num_chunks = widest = 0
    async for chunk in llm.generate(QUESTION, params):
        output = outputs.setdefault(chunk.get("index", 0), {"text": "", "ids": [], "logprobs": []})
        output["text"] += chunk["text"]
        output["ids"] += chunk["token_ids"]
        output["logprobs"] += chunk.get("logprobs", [])
        output["reason"] = chunk["finish_reason"]
        assert len(chunk.get("logprobs", [])) in (0, len(chunk["token_ids"]))
        num_chunks += 1
        widest = max(widest, len(chunk["token_ids"]))
    return outputs, num_chunks, widest


@pytest.mark.parametrize("name", PARAMS)
def test_streams(name: str) -> None:
    async def run() -> None:
        async with AsyncLLM(MODEL, **small()) as llm:
            want, num_chunks, widest = await read(llm, PARAMS[name])
            assert widest == 1
            merge(llm._worker._engine, 3)
            got, num_merged, widest = await read(llm, PARAMS[name])
            assert got == want
            if name != "one":
                assert widest == 3 and num_merged < num_chunks

    asyncio.run(run())
