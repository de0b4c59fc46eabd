"""The form that an output must have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .errors import InvalidArgumentError


@dataclass
class StructuredOutputsParams:
    """One of json, json_object, regex, choice, grammar and structural_tag, as vLLM names them.

        StructuredOutputsParams(json=Person)  # a class of Pydantic, or the dict of a JSON schema
        StructuredOutputsParams(choice=["yes", "no"])

    The library checks them when a request is added: InvalidArgumentError names what is wrong, and
    UnsupportedError the keyword of a schema that cannot be enforced and its place.
    """

    json: Any = None
    """A JSON schema as a dict or as text, or a class with model_json_schema (Pydantic)."""
    json_object: bool = False
    """Any JSON object."""
    regex: str | None = None
    """An expression that matches the whole output."""
    choice: Sequence[str] | None = None
    """Texts, of which the output is one."""
    grammar: str | None = None
    """A grammar in GBNF or EBNF; its first rule is `root`."""
    structural_tag: Any = None
    """Free text with constraints between marks, a dict or JSON text: structures and triggers."""
    whitespace_pattern: str | None = None
    """White space between the tokens of JSON, as an expression."""
    disable_any_whitespace: bool = False
    """No white space between the tokens of JSON."""
    disable_additional_properties: bool = False
    """Objects have only keys that the schema names."""
    any_key_order: bool = False
    """Keys of objects come in any order, not in that of the schema."""

    def members(self) -> dict[str, Any]:
        """What is set, as the library reads it."""
        out = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value is False:
                continue
            if field.name == "json" and hasattr(value, "model_json_schema"):
                value = value.model_json_schema()
            out[field.name] = list(value) if field.name == "choice" else value
        return out


def text_of(value: object) -> bytes:
    """JSON text of structured_outputs: of this class, or of a dict."""
    members = value.members() if isinstance(value, StructuredOutputsParams) else value
    if not isinstance(members, Mapping):
        raise InvalidArgumentError(
            f"structured_outputs is {type(value).__name__}, want StructuredOutputsParams or a dict"
        )
    try:
        return json.dumps(members, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"structured_outputs cannot be written as JSON: {error}") from None
