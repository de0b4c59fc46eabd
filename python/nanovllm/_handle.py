"""Pointers of the library, and when their objects are freed.

A pointer lives in one Handle. Objects that use it hold the Handle, and so do their copies. When
the last of them is gone, the Handle frees the pointer.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable

from . import _library, _structs
from .errors import NanovllmError

_Close = Callable[[ctypes.c_void_p], Any]


def _close(close: _Close, cell: ctypes.c_void_p) -> None:
    pointer = ctypes.c_void_p(cell.value)
    cell.value = None
    close(pointer)


class Handle:
    """A read-only object of the library, which threads may share."""

    def __init__(self, close: _Close) -> None:
        """close: the library's function; it must accept NULL."""
        # The library writes into a cell that has its end already: an exception between the two
        # loses nothing.
        self._cell = ctypes.c_void_p()
        # Not at Python's own end: a daemon thread may be inside a call then, and the memory goes
        # with the process.
        weakref.finalize(self, _close, close, self._cell).atexit = False

    def open(self, function: Any, *arguments: Any) -> None:
        """Calls function(pointer *, arguments..., error). Raises its error."""
        error = _structs.Error()
        _library.check(function(ctypes.byref(self._cell), *arguments, ctypes.byref(error)), error)

    def call(self, function: Any, *arguments: Any) -> None:
        """Calls function(pointer, arguments..., error). Raises its error."""
        # A collected cycle closes its handles before it runs __del__, which may come here.
        if not self._cell:
            raise NanovllmError("the tokenizer is closed")
        error = _structs.Error()
        _library.check(function(self._cell, *arguments, ctypes.byref(error)), error)

    def __deepcopy__(self, _memo: object) -> Handle:
        return self  # read-only: one is enough

    def __reduce_ex__(self, _protocol: object) -> Any:
        raise TypeError("a Tokenizer cannot be pickled: make a new one from the same model")


class Unique:
    """Base of objects that can be neither copied nor pickled."""

    def __reduce_ex__(self, _protocol: object) -> Any:
        raise TypeError(
            f"{type(self).__name__} can be neither copied nor pickled: it owns an engine"
        )
