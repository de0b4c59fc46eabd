"""AsyncLLM: completions as they are generated, for asyncio.

One thread owns the engine and steps it while there is work. Event loops send it orders through a
queue and get the tokens of each step in one call, so that neither ever waits for the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Union

from ._engine import Engine, Logprobs, Request, exclusive
from ._prompts import Messages, NativePrompt, Prompt, native, native_chat
from .config import Config, make_config
from .errors import ExitedError
from .sampling_params import SamplingParams, check_params
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .config import ConfigArgs, PathOrStr

Chunk = dict[str, Any]


class _Stream:
    """What goes from the engine's thread to one `generate`. Its event loop alone reads `chunks`."""

    def __init__(self, prompt: NativePrompt, params: SamplingParams) -> None:
        self.prompt = prompt
        self.params = params  # its own: the caller may change theirs at any time
        self.loop = asyncio.get_running_loop()
        self.chunks: asyncio.Queue[Chunk | BaseException] = asyncio.Queue()
        self.requests: list[Request] = []  # [n], the engine's thread's
        self.num_unfinished = params.n  # of them
        self.is_gone = False  # its reader has left


_Item = tuple[_Stream, Union[Chunk, BaseException]]


class _Worker:
    """The engine's thread. Knows nothing of AsyncLLM, which can so be collected."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_stopping = False
        # Of the step under way, by event loop: what its streams are to get.
        self._ready: dict[asyncio.AbstractEventLoop, list[_Item]] = {}
        self._streams: set[_Stream] = set()
        self._mutex = threading.Lock()  # orders after the stop are nobody's
        self._thread = threading.Thread(target=self._main, name="nanovllm", daemon=True)
        self._thread.start()

    # ---- any thread ----

    def order(self, what: Callable[[], None]) -> None:
        """Has it done between two steps. ExitedError: there will be none."""
        self._engine.handle.check_process()
        with self._mutex:
            if self._is_stopping:
                raise ExitedError("the LLM has exited")
            self._orders.put(what)

    def add(self, stream: _Stream) -> None:
        self.order(lambda: self._add(stream))

    def leave(self, stream: _Stream) -> None:
        with contextlib.suppress(ExitedError):
            self.order(lambda: self._leave(stream))

    def stop(self) -> None:
        """After the step under way: ends all streams, frees the engine. Again: nothing."""
        if self._engine.handle.is_forked():
            return
        with self._mutex:
            if not self._is_stopping:
                self._is_stopping = True
                self._orders.put(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- the engine's thread ----

    def _main(self) -> None:
        try:
            while not self._is_stopping:
                self._take_orders()
                if self._streams and not self._is_stopping:
                    self._step()
                self._hand_out()
        finally:
            with self._mutex:
                self._is_stopping = True
            for stream in self._streams:
                self._put(stream, ExitedError("the LLM has exited"))
            self._engine.exit()
            self._hand_out()

    def _take_orders(self) -> None:
        """Waits for one when there is nothing else to do."""
        while not self._is_stopping:
            try:
                what = self._orders.get(block=not self._streams)
            except queue.Empty:
                return
            what()
            self._hand_out()

    def _step(self) -> None:
        try:
            with exclusive(self._engine):
                self._engine.step()
        except Exception as error:
            # The engine is lost, and says so to every later request itself.
            for stream in list(self._streams):
                self._end(stream, error)

    def _add(self, stream: _Stream) -> None:
        if stream.is_gone:
            return
        self._streams.add(stream)
        try:
            sampling = stream.params.native()
            try:
                for index in range(stream.params.n):
                    seed = stream.params.seed_of(index)
                    if seed is not None:
                        sampling.struct.seed = seed
                    request = self._request(stream, index)
                    stream.requests.append(request)
                    with exclusive(self._engine):
                        self._engine.add(stream.prompt, sampling, request)
            finally:
                sampling.close()
        except Exception as error:
            self._end(stream, error)

    def _request(self, stream: _Stream, index: int) -> Request:
        def on_token(token: int, text: str, logprobs: Optional[Logprobs]) -> None:
            if request.finish_reason in ("abort", "error"):
                return
            chunk: Chunk = {
                "text": text,
                "token_ids": [token] if token >= 0 else [],
                "finish_reason": request.finish_reason,
                "num_cached_tokens": request.cached,
            }
            if logprobs is not None:
                chunk["logprobs"] = [logprobs]
            if stream.params.n > 1:
                chunk["index"] = index
            self._put(stream, chunk)

        def on_end(_request: Request) -> None:
            if request.error is not None:
                self._end(stream, request.error)
            stream.num_unfinished -= 1
            if not stream.num_unfinished:
                self._streams.discard(stream)

        request = Request(on_token=on_token, on_end=on_end)
        return request

    def _leave(self, stream: _Stream) -> None:
        stream.is_gone = True
        self._end(stream, None)

    def _end(self, stream: _Stream, error: BaseException | None) -> None:
        """Takes a stream off the engine; with an error, that is the last that its reader gets."""
        if stream not in self._streams:
            return
        self._streams.discard(stream)
        if error is not None:
            self._put(stream, error)
        rest = [r for r in stream.requests if r.finish_reason is None]
        self._orders.put(lambda: self._abort(rest))

    def _abort(self, requests: list[Request]) -> None:
        try:
            with exclusive(self._engine):
                for request in requests:
                    self._engine.abort(request)
        except ExitedError:
            pass

    def _put(self, stream: _Stream, item: Chunk | BaseException) -> None:
        if not stream.is_gone:
            self._ready.setdefault(stream.loop, []).append((stream, item))

    def _hand_out(self) -> None:
        ready, self._ready = self._ready, {}
        for loop, items in ready.items():
            try:
                loop.call_soon_threadsafe(_deliver, items)
            except RuntimeError:  # the loop is closed, and its readers with it
                for stream, _ in items:
                    self._leave(stream)


def _deliver(items: list[_Item]) -> None:
    for stream, item in items:
        stream.chunks.put_nowait(item)


class AsyncLLM:
    """An engine with a model in it, for asyncio; made like LLM, and as slow to make.

    Any number of `generate` and `chat` run at a time, on one event loop or several; the engine
    batches them. A fault of one request is raised where it is read, and ends no other.
    """

    def __init__(self, model: PathOrStr, **config: Unpack[ConfigArgs]) -> None:
        self._config = make_config(model, config)
        self._worker = _Worker(Engine(self._config))
        self._tokenizer: Tokenizer | None = None
        weakref.finalize(self, self._worker.stop)

    @property
    def config(self) -> Config:
        """The options as given, with the defaults of the others."""
        return self._config

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer and chat template; opened by the first use."""
        if self._tokenizer is None:
            template = self._config.chat_template
            self._tokenizer = Tokenizer(self._config.model, chat_template=template)
        return self._tokenizer

    def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Completes one prompt: `async for chunk in llm.generate(...)`.

        A chunk is a dict of what is new:
            "text": str, whole characters; "" where one waits for its end, or could become a stop
                string. All of them together are LLM.generate's text
            "token_ids": list[int], one token, or none in a last chunk that only ends the text
            "finish_reason": None; "stop" or "length" in the last chunk
            "num_cached_tokens": int, prompt tokens that the prefix cache had; 0 but in the last
            "logprobs": where asked for, one list per token of token_ids, as LLM.generate's
            "index": with n > 1, which of the completions goes on. Each has a last chunk

        Leaving the loop early, or cancelling the task, aborts the request. Errors are LLM's.
        """
        return self._stream(native(prompt), copy(check_params(sampling_params)))

    def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """Answers one chat, as LLM.chat does, in the chunks of generate."""
        prompt = native_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._stream(prompt, copy(check_params(sampling_params)))

    async def _stream(
        self, prompt: NativePrompt, params: SamplingParams
    ) -> AsyncGenerator[Chunk, None]:
        stream = _Stream(prompt, params)
        num_unfinished = params.n
        try:
            self._worker.add(stream)
            while num_unfinished:
                chunk = await stream.chunks.get()
                if isinstance(chunk, BaseException):
                    raise chunk
                num_unfinished -= chunk["finish_reason"] is not None
                yield chunk
        finally:
            if num_unfinished:
                self._worker.leave(stream)

    def exit(self) -> None:
        """Ends what is unfinished with ExitedError and frees model and KV cache, after the step
        under way. Calling it again does nothing. `async with` calls it without blocking the loop.
        """
        self._worker.stop()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._worker.stop)
