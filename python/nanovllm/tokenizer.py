"""A model's tokenizer and chat template, without an engine."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _library, _model_place, _structs, _values
from ._handle import Handle
from ._interrupt import QUESTION, deferred
from ._prompts import Messages, native_chat

if TYPE_CHECKING:
    from .config import PathOrStr


class Tokenizer:
    """Text to token ids and back. Read-only, so threads may share it.

    Copies share what is loaded; a forked child can keep using it. It cannot be pickled.

    model: a checkpoint folder, the name of a model in the Hugging Face cache, or a tokenizer.json,
        which has no chat template.
    chat_template: file with Jinja source in place of the model's template.
    """

    def __init__(self, model: PathOrStr, *, chat_template: PathOrStr | None = None) -> None:
        self._model = _model_place.find_texts(_values.c_string("model", model))
        self._template_path = (
            None if chat_template is None else _values.c_string("chat_template", chat_template)
        )
        self._template: Handle | None = None
        lib = _library.library()
        handle = Handle(lib.nvllm_tokenizer_close)
        handle.open(lib.nvllm_tokenizer_open, self._model)
        self._handle = handle

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special tokens written in it are recognised.

        add_special_tokens: also add the tokenizer's own tokens, such as a BOS token.
        """
        if not isinstance(text, str):
            raise _values.wrong("text", text, "a text")
        utf8 = _values.utf8("text", text)
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        lib = _library.library()
        with deferred():
            self._handle.call(
                lib.nvllm_tokenizer_encode,
                utf8,
                len(utf8),
                int(bool(add_special_tokens)),
                ctypes.byref(QUESTION),
                ctypes.byref(ids),
                ctypes.byref(count),
            )
            try:
                return ids[: count.value]
            finally:
                lib.nvllm_free(ids)

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids. Bytes that are not UTF-8 become U+FFFD; ids without a token add
        nothing."""
        ids = _values.token_array("token_ids", token_ids)
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        flags = _structs.DECODE_SKIP_UNKNOWN
        if skip_special_tokens:
            flags |= _structs.DECODE_SKIP_SPECIAL
        lib = _library.library()
        self._handle.call(
            lib.nvllm_tokenizer_decode,
            (ctypes.c_int32 * len(ids)).from_buffer(ids) if ids else None,
            len(ids),
            flags,
            ctypes.byref(text),
            ctypes.byref(size),
        )
        return _library.take_text(lib, text, size.value)

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
        """Renders the prompt of a chat, as token ids, or with tokenize=False as text.

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
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        lib = _library.library()
        template = self._open_template()
        with deferred():
            template.call(
                lib.nvllm_chat_template_render,
                chat,
                len(chat),
                ctypes.byref(QUESTION),
                ctypes.byref(text),
                ctypes.byref(size),
            )
            prompt = _library.take_text(lib, text, size.value)
        # A template writes its own BOS.
        return self.encode(prompt, add_special_tokens=False) if tokenize else prompt

    def _open_template(self) -> Handle:
        template = self._template
        if template is None:
            lib = _library.library()
            template = Handle(lib.nvllm_chat_template_close)
            folder = self._model if os.path.isdir(self._model) else None
            template.open(lib.nvllm_chat_template_open, folder, self._template_path)
            self._template = template
        return template
