"""Ctrl-C: where it is raised, and that the engine is usable afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import ANSWER, DEVICE, MODEL, QUESTION, ROOT, complaints
from nanovllm import LLM, SamplingParams, Tokenizer
from nanovllm._interrupt import deferred

GREEDY = SamplingParams(temperature=0, max_tokens=60)
LONG = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)


def interrupt_in_step(llm: LLM, number: int) -> None:
    """Sends SIGINT to this process from inside the step of that number, as a key press would."""
    engine, step = llm._engine, llm._engine.step
    count = 0

    def stepping() -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGINT)
        step()

    engine.step = stepping  # type: ignore[method-assign]


def test_an_interrupt_ends_generate_between_steps(in_step: LLM) -> None:
    interrupt_in_step(in_step, 3)
    with pytest.raises(KeyboardInterrupt):
        in_step.generate(["a", "b"], LONG, use_tqdm=False)
    stats = in_step.stats()
    assert stats["num_steps"] == 3  # the step under way ran to its end, no other began
    assert stats["num_running"] == stats["num_waiting"] == 0
    assert in_step.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


def test_an_interrupt_aborts_only_its_own_requests(own: LLM) -> None:
    other = own.add_request(QUESTION, GREEDY)
    interrupt_in_step(own, 2)
    with pytest.raises(KeyboardInterrupt):
        own.generate(["a"], LONG, use_tqdm=False)
    ended: list[Any] = []
    while not own.is_finished():
        ended += own.step()[0]
    assert [seq_id for seq_id, _ in ended] == [other]


def test_an_interrupt_of_step_comes_after_it(in_step: LLM) -> None:
    in_step.add_request("a", LONG)
    interrupt_in_step(in_step, 1)
    with pytest.raises(KeyboardInterrupt):
        in_step.step()
    assert in_step.stats()["num_steps"] == 1
    assert in_step.step()[1] == -1


def test_an_interrupt_of_step_loses_no_output(own: LLM) -> None:
    short = own.add_request("a", SamplingParams(0, 1, True))
    interrupt_in_step(own, 1)
    with pytest.raises(KeyboardInterrupt):
        own.step()
    assert not own.is_finished()
    assert [seq_id for seq_id, _ in own.step()[0]] == [short]
    assert own.is_finished()


def test_an_interrupt_ends_loading() -> None:
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)  # only noted: the library asks for it
        LLM(MODEL, device=DEVICE)
        pytest.fail("it was loaded")


# Long enough for the library to ask, and no work of minutes if it does not.
HUGE = "Once upon a time " * 300_000


def test_an_interrupt_ends_a_long_encode() -> None:
    tokenizer, ended = Tokenizer(MODEL), False
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)  # noted only: comes when the library asks
        tokenizer.encode(HUGE)
        ended = True
    assert not ended
    assert tokenizer.encode("a")


def test_an_interrupt_ends_a_long_render(tmp_path: Path) -> None:
    template, ended = tmp_path / "t.jinja", False
    loop = "{% for a in range(99999) %}"
    template.write_text(loop + loop + "{% endfor %}{% endfor %}")
    tokenizer = Tokenizer(MODEL, chat_template=str(template))
    with pytest.raises(KeyboardInterrupt):
        with deferred():
            signal.raise_signal(signal.SIGINT)
            tokenizer.apply_chat_template([{"role": "user", "content": "x"}])
            ended = True
    assert not ended


def test_an_interrupt_ends_a_long_prompt_of_generate(own: LLM) -> None:
    add = own._engine.add

    def adding(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        add(*arguments)

    own._engine.add = adding  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        own.generate([HUGE], GREEDY, use_tqdm=False)
    own._engine.add = add  # type: ignore[method-assign]
    assert own.stats()["num_requests_added"] == 0
    assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


def test_a_handler_that_does_not_raise_lets_an_encode_go_on() -> None:
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: calls.append(number))
    try:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            assert Tokenizer(MODEL).encode(HUGE)
            assert calls == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_of_ones_own_may_let_it_go_on(own: LLM) -> None:
    calls = []

    def handler(number: int, _frame: FrameType | None) -> None:
        calls.append(number)

    before = signal.signal(signal.SIGINT, handler)
    try:
        interrupt_in_step(own, 2)
        assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER
        assert calls == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ignored_interrupts_stay_ignored(own: LLM) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupt_in_step(own, 2)
        assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGVTALRM, signal.SIGTERM, signal.SIGUSR1])
def test_a_handler_that_raises_ends_generate_between_steps(own: LLM, number: int) -> None:
    def handler(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    # Logprobs: a callback per token, and a signal that comes inside of one.
    take, count = own._engine._sink._take_tokens, 0

    def taking(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            signal.raise_signal(number)
        return take(*arguments)

    own._engine._sink._take_tokens = taking  # type: ignore[method-assign]
    before = signal.signal(number, handler)
    try:
        with pytest.raises(TimeoutError):
            own.generate(["a"], SamplingParams(0, 100, True, logprobs=0), False)
        assert count < 10
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert own.stats()["num_running"] == 0
    assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


def test_all_handlers_of_signals_at_once_run() -> None:
    calls = []

    def handler(number: int, _frame: FrameType | None) -> None:
        calls.append(number)
        raise TimeoutError

    numbers = {signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2}
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        with pytest.raises(TimeoutError), deferred():
            for number in numbers:
                signal.raise_signal(number)
            assert not calls
        assert set(calls) == numbers
        assert all(signal.getsignal(number) is handler for number in numbers)
    finally:
        for number in numbers:
            signal.signal(number, before[number])


def test_off_the_main_thread_nothing_is_deferred() -> None:
    seen = []

    def run() -> None:
        with deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_an_error_and_an_interrupt_at_once_is_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), deferred():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError


PROGRAM = f"""
import os, signal, sys, threading
from nanovllm import LLM, SamplingParams
llm = LLM(sys.argv[1], device={DEVICE!r}, threads=1, num_kvcache_blocks=1024)

def press():
    while llm.stats()["num_steps"] < 3:
        pass
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press).start()
try:
    llm.generate([[1]] * 8, SamplingParams(0, 4000, True), use_tqdm=False)
    print("ran to the end")
except KeyboardInterrupt:
    print(llm.generate([sys.argv[2]], SamplingParams(0, 60), use_tqdm=False)[0]["text"])
"""


def test_a_real_interrupt_of_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, MODEL, QUESTION],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, ANSWER + "\n", "")
