"""Exceptions that Python raises inside the engine's callback, of which ctypes forgets those at its
entry: no call may wait for ever, and no output be wrong."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import pytest
from conftest import ANSWER, MODEL, QUESTION, small
from nanovllm import LLM, AsyncLLM, NanovllmError, SamplingParams, _engine, _structs
from nanovllm import llm as llm_module

LOST = "output of the request was lost"
GREEDY = SamplingParams(temperature=0, max_tokens=60)


# Callbacks that were replaced: the last events of aborted requests still come to them.
KEPT: list[Any] = []

# What ctypes prints of an exception.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Library:
    """The library with a bounded number of steps: a call that would wait for ever fails."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.num_steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def nvllm_engine_step(self, *arguments: Any) -> int:
        self.num_steps += 1
        assert self.num_steps < 100, "it waits for ever"
        return int(self._library.nvllm_engine_step(*arguments))


def bound(engine: Any) -> Library:
    engine.lib = Library(engine.lib)
    return engine.lib  # type: ignore[no-any-return]


def raise_at_entry(engine: Any, *numbers: int) -> list[int]:
    """Requests added from now on: raises at the entry of these calls of their callback. What it
    returns has an entry a call."""
    calls: list[int] = []

    def wrapper(pointer: Any, user_data: Any) -> None:
        calls.append(len(calls))
        if calls[-1] in numbers:
            raise TimeoutError
        engine._sink.take(pointer, user_data)

    KEPT.append(engine.handle.callback)
    engine.handle.callback = _structs.EventFn(wrapper)
    return calls


def settle(llm: LLM) -> None:
    """No request is left, and the engine answers."""
    raise_at_entry(llm._engine)
    llm._engine.lib.num_steps = 0
    assert llm.is_finished()
    assert llm._engine.unfinished() == []
    assert llm.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


PARAMS = {
    "ends": SamplingParams(0, 3, True),
    "logprobs": SamplingParams(0, 3, True, logprobs=0),
    "stop": SamplingParams(0, 3, True, stop="never"),
    "outputs": SamplingParams(0, 3, True, n=2),
}
NUM_CALLS = {"ends": 1, "logprobs": 3, "stop": 3, "outputs": 2}  # of a prompt


@pytest.mark.parametrize("use_tqdm", [False, True])
@pytest.mark.parametrize("name", PARAMS)
def test_generate_raises_whichever_event_is_lost(own: LLM, name: str, use_tqdm: bool) -> None:
    library = bound(own._engine)
    number = 0
    while True:
        calls = raise_at_entry(own._engine, number)
        library.num_steps = 0
        try:
            outputs = own.generate([[1, 2], [3, 4]], PARAMS[name], use_tqdm)
        except NanovllmError as error:
            assert LOST in str(error)
        else:
            break  # it has fewer calls
        number += 1
    assert number == len(calls) == 2 * NUM_CALLS[name]
    assert [len(output["token_ids"]) for output in outputs] == [3, 3]
    settle(own)


def test_the_error_names_the_prompt(own: LLM) -> None:
    bound(own._engine)
    raise_at_entry(own._engine, 1)
    with pytest.raises(NanovllmError, match=f"^prompt 1: {LOST}"):
        own.generate([[1, 2], [3, 4]], SamplingParams(0, 3, True), False)
    settle(own)


def test_step_raises_and_goes_on(own: LLM) -> None:
    bound(own._engine)
    raise_at_entry(own._engine, 0)
    own.add_request("a", SamplingParams(0, 2, True))
    other = own.add_request("b", SamplingParams(0, 4, True))
    ended: list[int] = []
    num_errors = 0
    while not own.is_finished():
        try:
            ended += [seq_id for seq_id, _ in own.step()[0]]
        except NanovllmError as error:
            assert LOST in str(error)
            num_errors += 1
    assert (ended, num_errors) == ([other], 1)
    settle(own)


def test_an_abort_is_one_though_its_event_is_lost(own: LLM) -> None:
    bound(own._engine)
    raise_at_entry(own._engine, 0)
    request_id = own.add_request("a")
    own.step()
    assert own.abort(request_id)
    assert own.is_finished()
    settle(own)


@pytest.mark.parametrize("n", [1, 2])
def test_a_stream_raises_whichever_event_is_lost(n: int) -> None:
    async def main() -> int:
        llm = AsyncLLM(MODEL, **small())
        engine = llm._worker._engine
        library = bound(engine)
        number = 0
        while True:
            calls = raise_at_entry(engine, number)
            library.num_steps = 0
            try:
                async for _ in llm.generate([1, 2], SamplingParams(0, 3, True, n=n)):
                    pass
            except NanovllmError as error:
                assert LOST in str(error)
            else:
                break
            number += 1
        await asyncio.get_running_loop().run_in_executor(None, llm.exit)
        assert len(calls) == number
        return number

    assert asyncio.run(main()) == 3 * n


def test_a_request_that_was_added_and_then_forgotten_is_aborted(own: LLM) -> None:
    class Raising(Library):
        def nvllm_engine_add_request(self, *arguments: Any) -> int:
            assert self._library.nvllm_engine_add_request(*arguments) == 0
            raise TimeoutError

    library = own._engine.lib
    for call in (lambda: own.generate("a", use_tqdm=False), lambda: own.add_request("a")):
        own._engine.lib = Raising(library)  # type: ignore[assignment]
        with pytest.raises(TimeoutError):
            call()
        own._engine.lib = Library(library)  # type: ignore[assignment]
        settle(own)
        stats = own.stats()
        assert stats["num_requests_added"] == stats["num_requests_finished"]


CODES = [
    function.__code__
    for function in (
        _engine._Sink.take,
        _engine._Sink.end,
        _engine._Sink._take_tokens,
        _engine._Sink._take_end,
        _engine._Sink._take_last,
        llm_module._Run._take_end,
    )
]


class Raiser:
    """Raises before the bytecode instruction of that number, of all that run in the callback."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0

    def __call__(self, frame: Any, event: str, _argument: Any) -> Any:
        if frame.f_code not in CODES:
            return None
        frame.f_trace_opcodes = True
        if event in ("call", "opcode"):
            self.count += 1
            if self.count == self.number:
                raise TimeoutError
        return self


def traced(raiser: Raiser, call: Any) -> Any:
    before = sys.gettrace()
    sys.settrace(raiser)
    try:
        return call()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("name", ["ends", "logprobs", "outputs"])
def test_generate_ends_wherever_an_exception_is_raised(own: LLM, name: str) -> None:
    library = bound(own._engine)

    def generate() -> Any:
        (output,) = own.generate([[1, 2]], PARAMS[name], False)
        del output["times"]
        return output, [one.token_ids for one in output.outputs]

    expected = generate()
    num_raised = 0
    for number in itertools.count(1):
        raiser = Raiser(number)
        library.num_steps = 0
        try:
            assert traced(raiser, generate) == expected
        except (TimeoutError, NanovllmError):
            num_raised += 1
        assert own._engine.unfinished() == []
        if raiser.count < number:
            break  # it has fewer instructions
    assert num_raised > 20
    settle(own)


def test_step_gives_each_output_once_wherever_an_exception_is_raised(own: LLM) -> None:
    library = bound(own._engine)
    for number in itertools.count(1):
        raiser = Raiser(number)
        library.num_steps = 0
        request_id = own.add_request([1, 2], SamplingParams(0, 1, True))
        results: list[Any] = []
        while not own.is_finished():
            try:
                results += [seq_id for seq_id, _ in traced(raiser, own.step)[0]]
            except (TimeoutError, NanovllmError) as error:
                results.append(error)
        assert len(results) == 1
        assert results == [request_id] or isinstance(results[0], BaseException)
        if raiser.count < number:
            break
    settle(own)
