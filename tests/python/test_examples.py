"""The programs of examples/, run as their readers run them; and one in nano-vllm's own terms."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from conftest import MODEL, ROOT


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, f"examples/{name}", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_example() -> None:
    blocks = run("example.py", MODEL).strip().split("\n\n")
    assert len(blocks) == 2
    for block, question in zip(blocks, ("introduce yourself", "What is 37 + 58?")):
        prompt, completion = block.splitlines()
        assert prompt.startswith("Prompt: '<|im_start|>user\\n" + question)
        assert completion.startswith("Completion: '")
    assert "<|im_end|>" in blocks[1].splitlines()[1]


def test_bench() -> None:
    output = run("bench.py", MODEL, "1")
    assert re.fullmatch(r"\d+ tokens, [\d.]+ s, [\d.]+ tok/s\n", output)


def test_stream() -> None:
    first, second = run("stream.py").split("> ")[1:]
    assert first.startswith("What is 37 + 58?\n37 + 58 = 95.") and first.count("\n") == 2
    assert second.startswith("introduce yourself\nI am Nano, a tiny language model. I can ")


def test_generate() -> None:
    output = run("generate.py")
    assert "37 + 58 = 95. stop\n" in output
    assert re.search(r"^'.*' (stop|length)$", output, re.M)
    assert "<|" not in output


@pytest.mark.parametrize("name", ["example.py", "bench.py", "stream.py", "generate.py"])
def test_no_example_needs_more_than_this_package(name: str) -> None:
    imports = re.findall(r"^ *(?:from|import) (\w+)", (ROOT / "examples" / name).read_text(), re.M)
    optional = {"transformers"}
    assert set(imports) - optional <= {"asyncio", "nanovllm", "random", "sys", "time"}
