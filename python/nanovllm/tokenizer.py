"""A model's tokenizer and chat template, without an engine."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _library, _structs, _values
from ._prompts import Messages, native_chat

if TYPE_CHECKING:
    from .config import PathOrStr


def _close_with(owner: object, close: Callable[[Any], None], handle: ctypes.c_void_p) -> None:
    """Closes the handle when its owner is collected. Not at Python's own end: a daemon thread may
    be inside a call with it then, and the memory goes with the process."""
    weakref.finalize(owner, close, handle).atexit = False


class Tokenizer:
    """Text to token ids and back. Read-only and shared by threads as one likes.

    model: a checkpoint folder, or a tokenizer.json, which has no chat template.
    chat_template: file with Jinja source in place of the model's template.
    """

    def __init__(self, model: PathOrStr, *, chat_template: PathOrStr | None = None) -> None:
        self._lib = _library.library()
        self._model = _values.c_string("model", model)
        self._template_path = (
            None if chat_template is None else _values.c_string("chat_template", chat_template)
        )
        self._template: ctypes.c_void_p | None = None
        handle, error = ctypes.c_void_p(), _structs.Error()
        status = self._lib.nvllm_tokenizer_open(
            ctypes.byref(handle), self._model, ctypes.byref(error)
        )
        _library.check(status, error)
        self._handle = handle
        _close_with(self, self._lib.nvllm_tokenizer_close, handle)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special tokens written in it are recognised.

        add_special_tokens: also what the tokenizer adds to every text, a BOS token say.
        """
        if not isinstance(text, str):
            raise _values.wrong("text", text, "a text")
        utf8 = _values.utf8("text", text)
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        error = _structs.Error()
        status = self._lib.nvllm_tokenizer_encode(
            self._handle,
            utf8,
            len(utf8),
            int(bool(add_special_tokens)),
            ctypes.byref(ids),
            ctypes.byref(count),
            ctypes.byref(error),
        )
        _library.check(status, error)
        try:
            return ids[: count.value]
        finally:
            self._lib.nvllm_free(ids)

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids; what is not UTF-8 becomes U+FFFD, ids without a token nothing."""
        ids = _values.token_array("token_ids", token_ids)
        text, size, error = ctypes.c_void_p(), ctypes.c_size_t(), _structs.Error()
        flags = _structs.DECODE_SKIP_UNKNOWN
        if skip_special_tokens:
            flags |= _structs.DECODE_SKIP_SPECIAL
        status = self._lib.nvllm_tokenizer_decode(
            self._handle,
            (ctypes.c_int32 * len(ids)).from_buffer(ids) if ids else None,
            len(ids),
            flags,
            ctypes.byref(text),
            ctypes.byref(size),
            ctypes.byref(error),
        )
        _library.check(status, error)
        return _library.take_text(self._lib, text, size.value)

    @overload
    def apply_chat_template(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        tokenize: Literal[False],
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **chat_template_kwargs: Any,
    ) -> str: ...

    @overload
    def apply_chat_template(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        tokenize: Literal[True] = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **chat_template_kwargs: Any,
    ) -> list[int]: ...

    def apply_chat_template(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **chat_template_kwargs: Any,
    ) -> str | list[int]:
        """The prompt that a chat becomes, as token ids, or with tokenize=False as text.

        Names and defaults are those of transformers' method. FormatError: the template raised an
        error; the sentence has its name and line.
        """
        chat = native_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            chat_template_kwargs=chat_template_kwargs,
        ).chat
        assert chat is not None
        text, size, error = ctypes.c_void_p(), ctypes.c_size_t(), _structs.Error()
        status = self._lib.nvllm_chat_template_render(
            self._open_template(),
            chat,
            len(chat),
            ctypes.byref(text),
            ctypes.byref(size),
            ctypes.byref(error),
        )
        _library.check(status, error)
        prompt = _library.take_text(self._lib, text, size.value)
        # A template writes its own BOS.
        return self.encode(prompt, add_special_tokens=False) if tokenize else prompt

    def _open_template(self) -> ctypes.c_void_p:
        if self._template is None:
            template, error = ctypes.c_void_p(), _structs.Error()
            folder = self._model if os.path.isdir(self._model) else None
            status = self._lib.nvllm_chat_template_open(
                ctypes.byref(template), folder, self._template_path, ctypes.byref(error)
            )
            _library.check(status, error)
            _close_with(self, self._lib.nvllm_chat_template_close, template)
            self._template = template
        return self._template
