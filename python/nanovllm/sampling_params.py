"""How tokens are chosen and when a request ends."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from . import _library, _structs, _values, structured
from .errors import InvalidArgumentError
from .structured import StructuredOutputsParams


class _DefaultMaxTokens(int):
    """64 in generate; in chat as many as the context holds. Equal to 64, but not the same object."""

    def __reduce__(self) -> str:  # copies and pickles are the one below
        return "_MAX_TOKENS"


_MAX_TOKENS = _DefaultMaxTokens(64)
_INT32_MAX = 2**31 - 1
_LOGPROBS_ALL = -2  # NVLLM_LOGPROBS_ALL; the library's -1 is none


@dataclass
class SamplingParams:
    """Sampling parameters, the first three in the order of nano-vllm.

    A field that is not given does not take the model's own default (generation_config.json), as
    the command line does: temperature is 1 and every filter is off, as in nano-vllm. Setting a
    field checks it: InvalidArgumentError (a ValueError) names the field and its range.
    """

    # parameter-tables: sampling
    temperature: float = 1.0
    """Randomness of sampling, 0 is greedy. From 0 to 100."""
    max_tokens: int = _MAX_TOKENS
    """Largest number of tokens to generate; max_model_len ends a request too. Not given: 64 in
    generate, as in nano-vllm; in chat as many as the context holds."""
    ignore_eos: bool = False
    """Go on after the model's end-of-sequence token."""
    top_p: float = 1.0
    """Sample from the likeliest tokens that together have this probability, 1 is off. Above 0,
    up to 1."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest one, 0 is off. From 0 to 1."""
    top_k: int = -1
    """Sample from this many of the likeliest tokens, 0 or -1 is off."""
    repetition_penalty: float = 1.0
    """Above 1 discourages tokens of the prompt and the output, 1 is off. Above 0, up to 10."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of every token generated before. From -2 to 2."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit for each time it was generated. From -2 to 2."""
    min_tokens: int = 0
    """Number of first tokens, at most max_tokens, among which EOS and stop tokens are banned
    and stop strings ignored."""
    skip_special_tokens: bool | None = None
    """Leave special tokens out of the text. None: False in generate, as in nano-vllm; True in
    chat."""
    include_stop_str_in_output: bool = False
    """Keep the stop string, or the EOS or stop token, at the end of the text. Without
    skip_special_tokens EOS and stop tokens are always kept."""
    n: int = 1
    """Outputs for each prompt, each sampled independently. From 1 to 1024."""
    logprobs: int | None = None
    """Log-probabilities of the chosen token and of this many best ones, before temperature and
    penalties, with a form of the tokens that it allows. From 0 to 20. None: none."""
    prompt_logprobs: int | None = None
    """The same of each token of the prompt, which is then computed without cached prefixes.
    None: none. -1: the whole vocabulary, as in vLLM."""
    echo: bool = False
    """Begin the text with the prompt's."""
    priority: int = 0
    """Requests with a lower number run first and are preempted last, equal ones in order of
    arrival."""
    seed: int | None = None
    """Makes the request repeatable; output i of n draws with the seed `seed + i`. None: derived
    from the LLM's seed and the request's number."""
    stop_token_ids: Sequence[int] | None = None
    """List of at most 1024 token ids that end the output."""
    stop: str | Sequence[str] | None = None
    """String or list of at most 16 strings of at most 1024 bytes that end the output."""
    allowed_token_ids: Sequence[int] | None = None
    """List of at most 262144 token ids that are allowed, all others are banned, EOS too."""
    bad_words: str | Sequence[str] | None = None
    """String or list of at most 1024 strings of at most 256 bytes that are never generated,
    encoded alone or after a space."""
    logprob_token_ids: Sequence[int] | None = None
    """List of at most 20 token ids that logprobs reports in place of the best ones, in this
    order."""
    logit_bias: Mapping[int, float] | None = None
    """Token id -> number added to its logit, -100 to 100; float("-inf") bans the token. At most
    1024."""
    structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None
    """JSON object of at most 1048576 bytes with the form that the output must have: one of
    json, json_object, regex, choice, grammar and structural_tag."""
    # parameter-tables: end

    def __new__(cls, *args: Any, **kwargs: Any) -> SamplingParams:
        for name in kwargs:
            if name not in _DEFAULTS:
                hint = _values.nearest(name, _DEFAULTS)
                raise TypeError(f'SamplingParams has no parameter "{name}"{hint}')
        return super().__new__(cls)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _DEFAULTS:
            hint = _values.nearest(name, _DEFAULTS)
            raise AttributeError(f'SamplingParams has no parameter "{name}"{hint}')
        if not _is_default(name, value):
            NativeSampling({name: value}).close()
        object.__setattr__(self, name, value)

    def native(self, is_chat: bool) -> NativeSampling:
        """These parameters as the library's struct, to be closed. Chats have other defaults."""
        native = NativeSampling({})
        try:
            for name, value in vars(self).items():
                if value is not _DEFAULTS[name]:
                    # A number was checked when it was set; a list may have changed since.
                    if type(value) in _CHECKED_ONCE:
                        setattr(native.struct, name, _native_value(name, value))
                    else:
                        native.set(name, value)
            if self.skip_special_tokens is None:
                native.struct.skip_special_tokens = is_chat
            if is_chat and self.max_tokens is _MAX_TOKENS:
                native.struct.max_tokens = _INT32_MAX
        except BaseException:
            native.close()
            raise
        return native


_CHECKED_ONCE = (int, float, bool)
_DEFAULTS: dict[str, Any] = {}
_DEFAULTS.update((field.name, field.default) for field in fields(SamplingParams))


def _is_default(name: str, value: object) -> bool:
    """Exactly the default, so that no check is needed: True is not 1 here, and 1 not 1.0."""
    default = _DEFAULTS[name]
    return value is default or (type(value) is type(default) and value == default)


def _native_value(name: str, value: object) -> object:
    is_all = name == "prompt_logprobs" and type(value) is int and value == -1
    return _LOGPROBS_ALL if is_all else value


def check_params(params: object) -> SamplingParams:
    """None becomes SamplingParams(). InvalidArgumentError: another type."""
    if params is None:
        return SamplingParams()
    if not isinstance(params, SamplingParams):
        raise _values.wrong("sampling_params", params, "SamplingParams")
    return params


class NativeSampling:
    """struct nvllm_sampling_params and its lists, for one thread; close() frees them."""

    _template: bytes = b""  # the library's struct with the defaults of SamplingParams

    def __init__(self, values: Mapping[str, object]) -> None:
        self._lib = _library.library()
        if not NativeSampling._template:
            NativeSampling._template = self._make_template()
        self.struct = _structs.SamplingStruct.from_buffer_copy(NativeSampling._template)
        try:
            for name, value in values.items():
                self.set(name, value)
        except BaseException:
            self.close()
            raise

    def _make_template(self) -> bytes:
        self.struct = _structs.SamplingStruct()
        self.struct.struct_size = ctypes.sizeof(self.struct)
        for name, param in _library.sampling_params(self._lib).items():
            if param.type <= _structs.PARAM_STRING:  # lists are empty, and own no memory yet
                self._set_text(name, b"null")
        for name, default in _DEFAULTS.items():
            if default is not None:
                self.set(name, default)
        return bytes(self.struct)

    def set(self, name: str, value: object) -> None:
        """Sets one field. InvalidArgumentError: a sentence that names the field and its range."""
        if value is None:
            if _DEFAULTS[name] is not None:
                raise InvalidArgumentError(f"{name} is None, which is not a value for it")
            return
        if name == "structured_outputs":
            self._set_text(name, structured.text_of(value))
        else:
            self._set_text(name, _values.json_of(name, _native_value(name, value)))

    def _set_text(self, name: str, text: bytes) -> None:
        error = _structs.Error()
        status = self._lib.nvllm_sampling_params_set(
            ctypes.byref(self.struct), name.encode(), text, ctypes.byref(error)
        )
        _library.check(status, error)

    def close(self) -> None:
        """Frees the lists. The struct must not be used afterwards."""
        self._lib.nvllm_sampling_params_fini(ctypes.byref(self.struct))
