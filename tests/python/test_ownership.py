"""Ownership of the library's memory: copies, cycles, pickles, forks, objects half made."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any, Callable

import pytest
from conftest import ANSWER, MODEL, QUESTION, ROOT, complaints, small
from nanovllm import LLM, AsyncLLM, NanovllmError, SamplingParams, Tokenizer

CHAT = [{"role": "user", "content": "a"}]


def run(program: str) -> None:
    """Runs a program in which freed memory is overwritten: what it prints last is "fine"."""
    head = f"import copy, gc\nfrom nanovllm import Tokenizer\nM, CHAT = {MODEL!r}, {CHAT!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program + "\nprint('fine')"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "MALLOC_PERTURB_": "170"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,  # what reads freed memory may run for ever
    )
    assert (done.returncode, done.stdout, complaints(done.stderr)) == (0, "fine\n", "")


@pytest.mark.parametrize("how", ["copy.copy", "copy.deepcopy"])
def test_a_copy_of_a_tokenizer_outlives_it(how: str) -> None:
    run(
        f"""
first = Tokenizer(M)
ids, prompt = first.encode("hello"), first.apply_chat_template(CHAT)
second = {how}(first)
del first
gc.collect()
assert second.encode("hello") == ids
assert second.apply_chat_template(CHAT) == prompt
"""
    )


def test_the_end_of_a_copy_leaves_the_first() -> None:
    run(
        """
first = Tokenizer(M)
ids, prompt = first.encode("hello"), first.apply_chat_template(CHAT)
copy.copy(first)
copy.deepcopy(first)
gc.collect()
assert first.encode("hello") == ids
assert first.apply_chat_template(CHAT) == prompt
"""
    )


def test_a_tokenizer_in_a_cycle_is_closed_before_its_del_uses_it() -> None:
    run(
        """
seen = []
class Own(Tokenizer):
    def __del__(self):
        for call in (lambda: self.encode("hello"), lambda: self.apply_chat_template(CHAT)):
            try:
                call()
            except RuntimeError as error:
                seen.append(str(error))
own = Own(M)
own.apply_chat_template(CHAT)
own.myself = own
del own
gc.collect()
assert seen == ["the tokenizer is closed"] * 2, seen
"""
    )


def test_a_copy_of_a_subclass_keeps_its_attributes() -> None:
    class Own(Tokenizer):
        def __init__(self, model: str) -> None:
            super().__init__(model)
            self.names = ["a"]

    first = Own(MODEL)
    second = copy.deepcopy(first)
    second.names.append("b")
    assert first.names == ["a"]
    assert second.encode("hello") == first.encode("hello")


def test_a_tokenizer_that_is_made_twice_works() -> None:
    tokenizer = Tokenizer(MODEL)
    ids = tokenizer.encode("hello")
    tokenizer.__init__(MODEL)  # type: ignore[misc]
    assert tokenizer.encode("hello") == ids


def test_a_tokenizer_that_was_not_made_is_an_exception() -> None:
    class Own(Tokenizer):
        def __init__(self) -> None:
            with pytest.raises(OSError):
                super().__init__("/nowhere")

    for broken in (Own(), Tokenizer.__new__(Tokenizer)):
        with pytest.raises(AttributeError):
            broken.encode("hello")
        with pytest.raises((AttributeError, NanovllmError)):
            broken.apply_chat_template(CHAT)


def test_an_llm_that_was_not_made_is_an_exception() -> None:
    class Own(LLM):
        def __init__(self) -> None:
            with pytest.raises(OSError):
                super().__init__("/nowhere")

    for call in (Own().step, LLM.__new__(LLM).step, AsyncLLM.__new__(AsyncLLM).exit):
        with pytest.raises(AttributeError):
            call()


def test_a_tokenizer_cannot_be_pickled(llm: LLM) -> None:
    with pytest.raises(TypeError, match="^a Tokenizer cannot be pickled: make a new one"):
        pickle.dumps(llm.tokenizer)


@pytest.mark.parametrize("do", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_engine_is_neither_copied_nor_pickled(own: LLM, do: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="^LLM can be neither copied nor pickled: it owns an"):
        do(own)
    streaming = AsyncLLM(MODEL, **small())
    with pytest.raises(TypeError, match="^AsyncLLM can be neither copied nor pickled"):
        do(streaming)
    streaming.exit()
    greedy = SamplingParams(temperature=0, max_tokens=60)
    assert own.generate([QUESTION], greedy, False)[0]["text"] == ANSWER


def test_a_forked_child_may_use_the_tokenizer() -> None:
    tokenizer = Tokenizer(MODEL)
    ids, prompt = tokenizer.encode("hello"), tokenizer.apply_chat_template(CHAT)
    child = os.fork()
    if child == 0:  # no assert leaves here: pytest would go on twice
        code = 1
        try:
            is_same = tokenizer.encode("hello") == ids
            code = 0 if is_same and tokenizer.apply_chat_template(CHAT) == prompt else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tokenizer.encode("hello") == ids
