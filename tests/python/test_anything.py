"""Any arguments give an exception or a result, never a crash, and the engine still answers
afterwards. A crash of the interpreter ends pytest itself, and so fails."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest
from conftest import ANSWER, MODEL, QUESTION, small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nanovllm import LLM, AsyncLLM, Config, SamplingParams, Tokenizer
from nanovllm.config import ConfigArgs
from nanovllm.sampling_params import _DEFAULTS

quick = settings(
    max_examples=60,
    deadline=None,  # no test fails on a time
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

GREEDY = SamplingParams(temperature=0, max_tokens=60)
FAULTS = (ValueError, TypeError, RuntimeError, OverflowError)


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __index__(self) -> int:
        raise RuntimeError("index")

    def __iter__(self) -> Any:
        raise RuntimeError("iter")

    def __len__(self) -> int:
        return -1

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = object.__hash__


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(20_000):
        value = [value]
    return value


surrogates = st.text(st.characters(), max_size=6)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**32, 2**63, 2**64, -(2**63) - 1, 10**400, -1, 0, 4095, 4096]),
    st.floats(),
    surrogates,
    st.sampled_from(["\ud800", "\0", "a\0b", "", "x" * 70_000, "<|im_end|>"]),
    st.binary(max_size=5),
    st.builds(Hostile),
    st.builds(object),
    st.builds(deep),
    st.sampled_from([int, range(3), float, print, ..., 1j, memoryview(b"abcd")]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(
            st.one_of(
                st.sampled_from(["prompt", "prompt_token_ids", "cache_salt", "role", "content"]),
                surrogates,
                st.integers(),
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


def settle(llm: LLM) -> None:
    """The engine has no request of the attempt left, and it still answers."""
    while not llm.is_finished():
        llm.step()
    stats = llm.stats()
    assert stats["num_running"] == stats["num_waiting"] == 0


SHORT = SamplingParams(temperature=0, max_tokens=1)


@quick
@given(prompts=anything)
def test_any_prompts(llm: LLM, prompts: Any) -> None:
    try:
        outputs = llm.generate(prompts, SHORT, False)
    except FAULTS:
        pass
    else:
        assert all(len(output["token_ids"]) == 1 for output in outputs)
    settle(llm)


@quick
@given(prompt=anything, params=anything)
def test_any_request(llm: LLM, prompt: Any, params: Any) -> None:
    for one in (params, SHORT):
        try:
            assert isinstance(llm.add_request(prompt, one), int)
        except FAULTS:
            pass
    settle(llm)


@quick
@given(messages=anything, kwargs=anything, tools=anything)
def test_any_chat(llm: LLM, messages: Any, kwargs: Any, tools: Any) -> None:
    for options in ({}, {"chat_template_kwargs": kwargs}, {"tools": tools, "documents": kwargs}):
        try:
            llm.chat(messages, SHORT, False, **options)
        except FAULTS:
            pass
    settle(llm)


@quick
@given(params=anything, use_tqdm=anything)
def test_any_sampling_params(llm: LLM, params: Any, use_tqdm: Any) -> None:
    try:
        llm.generate(["a"], params, use_tqdm)
    except FAULTS:
        pass
    settle(llm)


@quick
@given(value=anything, name=st.sampled_from(sorted(_DEFAULTS)))
def test_any_sampling_field(llm: LLM, value: Any, name: str) -> None:
    try:
        params = SamplingParams(**{name: value})
    except FAULTS:
        return
    if params.max_tokens > 8:
        params.max_tokens = 1
    params.n = min(params.n, 2)
    try:
        llm.generate(["a"], params, False)  # some need another: min_tokens, logprob_token_ids
    except FAULTS:
        pass
    settle(llm)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The working folder is an empty one: `trace` writes files of any name."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("scratch"))
    yield
    os.chdir(before)


@quick
@given(value=anything, name=st.sampled_from(sorted(ConfigArgs.__annotations__)))
def test_any_option(scratch: None, value: Any, name: str) -> None:
    # Valid but huge sizes may run out of memory, but must not crash.
    try:
        LLM(MODEL, **small(**{name: value})).exit()
    except (*FAULTS, OSError, MemoryError):
        pass


@quick
@given(model=anything)
def test_any_model(model: Any) -> None:
    for make in (LLM, Tokenizer):
        with pytest.raises((*FAULTS, OSError)):
            make(model)


@quick
@given(value=anything)
def test_any_text_and_ids(llm: LLM, value: Any) -> None:
    for method in (llm.tokenizer.encode, llm.tokenizer.decode, llm.tokenizer.apply_chat_template):
        try:
            method(value)
        except FAULTS:
            pass


@quick
@given(request_id=anything)
def test_any_abort(llm: LLM, request_id: Any) -> None:
    try:
        assert llm.abort(request_id) is False
    except FAULTS:
        pass


@quick
@given(name=surrogates, value=anything)
def test_any_name(name: str, value: Any) -> None:
    if name in _DEFAULTS or name in Config.__annotations__:
        return
    with pytest.raises(TypeError):
        SamplingParams(**{name: value})
    with pytest.raises(TypeError):
        LLM(MODEL, **{name: value})
    with pytest.raises(AttributeError):
        setattr(SamplingParams(), name, value)


def test_any_stream() -> None:
    @quick
    @given(prompt=anything, params=anything)
    def attempt(prompt: Any, params: Any) -> None:
        async def read() -> None:
            for one in (params, SHORT):
                try:
                    async for _ in streaming.generate(prompt, one):
                        pass
                except FAULTS:
                    pass

        loop.run_until_complete(read())

    loop = asyncio.new_event_loop()
    streaming = AsyncLLM(MODEL, **small())
    try:
        attempt()
    finally:
        streaming.exit()
        loop.close()


def test_use_after_exit() -> None:
    llm = LLM(MODEL, **small())
    tokenizer = llm.tokenizer
    llm.exit()
    for call in (
        lambda: llm.generate(["a"]),
        lambda: llm.chat([{"role": "user", "content": "a"}]),
        lambda: llm.add_request("a"),
        llm.step,
        llm.is_finished,
        lambda: llm.abort(1),
        llm.stats,
    ):
        with pytest.raises(RuntimeError, match="has exited"):
            call()
    assert tokenizer.decode(tokenizer.encode("a")) == "a"  # has nothing to do with the engine


@settings(quick, max_examples=12)
@given(data=st.data())
def test_any_calls_of_several_threads(data: st.DataObject) -> None:
    calls = ["generate", "add", "step", "abort", "stats", "is_finished", "exit", "chat"]
    plans = data.draw(
        st.lists(st.lists(st.sampled_from(calls), min_size=1, max_size=6), min_size=2, max_size=4)
    )
    llm = LLM(MODEL, **small())
    surprises: list[BaseException] = []

    def call(name: str) -> None:
        params = SamplingParams(1.0, 3, True)
        if name == "generate":
            llm.generate(["a", [1, 2]], params, False)
        elif name == "chat":
            llm.chat([{"role": "user", "content": "a"}], params, False)
        elif name == "add":
            llm.add_request("a", params)
        elif name == "abort":
            llm.abort(1)
        else:
            getattr(llm, name)()

    def work(plan: list[str]) -> None:
        for name in plan:
            try:
                call(name)
            except RuntimeError as error:
                if "has exited" not in str(error):
                    surprises.append(error)
            except BaseException as error:
                surprises.append(error)

    threads = [threading.Thread(target=work, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    llm.exit()
    assert surprises == []


def test_the_engine_still_answers(llm: LLM) -> None:
    assert llm.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER
