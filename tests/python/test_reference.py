"""The recorded answers of transformers and the bundled model's own questions, through Python."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import DATA, ROOT, same_ids
from nanovllm import LLM, SamplingParams, Tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=256)


@same_ids
def test_greedy_answers_are_those_of_transformers(llm: LLM) -> None:
    cases = json.loads((DATA / "greedy.json").read_text())
    # Some were cut at a length.
    params = [SamplingParams(0, len(case["completion_token_ids"])) for case in cases]
    outputs = llm.generate([case["prompt_token_ids"] for case in cases], params, False)
    for case, output in zip(cases, outputs):
        assert output["token_ids"] == case["completion_token_ids"]
        end = "<|im_end|>" if output["finish_reason"] == "stop" else ""
        assert output["text"] == case["completion_text"] + end


def test_chats_become_the_prompts_of_transformers(llm: LLM) -> None:
    for case in json.loads((DATA / "greedy.json").read_text()):
        options: dict[str, Any] = {"enable_thinking": case["enable_thinking"]}
        ids = llm.tokenizer.apply_chat_template(
            case["messages"], add_generation_prompt=True, **options
        )
        assert ids == case["prompt_token_ids"]


def test_the_bundled_models_questions(llm: LLM) -> None:
    items = json.loads((DATA / "tiny-qwen3-eval.json").read_text())["items"][::5]
    chats = [[{"role": "user", "content": item["question"]}] for item in items]
    outputs = llm.chat(chats, GREEDY, False, chat_template_kwargs={"enable_thinking": False})
    wrong = [
        item["question"] for item, output in zip(items, outputs) if output["text"] != item["answer"]
    ]
    assert len(wrong) * 100 <= len(items), wrong


def test_qwen3s_encodings() -> None:
    folder = ROOT.parent / "shared"
    model, cases = folder / "models" / "qwen3-tokenizer", folder / "reference"
    if not model.is_dir() or not (cases / "qwen3-tokenizer.json").is_file():
        pytest.skip(f"{model} is absent: Qwen3's tokenizer is not in the repository")
    tokenizer = Tokenizer(model)
    for row in json.loads((cases / "qwen3-tokenizer.json").read_text()):
        assert tokenizer.encode(row["text"]) == row["ids"]
        assert tokenizer.decode(row["ids"]) == row["decoded"]
