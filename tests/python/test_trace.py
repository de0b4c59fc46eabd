"""The option `trace`: what is in the file is checked by tests/cli/trace_checks.py."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ANSWER, MODEL, QUESTION, ROOT, small
from nanovllm import LLM, AsyncLLM, ReadError, SamplingParams

sys.path.insert(0, str(ROOT / "tests" / "cli"))
from trace_checks import Trace

GREEDY = SamplingParams(temperature=0, max_tokens=60)


def test_a_trace_has_every_token(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with LLM(MODEL, **small(trace=path)) as llm:
        outputs = llm.generate([QUESTION, "Once upon a time"], GREEDY, False)
        num_steps = llm.stats()["num_steps"]
    trace = Trace(path)
    assert [trace.outputs[i + 1] for i in range(2)] == [output["token_ids"] for output in outputs]
    assert len(trace.steps) == num_steps
    assert trace.taken == trace.freed > 0


def test_an_async_llm_writes_one_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    async def run() -> str:
        async with AsyncLLM(MODEL, **small(trace=str(path))) as llm:
            return "".join([chunk["text"] async for chunk in llm.generate(QUESTION, GREEDY)])

    assert asyncio.run(run()) == ANSWER
    assert len(Trace(path).outputs[1]) > 5


def test_requests_that_exit_ends_are_in_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    llm = LLM(MODEL, **small(trace=path))
    llm.add_request("Once upon a time", SamplingParams(max_tokens=100, ignore_eos=True))
    for _ in range(5):
        llm.step()
    llm.exit()
    trace = Trace(path)
    assert len(trace.steps) >= 4
    assert trace.taken == trace.freed > 0


def test_what_cannot_be_opened_is_said_before_loading() -> None:
    with pytest.raises(ReadError, match="^cannot open /nowhere/trace.json"):
        LLM("not a model", trace="/nowhere/trace.json")
    with pytest.raises(ValueError, match="^trace is 5, want a string"):
        LLM(MODEL, **small(trace=5))


def test_a_model_that_does_not_load_leaves_the_old_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")
    with pytest.raises(OSError):
        LLM(str(tmp_path), trace=path)
    assert path.read_text() == "old"


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="there is no /dev/full")
@pytest.mark.parametrize("kind", [LLM, AsyncLLM])
def test_a_full_disk_is_an_error_of_exit(kind: Any) -> None:
    llm = kind(MODEL, **small(trace="/dev/full"))
    with pytest.raises(ReadError, match="^cannot write /dev/full: No space left on device"):
        llm.exit()
    llm.exit()
