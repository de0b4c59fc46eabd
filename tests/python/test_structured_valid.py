"""Every valid value fits: random small schemas, and values that the package jsonschema judges.

`nanovllm schema check` must take a valid value in some order of its keys, with `--any-key-order` in all of them, and an
invalid one in none. The schemas
are small and the values few, so that many values are valid. Numbers are not written as 1.0, which is never written
where a whole number is asked for. By hand, NANOVLLM_SCHEMA_SEEDS says how many schemas are tried.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

try:
    import jsonschema
except ImportError:
    jsonschema = None

NUM_SCHEMAS = int(os.environ.get("NANOVLLM_SCHEMA_SEEDS", "300"))
PROGRAM = os.environ.get("NANOVLLM_PROGRAM")
KEYS = ["a", "b", "c"]
SCALARS = [None, True, 0, 1, 2.5, "s", "t"]


class Maker:
    """Random schemas and values. The same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def keys(self) -> list[str]:
        return [key for key in KEYS if self.chance(0.5)]

    def leaf(self) -> Any:
        types = ["null", "boolean", "integer", "number", "string", "array", "object"]
        return self.random.choice([
            True, {}, False, {"const": self.random.choice(SCALARS)}, {"enum": self.random.sample(SCALARS, 3)},
            {"type": self.random.choice(types)}, {"type": self.random.sample(types, 2)}, {"minimum": 1},
            {"maxLength": 0}, {"required": [self.random.choice(KEYS)]}, {"not": {"type": self.random.choice(types)}},
        ])

    def objects(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object"} if self.chance(0.5) else {}
        if self.chance(0.8):
            schema["properties"] = {key: self.schema(depth - 1) for key in self.keys()}
        if self.chance(0.4):
            schema["required"] = self.keys()
        if self.chance(0.4):
            schema["additionalProperties"] = self.random.choice([False, self.leaf()])
        if self.chance(0.1):
            schema["maxProperties"] = self.random.randint(0, 2)
        if self.chance(0.1):
            schema["propertyNames"] = {"enum": ["a", "b", "d"]}
        if self.chance(0.1):
            schema["patternProperties"] = {"^[ad]$": self.leaf()}
        if self.chance(0.1):
            schema["dependentRequired"] = {self.random.choice(KEYS): [self.random.choice(KEYS)]}
        if self.chance(0.2):
            schema["dependentSchemas"] = {key: self.schema(depth - 1) for key in self.keys()}
        return schema

    def arrays(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"} if self.chance(0.5) else {}
        if self.chance(0.5):
            schema["allOf"] = [{"contains": self.leaf()} for _ in range(self.random.randint(1, 4))]
        if self.chance(0.4):
            schema["items"] = self.leaf()
        if self.chance(0.2):
            schema["prefixItems"] = [self.leaf() for _ in range(self.random.randint(1, 2))]
        if self.chance(0.3):
            schema["minItems"] = self.random.randint(0, 3)
        if self.chance(0.3):
            schema["maxItems"] = self.random.randint(0, 3)
        if self.chance(0.1):
            schema["uniqueItems"] = True
        return schema

    def conditions(self, depth: int) -> dict[str, Any]:
        kind = self.random.randrange(5)
        parts = [self.schema(depth - 1) for _ in range(3)]
        if kind == 0:
            return {"if": parts[0], "then": parts[1], "else": parts[2]}
        if kind == 1:
            return {"not": {"anyOf": parts[: self.random.randint(1, 3)]}}
        if kind in (2, 3):
            parts = [{"not": self.objects(0)} for _ in range(self.random.randint(1, 3))]
            for part in parts:
                part["not"].setdefault("additionalProperties", self.random.choice([False, True]))
            return {"type": "object", "allOf": parts}
        return {self.random.choice(["anyOf", "oneOf", "allOf"]): parts}

    def schema(self, depth: int) -> Any:
        kind = self.random.random()
        if depth <= 0 or kind < 0.2:
            return self.leaf()
        if kind < 0.45:
            return self.objects(depth)
        if kind < 0.65:
            return self.arrays()
        schema = self.conditions(depth)
        if self.chance(0.3):
            schema = {**self.objects(depth - 1), **schema}
        return schema

    def values(self) -> list[Any]:
        values: list[Any] = [*SCALARS, [], {}]
        for size in (1, 2, 3):
            for keys in itertools.combinations([*KEYS, "d"], size):
                values.extend(dict(zip(keys, self.random.choices(SCALARS, k=size))) for _ in range(3))
            values.extend(self.random.choices(SCALARS, k=size) for _ in range(8))
        return values


def orders(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return [json.dumps(value)]
    return [json.dumps(dict(order)) for order in itertools.permutations(value.items())]


def fitting(folder: Path, schema: Any, values: list[Any], *options: str) -> list[list[bool]] | None:
    """For each value, which of its orders fit. None: the schema is refused."""
    texts = [(i, text) for i, value in enumerate(values) for text in orders(value)]
    (folder / "schema.json").write_text(json.dumps(schema))
    (folder / "texts.jsonl").write_text("".join(text + "\n" for _, text in texts))
    command = [PROGRAM, "schema", "check", folder / "schema.json", folder / "texts.jsonl", *options]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "refused: " in out.stdout:
        return None
    lines = [line.split(": ", 1)[1] for line in out.stdout.splitlines() if line.startswith("line ")]
    assert len(lines) == len(texts), (json.dumps(schema), out.stdout, out.stderr)
    found: list[list[bool]] = [[] for _ in values]
    for (i, _), line in zip(texts, lines):
        found[i].append(line == "fits")
    return found


@pytest.mark.skipif(not jsonschema, reason="jsonschema is not installed (Debian: python3-jsonschema)")
@pytest.mark.skipif(not PROGRAM, reason="NANOVLLM_PROGRAM does not name the program")
@pytest.mark.parametrize("options", [[], ["--any-key-order"]], ids=["order of the schema", "any order"])
def test_valid_values_fit_and_no_others(tmp_path: Path, options: list[str]) -> None:
    num_accepted = num_valid = 0
    for seed in range(NUM_SCHEMAS):
        maker = Maker(seed)
        schema, values = maker.schema(1 + seed % 3), maker.values()
        found = fitting(tmp_path, schema, values, *options)
        if found is None:
            continue
        num_accepted += 1
        validator = jsonschema.Draft202012Validator(schema)
        for value, fits in zip(values, found):
            is_valid = validator.is_valid(value)
            num_valid += is_valid
            case = (seed, json.dumps(schema), json.dumps(value), "valid" if is_valid else "invalid")
            assert any(fits) == is_valid, case
            assert not options or all(fits) == is_valid, case
    print(f"{num_accepted} of {NUM_SCHEMAS} schemas accepted, {num_valid} valid values")
    if NUM_SCHEMAS >= 100:
        assert num_accepted * 2 > NUM_SCHEMAS
        assert num_valid > 10 * num_accepted
