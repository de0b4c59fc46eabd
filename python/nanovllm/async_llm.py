"""AsyncLLM: completions as they are generated, for asyncio.

One thread drives the engine: it waits for work and steps. Another makes prompts to tokens and
submits them, in the order of their arrival, so that a long text holds up neither an event loop nor
a step. The chunks of a step go to each event loop in one call.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import _values, _vectors
from ._engine import Completion, Engine, Logprobs, Request, exclusive, using
from ._handle import Unique
from ._prompts import Messages, NativePrompt, Prompt, native, native_chat
from .config import Config, make_config
from .errors import ExitedError, NanovllmError
from .outputs import EmbeddingRequestOutput, ScoringRequestOutput
from .sampling_params import SamplingParams, check_params
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._structs import PoolingStruct
    from .config import ConfigArgs, PathOrStr

Chunk = dict[str, Any]


class Stream:
    """The chunks of one request: `async for chunk in stream`. AsyncLLM.generate says what they are.

    It belongs to the event loop that made it. A request runs to its end whether its stream is read
    or not; `close` ends it.
    """

    def __init__(self, engine: Engine, n: int) -> None:
        self.request_id = 0
        """For AsyncLLM.abort."""
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[Chunk | BaseException] = asyncio.Queue()
        self._request: Request | None = None  # also before it is added
        self._num_unread = n  # outputs whose last chunk is still to be read
        self._is_gone = False  # nobody reads

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Chunk:
        if not self._num_unread:
            raise StopAsyncIteration
        item = await self._chunks.get()
        if isinstance(item, BaseException):
            self.close()
            raise item
        self._num_unread -= item["finish_reason"] is not None
        return item

    def close(self) -> None:
        """Aborts what is unfinished, and ends the iteration. Again: nothing."""
        self._num_unread = 0
        self._leave()
        self._chunks.put_nowait(StopAsyncIteration())  # who waits for a chunk

    def _leave(self) -> None:
        """Any thread."""
        self._is_gone = True
        request = self._request
        with contextlib.suppress(NanovllmError):  # exited, or this is a fork
            if request is not None and request.finish_reason is None:
                with using(self._engine):
                    self._engine.abort(request)


_Item = tuple[Stream, Union[Chunk, BaseException]]


class _Worker:
    """The engine's two threads. Has no reference to its AsyncLLM, so that can be collected."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_stopping = threading.Event()
        # Of the step under way, by event loop: what its streams are to get.
        self._ready: dict[asyncio.AbstractEventLoop, list[_Item]] = {}
        self._exit_error: NanovllmError | None = None
        self._submitter = ThreadPoolExecutor(1, "nanovllm-submit")
        self._thread = threading.Thread(target=self._main, name="nanovllm", daemon=True)
        self._thread.start()

    # ---- an event loop's thread ----

    async def add(self, prompt: NativePrompt, params: SamplingParams, **wanted: Any) -> Stream:
        """wanted: further arguments of Request."""
        self._engine.handle.check_process()
        stream = Stream(self._engine, params.n)
        try:
            done = self._submitter.submit(self._submit, stream, prompt, params, wanted)
        except RuntimeError:
            raise ExitedError("the LLM has exited") from None
        try:
            await asyncio.wrap_future(done)
        except BaseException:
            stream._leave()
            raise
        return stream

    def stop(self) -> None:
        """Any thread. After the step under way: ends all streams, frees the engine."""
        if self._engine.handle.is_forked():
            return
        self._is_stopping.set()
        with contextlib.suppress(ExitedError), using(self._engine):
            self._engine.wake()
        # The collector may call this in the engine's thread, or in one that it would wait for.
        is_ours = threading.current_thread() is self._thread
        if not is_ours and not self._engine.handle.is_used_here():
            self._thread.join()
            error, self._exit_error = self._exit_error, None
            if error is not None:
                raise error

    # ---- the submitter's thread ----

    def _submit(
        self,
        stream: Stream,
        prompt: NativePrompt,
        params: SamplingParams,
        wanted: Mapping[str, Any],
    ) -> None:
        sampling = params.native(is_chat=prompt.is_chat())
        try:
            request = stream._request = self._request(stream, params.n, wanted)
            with using(self._engine):
                self._engine.add(prompt, sampling, request)
            stream.request_id = request.id
        finally:
            sampling.close()
        if stream._is_gone:  # the reader left meanwhile, and could not abort a request without id
            stream._leave()

    def _request(self, stream: Stream, n: int, wanted: Mapping[str, Any]) -> Request:
        def on_tokens(
            completion: Completion,
            token_ids: list[int],
            text: str,
            logprobs: Optional[list[Logprobs]],
        ) -> None:
            if completion.finish_reason == "error":  # on_end has it
                return
            if completion.finish_reason == "abort" and self._is_stopping.is_set():
                self._put(stream, ExitedError("the LLM has exited"))
                return
            chunk: Chunk = {
                "text": text,
                "token_ids": token_ids,
                "finish_reason": completion.finish_reason,
                "num_cached_tokens": request.cached,
            }
            if completion.finish_reason is not None:
                chunk["times"] = completion.times
                if request.prompt_logprobs is not None:
                    chunk["prompt_logprobs"] = request.prompt_logprobs
            if logprobs is not None:
                chunk["logprobs"] = logprobs
            if n > 1:
                chunk["index"] = completion.index
            self._put(stream, chunk)

        def on_end(_request: Request) -> None:
            if request.error is not None:
                self._put(stream, request.error)

        request = Request(on_tokens=on_tokens, on_end=on_end, **wanted)
        return request

    # ---- the engine's thread ----

    def _main(self) -> None:
        try:
            self._drive()
        except NanovllmError as error:
            # The engine is lost: all its requests have ended, and it refuses every other.
            self._engine.lose(error)
            self._hand_out()
            self._is_stopping.wait()
        finally:
            self._is_stopping.set()
            self._submitter.shutdown(wait=False)
            try:
                self._engine.exit()
            except NanovllmError as error:
                self._exit_error = error
            self._hand_out()

    def _drive(self) -> None:
        while not self._is_stopping.is_set():
            with exclusive(self._engine):
                self._engine.wait()
                self._engine.step()
            self._hand_out()

    def _put(self, stream: Stream, item: Chunk | BaseException) -> None:
        if not stream._is_gone:
            self._ready.setdefault(stream._loop, []).append((stream, item))

    def _hand_out(self) -> None:
        ready, self._ready = self._ready, {}
        for loop, items in ready.items():
            try:
                loop.call_soon_threadsafe(_deliver, items)
            except RuntimeError:  # the loop is closed, and its readers with it
                for stream, _ in items:
                    stream._leave()


def _deliver(items: list[_Item]) -> None:
    for stream, item in items:
        stream._chunks.put_nowait(item)


class AsyncLLM(Unique):
    """An engine with a model in it, for asyncio. It takes LLM's arguments. The constructor loads
    the model, and blocks until it is loaded.

    Any number of `generate` and `chat` run at a time, on one event loop or several; the engine
    batches them. An error of one request is raised to its reader and ends no other request. Like an
    LLM it can be neither copied nor pickled.
    """

    def __init__(self, model: PathOrStr, **config: Unpack[ConfigArgs]) -> None:
        self._config = make_config(model, config)
        engine = Engine(self._config)
        self._model = engine.model  # its path
        self._worker = _Worker(engine)
        self._tokenizer: Tokenizer | None = None
        weakref.finalize(self, self._worker.stop)

    @property
    def config(self) -> Config:
        """The given options, and the defaults of all others."""
        return self._config

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer and chat template; opened by the first use."""
        if self._tokenizer is None:
            template = self._config.chat_template
            self._tokenizer = Tokenizer(self._model, chat_template=template)
        return self._tokenizer

    def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Completes one prompt: `async for chunk in llm.generate(...)`.

        A chunk is a dict:
            "text": str, new text in whole characters; "" while a character is incomplete or text
                may become a stop string. All chunks together are LLM.generate's text
            "token_ids": list[int], the tokens that one step of the engine generated; empty in a
                last chunk that only ends the text, and in a first chunk that is the echo
            "finish_reason": None; "stop", "length" or "abort" in the last chunk
            "num_cached_tokens": int, prompt tokens found in the prefix cache; 0 but in the last
            "times": in the last, as LLM.generate's
            "prompt_logprobs": in the request's last, where asked for, as LLM.generate's
            "logprobs": where asked for, one list per token of token_ids, as LLM.generate's
            "index": with n > 1, the output that the chunk belongs to. Each output has a last chunk

        Leaving the loop early, or cancelling the task, aborts the request. Errors are LLM's, and
        CapacityError: too many requests wait.
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
        """Answers one chat, as LLM.chat does, without special tokens, in the chunks of generate."""
        prompt = native_chat(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self._stream(prompt, copy(check_params(sampling_params)))

    async def embed(
        self,
        prompt: Prompt,
        *,
        pooling: Literal["model", "last", "mean"] = "model",
        normalize: bool | None = None,
        dimensions: int | None = None,
        prompt_name: str | None = None,
    ) -> EmbeddingRequestOutput:
        """Turns one prompt into a vector, as LLM.embed does. Many at a time run in one step."""
        native_pool = _vectors.native_pooling(pooling, normalize, dimensions, prompt_name)
        (request,) = await self._run([native(prompt)], SamplingParams(), native_pool)
        return _vectors.embedding_of(request)

    async def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        *,
        instruction: str | None = None,
    ) -> list[ScoringRequestOutput]:
        """Scores documents by how well they fit a query, as LLM.score does."""
        pairs = _vectors.native_pairs(text_1, text_2)
        with using(self._worker._engine):
            is_embedder = self._worker._engine.is_embedder()
        if is_embedder:
            _vectors.check_no_instruction(instruction)
            pooling = _vectors.native_pooling(normalize=True)
            requests = await self._run(_vectors.texts(pairs), SamplingParams(), pooling)
            return _vectors.cosines(pairs, requests)
        params = _vectors.answer_params(self.tokenizer)
        questions = _vectors.questions(pairs, instruction)
        return [_vectors.answer_of(request) for request in await self._run(questions, params)]

    async def _run(
        self,
        prompts: Sequence[NativePrompt],
        params: SamplingParams,
        pooling: PoolingStruct | None = None,
    ) -> list[Request]:
        """Runs prompts to their end. An error of one ends the others."""
        streams: list[Stream] = []
        requests: list[Request] = []
        try:
            for prompt in prompts:
                wanted = {"wants_prompt": True, "pooling": pooling}
                streams.append(await self._worker.add(prompt, params, **wanted))
            for stream in streams:
                async for _ in stream:
                    pass
                assert stream._request is not None  # it was added
                requests.append(stream._request)
        finally:
            for stream in streams:
                stream.close()
        return requests

    async def _stream(
        self, prompt: NativePrompt, params: SamplingParams
    ) -> AsyncGenerator[Chunk, None]:
        stream = await self._worker.add(prompt, params)
        try:
            async for chunk in stream:
                yield chunk
        finally:
            stream.close()

    async def add_request(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Stream:
        """Adds one prompt and returns its stream, whose `request_id` is for abort.

        A refused request raises generate's errors here, before there is a stream.
        """
        return await self._worker.add(native(prompt), copy(check_params(sampling_params)))

    def abort(self, request_id: int) -> bool:
        """Ends a request. True: it was unfinished. Each output that had not ended gets a last chunk
        with the reason "abort"."""
        if not isinstance(request_id, int):
            raise _values.wrong("request_id", request_id, "an integer")
        with using(self._worker._engine):
            return self._worker._engine.abort_id(request_id)

    def drain(self) -> None:
        """From now on new requests raise CapacityError. Unfinished ones run to their end."""
        with using(self._worker._engine):
            self._worker._engine.drain()

    def stats(self) -> dict[str, int | float]:
        """The engine's counters since it was made; nanovllm.h describes them."""
        return self._worker._engine.stats_dict()

    def exit(self) -> None:
        """Ends unfinished requests with ExitedError and frees model and KV cache, after the current
        step. A second call does nothing. `async with` calls it without blocking the loop.
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
