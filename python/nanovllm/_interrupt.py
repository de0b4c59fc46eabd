"""Ctrl-C between two steps, not in the middle of one; other signals' handlers as well.

Python runs the handler of a signal wherever the main thread happens to be: inside a callback of
the engine, where ctypes would swallow what it raises and the end of a request be lost, or between a
call and the note of its result. While `deferred` is open, signals are only noted; their own
handlers run when `deliver` is called, or else at the end.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# Those whose handlers raise: Ctrl-C, time limits, requests to end.
_SIGNALS = (
    signal.SIGINT,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)

_active: deferred | None = None  # the outermost one; the main thread's


class deferred:
    """`with deferred() as interrupt:`. Does nothing off the main thread, where no signals come, and
    inside another one."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._replaced: list[int] = []  # signals
        self._pending: dict[int, FrameType | None] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending[number] = frame

    def deliver(self) -> None:
        """Runs the handlers of signals that came; KeyboardInterrupt if one raises that."""
        if self._pending:
            number, frame = self._pending.popitem()
            try:
                self._handlers[number](number, frame)
            finally:
                self.deliver()

    def __enter__(self) -> deferred:
        global _active
        if _active is None and threading.get_ident() == threading.main_thread().ident:
            try:
                self._replace()
            except BaseException:  # of a handler that was still there
                self._end()
                raise
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
            self._end()

    def _end(self) -> None:
        try:
            self._restore()
        finally:
            self.deliver()

    def _replace(self) -> None:
        for number in _SIGNALS:
            # None is a handler of another language, and SIG_IGN and SIG_DFL are no functions.
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                self._replaced.append(number)  # before: one that is not yet replaced may raise
                try:
                    signal.signal(number, self._note)
                except ValueError:  # a sub-interpreter has no signals
                    self._replaced.pop()

    def _restore(self) -> None:
        try:
            while self._replaced:
                number = self._replaced[-1]
                signal.signal(number, self._handlers[number])
                self._replaced.pop()
        finally:
            if self._replaced:  # a handler that was back has raised
                self._restore()
