"""Where a model lies: a path, or a model by its name in the Hugging Face cache."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from . import _library, _structs
from ._interrupt import QUESTION, deferred
from .progress import DownloadBar


class _Watch:
    """Shows a download by a bar while it is open."""

    def __init__(self, options: _structs.OptionsStruct) -> None:
        self._options = options
        self._bar = DownloadBar(os.fsdecode(options.model or b""))
        self._callback = _structs.OnDownloadedFn(self._tell)
        self._progress = _structs.DownloadProgress(self._callback, None)

    def _tell(self, download: Any, _: Any) -> None:
        self._bar.tell(download.contents.num_bytes, download.contents.total_bytes)

    def __enter__(self) -> None:
        self._options.download_progress = ctypes.pointer(self._progress)

    def __exit__(self, *_: Any) -> None:
        self._options.download_progress = None
        self._bar.close()


def find(options: _structs.OptionsStruct, *, texts_only: bool = False) -> bytes:
    """The path of options.model. Errors: nvllm_model_find's."""
    lib = _library.library()
    path, error = ctypes.c_void_p(), _structs.Error()
    options.interrupt = ctypes.pointer(QUESTION)
    with deferred(), _Watch(options):
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
