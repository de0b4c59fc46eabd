"""Finds libnanovllm, loads it once, and makes sure that it is the one that `_structs.py` describes.

It searches in this order: the file that the environment variable NANOVLLM_LIBRARY names; the
package, where a wheel has it; the build folder of the source tree around the package; the system's
libraries.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import _structs
from ._interrupt import take_raised
from .errors import LibraryError, error_of

__version__ = "0.1.0"

VARIABLE = "NANOVLLM_LIBRARY"
_SYSTEM_NAME = "libnanovllm.so." + __version__.split(".", 1)[0]
_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


def package_folders() -> list[Path]:
    """The folders of this package; an editable install has two."""
    from . import __path__ as paths

    return [Path(path) for path in paths]


def build_folders() -> list[Path]:
    """build/* of the source tree around this package, a release build first; else empty."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "include" / "nanovllm.h").is_file():
        return []
    folders = sorted(root.glob("build/*"), key=lambda path: (path.name != "release", path.name))
    return [path for path in folders if not path.name.startswith(("asan", "tsan", "fuzz"))]


def _candidates() -> Iterator[str]:
    chosen = os.environ.get(VARIABLE)
    if chosen:
        yield chosen
        return
    for folder in package_folders():
        path = folder / "_native" / "libnanovllm.so"
        if path.is_file():
            yield str(path)
    for folder in build_folders():
        path = folder / "libnanovllm.so"
        if path.is_file():
            yield str(path)
    yield _SYSTEM_NAME


def _open() -> ctypes.CDLL:
    """Loads the first candidate that exists. If it does not load, that is an error."""
    path = next(_candidates())
    try:
        library = ctypes.CDLL(path)
    except (OSError, ValueError) as error:
        if path == _SYSTEM_NAME:
            hint = f"is neither in the package, nor in a build folder, nor the system's ({error})"
        elif os.environ.get(VARIABLE):
            hint = f"cannot be loaded from {VARIABLE}={path!r} ({error})"
        else:
            hint = f"cannot be loaded from {path!r} ({error})"
        raise LibraryError(f"libnanovllm {hint}") from None
    _check(library, path)
    return library


def _check(library: ctypes.CDLL, path: str) -> None:
    """Refuses a library of another version or struct layout, whose use would crash."""
    try:
        _structs.declare(library)
    except AttributeError as error:
        raise LibraryError(f"{path} is not libnanovllm {__version__}: {error}") from None
    version = library.nvllm_version().decode()
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise LibraryError(f"{path} is libnanovllm {version}, this package wants {__version__}")
    sampling, options = sampling_params(library), engine_options(library)
    _structs.define_fields(_structs.SamplingStruct, sampling, _structs.SAMPLING_REST)
    _structs.define_fields(_structs.OptionsStruct, options, _structs.OPTIONS_REST)
    for name, struct in _structs.STRUCTS.items():
        size = library.nvllm_struct_size(name.encode())
        if size != ctypes.sizeof(struct):
            raise LibraryError(
                f"{path} does not fit this package: struct {name} has {size} bytes there, "
                f"{ctypes.sizeof(struct)} here"
            )
    for table, struct in (
        (sampling, _structs.SamplingStruct),
        (options, _structs.OptionsStruct),
    ):
        for name, param in table.items():
            if getattr(struct, name).offset != param.offset:
                raise LibraryError(f"{path} does not fit this package: {name} is elsewhere")


def library() -> ctypes.CDLL:
    """libnanovllm, loaded by the first call. LibraryError: there is none that fits."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _open()
    return _loaded


def _table(function: Any) -> dict[str, _structs.Param]:
    rows: dict[str, _structs.Param] = {}
    while row := function(len(rows)):
        rows[row.contents.name.decode()] = row.contents
    return rows


def sampling_params(lib: ctypes.CDLL | None = None) -> dict[str, _structs.Param]:
    """The library's table of sampling parameters, by name."""
    return _table((lib or library()).nvllm_sampling_param)


def engine_options(lib: ctypes.CDLL | None = None) -> dict[str, _structs.Param]:
    """The library's table of engine options, by name."""
    return _table((lib or library()).nvllm_engine_option)


def failure(status: int, error: _structs.Error) -> BaseException:
    """The exception for a status and error of the library; for an interrupt, the exception of the
    signal's handler."""
    raised = take_raised() if status == _structs.ERR_INTERRUPTED else None
    return raised or error_of(status, error.message.decode("utf-8", "replace"))


def check(status: int, error: _structs.Error) -> None:
    """Raises the exception for a status and error, unless the status is NVLLM_OK."""
    if status:
        raise failure(status, error)


def take_text(lib: ctypes.CDLL, text: ctypes.c_void_p, size: int = -1) -> str:
    """Returns and frees a string of the library: [size] bytes of UTF-8; -1: up to its NUL."""
    try:
        return ctypes.string_at(text, size).decode("utf-8", "replace")
    finally:
        lib.nvllm_free(text)
