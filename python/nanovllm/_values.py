"""Python values as the JSON text that the library's parameter tables read.

The library checks ranges. This module only converts.
"""

from __future__ import annotations

import json
import operator
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from .errors import InvalidArgumentError

_EXCERPT_MAX = 60


def excerpt(value: object) -> str:
    """A value as error sentences show it: its repr, shortened. Never raises."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _EXCERPT_MAX else text[: _EXCERPT_MAX - 3] + "..."


def wrong(name: str, value: object, want: str) -> InvalidArgumentError:
    """The exception for a value of a wrong type."""
    return InvalidArgumentError(f"{name} is {excerpt(value)}, want {want}")


def nearest(name: str, names: Iterable[str]) -> str:
    """'; did you mean "..."?' if one of the names is near, else an empty string."""
    matches = get_close_matches(name.lower(), list(names), n=1)
    return f'; did you mean "{matches[0]}"?' if matches else ""


def _plain(value: object) -> object:
    """Converts other libraries' numbers to Python's, and -inf to the string for it."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        return "-inf" if value == float("-inf") else value
    if hasattr(value, "__index__") or hasattr(value, "__float__"):
        return _plain_number(value)
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item) for item in value]
    raise TypeError


def _plain_number(value: Any) -> object:
    if hasattr(value, "__index__"):
        return operator.index(value)
    if hasattr(value, "dtype") and hasattr(value, "item"):
        item = value.item()  # numpy's truth values, say
        if not isinstance(item, (bool, int, float)):
            raise TypeError
        return item
    return float(value)


def json_of(name: str, value: object) -> bytes:
    """JSON text of a parameter's value. InvalidArgumentError: JSON has no form for it."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise InvalidArgumentError(f"{name} is an integer of {value.bit_length()} bits: too large")
    try:
        return json.dumps(_plain(value)).encode("ascii")
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise InvalidArgumentError(
            f"{name} is {excerpt(value)}, which is not a value for it"
        ) from None


def document(name: str, value: object) -> bytes:
    """JSON text of a chat: dicts, lists, strings, numbers. InvalidArgumentError: it is not that."""
    try:
        return json.dumps(value, allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} cannot be written as JSON: {error}") from None


def utf8(name: str, text: str) -> bytes:
    """A text's bytes. InvalidArgumentError: half of a surrogate pair."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} has half a surrogate pair at character {error.start}"
        ) from None


def c_string(name: str, text: str | os.PathLike[str]) -> bytes:
    """A name or path for C. InvalidArgumentError: it has a NUL character, or is not text."""
    try:
        encoded = os.fsencode(text)
    except TypeError:
        raise InvalidArgumentError(f"{name} is {excerpt(text)}, want a string") from None
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{name} is {excerpt(text)}, which is not text") from None
    if b"\0" in encoded:
        raise InvalidArgumentError(f"{name} has a NUL character")
    return encoded


def token_array(name: str, ids: Iterable[int]) -> array[int]:
    """Token ids as int32. InvalidArgumentError names the first entry that is not a token id."""
    if isinstance(ids, (str, bytes, bytearray, Mapping, set, frozenset)):
        raise InvalidArgumentError(f"{name} is {excerpt(ids)}, want a list of token ids")
    try:
        return array("i", ids)
    except (TypeError, OverflowError):
        pass
    try:
        for position, token in enumerate(ids):
            try:
                array("i", [token])
            except (TypeError, OverflowError):
                raise InvalidArgumentError(
                    f"{name}: entry {position} is {excerpt(token)}, want a token id"
                ) from None
    except TypeError:
        pass
    raise InvalidArgumentError(f"{name} is {excerpt(ids)}, want a list of token ids")
