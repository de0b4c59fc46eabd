"""One LLM and several threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ANSWER, DEVICE, MODEL, QUESTION, ROOT
from nanovllm import LLM, ExitedError, NanovllmError, SamplingParams
from nanovllm._engine import exclusive, using
from nanovllm._fair_lock import FairLock

GREEDY = SamplingParams(temperature=0, max_tokens=60)
LONG = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """What each returned or raised."""
    results: list[Any] = [None] * len(work)

    def run(index: int) -> None:
        try:
            results[index] = work[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_generate_at_a_time(own: LLM) -> None:
    def work(i: int) -> Callable[[], Any]:
        chat = [{"role": "user", "content": f"What is {i} + 50?"}]
        kwargs = {"enable_thinking": False}
        return lambda: [
            own.chat(chat, GREEDY, False, chat_template_kwargs=kwargs)[0]["text"] for _ in range(3)
        ]

    results = in_threads(*(work(i) for i in range(10, 16)))
    assert results == [[f"{i} + 50 = {i + 50}."] * 3 for i in range(10, 16)]
    assert own.stats()["num_running"] == 0


def test_their_requests_are_batched(own: LLM) -> None:
    barrier = threading.Barrier(4)

    def work() -> Any:
        barrier.wait()
        return own.generate([[1, 2]], SamplingParams(0, 200, True), False)

    results = in_threads(*[work] * 4)
    assert len({tuple(result[0]["token_ids"]) for result in results}) == 1
    assert own.stats()["num_steps"] < 4 * 200


def test_python_runs_while_the_engine_steps(own: LLM) -> None:
    # Python does not take the GIL away from a thread now: another one runs when it is let go of.
    interval = sys.getswitchinterval()
    is_inside = False  # a call of nvllm_engine_step
    has_run = threading.Event()

    def work() -> None:
        while not has_run.is_set() and not is_over.is_set():
            if is_inside:
                has_run.set()
            time.sleep(0)

    class Library:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def nvllm_engine_step(self, *arguments: Any) -> int:
            nonlocal is_inside
            if has_run.is_set():
                raise KeyboardInterrupt  # seen: no need to go on
            is_inside = True
            status = lib.nvllm_engine_step(*arguments)
            is_inside = False
            return int(status)

    lib = own._engine.lib
    own._engine.lib = Library()  # type: ignore[assignment]
    is_over = threading.Event()
    thread = threading.Thread(target=work)
    try:
        sys.setswitchinterval(1000)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            own.generate([[1]], LONG, False)
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        thread.join()
    assert has_run.is_set()


def test_no_call_but_the_drivers_waits_for_a_step(own: LLM) -> None:
    # The step ends only when another thread has made all these calls.
    entered, done = threading.Event(), threading.Event()

    class Library:
        def __getattr__(self, name: str) -> Any:
            return self.step if name == "nvllm_engine_step" else getattr(lib, name)

        def step(self, *arguments: Any) -> int:
            entered.set()
            assert done.wait(60)
            return int(lib.nvllm_engine_step(*arguments))

    def work() -> Any:
        entered.wait()
        seq_id = own.add_request("a", SamplingParams(0, 3, True))
        added = own.stats()["num_requests_added"]
        own.drain()
        done.set()
        return seq_id, added

    lib = own._engine.lib
    own._engine.lib = Library()  # type: ignore[assignment]
    results = in_threads(lambda: own.generate([QUESTION], GREEDY, False)[0]["text"], work)
    assert results == [ANSWER, (2, 2)]
    own._engine.lib = lib
    while not own.is_finished():
        own.step()


def test_exit_ends_another_threads_generate(own: LLM) -> None:
    started = threading.Event()
    step = own._engine.step

    def stepping() -> None:
        started.set()
        step()

    own._engine.step = stepping  # type: ignore[method-assign]

    def leave() -> None:
        started.wait()
        own.exit()

    results = in_threads(lambda: own.generate([[1]] * 4, LONG, False), leave)
    assert isinstance(results[0], ExitedError)
    assert results[1] is None


def test_exit_waits_for_those_inside(own: LLM) -> None:
    entered = threading.Event()

    class Library:
        def __getattr__(self, name: str) -> Any:
            return self.add if name == "nvllm_engine_add_request" else getattr(lib, name)

        def add(self, *arguments: Any) -> int:
            entered.set()
            while not own._engine.handle.is_ending:
                pass
            return int(lib.nvllm_engine_add_request(*arguments))

    lib = own._engine.lib
    own._engine.lib = Library()  # type: ignore[assignment]

    def leave() -> None:
        entered.wait()
        own.exit()

    assert in_threads(lambda: own.add_request("a"), leave) == [1, None]
    with pytest.raises(ExitedError):
        own.stats()


def test_many_threads_exit_once(own: LLM) -> None:
    assert in_threads(*[own.exit] * 8) == [None] * 8


def test_add_request_from_threads(own: LLM) -> None:
    ids = in_threads(*[lambda: own.add_request("a", SamplingParams(0, 3, True))] * 8)
    ended: list[int] = []
    while not own.is_finished():
        ended += [seq_id for seq_id, _ in own.step()[0]]
    assert sorted(ended) == sorted(ids)
    assert len(set(ids)) == 8


def test_a_call_from_inside_a_call_is_an_error(own: LLM) -> None:
    with exclusive(own._engine), pytest.raises(NanovllmError, match="inside one of its own calls"):
        own.step()
    with using(own._engine), pytest.raises(NanovllmError, match="inside one of its own calls"):
        own.exit()
    assert own.generate([QUESTION], GREEDY, False)[0]["text"] == ANSWER


def test_the_lock_goes_to_who_has_waited_longest() -> None:
    lock, order = FairLock(), []
    lock.acquire()
    threads = []
    for i in range(5):

        def work(index: int = i) -> None:
            lock.acquire()
            order.append(index)
            lock.release()

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        while len(lock._gates) != i + 1:
            pass
    lock.release()
    for thread in threads:
        thread.join()
    assert order == list(range(5))


def test_a_program_may_end_while_a_thread_generates() -> None:
    program = f"""
import threading
from nanovllm import LLM, SamplingParams
llm = LLM({MODEL!r}, device={DEVICE!r}, threads=1, num_kvcache_blocks=1024)
def work():
    try:
        llm.generate([[1]] * 4, SamplingParams(0, 4000, True), use_tqdm=False)
    except RuntimeError as error:
        print(error)
threading.Thread(target=work, daemon=True).start()
while not llm.stats()["num_steps"]:
    pass
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("end\n")


def test_a_tokenizer_works_until_the_process_is_gone() -> None:
    # A daemon thread may be inside a call when a program ends. atexit's functions run in
    # reverse order, so this one after all that the package leaves there.
    program = f"""
import atexit
chat = [{{"role": "user", "content": "a"}}]
atexit.register(lambda: print(len(tokenizer.apply_chat_template(chat))))
from nanovllm import Tokenizer
tokenizer = Tokenizer({MODEL!r})
print(len(tokenizer.apply_chat_template(chat)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        # Freed memory is overwritten.
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "MALLOC_PERTURB_": "170"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "7\n7\n"), done.stderr
