"""Runs the handlers of Ctrl-C and other signals between two steps, or in a long call that asks.

Python runs a signal's handler wherever the main thread happens to be. Inside a callback of the
engine ctypes would swallow its exception, and the end of a request would be lost. Between a call
and the assignment of its result, the result would be lost. So while `deferred` is open, signals are
only noted. Their handlers run when `deliver` is called, or else at the end. A call that gets
`QUESTION` asks whether it should end: the handlers run then, and `take_raised` returns the
exception of one of them.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from . import _structs

# Signals whose handlers often raise: Ctrl-C, time limits, requests to end.
_SIGNALS = (
    signal.SIGINT,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
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
        self.raised: BaseException | None = None  # by a handler, while the library asked

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

    def ask(self) -> int:
        """1: a handler has raised, so the asking call must end."""
        try:
            self.deliver()
        except BaseException as error:
            self.raised = error
            return 1
        return 0

    def __enter__(self) -> deferred:
        global _active
        if _active is None and _is_main_thread():
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
            # None means a handler that Python did not set. SIG_IGN and SIG_DFL are not functions.
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


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _is_wanted(_user_data: object) -> int:
    """Answers the library, on the thread that called it. Signals arrive only on the main thread."""
    return _active.ask() if _active is not None and _is_main_thread() else 0


QUESTION = _structs.Interrupt(is_wanted=_structs.IsWantedFn(_is_wanted))


def take_raised() -> BaseException | None:
    """The exception of a handler that ran when the library asked; returned once."""
    if _active is None:
        return None
    raised, _active.raised = _active.raised, None
    return raised
