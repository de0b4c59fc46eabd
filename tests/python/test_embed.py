"""embed and score."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DEVICE, MODEL, small
from nanovllm import LLM, AsyncLLM, InvalidArgumentError, SamplingParams, UnsupportedError

CLOSE = 1e-5 if DEVICE == "cpu" else 1e-2
TEXTS = ["The sun is a star.", "Two and two is four."]


def vectors(llm: LLM, prompts: Any, **options: Any) -> list[list[float]]:
    outputs = llm.embed(prompts, use_tqdm=False, **options)
    return [output.outputs.embedding for output in outputs]


def scores(llm: LLM, text_1: Any, text_2: Any, **options: Any) -> list[float]:
    outputs = llm.score(text_1, text_2, use_tqdm=False, **options)
    return [output.outputs.score for output in outputs]


def dot(a: list[float], b: list[float]) -> float:
    assert len(a) == len(b)
    return sum(x * y for x, y in zip(a, b))


def folder_of(place: Path, files: dict[str, Any]) -> Path:
    """The bundled model with these files in place of its own."""
    for path in Path(MODEL).iterdir():
        if path.name not in files:
            (place / path.name).symlink_to(path)
    for name, value in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(json.dumps(value))
    return place


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: Any) -> Iterator[LLM]:
    """A model that says how it makes embeddings."""
    files = {
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": {"prompts": {"query": "Ask: "}},
    }
    with LLM(folder_of(tmp_path_factory.mktemp("embedder"), files), **small()) as llm:
        yield llm


@pytest.fixture(scope="module")
def asked(tmp_path_factory: Any) -> Iterator[LLM]:
    """A model with the tokens "yes" and "no", in place of two others."""
    tokenizer = json.loads((Path(MODEL) / "tokenizer.json").read_text())
    vocab, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    for i, pair in ((-1, ["y", "es"]), (-2, ["n", "o"])):
        is_text = isinstance(merges[i], str)
        token_id = vocab.pop("".join(merges[i].split(" ") if is_text else merges[i]))
        merges[i] = " ".join(pair) if is_text else pair
        vocab["".join(pair)] = token_id
    folder = folder_of(tmp_path_factory.mktemp("asked"), {"tokenizer.json": tokenizer})
    with LLM(folder, **small()) as llm:
        yield llm


def test_a_text_becomes_a_vector_of_length_1(llm: LLM) -> None:
    outputs = llm.embed(TEXTS, use_tqdm=False)
    for text, output in zip(TEXTS, outputs):
        vector = output.outputs.embedding
        assert dot(vector, vector) == pytest.approx(1, abs=1e-5)
        assert output.outputs.hidden_size == len(vector) > 1
        assert output.prompt_token_ids == llm.tokenizer.encode(text)
    assert dot(*(output.outputs.embedding for output in outputs)) < 0.999


def test_prompts_have_all_forms_of_generate(llm: LLM) -> None:
    ids = llm.tokenizer.encode(TEXTS[0])
    (vector,) = vectors(llm, TEXTS[0])
    forms = [ids, {"prompt": TEXTS[0]}, {"prompt_token_ids": ids}]
    for other in vectors(llm, forms):
        assert dot(vector, other) == pytest.approx(1, abs=CLOSE)


def test_cached_prompt_tokens_of_a_vector_are_counted(own: LLM) -> None:
    for cached in (0, 592):
        (output,) = own.embed([list(range(600))], use_tqdm=False)
        assert output.num_cached_tokens == cached


def test_a_vector_may_be_pooled_cut_and_unscaled(llm: LLM) -> None:
    (whole,) = vectors(llm, TEXTS[0], pooling="last", normalize=False)
    (mean,) = vectors(llm, TEXTS[0], pooling="mean", normalize=True)
    (part,) = vectors(llm, TEXTS[0], dimensions=6)
    length = math.sqrt(dot(whole, whole))
    assert length > 2
    assert dot(whole, mean) < 0.999 * length
    short = math.sqrt(dot(whole[:6], whole[:6]))
    assert part == pytest.approx([x / short for x in whole[:6]], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pooling": "max"}, 'pooling is .max., want "model", "last" or "mean"'),
        ({"normalize": 2}, "normalize is 2, want True, False or None"),
        ({"dimensions": 0}, "dimensions is 0, want a whole number"),
        ({"dimensions": 2.5}, "dimensions is 2.5, want a whole number"),
        ({"dimensions": 100000}, "dimensions is 100000, but the model's vectors have"),
        ({"prompt_name": 5}, "prompt_name is 5, want a string"),
        ({"prompt_name": "query"}, "no prompt named query"),
    ],
)
def test_a_bad_option_of_a_vector_is_named(
    llm: LLM, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        llm.embed("a", use_tqdm=False, **options)


def test_a_refused_text_has_its_number(llm: LLM) -> None:
    with pytest.raises(InvalidArgumentError, match="^prompt 1: "):
        llm.embed(["a", [10**6]], use_tqdm=False)


def test_a_named_prompt_goes_before_the_text(embedder: LLM) -> None:
    (named,) = embedder.embed("two", use_tqdm=False, prompt_name="query")
    (plain,) = embedder.embed("Ask: two", use_tqdm=False)
    assert named == plain


def test_an_embedder_scores_by_cosines(embedder: LLM) -> None:
    query, *documents = vectors(embedder, ["a star", *TEXTS])
    assert scores(embedder, "a star", TEXTS) == pytest.approx(
        [dot(query, document) for document in documents], abs=1e-4
    )
    assert scores(embedder, TEXTS, TEXTS) == pytest.approx([1, 1], abs=1e-4)
    with pytest.raises(InvalidArgumentError, match="this one compares vectors"):
        embedder.score("a", "b", use_tqdm=False, instruction="c")


def question(llm: LLM, query: str, document: str, instruction: str) -> float:
    """The probability of yes, by chat."""
    system = (
        "Judge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".'
    )
    text = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    chat = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    ids = [llm.tokenizer.encode(word)[0] for word in ("yes", "no")]
    params = SamplingParams(0, 1, logprobs=0, logprob_token_ids=ids)
    (output,) = llm.chat(chat, params, False, chat_template_kwargs={"enable_thinking": False})
    yes, no = (logprob for _, logprob in output["logprobs"][0][1:])
    return math.exp(yes) / (math.exp(yes) + math.exp(no))


def test_any_other_model_is_asked(asked: LLM) -> None:
    usual = "Given a web search query, retrieve relevant passages that answer the query"
    query = "What is 2 + 2?"
    expected = [question(asked, query, text, usual) for text in TEXTS]
    assert scores(asked, query, TEXTS) == pytest.approx(expected, rel=CLOSE)
    (own,) = scores(asked, query, TEXTS[1], instruction="Find sums")
    assert own == pytest.approx(question(asked, query, TEXTS[1], "Find sums"), rel=CLOSE)
    pairs = scores(asked, [TEXTS[0], query], TEXTS)
    other = question(asked, TEXTS[0], TEXTS[0], usual)
    assert other != pytest.approx(expected[0], rel=1e-4)
    assert pairs == pytest.approx([other, expected[1]], rel=CLOSE)


def test_a_model_without_yes_and_no_cannot_be_asked(llm: LLM) -> None:
    with pytest.raises(UnsupportedError, match='the model has no token "yes"'):
        llm.score("a", "b", use_tqdm=False)


@pytest.mark.parametrize(
    ("text_1", "text_2", "sentence"),
    [
        (5, "b", "text_1 is 5, want a text or a list of texts"),
        ("a", [], r"text_2 is \[\], want a text"),
        ("a", ["b", 5], r"text_2\[1\] is 5, want a text"),
        ("a", ["b", ""], r"text_2\[1\] is empty"),
        ("a\0", "b", r"text_1\[0\] has a NUL character"),
        (["a", "b"], ["c", "d", "e"], "text_1 has 2 texts and text_2 3: want one, or as many"),
    ],
)
def test_what_is_no_pair_is_refused(llm: LLM, text_1: Any, text_2: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{sentence}"):
        llm.score(text_1, text_2, use_tqdm=False)


def test_many_of_an_async_llm_get_what_an_llm_gives(llm: LLM) -> None:
    async def main() -> list[list[float]]:
        async with AsyncLLM(MODEL, **small()) as own:
            outputs = await asyncio.gather(*(own.embed(text, dimensions=8) for text in TEXTS))
            return [output.outputs.embedding for output in outputs]

    for got, want in zip(asyncio.run(main()), vectors(llm, TEXTS, dimensions=8)):
        assert got == pytest.approx(want, abs=CLOSE)


def test_an_async_llm_scores_by_both_rules(embedder: LLM, asked: LLM) -> None:
    async def main(model: Any) -> list[float]:
        async with AsyncLLM(model, **small()) as own:
            return [output.outputs.score for output in await own.score(TEXTS[0], TEXTS)]

    for other in (embedder, asked):
        got = asyncio.run(main(other.config.model))
        assert got == pytest.approx(scores(other, TEXTS[0], TEXTS), abs=CLOSE)


def test_an_async_llm_refuses_what_an_llm_refuses(embedder: LLM) -> None:
    async def main() -> None:
        async with AsyncLLM(embedder.config.model, **small()) as own:
            with pytest.raises(InvalidArgumentError, match="no prompt named other"):
                await own.embed(TEXTS[0], prompt_name="other")
            with pytest.raises(InvalidArgumentError, match="instruction is for models"):
                await own.score(TEXTS[0], TEXTS, instruction="x")
            assert len((await own.embed(TEXTS[0])).outputs.embedding) > 1

    asyncio.run(main())
