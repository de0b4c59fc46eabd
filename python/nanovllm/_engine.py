"""One nvllm_engine, and the rules of who may call it when. LLM and AsyncLLM are built on it.

The library lets one thread at a time drive an engine: step, wait, exit. Such calls stand inside
`exclusive`, which takes a lock in order of arrival. Any thread may make all other calls at any time
before the exit; these stand inside `using`. Both defer Ctrl-C until they are left, and refuse an
engine that has exited. Each method of Engine says which of the two it needs.
ctypes releases the GIL during a call, so other Python threads run while the engine steps.

One callback per engine receives the events of all requests. A request that wants text or
log-probabilities piece by piece gets every token. All others get only their end, so that Python
does nothing per token.

Python may raise an exception at any point of the callback: a signal's handler, or another thread by
PyThreadState_SetAsyncExc. At its entry nothing can catch it: ctypes prints it and continues, and
the event is lost. So each event's count of tokens is compared with the tokens received. After each
step the engine's count of unfinished requests is compared with ours. A lost event becomes an error
of its request.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Optional

from . import _library, _structs
from ._fair_lock import FairLock
from ._interrupt import QUESTION, deferred
from ._prompts import NativePrompt
from .config import Config, NativeOptions
from .errors import ExitedError, NanovllmError
from .sampling_params import NativeSampling

Logprobs = list[tuple[int, float]]
"""(token id, natural logarithm of its probability); the chosen token first, then the best ones."""

OnTokens = Callable[["Completion", list[int], str, Optional[list[Logprobs]]], None]

_LOST = "output of the request was lost: an exception was raised at the entry of a callback"


class Completion:
    """One of a request's n outputs. `finish_reason` is None until its end."""

    __slots__ = (
        "echo",
        "finish_reason",
        "index",
        "logprobs",
        "num_tokens",
        "pieces",
        "stop_reason",
        "text",
        "times",
        "token_ids",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.echo = ""  # the prompt's text, where it is wanted
        self.num_tokens = 0  # received by events
        self.pieces: list[bytes] | None = None  # text so far, of a request with stop strings
        self.logprobs: list[Logprobs] | None = None  # [num_tokens]
        self.text = ""
        self.token_ids: list[int] = []
        self.times: dict[str, float] = {}  # of nvllm_times
        self.stop_reason: int | str | None = None  # the token id or string that ended it
        self.finish_reason: str | None = None


class Request:
    """A request from its addition to its end. `finish_reason` is None until then."""

    __slots__ = (
        "cached",
        "completions",
        "decode_flags",
        "embedding",
        "error",
        "finish_reason",
        "id",
        "is_aborted",
        "is_queued",
        "keeps_stop_token",
        "key",
        "on_end",
        "on_tokens",
        "pooling",
        "prompt_logprobs",
        "prompt_token_ids",
        "wants_events",
        "wants_prompt",
        "wants_text",
    )

    def __init__(
        self,
        *,
        wants_text: bool = False,
        is_queued: bool = False,
        on_end: Callable[[Request], None] | None = None,
        on_tokens: OnTokens | None = None,
        wants_prompt: bool = False,
        pooling: _structs.PoolingStruct | None = None,
    ) -> None:
        self.id = 0  # 0 until it is added
        self.key = 0  # identifies its events, which may come before the id is known
        self.completions: list[Completion] = []  # [n], when it is added
        self.wants_text = wants_text
        self.decode_flags = 0  # of the text
        self.keeps_stop_token = True  # its text is part of the text
        self.is_queued = is_queued  # it goes to Engine.queue
        self.is_aborted = False  # by us
        self.wants_events = False  # events of every token; else only of each completion's end
        self.on_end = on_end  # may be called again if it was cut short
        # Called for each event after the completion is updated, with the new tokens, their text and
        # their log-probabilities.
        self.on_tokens = on_tokens
        self.cached = 0  # prompt tokens found in the prefix cache
        # [num_prompt_tokens], None for the first; None where not asked for.
        self.prompt_logprobs: list[Logprobs | None] | None = None
        self.wants_prompt = wants_prompt  # prompt_token_ids
        self.prompt_token_ids: list[int] = []
        self.pooling = pooling  # it asks for a vector in place of text
        self.embedding: list[float] = []
        self.finish_reason: str | None = None  # "abort" if any completion was; else the first's
        self.error: BaseException | None = None


def _rows(flat: Any, num_rows: int, num_top: int) -> list[Logprobs]:
    """Of flat [num_rows][1 + num_top] nvllm_logprob."""
    size = 1 + num_top
    starts = range(0, num_rows * size, size)
    rows = (flat[at : at + size] for at in starts)
    return [[(one.token_id, one.logprob) for one in row if one.token_id >= 0] for row in rows]


class _Sink:
    """Takes the events of one engine. The engine owns it, never the other way round."""

    def __init__(self, lib: ctypes.CDLL) -> None:
        self.lib = lib
        self.tokenizer: int | None = None
        self.requests: dict[int, Request] = {}  # unfinished, by key
        self.adding: set[int] = set()  # keys of those that the engine may not know yet

    def take(self, pointer: Any, key: Any) -> None:
        """The library's callback. No exception may leave it: ctypes would print it and continue."""
        event = pointer.contents
        request = self.requests.get(key)
        if request is None:
            return
        is_last = not event.num_outputs_left
        try:
            request.id = event.request_id
            completion = request.completions[event.index]
            piece, rows = self._take_tokens(request, completion, event)
            if event.finish_reason:
                self._take_end(request, completion, event)
                reason = _structs.FINISH_NAMES.get(event.finish_reason, "error")
                completion.finish_reason = reason
            if is_last:
                self._take_last(request, event)
            if request.on_tokens is not None:
                token_ids = event.token_ids[: event.num_tokens]
                text = piece.decode("utf-8", "replace")
                request.on_tokens(completion, token_ids, text, rows)
        except BaseException as error:
            request.error = request.error or error
        if is_last:
            self.end(request, "error")

    def end(self, request: Request, reason: str) -> None:
        """Ends the request, for this reason if the events gave none. If a call was cut short, a
        second one continues it."""
        request.finish_reason = request.finish_reason or reason
        if request.on_end is not None:
            request.on_end(request)
        self.requests.pop(request.key, None)  # last: a call cut short is repeated

    def _take_tokens(
        self, request: Request, completion: Completion, event: Any
    ) -> tuple[bytes, list[Logprobs] | None]:
        completion.num_tokens += event.num_tokens
        if completion.num_tokens != event.num_generated_tokens:
            raise NanovllmError(_LOST)
        piece = ctypes.string_at(event.text, event.text_len) if event.text_len else b""
        rows = _rows(event.logprobs, event.num_tokens, event.num_top) if event.logprobs else None
        if not event.num_tokens and not event.finish_reason:
            completion.echo = piece.decode("utf-8", "replace")
        elif completion.pieces is not None:
            completion.pieces.append(piece)
        if completion.logprobs is not None and rows is not None:
            completion.logprobs += rows
        return piece, rows

    def _take_end(self, request: Request, completion: Completion, event: Any) -> None:
        request.cached = event.num_cached_tokens
        times = event.times
        completion.times = {field[0]: getattr(times, field[0]) for field in times._fields_}
        count = event.num_generated_tokens
        completion.token_ids = event.generated_token_ids[:count]
        if event.stop_string:
            completion.stop_reason = event.stop_string.decode("utf-8", "replace")
        elif event.stop_token_id >= 0:
            completion.stop_reason = event.stop_token_id
        if event.error:
            request.error = NanovllmError(event.error.decode("utf-8", "replace"))
        if not request.wants_text:
            return
        if completion.pieces is not None and event.stop_string:
            completion.text = b"".join(completion.pieces).decode("utf-8", "replace")
        elif self.tokenizer:
            count -= event.stop_token_id >= 0 and not request.keeps_stop_token
            completion.text = self._decode(
                event.generated_token_ids, count, request.decode_flags
            )
        completion.text = completion.echo + completion.text
        completion.pieces = None

    def _take_last(self, request: Request, event: Any) -> None:
        reasons = [completion.finish_reason for completion in request.completions]
        if None in reasons:
            raise NanovllmError(_LOST)
        if event.prompt_logprobs:
            num_rows = event.num_prompt_tokens - 1
            rows = _rows(event.prompt_logprobs, num_rows, event.num_prompt_top)
            request.prompt_logprobs = [None, *rows]
        if request.wants_prompt:
            request.prompt_token_ids = event.prompt_token_ids[: event.num_prompt_tokens]
        if event.embedding:
            request.embedding = event.embedding[: event.num_dimensions]
        request.finish_reason = "abort" if "abort" in reasons else reasons[0]

    def _decode(self, ids: Any, count: int, flags: int) -> str:
        """The text of these ids, as tokenizer.decode has it."""
        text, size, error = ctypes.c_void_p(), ctypes.c_size_t(), _structs.Error()
        status = self.lib.nvllm_tokenizer_decode(
            self.tokenizer,
            ids,
            count,
            flags,
            ctypes.byref(text),
            ctypes.byref(size),
            ctypes.byref(error),
        )
        _library.check(status, error)
        return _library.take_text(self.lib, text, size.value)


class _Handle:
    """The engine's pointer. exit(), the garbage collector or Python's own end frees it."""

    def __init__(self, lib: ctypes.CDLL, callback: Any) -> None:
        self.lib = lib
        self.pointer = ctypes.c_void_p()  # NULL before and after the engine's life
        self.trace = ctypes.c_void_p()  # of nvllm_trace_file_open; NULL: none
        self.callback = callback  # lives as long as the engine may call it
        self.lock = FairLock()  # held by the thread that drives the engine
        self.process = os.getpid()
        self.is_ending = False  # nobody may enter any more
        self._users: list[int] = []  # threads inside `using`
        self._is_unused = threading.Condition()

    def is_forked(self) -> bool:
        return self.process != os.getpid()

    def check_process(self) -> None:
        if self.is_forked():
            raise NanovllmError("the LLM cannot be used in a forked child of its process")

    def enter(self) -> None:
        """Call before using the pointer: the engine is not freed before leave()."""
        with self._is_unused:
            if self.is_ending or not self.pointer:
                raise ExitedError("the LLM has exited")
            self._users.append(threading.get_ident())

    def leave(self) -> None:
        with self._is_unused:
            self._users.remove(threading.get_ident())
            self._is_unused.notify_all()

    def is_used_here(self) -> bool:
        return threading.get_ident() in self._users

    def destroy(self) -> None:
        """ReadError: the trace is not whole."""
        if self.is_forked():  # a forked child has none of the engine's threads to end
            self.pointer = ctypes.c_void_p()
            return
        if self.is_used_here():
            raise NanovllmError("the engine was called from inside one of its own calls")
        self.lock.acquire()
        try:
            with self._is_unused:
                self.is_ending = True
                self._is_unused.wait_for(lambda: not self._users)
            pointer, self.pointer = self.pointer, ctypes.c_void_p()
            self.lib.nvllm_engine_destroy(pointer)  # NULL is fine
            self._end_trace(was_made=bool(pointer))
        finally:
            self.lock.release()

    def _end_trace(self, was_made: bool) -> None:
        trace, self.trace = self.trace, ctypes.c_void_p()
        if not was_made:
            self.lib.nvllm_trace_file_abandon(trace)  # NULL is fine
            return
        error = _structs.Error()
        _library.check(self.lib.nvllm_trace_file_close(trace, ctypes.byref(error)), error)


class using:
    """`with using(engine):`, by the rule at the file's head. May be entered again later."""

    def __init__(self, engine: Engine) -> None:
        engine.handle.check_process()
        self._handle = engine.handle
        self._deferred = deferred()

    def _take(self) -> None:
        self._handle.enter()

    def _give(self) -> None:
        self._handle.leave()

    def __enter__(self) -> deferred:
        self._deferred.__enter__()
        try:
            self._take()
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
        self._give()
        self._deferred.__exit__(kind, error, traceback)


class exclusive(using):
    """`with exclusive(engine):`, by the rule at the file's head. May be entered again later."""

    def _take(self) -> None:
        self._handle.lock.acquire()
        if not self._handle.pointer:
            self._handle.lock.release()
            raise ExitedError("the LLM has exited")

    def _give(self) -> None:
        self._handle.lock.release()


class Queue:
    """The requests of LLM.add_request until LLM.step returns them: first in `unfinished`, then in
    `outputs`. Has no reference to the engine, so that can be collected with requests in it."""

    def __init__(self) -> None:
        self.unfinished: dict[int, Request] = {}  # by id
        self.outputs: deque[Request] = deque()

    def add(self, request: Request) -> None:
        self.unfinished[request.id] = request
        if request.finish_reason is not None:  # another thread has run it to its end
            self.unfinished.pop(request.id, None)

    def take_end(self, request: Request) -> None:
        self.outputs.append(request)
        self.unfinished.pop(request.id, None)


class Engine:
    """nvllm_engine with Python's errors and requests."""

    def __init__(self, config: Config) -> None:
        """Loads the model. Errors: as nvllm_engine_create's, before or while it loads."""
        self.lib = lib = _library.library()
        self._sink = _Sink(lib)
        self._keys = itertools.count(1)
        self.queue = Queue()
        options = NativeOptions(config)
        self.model = os.fsdecode(options.model)
        options.struct.interrupt = ctypes.pointer(QUESTION)
        # The library writes into a handle that has its end already: an exception between the two
        # loses no engine.
        self.handle = handle = _Handle(lib, _structs.EventFn(self._sink.take))
        self._finalizer = weakref.finalize(self, handle.destroy)
        error = _structs.Error()
        with deferred():
            if options.trace is not None:
                status = lib.nvllm_trace_file_open(
                    ctypes.byref(handle.trace), options.trace, ctypes.byref(error)
                )
                _library.check(status, error)
            status = lib.nvllm_engine_create(
                ctypes.byref(handle.pointer), ctypes.byref(options.struct), ctypes.byref(error)
            )
            _library.check(status, error)
            if handle.trace:
                function = ctypes.cast(lib.nvllm_trace_file_step, ctypes.c_void_p)
                status = lib.nvllm_engine_observe(
                    handle.pointer, function, handle.trace, ctypes.byref(error)
                )
                _library.check(status, error)
        self._sink.tokenizer = lib.nvllm_engine_tokenizer(handle.pointer)

    def add(self, prompt: NativePrompt, sampling: NativeSampling, request: Request) -> None:
        """Inside using. Errors: the engine's, for a request that can never run, or not now."""
        struct = _structs.RequestStruct(struct_size=ctypes.sizeof(_structs.RequestStruct))
        prompt.fill(struct)
        struct.sampling = ctypes.pointer(sampling.struct)
        struct.on_event = self.handle.callback
        if request.pooling is not None:
            struct.pooling = ctypes.pointer(request.pooling)
        self._choose_text(struct, sampling.struct, request)
        struct.interrupt = ctypes.pointer(QUESTION)
        request.completions = [Completion(index) for index in range(sampling.struct.n)]
        for completion in request.completions:
            if request.wants_text and sampling.struct.num_stop:
                completion.pieces = []
            if sampling.struct.logprobs >= 0:
                completion.logprobs = []
        first = request.completions[0]
        each = (request.on_tokens, first.pieces, first.logprobs)
        request.wants_events = each != (None, None, None) or bool(sampling.struct.echo)
        struct.finish_event_only = int(not request.wants_events)
        request.key = struct.user_data = next(self._keys)
        self._sink.adding.add(request.key)
        self._sink.requests[request.key] = request
        try:
            self._submit(struct, request)
        except BaseException:
            self._sink.requests.pop(request.key, None)
            raise
        finally:
            self._sink.adding.discard(request.key)
        if request.key in self._sink.requests and not self.lib.nvllm_engine_is_unfinished(
            self.handle.pointer, request.id
        ):
            self.wake()  # its end came before its id: a waiting thread checks whether it was lost

    def _choose_text(
        self,
        struct: _structs.RequestStruct,
        sampling: _structs.SamplingStruct,
        request: Request,
    ) -> None:
        """The text with special tokens is that of all token_ids, as nano-vllm's."""
        struct.keep_stop_token = int(not sampling.skip_special_tokens)
        request.keeps_stop_token = bool(
            struct.keep_stop_token or sampling.include_stop_str_in_output
        )
        request.decode_flags = _structs.DECODE_SKIP_UNKNOWN
        if sampling.skip_special_tokens:
            request.decode_flags |= _structs.DECODE_SKIP_SPECIAL

    def _submit(self, struct: _structs.RequestStruct, request: Request) -> None:
        request_id, error = ctypes.c_uint64(), _structs.Error()
        try:
            status = self.lib.nvllm_engine_add_request(
                self.handle.pointer,
                ctypes.byref(struct),
                ctypes.byref(request_id),
                ctypes.byref(error),
            )
            _library.check(status, error)
            request.id = request_id.value
            if request.is_queued:
                self.queue.add(request)
        except BaseException:
            if request_id.value:  # it was added, and nobody will know of it
                self.lib.nvllm_engine_abort(self.handle.pointer, request_id)
            raise

    def step(self) -> None:
        """Inside exclusive. Runs one step; requests end in it. DeviceError: the engine is lost, all
        have ended."""
        error = _structs.Error()
        status = self.lib.nvllm_engine_step(self.handle.pointer, ctypes.byref(error))
        if status:
            raise _library.failure(status, error)
        self._end_lost()

    def wait(self) -> None:
        """Inside exclusive. Ends the aborted; returns when there is something to step, or wake() is
        called. Errors as step's."""
        error = _structs.Error()
        status = self.lib.nvllm_engine_wait(self.handle.pointer, -1.0, ctypes.byref(error))
        if status:
            raise _library.failure(status, error)
        self._end_lost()

    def end_aborted(self) -> None:
        """Inside exclusive. Delivers the ends of all aborted requests."""
        self.lib.nvllm_engine_wait(self.handle.pointer, 0.0, None)  # a lost engine has ended all
        self._end_lost()

    def wake(self) -> None:
        """Inside using. Ends the current wait(), or else the next one."""
        self.lib.nvllm_engine_wake(self.handle.pointer)

    def _end_lost(self) -> None:
        """Ends the requests whose end in the engine was lost."""
        # Read in this order: a request added meanwhile can only make the engine's count larger.
        num_known = len(self._sink.requests) - len(self._sink.adding)
        if self.lib.nvllm_engine_has_unfinished(self.handle.pointer) >= num_known:
            return
        for request in self.unfinished():
            if not request.id or self.lib.nvllm_engine_is_unfinished(
                self.handle.pointer, request.id
            ):
                continue
            # With a reason, all was taken but perhaps what on_tokens is told.
            is_lost = request.finish_reason is None and not request.is_aborted
            if is_lost or request.on_tokens is not None:
                request.error = request.error or NanovllmError(_LOST)
            self._sink.end(request, "abort" if request.is_aborted else "error")

    def lose(self, error: BaseException) -> None:
        """After a failed step or wait: ends all requests."""
        for request in self.unfinished():
            request.error = request.error or error
            self._sink.end(request, "error")

    def num_unfinished(self) -> int:
        """Inside using: of the engine, whoever has added them."""
        return int(self.lib.nvllm_engine_has_unfinished(self.handle.pointer))

    def is_embedder(self) -> bool:
        """Inside using: the model says how it makes embeddings."""
        return bool(self.lib.nvllm_engine_is_embedder(self.handle.pointer))

    def unfinished(self) -> list[Request]:
        return list(self._sink.requests.values())

    def abort(self, request: Request) -> bool:
        """Inside using. True: it was unfinished, and the next step, wait or end_aborted ends it."""
        if request.finish_reason is None and request.id:
            is_aborted = self.lib.nvllm_engine_abort(self.handle.pointer, request.id)
            request.is_aborted = request.is_aborted or bool(is_aborted)
            return bool(is_aborted)
        return False

    def abort_id(self, request_id: int) -> bool:
        """The same for any request of the engine's, by its id."""
        return bool(self.lib.nvllm_engine_abort(self.handle.pointer, request_id))

    def drain(self) -> None:
        """Inside using."""
        self.lib.nvllm_engine_drain(self.handle.pointer)

    def stats(self) -> _structs.StatsStruct:
        """Inside using or exclusive: the counters."""
        stats = _structs.StatsStruct(struct_size=ctypes.sizeof(_structs.StatsStruct))
        self.lib.nvllm_engine_stats(self.handle.pointer, ctypes.byref(stats))
        return stats

    def stats_dict(self) -> dict[str, int | float]:
        """Call at any time before exit."""
        with using(self):
            stats = self.stats()
        values: dict[str, int | float] = {}
        for name, kind, *_ in stats._fields_[1:]:
            value = getattr(stats, name)
            if kind is _structs.Durations:
                values[f"num_{name}s"] = sum(value.counts)
                values[f"{name}_seconds"] = value.seconds
            else:
                values[name] = value
        return values

    def exit(self) -> None:
        """Aborts unfinished requests and frees everything. A second call does nothing."""
        with deferred():
            self._finalizer()
