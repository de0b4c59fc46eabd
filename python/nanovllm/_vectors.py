"""What LLM.embed and LLM.score ask of the engine, and how a score is made of its answers.

The rule is the server's: a model that says how it makes embeddings scores by the cosine of two
vectors. Any other is asked whether the document answers the query, and the score is the probability
of "yes" against "no".
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from . import _structs, _values
from ._engine import Request
from ._prompts import NativePrompt, native_question
from .errors import InvalidArgumentError, UnsupportedError
from .outputs import EmbeddingOutput, EmbeddingRequestOutput, ScoringOutput, ScoringRequestOutput
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

_KINDS = ("model", "last", "mean")  # by enum nvllm_pooling_kind
_UINT32_MAX = 2**32 - 1


def native_pooling(
    pooling: object = "model",
    normalize: object = None,
    dimensions: object = None,
    prompt_name: object = None,
) -> _structs.PoolingStruct:
    """InvalidArgumentError: an argument of another type or out of range."""
    if not isinstance(pooling, str) or pooling not in _KINDS:
        raise _values.wrong("pooling", pooling, '"model", "last" or "mean"')
    if normalize is not None and not isinstance(normalize, bool):
        raise _values.wrong("normalize", normalize, "True, False or None")
    if prompt_name is not None and not isinstance(prompt_name, str):
        raise _values.wrong("prompt_name", prompt_name, "a string")
    return _structs.PoolingStruct(
        struct_size=ctypes.sizeof(_structs.PoolingStruct),
        kind=_KINDS.index(pooling),
        normalize=-1 if normalize is None else int(normalize),
        dimensions=0 if dimensions is None else _dimensions(dimensions),
        prompt_name=None if prompt_name is None else _c_text("prompt_name", prompt_name),
    )


def _dimensions(value: object) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if not 1 <= number <= _UINT32_MAX:
        raise _values.wrong("dimensions", value, "a whole number of at least 1")
    return number


def _c_text(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise _values.wrong(name, text, "a text")
    if "\0" in text:
        raise InvalidArgumentError(f"{name} has a NUL character")
    return _values.utf8(name, text)


def _texts(name: str, texts: object) -> list[bytes]:
    """A text or a list of texts, none of which is empty."""
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, (list, tuple)) or not texts:
        raise _values.wrong(name, texts, "a text or a list of texts")
    encoded = [_c_text(f"{name}[{i}]", text) for i, text in enumerate(texts)]
    if b"" in encoded:
        raise InvalidArgumentError(f"{name}[{encoded.index(b'')}] is empty")
    return encoded


class Pairs(NamedTuple):
    """Query i belongs to document i; a single query to all."""

    queries: list[bytes]  # [1] or [num_documents]
    documents: list[bytes]

    def query(self, index: int) -> int:
        """The number of the query of this document."""
        return index if len(self.queries) > 1 else 0


def native_pairs(text_1: object, text_2: object) -> Pairs:
    """InvalidArgumentError: they are no texts, or their numbers do not fit."""
    pairs = Pairs(_texts("text_1", text_1), _texts("text_2", text_2))
    if len(pairs.queries) not in (1, len(pairs.documents)):
        raise InvalidArgumentError(
            f"text_1 has {len(pairs.queries)} texts and text_2 {len(pairs.documents)}: "
            "want one, or as many"
        )
    return pairs


def check_no_instruction(instruction: object) -> None:
    """InvalidArgumentError: there is one, for a model that compares vectors."""
    if instruction is not None:
        raise InvalidArgumentError(
            "instruction is for models that are asked yes or no; this one compares vectors"
        )


def texts(pairs: Pairs) -> list[NativePrompt]:
    """The queries, then the documents."""
    return [NativePrompt(text=text) for text in (*pairs.queries, *pairs.documents)]


def questions(pairs: Pairs, instruction: object) -> list[NativePrompt]:
    """A chat for each document."""
    native = None if instruction is None else _c_text("instruction", instruction)
    return [
        native_question(pairs.queries[pairs.query(i)], document, native)
        for i, document in enumerate(pairs.documents)
    ]


def answer_params(tokenizer: Tokenizer) -> SamplingParams:
    """One token, with the log-probabilities of "yes" and "no". UnsupportedError: the model has no
    such tokens."""
    token_ids = []
    for word in ("yes", "no"):
        ids = tokenizer.encode(word, add_special_tokens=False)
        if len(ids) != 1:
            raise UnsupportedError(
                f'the model has no token "{word}", so it cannot be asked for a score'
            )
        token_ids += ids
    return SamplingParams(temperature=0, max_tokens=1, logprobs=0, logprob_token_ids=token_ids)


def embedding_of(request: Request) -> EmbeddingRequestOutput:
    """Of a request that has ended."""
    return EmbeddingRequestOutput(
        EmbeddingOutput(request.embedding), request.prompt_token_ids, request.cached
    )


def cosines(pairs: Pairs, requests: Sequence[Request]) -> list[ScoringRequestOutput]:
    """Of the ended requests of texts(), whose vectors have length 1."""
    outputs = []
    for index, document in enumerate(requests[len(pairs.queries) :]):
        query = requests[pairs.query(index)]
        score = math.fsum(a * b for a, b in zip(query.embedding, document.embedding))
        ids = query.prompt_token_ids + document.prompt_token_ids
        cached = query.cached + document.cached
        outputs.append(ScoringRequestOutput(ScoringOutput(score), ids, cached))
    return outputs


def answer_of(request: Request) -> ScoringRequestOutput:
    """Of an ended request of questions(), run by answer_params()."""
    rows = request.completions[0].logprobs or []
    (_, (_, yes), (_, no)) = rows[0]  # behind the chosen token
    return ScoringRequestOutput(
        ScoringOutput(_logistic(yes - no)), request.prompt_token_ids, request.cached
    )


def _logistic(x: float) -> float:
    """1 / (1 + exp(-x)), without an exponential that is too large."""
    small = math.exp(-abs(x))
    return 1 / (1 + small) if x >= 0 else small / (1 + small)
