"""nanovllm: a small, fast engine for large language models, by its C library.

    from nanovllm import LLM, SamplingParams

    llm = LLM("Qwen3-0.6B")  # the folder of a model
    outputs = llm.generate(["Once upon a time"], SamplingParams(temperature=0.6, max_tokens=64))
    print(outputs[0]["text"])

The names and defaults are those of nano-vllm, whose programs run unchanged; doc/python.md is the
page about this package.
"""

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - found by PYTHONPATH, where pip did not ask
    raise ImportError(
        f"nanovllm needs Python 3.9 or later, but this is Python {sys.version_info[0]}."
        f"{sys.version_info[1]} ({sys.executable})"
    )

from ._library import __version__
from ._prompts import Messages, Prompt
from .async_llm import AsyncLLM, Stream
from .config import Config
from .errors import (
    CapacityError,
    DeviceError,
    ExitedError,
    FormatError,
    InvalidArgumentError,
    LibraryError,
    NanovllmError,
    OutOfMemoryError,
    ReadError,
    UnsupportedError,
)
from .llm import LLM
from .outputs import (
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from .sampling_params import SamplingParams
from .structured import StructuredOutputsParams
from .tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncLLM",
    "CapacityError",
    "CompletionOutput",
    "Config",
    "DeviceError",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "ExitedError",
    "FormatError",
    "InvalidArgumentError",
    "LibraryError",
    "Messages",
    "NanovllmError",
    "OutOfMemoryError",
    "Prompt",
    "ReadError",
    "RequestOutput",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
    "Stream",
    "StructuredOutputsParams",
    "Tokenizer",
    "UnsupportedError",
    "__version__",
]
