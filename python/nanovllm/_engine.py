"""One nvllm_engine and who may touch it when; LLM and AsyncLLM are written over it.

The library lets one thread at a time into an engine. `exclusive` is that rule: it takes the lock in
order of arrival, puts Ctrl-C off until it is left, and refuses an engine that has exited. Every
method of Engine but `exit` is to be called inside it. ctypes releases the GIL during a call, so
other Python threads run while the engine steps.

What happened to a request comes through one callback per engine. A request that wants its text or
its log-probabilities bit by bit gets every token; all others only their end, so that Python does
nothing per token.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Optional

from . import _library, _structs
from ._fair_lock import FairLock
from ._interrupt import deferred
from ._prompts import NativePrompt
from .config import Config, NativeOptions
from .errors import ExitedError, NanovllmError
from .sampling_params import NativeSampling

Logprobs = list[tuple[int, float]]
"""(token id, natural logarithm of its probability); the chosen token first, then the best ones."""


class Request:
    """A request from its addition to its end. `finish_reason` is None until then."""

    __slots__ = (
        "cached",
        "error",
        "finish_reason",
        "id",
        "is_queued",
        "logprobs",
        "on_end",
        "on_token",
        "pieces",
        "text",
        "token_ids",
        "wants_text",
    )

    def __init__(
        self,
        *,
        wants_text: bool = False,
        is_queued: bool = False,
        on_end: Callable[[Request], None] | None = None,
        on_token: Callable[[int, str, Optional[Logprobs]], None] | None = None,
    ) -> None:
        self.id = 0
        self.wants_text = wants_text
        self.is_queued = is_queued  # its end goes to Engine.outputs
        self.on_end = on_end
        # For each event, when the fields below are up to date: the token's id or -1, new text, its
        # log-probabilities.
        self.on_token = on_token
        self.pieces: list[bytes] | None = None  # text so far, of a request with stop strings
        self.logprobs: list[Logprobs] | None = None  # [num_tokens]
        self.text = ""
        self.token_ids: list[int] = []
        self.cached = 0  # prompt tokens that the prefix cache had
        self.finish_reason: str | None = None
        self.error: BaseException | None = None


class _Sink:
    """Takes the events of one engine. The engine owns it, never the other way round."""

    def __init__(self, lib: ctypes.CDLL) -> None:
        self.lib = lib
        self.tokenizer: int | None = None
        self.requests: dict[int, Request] = {}  # unfinished, by id

    def take(self, pointer: Any, _user_data: Any) -> None:
        """The library's callback. Nothing may leave it: ctypes would print it and go on."""
        event = pointer.contents
        request = self.requests.get(event.request_id)
        if request is None:
            return
        try:
            piece, row = self._take_token(request, event)
            if event.finish_reason:
                self._take_end(request, event)
                request.finish_reason = _structs.FINISH_NAMES.get(event.finish_reason, "error")
            if request.on_token is not None:
                request.on_token(event.token_id, piece.decode("utf-8", "replace"), row)
        except BaseException as error:
            request.error = request.error or error
        if event.finish_reason:
            del self.requests[request.id]
            request.finish_reason = request.finish_reason or "error"
            if request.on_end is not None:
                request.on_end(request)

    def _take_token(self, request: Request, event: Any) -> tuple[bytes, Logprobs | None]:
        piece = ctypes.string_at(event.text, event.text_len) if event.text_len else b""
        row: Logprobs | None = None
        if event.chosen and event.token_id >= 0:
            top = event.top[: event.num_top]
            row = [(x.token_id, x.logprob) for x in (event.chosen.contents, *top)]
        if request.pieces is not None:
            request.pieces.append(piece)
        if request.logprobs is not None and row is not None:
            request.logprobs.append(row)
        return piece, row

    def _take_end(self, request: Request, event: Any) -> None:
        request.cached = event.num_cached_tokens
        count = event.num_generated_tokens
        request.token_ids = event.token_ids[:count]
        if event.error:
            request.error = NanovllmError(event.error.decode("utf-8", "replace"))
        if not request.wants_text:
            return
        if request.pieces is not None and event.stop_string:
            request.text = b"".join(request.pieces).decode("utf-8", "replace")
        elif self.tokenizer:
            request.text = self._decode(event.token_ids, count)
        request.pieces = None

    def _decode(self, ids: Any, count: int) -> str:
        """All of the output's text, as tokenizer.decode(token_ids) has it."""
        text, size, error = ctypes.c_void_p(), ctypes.c_size_t(), _structs.Error()
        status = self.lib.nvllm_tokenizer_decode(
            self.tokenizer,
            ids,
            count,
            _structs.DECODE_SKIP_UNKNOWN,
            ctypes.byref(text),
            ctypes.byref(size),
            ctypes.byref(error),
        )
        _library.check(status, error)
        return _library.take_text(self.lib, text, size.value)


class _Handle:
    """The engine's pointer, and its end: by exit(), the garbage collector, or Python's own end."""

    def __init__(self, lib: ctypes.CDLL, pointer: int, callback: Any) -> None:
        self.lib = lib
        self.pointer: int | None = pointer
        self.callback = callback  # lives as long as the engine may call it
        self.lock = FairLock()
        self.process = os.getpid()

    def is_forked(self) -> bool:
        return self.process != os.getpid()

    def check_process(self) -> None:
        if self.is_forked():
            raise NanovllmError("the LLM belongs to the process that made it, this is a fork of it")

    def destroy(self) -> None:
        if self.is_forked():
            self.pointer = None  # a forked child has none of the engine's threads to end
            return
        self.lock.acquire()
        try:
            pointer, self.pointer = self.pointer, None
            self.lib.nvllm_engine_destroy(pointer)  # NULL is fine
        finally:
            self.lock.release()


class exclusive:
    """`with exclusive(engine):`, by the rule at the file's head. May be entered again later."""

    def __init__(self, engine: Engine) -> None:
        engine.handle.check_process()
        self._handle = engine.handle
        self._deferred = deferred()

    def __enter__(self) -> deferred:
        self._deferred.__enter__()
        try:
            self._handle.lock.acquire()
            if self._handle.pointer is None:
                self._handle.lock.release()
                raise ExitedError("the LLM has exited")
        except BaseException:
            self._deferred.__exit__(None, None, None)
            raise
        return self._deferred

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.lock.release()
        self._deferred.__exit__(kind, error, traceback)


class Engine:
    """nvllm_engine with Python's errors and requests."""

    def __init__(self, config: Config) -> None:
        """Loads the model. Errors: as nvllm_engine_create's, before or while it loads."""
        self.lib = lib = _library.library()
        self._sink = _Sink(lib)
        self._stats = _structs.StatsStruct(struct_size=ctypes.sizeof(_structs.StatsStruct))
        self.outputs: deque[Request] = deque()  # ended, of LLM.add_request, for the next step()
        options = NativeOptions(config)
        pointer, error = ctypes.c_void_p(), _structs.Error()
        with deferred():
            status = lib.nvllm_engine_create(
                ctypes.byref(pointer), ctypes.byref(options.struct), ctypes.byref(error)
            )
            _library.check(status, error)
            assert pointer.value is not None
            callback = _structs.EventFn(self._sink.take)
            self.handle = _Handle(lib, pointer.value, callback)
            self._finalizer = weakref.finalize(self, self.handle.destroy)
        self._sink.tokenizer = lib.nvllm_engine_tokenizer(pointer)

    def add(self, prompt: NativePrompt, sampling: NativeSampling, request: Request) -> None:
        """Errors: the engine's, for a request that can never run."""
        struct = _structs.RequestStruct(struct_size=ctypes.sizeof(_structs.RequestStruct))
        prompt.fill(struct)
        struct.sampling = ctypes.pointer(sampling.struct)
        struct.on_event = self.handle.callback
        struct.keep_special_tokens = 1
        if request.wants_text and sampling.struct.num_stop:
            request.pieces = []
        if sampling.struct.logprobs >= 0:
            request.logprobs = []
        wants_tokens = (request.on_token, request.pieces, request.logprobs) != (None, None, None)
        struct.finish_event_only = int(not wants_tokens)
        request_id, error = ctypes.c_uint64(), _structs.Error()
        status = self.lib.nvllm_engine_add_request(
            self.handle.pointer, ctypes.byref(struct), ctypes.byref(request_id), ctypes.byref(error)
        )
        _library.check(status, error)
        request.id = request_id.value
        self._sink.requests[request.id] = request

    def step(self) -> None:
        """Runs one step; requests end in it. DeviceError: the engine is lost, all have ended."""
        error = _structs.Error()
        status = self.lib.nvllm_engine_step(self.handle.pointer, ctypes.byref(error))
        if status:
            raise _library.failure(status, error)

    def find(self, request_id: int) -> Request | None:
        """An unfinished request."""
        return self._sink.requests.get(request_id)

    def unfinished(self) -> list[Request]:
        return list(self._sink.requests.values())

    def abort(self, request: Request) -> None:
        """Ends it now if it is unfinished."""
        if request.finish_reason is None and request.id:
            self.lib.nvllm_engine_abort(self.handle.pointer, request.id)

    def stats(self) -> _structs.StatsStruct:
        """The counters, overwritten by the next call."""
        self.lib.nvllm_engine_stats(self.handle.pointer, ctypes.byref(self._stats))
        return self._stats

    def exit(self) -> None:
        """Ends what is unfinished with "abort" and frees everything. Again: nothing."""
        with deferred():
            self._finalizer()
