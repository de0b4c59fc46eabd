"""One LLM and several threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ANSWER, DEVICE, MODEL, QUESTION, ROOT
from nanovllm import LLM, ExitedError, NanovllmError, SamplingParams
from nanovllm._engine import exclusive
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
    assert results == [[f"{i} + 50 = {i + 50}.<|im_end|>"] * 3 for i in range(10, 16)]
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
    # A step that waits for another Python thread ends only if it has let go of the GIL.
    entered, done = threading.Event(), threading.Event()
    step = own._engine.lib.nvllm_engine_step

    def work() -> str:
        entered.wait()
        done.set()
        return "ran"

    class Library:
        def __getattr__(self, name: str) -> Any:
            return self.step if name == "nvllm_engine_step" else getattr(lib, name)

        def step(self, *arguments: Any) -> int:
            entered.set()
            done.wait()
            return step(*arguments)

    lib = own._engine.lib
    own._engine.lib = Library()  # type: ignore[assignment]
    results = in_threads(lambda: own.generate([QUESTION], GREEDY, False)[0]["text"], work)
    assert results == [ANSWER, "ran"]


def test_the_library_is_called_without_the_gil() -> None:
    import ctypes

    from nanovllm import _library

    # PyDLL, the other kind, keeps the GIL.
    assert type(_library.library()) is ctypes.CDLL


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
        own.stats()
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
llm = LLM({MODEL!r}, device={DEVICE!r}, threads=1, num_kvcache_blocks=64)
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
