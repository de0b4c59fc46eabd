"""The results of generate: nano-vllm's dicts, with vLLM's attribute `outputs`. Those of embed and
score are vLLM's alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ._engine import Completion, Logprobs, Request


@dataclass
class CompletionOutput:
    """One of the n outputs of a prompt, with vLLM's names."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: Optional[str]
    """"stop" or "length"."""
    stop_reason: int | str | None
    """The EOS or stop token, or the stop string, that ended it."""
    logprobs: Optional[list[Logprobs]]
    times: dict[str, float]


class RequestOutput(dict[str, Any]):
    """The first output's fields by nano-vllm's keys; LLM.generate says which there are.

    `outputs` has all n outputs: `output.outputs[0].text` is `output["text"]`.
    """

    outputs: list[CompletionOutput]

    def __init__(
        self, fields: dict[str, Any] | None = None, outputs: Sequence[CompletionOutput] = ()
    ) -> None:
        super().__init__(fields or {})
        self.outputs = list(outputs)


@dataclass
class EmbeddingOutput:
    """The vector of a prompt."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """What LLM.embed returns for a prompt, with vLLM's names."""

    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    """With those of the named prompt and of the tokenizer."""
    num_cached_tokens: int


@dataclass
class ScoringOutput:
    """How well a document fits its query."""

    score: float


@dataclass
class ScoringRequestOutput:
    """What LLM.score returns for a document, with vLLM's names."""

    outputs: ScoringOutput
    prompt_token_ids: list[int]
    """Of the question to the model; where vectors are compared, the query's and the document's."""
    num_cached_tokens: int


def _output_of(completion: Completion) -> CompletionOutput:
    return CompletionOutput(
        index=completion.index,
        text=completion.text,
        token_ids=completion.token_ids,
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        logprobs=completion.logprobs,
        times=completion.times,
    )


def output_of(request: Request) -> RequestOutput:
    """Of a request that has ended."""
    first = request.completions[0]
    fields: dict[str, Any] = {
        "text": first.text,
        "token_ids": first.token_ids,
        "finish_reason": first.finish_reason,
        "num_cached_tokens": request.cached,
        "times": first.times,
    }
    if first.logprobs is not None:
        fields["logprobs"] = first.logprobs
    if request.prompt_logprobs is not None:
        fields["prompt_logprobs"] = request.prompt_logprobs
    return RequestOutput(fields, [_output_of(one) for one in request.completions])
