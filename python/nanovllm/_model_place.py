"""Where a model lies: a path, or a model by its name in the Hugging Face cache."""

from __future__ import annotations

import ctypes

from . import _library, _structs
from ._interrupt import QUESTION, deferred


def find(options: _structs.OptionsStruct, *, texts_only: bool = False) -> bytes:
    """The path of options.model. Errors: nvllm_model_find's."""
    lib = _library.library()
    path, error = ctypes.c_void_p(), _structs.Error()
    options.interrupt = ctypes.pointer(QUESTION)
    with deferred():
        status = lib.nvllm_model_find(
            ctypes.byref(options), int(texts_only), ctypes.byref(path), ctypes.byref(error)
        )
        _library.check(status, error)
        try:
            return ctypes.string_at(path.value or 0)
        finally:
            lib.nvllm_free(path)


def find_texts(model: bytes) -> bytes:
    """The path of a model, of which the tokenizer and the templates are read."""
    _library.library()  # defines the fields
    options = _structs.OptionsStruct()
    options.struct_size = ctypes.sizeof(options)
    options.model = model
    return find(options, texts_only=True)
