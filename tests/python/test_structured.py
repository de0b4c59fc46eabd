"""The form of an output, from Python."""

import json
import re

import pytest

from nanovllm import InvalidArgumentError, SamplingParams, StructuredOutputsParams, UnsupportedError


def texts(llm, structured, **params):
    sampling = SamplingParams(structured_outputs=structured, skip_special_tokens=True, max_tokens=100, temperature=0, **params)
    return [output["text"] for output in llm.generate(["Say"], sampling)]


def test_each_form(llm):
    assert re.fullmatch("[0-9]{3}x", texts(llm, StructuredOutputsParams(regex="[0-9]{3}x"))[0])
    assert texts(llm, StructuredOutputsParams(choice=("yes", "no")))[0] in ("yes", "no")
    assert re.fullmatch("[ab]{2}", texts(llm, StructuredOutputsParams(grammar="root ::= [ab] [ab]"))[0])
    assert texts(llm, {"json": {"const": [1, "a"]}, "disable_any_whitespace": True})[0] == '[1,"a"]'
    assert texts(llm, StructuredOutputsParams(json='{"const": null}'))[0] == "null"


def test_keys_in_any_order(llm):
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["a", "b"],
              "additionalProperties": False}

    def orders(**options):
        structured = StructuredOutputsParams(json=schema, disable_any_whitespace=True, **options)
        sampling = SamplingParams(structured_outputs=structured, skip_special_tokens=True, max_tokens=100,
                                  temperature=1, seed=1, n=16)
        return {output.text for output in llm.generate(["Say"], sampling)[0].outputs}

    assert orders() == {'{"a":1,"b":2}'}
    assert orders(any_key_order=True) == {'{"a":1,"b":2}', '{"b":2,"a":1}'}


def test_a_class_with_a_schema(llm):
    class Person:
        @staticmethod
        def model_json_schema():
            return {"type": "object", "properties": {"age": {"enum": [3, 4]}}, "required": ["age"],
                    "additionalProperties": False}

    assert json.loads(texts(llm, StructuredOutputsParams(json=Person))[0])["age"] in (3, 4)


def test_faults(llm):
    with pytest.raises(UnsupportedError, match="dynamicRef"):
        texts(llm, StructuredOutputsParams(json={"$dynamicRef": "#a"}))
    with pytest.raises(InvalidArgumentError, match="regex"):
        texts(llm, StructuredOutputsParams(regex="(a"))
    with pytest.raises(InvalidArgumentError, match="two constraints"):
        texts(llm, StructuredOutputsParams(regex="a", choice=["a"]))
    with pytest.raises(InvalidArgumentError, match="StructuredOutputsParams or a dict"):
        SamplingParams(structured_outputs=5)


def test_behind_reasoning_and_its_blank_line(llm):
    sampling = SamplingParams(structured_outputs={"choice": ["yes", "no"]}, max_tokens=100, temperature=0)
    messages = [{"role": "user", "content": "hi"}]
    text = llm.chat([messages], sampling, chat_template_kwargs={"enable_thinking": True})[0]["text"]
    assert re.fullmatch(r"<think>.+</think>\n\n(yes|no)", text, re.DOTALL)
