"""Converts the forms of a prompt to the library's."""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

from . import _library, _structs, _values
from .errors import InvalidArgumentError

Prompt = Union[str, Sequence[int], Mapping[str, Any]]
"""Text, token ids [num_tokens], {"prompt": text} or {"prompt_token_ids": ids}."""

Messages = Sequence[Mapping[str, Any]]
"""A chat: {"role": ..., "content": ...} and further fields that the model's template reads."""

_KEYS = ("prompt", "prompt_token_ids", "cache_salt")


class NativePrompt(NamedTuple):
    """The prompt of a request; exactly one of the first three fields is set."""

    text: bytes | None = None  # UTF-8
    ids: array[int] | None = None  # int32 [num_prompt_token_ids]
    chat: bytes | None = None  # JSON
    salt: bytes | None = None

    def is_chat(self) -> bool:
        return self.chat is not None

    def fill(self, request: _structs.RequestStruct) -> None:
        """The struct borrows: the prompt must outlive the call that adds the request."""
        request.prompt = self.text
        request.prompt_len = len(self.text or b"")
        request.chat = self.chat
        request.chat_len = len(self.chat or b"")
        request.cache_salt = self.salt
        request.prompt_token_ids = None
        request.num_prompt_token_ids = 0
        if self.ids is not None:
            # Set for an empty list too: the engine refuses that with a sentence.
            ids = self.ids if len(self.ids) else array("i", [0])
            buffer = (ctypes.c_int32 * len(ids)).from_buffer(ids)
            request.prompt_token_ids = ctypes.cast(buffer, ctypes.POINTER(ctypes.c_int32))
            request.num_prompt_token_ids = len(self.ids)


def native(prompt: object, name: str = "the prompt") -> NativePrompt:
    """InvalidArgumentError: it has none of the forms."""
    if isinstance(prompt, str):
        return NativePrompt(text=_values.utf8(name, prompt))
    if isinstance(prompt, Mapping):
        return _from_mapping(prompt, name)
    if isinstance(prompt, Iterable):
        return NativePrompt(ids=_values.token_array(name, prompt))
    raise InvalidArgumentError(
        f"{name} is {_values.excerpt(prompt)}, want a text, a list of token ids or "
        '{"prompt_token_ids": [...]}'
    )


def _from_mapping(prompt: Mapping[str, Any], name: str) -> NativePrompt:
    for key in prompt:
        if key not in _KEYS:
            hint = _values.nearest(key, _KEYS) if isinstance(key, str) else ""
            raise InvalidArgumentError(f"{name} has an unknown key {_values.excerpt(key)}{hint}")
    salt = prompt.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or "\0" in salt):
        raise InvalidArgumentError(f"{name}: cache_salt is {_values.excerpt(salt)}, want a text")
    salt_bytes = None if salt is None else _values.utf8(f"cache_salt of {name}", salt)
    if ("prompt" in prompt) == ("prompt_token_ids" in prompt):
        raise InvalidArgumentError(f'{name} wants one of the keys "prompt" and "prompt_token_ids"')
    if "prompt" in prompt:
        text = prompt["prompt"]
        if not isinstance(text, str):
            raise InvalidArgumentError(f'{name}: "prompt" is {_values.excerpt(text)}, want a text')
        return NativePrompt(text=_values.utf8(name, text), salt=salt_bytes)
    return NativePrompt(ids=_values.token_array(name, prompt["prompt_token_ids"]), salt=salt_bytes)


def _is_one(prompts: object) -> bool:
    """True for one prompt in place of a list: a text, a mapping, or a list of integers."""
    if isinstance(prompts, (str, Mapping)):
        return True
    if not isinstance(prompts, Sequence) or not len(prompts):
        return False
    return hasattr(prompts[0], "__index__")


def native_list(prompts: object) -> list[NativePrompt]:
    """Prompts in order; one prompt alone is a list of one."""
    if _is_one(prompts):
        return [native(prompts)]
    if isinstance(prompts, (bytes, bytearray, os.PathLike)) or not isinstance(prompts, Iterable):
        raise InvalidArgumentError(f"prompts is {_values.excerpt(prompts)}, want a list of prompts")
    return [native(prompt, f"prompt {i}") for i, prompt in enumerate(prompts)]


def native_chat(
    messages: object,
    name: str = "the chat",
    *,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> NativePrompt:
    """Converts a chat to JSON; the library checks it."""
    if not isinstance(messages, (list, tuple)):
        raise InvalidArgumentError(
            f"{name} is {_values.excerpt(messages)}, want a list of messages"
        )
    if add_generation_prompt is None:
        add_generation_prompt = not continue_final_message
    chat: dict[str, Any] = {
        "messages": [dict(m) if isinstance(m, Mapping) else m for m in messages],
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continue_final_message,
    }
    for key, value in (("tools", tools), ("documents", documents)):
        if value is not None:
            chat[key] = value
    if chat_template_kwargs is not None:
        chat["chat_template_kwargs"] = chat_template_kwargs
    return NativePrompt(chat=_values.document(name, chat))


def native_question(query: bytes, document: bytes, instruction: bytes | None) -> NativePrompt:
    """The library's chat that asks whether a document answers a query. Texts are without NUL."""
    lib = _library.library()
    chat, size, error = ctypes.c_void_p(), ctypes.c_size_t(), _structs.Error()
    status = lib.nvllm_score_chat(
        query,
        document,
        instruction,
        ctypes.byref(chat),
        ctypes.byref(size),
        ctypes.byref(error),
    )
    _library.check(status, error)
    try:
        return NativePrompt(chat=ctypes.string_at(chat, size.value))
    finally:
        lib.nvllm_free(chat)


def native_chats(messages: object, **options: Any) -> list[NativePrompt]:
    """One chat, or a list of chats."""
    if isinstance(messages, (list, tuple)) and messages and isinstance(messages[0], (list, tuple)):
        return [native_chat(chat, f"chat {i}", **options) for i, chat in enumerate(messages)]
    return [native_chat(messages, **options)]
