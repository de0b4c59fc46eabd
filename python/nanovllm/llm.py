"""LLM, nano-vllm's class: completes lists of prompts, or runs requests step by step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union

from . import _vectors
from ._engine import Engine, Request, exclusive, using
from ._handle import Unique
from ._interrupt import deferred
from ._prompts import Messages, NativePrompt, Prompt, native, native_chats, native_list
from .config import Config, make_config
from .errors import CapacityError, ExitedError, InvalidArgumentError, NanovllmError
from .outputs import EmbeddingRequestOutput, RequestOutput, ScoringRequestOutput, output_of
from .progress import Progress, open_progress
from .sampling_params import NativeSampling, SamplingParams, check_params
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .config import ConfigArgs, PathOrStr

ParamsOrList = Union[SamplingParams, Sequence[SamplingParams], None]


class LLM(Unique):
    """An engine with a model in it.

    `LLM(model, **config)`: the folder of a Hugging Face checkpoint, or the name of a model in the
    Hugging Face cache, and the fields of `Config`.
    TypeError: an unknown option. InvalidArgumentError (a ValueError), ReadError (an OSError),
    FormatError, UnsupportedError, OutOfMemoryError: the engine's sentence.

    Several threads may call all methods. The GIL is released while the engine steps. Prompts are
    encoded on the thread that adds them. Several LLMs may live in one process. None may be called
    from a signal handler, copied or pickled, and a forked child cannot use its parent's.
    """

    def __init__(self, model: PathOrStr, **config: Unpack[ConfigArgs]) -> None:
        self._config = make_config(model, config)
        self._engine = Engine(self._config)
        self._tokenizer: Tokenizer | None = None

    @property
    def config(self) -> Config:
        """The given options, and the defaults of all others."""
        return self._config

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer and chat template; opened by the first use."""
        if self._tokenizer is None:
            template = self._config.chat_template
            self._tokenizer = Tokenizer(self._engine.model, chat_template=template)
        return self._tokenizer

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: ParamsOrList = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Completes prompts and returns one dict per prompt, in their order.

        prompts: texts, lists of token ids, {"prompt": text} or {"prompt_token_ids": ids}. The last
            two may have a "cache_salt": prompts share cached prefixes only with prompts of the same
            salt. A single prompt counts as a list of one.
        sampling_params: one for all prompts, or a list with one for each; None: SamplingParams().
        use_tqdm: show a progress bar on standard error.

        The dict has
            "text": str, as tokenizer.decode(token_ids): it has special tokens, with EOS at its end,
                unless skip_special_tokens is true. A stop string and what follows it are left out;
                include_stop_str_in_output keeps the string. "" without a tokenizer
            "token_ids": list[int], the generated tokens, the one that ended them included
            "finish_reason": "stop" (EOS, a stop token or string) or "length" (max_tokens or
                max_model_len)
            "num_cached_tokens": int, prompt tokens found in the prefix cache
            "times": dict, seconds of time.monotonic(): "arrival", "first_scheduled" (its first step
                began), "first_token" and "last_token" (their steps' results arrived)
        and, if sampling_params asks for them,
            "logprobs": [num_tokens] lists of (token id, natural logarithm), the chosen one first,
                then the `logprobs` likeliest ones
            "prompt_logprobs": [num_prompt_tokens] such lists for the prompt's tokens; None for the
                first one

        With n > 1 these are of the first output. The attribute `outputs` has all of them, with
        vLLM's names: `output.outputs[0].text`, `.token_ids`, `.index`, `.finish_reason`,
        `.stop_reason`.

        InvalidArgumentError (a ValueError): a prompt that can never run, named by its number, or
        another number of parameters than of prompts; nothing runs then. NanovllmError: a request
        failed while it ran (no logit is a number). DeviceError: the engine is lost. CapacityError:
        the LLM is draining. If too many requests wait, this call holds its prompts back instead.
        KeyboardInterrupt: after the current step, with the requests of this call aborted. Requests
        of other calls run in the same steps.
        """
        requests = self._run(
            native_list(prompts), sampling_params, use_tqdm, "prompt", wants_text=True
        )
        return [output_of(request) for request in requests]

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: ParamsOrList = None,
        use_tqdm: bool = True,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers a chat, or a list of chats, through the model's chat template.

        messages: [{"role": "user", "content": "Hi"}, ...]; content is a text or a list of
            {"type": "text", "text": ...}.
        add_generation_prompt: begin the assistant's answer. None: unless continue_final_message.
        continue_final_message: continue the last message.
        tools, documents: as transformers takes them.
        chat_template_kwargs: further variables of the template, such as {"enable_thinking": False}.

        All else is as in generate, with two exceptions. The text has no special tokens unless
        skip_special_tokens is False. If max_tokens is not given, an answer may take all that the
        context has left; its finish_reason is "length" if it did.
        """
        chats = native_chats(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            chat_template_kwargs=chat_template_kwargs,
        )
        requests = self._run(chats, sampling_params, use_tqdm, "chat", wants_text=True)
        return [output_of(request) for request in requests]

    def embed(
        self,
        prompts: Prompt | Iterable[Prompt],
        *,
        use_tqdm: bool = True,
        pooling: Literal["model", "last", "mean"] = "model",
        normalize: bool | None = None,
        dimensions: int | None = None,
        prompt_name: str | None = None,
    ) -> list[EmbeddingRequestOutput]:
        """Turns prompts into vectors; one output per prompt, in their order.

        prompts: as generate takes them.
        pooling: the hidden states of the "last" token, their "mean" over all tokens, or as
            1_Pooling/config.json of the model says; without that file, the last token's.
        normalize: scale vectors to length 1. None: as modules.json of the model says; without that
            file, yes.
        dimensions: keep only so many first numbers, before the vector is scaled. None: all.
        prompt_name: the name of a text of the model's config_sentence_transformers.json, such as
            "query", that goes before each text. None: none.

        `output.outputs.embedding` is the vector. `prompt_token_ids` and `num_cached_tokens` are of
        the prompt. Errors are generate's, and UnsupportedError: the model's way of making
        embeddings is not known.
        """
        native_pool = _vectors.native_pooling(pooling, normalize, dimensions, prompt_name)
        requests = self._run(
            native_list(prompts), None, use_tqdm, "prompt", wants_prompt=True, pooling=native_pool
        )
        return [_vectors.embedding_of(request) for request in requests]

    def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        *,
        use_tqdm: bool = True,
        instruction: str | None = None,
    ) -> list[ScoringRequestOutput]:
        """Scores documents by how well they fit a query; one output per document, in their order.

        text_1: one query for all documents, or one for each.
        text_2: a document, or several.
        instruction: what the query is for. None: Qwen3-Reranker's, of a web search.

        `output.outputs.score` is the cosine of two vectors if the model says how it makes
        embeddings (modules.json, 1_Pooling/config.json); such a model takes no instruction. Any
        other model is asked whether the document answers the query: the score is the probability
        of "yes" against "no".

        Errors are generate's, and UnsupportedError: the model has no tokens "yes" and "no".
        """
        pairs = _vectors.native_pairs(text_1, text_2)
        with using(self._engine):
            is_embedder = self._engine.is_embedder()
        if is_embedder:
            _vectors.check_no_instruction(instruction)
            pooling = _vectors.native_pooling(normalize=True)
            requests = self._run(
                _vectors.texts(pairs), None, use_tqdm, "text", wants_prompt=True, pooling=pooling
            )
            return _vectors.cosines(pairs, requests)
        questions = _vectors.questions(pairs, instruction)
        params = _vectors.answer_params(self.tokenizer)
        requests = self._run(questions, params, use_tqdm, "document", wants_prompt=True)
        return [_vectors.answer_of(request) for request in requests]

    def add_request(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> int:
        """Adds one prompt for step() to run, and returns the id that step() gives it.

        Errors as generate's, and CapacityError: too many requests wait. n is 1 here.
        """
        params = check_params(sampling_params)
        if params.n != 1:
            raise InvalidArgumentError(f"n is {params.n}, but add_request wants 1")
        ready = native(prompt)
        request = Request(is_queued=True, on_end=self._engine.queue.take_end)
        sampling = params.native(is_chat=ready.is_chat())
        try:
            with using(self._engine):
                self._engine.add(ready, sampling, request)
        finally:
            sampling.close()
        return request.id

    def step(self) -> tuple[list[tuple[int, list[int]]], int]:
        """Runs one step of the engine: (outputs, num_tokens).

        outputs: [(id, token_ids)] of the add_request requests that have ended since the last
            step(), in the order of their end. Aborted ones are left out.
        num_tokens: the prompt tokens that ran, if any did; else minus the number of tokens that
            were generated. With schedule="mixed" a step may run prompts and decodes: then the
            decodes are not counted. 0: nothing to do, or a GPU's results are still to come.

        NanovllmError: a request failed by itself (no logit is a number). DeviceError: the engine
        is lost.
        """
        engine = self._engine
        # By id, because a request whose end was cut short is in outputs twice.
        ended: dict[int, Request] = {}
        try:
            with exclusive(engine):
                num_tokens, _ = _timed_step(engine)
                while engine.queue.outputs:
                    request = engine.queue.outputs.popleft()
                    if request.error is not None:
                        raise request.error
                    ended[request.id] = request
        except BaseException:  # such as an interrupt: the next step returns them
            engine.queue.outputs.extendleft(reversed(ended.values()))
            raise
        outputs = [
            (r.id, r.completions[0].token_ids) for r in ended.values() if r.finish_reason != "abort"
        ]
        return outputs, num_tokens

    def is_finished(self) -> bool:
        """True when step() has returned the outputs of all that add_request has added."""
        engine = self._engine
        with exclusive(engine):
            is_left = any(request.finish_reason != "abort" for request in engine.queue.outputs)
            return not is_left and not engine.queue.unfinished

    def abort(self, request_id: int) -> bool:
        """Ends a request of add_request. True: it was unfinished; it has no output then."""
        engine = self._engine
        with exclusive(engine):
            request = engine.queue.unfinished.get(request_id)
            if request is None or not engine.abort(request):
                return False
            engine.end_aborted()
            return True

    def drain(self) -> None:
        """From now on new requests raise CapacityError. Unfinished ones run to their end."""
        with using(self._engine):
            self._engine.drain()

    def stats(self) -> dict[str, int | float]:
        """The engine's counters since it was made; nanovllm.h describes them."""
        return self._engine.stats_dict()

    def exit(self) -> None:
        """Ends unfinished requests and frees model and KV cache. A second call does nothing.

        Also called by `with`, by the garbage collector and at the end of the program.
        """
        self._engine.exit()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.exit()

    def _run(
        self,
        prompts: list[NativePrompt],
        params: ParamsOrList,
        use_tqdm: bool,
        noun: str,
        **wanted: Any,
    ) -> list[Request]:
        """Adds requests and steps to their end. An early end aborts them. wanted: what Request
        takes."""
        per_prompt = _params_list(params, len(prompts), noun)
        run = _Run(self._engine, noun if len(prompts) > 1 else "", wanted)
        with deferred() as interrupt:
            progress = None
            try:
                run.add(prompts, per_prompt, interrupt)
                progress = open_progress(len(prompts)) if use_tqdm else None
                run.step_to_end(progress, interrupt)
            finally:
                run.abort_rest()
                if progress:
                    progress.close()
        return run.ended()


def _params_list(params: object, count: int, noun: str) -> list[SamplingParams]:
    """[count] entries; if one object was given, all are that one."""
    if not isinstance(params, (list, tuple)):
        return [check_params(params)] * count
    if len(params) != count:
        raise InvalidArgumentError(
            f"sampling_params has {len(params)} entries for {count} {noun}s, want one for each, "
            "or one object for all"
        )
    return [check_params(entry) for entry in params]


def _timed_step(engine: Engine) -> tuple[int, float]:
    """One step: (num_tokens as step() returns it, seconds)."""
    before = engine.stats()
    start = time.perf_counter()
    engine.step()
    seconds = time.perf_counter() - start
    after = engine.stats()
    prefill = after.num_prefill_tokens - before.num_prefill_tokens
    return (prefill or before.num_decode_tokens - after.num_decode_tokens), seconds


class _Run:
    """The requests of one generate, chat, embed or score. Its own thread adds them; they end in the
    thread that drives the engine, which `exclusive` keeps to one at a time."""

    def __init__(self, engine: Engine, noun: str, wanted: Mapping[str, Any]) -> None:
        self._engine = engine
        self._noun = noun  # of what errors name by its number; "": there is only one
        self._wanted = wanted
        self._requests: list[Request] = []  # [num_prompts]
        self.unfinished: set[Request] = set()
        self.num_ended = 0  # since the last step

    def _take_end(self, request: Request) -> None:
        """A second call for the same request does nothing."""
        if request in self.unfinished:
            self.unfinished.remove(request)
            self.num_ended += 1

    def add(
        self, prompts: list[NativePrompt], params: list[SamplingParams], interrupt: deferred
    ) -> None:
        """InvalidArgumentError and others: a request that can never run, with its number."""
        natives: dict[int, NativeSampling] = {}  # by id(): one object for many prompts is usual
        try:
            for index, (prompt, one) in enumerate(zip(prompts, params)):
                interrupt.deliver()
                if id(one) not in natives:
                    natives[id(one)] = one.native(is_chat=prompt.is_chat())
                self._add_one(index, prompt, natives[id(one)], interrupt)
        finally:
            for sampling in natives.values():
                sampling.close()

    def _add_one(
        self, index: int, prompt: NativePrompt, sampling: NativeSampling, interrupt: deferred
    ) -> None:
        request = Request(on_end=self._take_end, **self._wanted)
        self._requests.append(request)  # added first, so that it is aborted whatever happens
        self.unfinished.add(request)
        while not self._has_added(index, prompt, sampling, request):
            interrupt.deliver()
            with exclusive(self._engine):
                self._engine.step()

    def _has_added(
        self, index: int, prompt: NativePrompt, sampling: NativeSampling, request: Request
    ) -> bool:
        """False: too many requests wait; try again after a step."""
        with using(self._engine):
            try:
                self._engine.add(prompt, sampling, request)
            except CapacityError as error:
                if not self._engine.num_unfinished():  # it is draining
                    raise self._named(index, error) from None
                return False
            except NanovllmError as error:
                raise self._named(index, error) from None
        return True

    def _named(self, index: int, error: BaseException) -> BaseException:
        if not self._noun or not isinstance(error, NanovllmError):
            return error
        return type(error)(f"{self._noun} {index}: {error}")

    def step_to_end(self, progress: Progress | None, interrupt: deferred) -> None:
        engine, turn = self._engine, exclusive(self._engine)
        while self.unfinished:
            interrupt.deliver()
            with turn:
                if not self.unfinished:  # another thread's step has ended them
                    break
                if progress is None:
                    engine.step()
                    continue
                num_tokens, seconds = _timed_step(engine)
                ended, self.num_ended = self.num_ended, 0
            progress.step(ended, num_tokens, seconds)

    def abort_rest(self) -> None:
        rest = [request for request in self._requests if request.finish_reason is None]
        if not rest:
            return
        try:
            with exclusive(self._engine):
                for request in rest:
                    self._engine.abort(request)
                self._engine.end_aborted()
        except ExitedError:
            pass  # exit() has ended them

    def ended(self) -> list[Request]:
        """All requests, in order. An exception: one of them has failed."""
        for index, request in enumerate(self._requests):
            if request.error is not None:
                raise self._named(index, request.error) from None
            if request.finish_reason == "abort":
                raise ExitedError("the LLM has exited")
        return self._requests
