"""A lock that goes to the thread that has waited longest.

threading.Lock is not fair: a thread that steps an engine in a loop would take it again and again,
and a thread that wants to add a request would never get it.
"""

from __future__ import annotations

import threading
from collections import deque

from .errors import NanovllmError


class FairLock:
    """Not reentrant: taking it twice in one thread is an error instead of a hang."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        # One per waiting thread, locked until its turn.
        self._gates: deque[threading.Lock] = deque()
        self._is_held = False
        self._owner: int | None = None  # thread

    def acquire(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise NanovllmError("the engine was called from inside one of its own calls")
        with self._mutex:
            if not self._is_held:
                self._is_held = True
                self._owner = me
                return
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        gate.acquire()  # opened by release(), with the lock still held: it is ours now
        self._owner = me

    def release(self) -> None:
        with self._mutex:
            self._owner = None
            if self._gates:
                self._gates.popleft().release()
            else:
                self._is_held = False
