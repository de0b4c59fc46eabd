"""Whole answers of a model with random weights at a high temperature, judged by the package jsonschema: none
violates the schema that it was asked for.

The schemas are random, from all keywords. By hand, NANOVLLM_SCHEMA_SEEDS says how many, and NANOVLLM_SCHEMA_FILES
names a folder whose files are schemas, which are tried instead.
"""

from __future__ import annotations

import decimal
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import MODEL, small

from nanovllm import LLM, InvalidArgumentError, SamplingParams, UnsupportedError

try:
    import jsonschema
except ImportError:
    jsonschema = None

NUM_SCHEMAS = int(os.environ.get("NANOVLLM_SCHEMA_SEEDS", "60"))
FILES = os.environ.get("NANOVLLM_SCHEMA_FILES")
NAMES = ["a", "b", "long name", "ä\"\\", ""]
PATTERNS = ["^a", "b$", "^[a-c]{2,4}$", "[0-9]", "^(?!x).{1,5}$", "a|bc", "\\d{2}", "^\\S+@\\S+$", "é"]
FORMATS = ["date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "uri", "hostname", "duration"]


class Maker:
    """Random schemas. The same seed gives the same one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def some(self, values: list[Any], most: int) -> list[Any]:
        return self.random.sample(values, self.random.randint(1, min(most, len(values))))

    def value(self, depth: int = 2) -> Any:
        simple = [None, True, False, 0, -7, 12, 3.25, 1e10, "", "a", "abc", "é\n\"", "12"]
        kind = self.random.random()
        if depth and kind < 0.1:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 2))]
        if depth and kind < 0.2:
            return {name: self.value(depth - 1) for name in self.some(NAMES, 2)}
        return self.random.choice(simple)

    def numbers(self) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        low = self.random.choice([-100, -1.5, 0, 0.001, 7])
        if self.chance(0.6):
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.6):
            high = low + self.random.choice([0, 0.5, 3, 1000])
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        if self.chance(0.3):
            schema["multipleOf"] = self.random.choice([1, 2, 3, 7, 0.5, 0.01, 10])
        return schema

    def strings(self) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        if self.chance(0.4):
            schema["minLength"] = self.random.randint(0, 6)
        if self.chance(0.4):
            schema["maxLength"] = self.random.randint(0, 12)
        if self.chance(0.4):
            schema["pattern"] = self.random.choice(PATTERNS)
        elif self.chance(0.3):
            schema["format"] = self.random.choice(FORMATS)
        return schema

    def objects(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        if self.chance(0.8):
            schema["properties"] = {name: self.schema(depth - 1) for name in self.some(NAMES, 4)}
        if self.chance(0.5):
            schema["required"] = self.some(NAMES, 3)
        if self.chance(0.5):
            schema["additionalProperties"] = self.chance(0.3) or (self.chance(0.5) and self.schema(depth - 1))
        if self.chance(0.2):
            schema["patternProperties"] = {name: self.schema(depth - 1) for name in self.some(PATTERNS, 2)}
        if self.chance(0.2):
            schema["propertyNames"] = self.strings()
        if self.chance(0.2):
            schema["minProperties"] = self.random.randint(0, 2)
        if self.chance(0.2):
            schema["maxProperties"] = self.random.randint(0, 3)
        if self.chance(0.1):
            schema["dependentRequired"] = {self.random.choice(NAMES): self.some(NAMES, 2)}
        if self.chance(0.1):
            schema["dependentSchemas"] = {self.random.choice(NAMES): self.schema(depth - 1)}
        return schema

    def arrays(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        if self.chance(0.7):
            schema["items"] = self.schema(depth - 1)
        if self.chance(0.3):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]
        if self.chance(0.4):
            schema["minItems"] = self.random.randint(0, 3)
        if self.chance(0.6):
            schema["maxItems"] = self.random.randint(0, 4)
        if self.chance(0.2):
            schema["contains"] = self.schema(depth - 1)
            if self.chance(0.4):
                schema["minContains"] = self.random.randint(0, 2)
            if self.chance(0.4):
                schema["maxContains"] = self.random.randint(1, 3)
        if self.chance(0.1):
            schema["uniqueItems"] = True
        return schema

    def member(self) -> dict[str, Any]:
        """A schema about one member, as conditions often are."""
        name = self.random.choice(NAMES)
        values = [self.value() for _ in range(self.random.randint(1, 3))]
        schema: dict[str, Any] = {"properties": {name: {"enum": values}}}
        if self.chance(0.4):
            schema["required"] = [name]
        if self.chance(0.2):
            schema["type"] = self.some(["object", "array", "null"], 2)
        return schema

    def conditions(self, depth: int) -> dict[str, Any]:
        """Several schemas of one kind about the same value."""
        kind = self.random.randrange(4)
        count = self.random.randint(1, 3)
        if kind == 0:
            return {"dependentSchemas": {name: self.member() for name in self.some(NAMES, 3)}}
        if kind == 1:
            return {"allOf": [{"contains": self.schema(depth - 1)} for _ in range(count)]}
        if kind == 2:
            closed = [{"properties": {name: True for name in self.some(NAMES, 2)}, "additionalProperties": False}
                      for _ in range(count)]
            return {"not": {"anyOf": closed}}
        return {"allOf": [{"if": self.member(), self.random.choice(["then", "else"]): self.schema(depth - 1)}
                          for _ in range(count)]}

    def schema(self, depth: int) -> Any:
        if depth < 0 or self.chance(0.05):
            return self.random.choice([True, {}, False, {"type": "integer"}, {"type": "null"}, {"enum": [1, "a"]}])
        schema: dict[str, Any] = {}
        types = ["object", "array", "string", "integer", "number", "boolean", "null"]
        names = self.some(types[: 5 if depth else 7], 2)
        if self.chance(0.9):
            schema["type"] = names[0] if len(names) == 1 else names
        for name, keywords in (("number", self.numbers()), ("integer", self.numbers()), ("string", self.strings()),
                               ("object", self.objects(depth)), ("array", self.arrays(depth))):
            if self.chance(0.9 if name in names else 0.05):
                schema.update(keywords)
        if self.chance(0.1):
            schema["enum"] = [self.value() for _ in range(self.random.randint(1, 4))]
        if self.chance(0.05):
            schema["const"] = self.value()
        for keyword in ("anyOf", "oneOf", "allOf"):
            if self.chance(0.1):
                schema[keyword] = [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]
        if self.chance(0.05):
            schema["not"] = self.schema(depth - 1)
        if self.chance(0.05):
            schema.update({"if": self.schema(depth - 1), "then": self.schema(depth - 1), "else": self.schema(depth - 1)})
        if self.chance(0.1):
            schema["$ref"] = "#"
        if self.chance(0.15):
            schema.update(self.conditions(depth))
        return schema


def number(text: str) -> Any:
    value = decimal.Decimal(text)
    return int(value) if value == value.to_integral_value() else value


def read(text: str) -> Any:
    """With exact numbers, so that multipleOf is exact; 1.0 is an integer, as the standard says."""
    return json.loads(text, parse_float=number)


def schemas() -> Any:
    """(name, text)"""
    if FILES:
        for path in sorted(Path(FILES).iterdir()):
            yield path.name, path.read_text(encoding="utf-8")
        return
    for seed in range(NUM_SCHEMAS):
        yield f"seed {seed}", json.dumps(Maker(seed).schema(seed % 4))


@pytest.fixture(scope="module")
def wild() -> Any:
    engine = LLM(MODEL, **small(load_format="dummy", max_model_len=1024, seed=5))
    yield engine
    engine.exit()


def answers_of(wild: Any, form: dict[str, Any], count: int) -> Any:
    try:
        sampling = SamplingParams(structured_outputs=form, temperature=100, top_k=-1, top_p=1, n=count, max_tokens=200,
                                  skip_special_tokens=True)
        return wild.generate(["a"], sampling, use_tqdm=False)[0].outputs
    except (UnsupportedError, InvalidArgumentError):
        return None


@pytest.mark.skipif(not jsonschema, reason="jsonschema is not installed (Debian: python3-jsonschema)")
@pytest.mark.parametrize("any_key_order", [False, True])
def test_no_answer_violates_its_schema(wild: Any, any_key_order: bool) -> None:
    decimal.getcontext().prec = 400
    checker = jsonschema.FormatChecker(formats=())
    num_schemas = num_accepted = num_complete = 0
    for name, text in schemas():
        if not FILES and '"format"' in text and any(f'"{word}"' in text for word in ("oneOf", "not", "if")):
            continue  # formats are checked below these, and this validator takes them for comments
        num_schemas += 1
        answers = answers_of(wild, {"json": text, "any_key_order": any_key_order}, 4)
        if answers is None:
            continue
        num_accepted += 1
        validator = jsonschema.validators.validator_for(read(text), default=jsonschema.Draft202012Validator)(
            read(text), format_checker=checker)
        for answer in answers:
            if answer.finish_reason != "stop":
                continue
            num_complete += 1
            try:
                faults = [fault.message for fault in validator.iter_errors(read(answer.text))]
            except RecursionError:  # a schema that is valid where itself is
                continue
            assert not faults, (name, text, answer.text, faults)
    print(f"{num_accepted} of {num_schemas} schemas accepted, {num_complete} complete answers, all valid")
    assert num_accepted > 0
    if not FILES:
        assert num_accepted * 2 > num_schemas
        assert num_complete > num_accepted
