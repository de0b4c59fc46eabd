"""Ctrl-C between two steps, not in the middle of one.

Python raises KeyboardInterrupt wherever the main thread happens to be: inside a callback of the
engine, or between a call and the note of its result, where it would be lost or leave a request
behind. While `deferred` is open, the signal is only noted; its own handler runs when `deliver` is
called, or else at the end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_active: deferred | None = None  # the outermost one; the main thread's


class deferred:
    """`with deferred() as interrupt:`. Does nothing off the main thread, where no signals come, and
    inside another one."""

    def __init__(self) -> None:
        self._is_pending = False
        self._handler: Any = None
        self._frame: FrameType | None = None

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self._is_pending = True
        self._frame = frame

    def deliver(self) -> None:
        """Runs the handler of a signal that came; KeyboardInterrupt if it raises that."""
        if self._is_pending:
            self._is_pending = False
            frame, self._frame = self._frame, None
            self._handler(signal.SIGINT, frame)

    def __enter__(self) -> deferred:
        global _active
        if _active is None and threading.get_ident() == threading.main_thread().ident:
            # None is a handler of another language, and SIG_IGN and SIG_DFL are no functions.
            self._handler = signal.getsignal(signal.SIGINT)
            if callable(self._handler):
                with contextlib.suppress(ValueError):  # a sub-interpreter has no signals
                    signal.signal(signal.SIGINT, self._note)
                    _active = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global _active
        if _active is self:
            _active = None
            signal.signal(signal.SIGINT, self._handler)
            self.deliver()
