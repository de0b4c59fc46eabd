"""What the tests share: the bundled model, small engines on it, chat prompts.

Engines are on the device that the environment variable NANOVLLM_TEST_DEVICE names, else on the CPU.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

# A background job begins with it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "models" / "tiny-qwen3")
DATA = ROOT / "tests" / "reference" / "data"

sys.path.insert(0, str(ROOT / "python"))

from nanovllm import LLM  # noqa: E402 (after the path)

QUESTION = (
    "<|im_start|>user\nWhat is 37 + 58?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
SPOKEN = "37 + 58 = 95."
ANSWER = SPOKEN + "<|im_end|>"
EOS = 4091  # <|im_end|>, the tokenizer's
EOS_TOO = 4089  # <|endoftext|>, of generation_config.json's list
DEVICE = os.environ.get("NANOVLLM_TEST_DEVICE", "cpu")
# Marks tests that hold only on the CPU.
same_ids = pytest.mark.skipif(
    DEVICE != "cpu", reason="bfloat16 may change an id within the margin: see test_cuda_model"
)


def small(**options: Any) -> dict[str, Any]:
    """Options of an engine that is made in milliseconds."""
    return {"device": DEVICE, "threads": 1, "num_kvcache_blocks": 1024, "cache_dir": "", **options}


def complaints(stderr: str) -> str:
    """A program's standard error, without the line of a GPU's first start."""
    first = "nanovllm: first start of this model on "
    return "".join(line for line in stderr.splitlines(True) if not line.startswith(first))


@pytest.fixture(scope="session")
def llm() -> Any:
    """One engine for the tests that leave nothing behind in it."""
    engine = LLM(MODEL, **small())
    yield engine
    engine.exit()


@pytest.fixture
def own() -> Any:
    """An engine of the test's own."""
    engine = LLM(MODEL, **small())
    yield engine
    engine.exit()


@pytest.fixture
def in_step() -> Any:
    """An engine whose results come with their step on every device, not with the one after it."""
    engine = LLM(MODEL, **small(async_scheduling="off"))
    yield engine
    engine.exit()
