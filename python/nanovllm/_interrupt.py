"""Ctrl-C between two steps, not in the middle of one.

Python raises KeyboardInterrupt wherever the main thread happens to be: inside a callback of the
engine, or between a call and the note of its result, where it would be lost or leave a request
behind. While `deferred` is open, the signal is only noted; its own handler runs when `deliver` is
called, or else at the end.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class deferred:
    """`with deferred() as interrupt:`. Does nothing off the main thread, where no signals come."""

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
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            # None is a handler of another language, and SIG_IGN and SIG_DFL are no functions.
            if callable(handler):
                try:
                    signal.signal(signal.SIGINT, self._note)
                    self._handler = handler
                except ValueError:  # a sub-interpreter
                    pass
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self.deliver()
