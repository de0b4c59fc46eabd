"""The options of an engine, with nano-vllm's names and defaults, and ours."""

from __future__ import annotations

import ctypes
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict

from . import _library, _model_place, _structs, _values
from ._program import find_program
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    PathOrStr = str | os.PathLike[str]


class ConfigArgs(TypedDict, total=False):
    """The keyword arguments of LLM and AsyncLLM, for type checkers; `Config` documents them."""

    # parameter-tables: arguments
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    gpu_memory_utilization: float
    tensor_parallel_size: int
    enforce_eager: bool
    kvcache_block_size: int
    num_kvcache_blocks: int
    device: str
    dtype: str
    quantization: str | None
    load_format: str
    schedule: str
    cpu_isa: str
    threads: int
    max_num_waiting: int
    max_waiting_tokens: int
    kv_cache_gib: float
    enable_prefix_caching: bool
    num_state_snapshots: int
    state_snapshot_tokens: int
    skip_tokenizer_init: bool
    seed: int
    chat_template: PathOrStr | None
    async_scheduling: str
    cache_dir: PathOrStr | None
    kv_cache_dtype: str
    data_parallel_size: int
    distributed_executor_backend: str
    worker_program: PathOrStr | None
    comm: str
    numa: str
    revision: PathOrStr | None
    quant: PathOrStr | None
    download: bool
    drafts: str | int
    speculative_config: Mapping[str, Any] | str | None
    target_itl: str | float
    full_warm_up: bool
    trace: PathOrStr | None
    # parameter-tables: end


@dataclass(frozen=True)
class Config:
    """The options of an engine. Ranges are the library's: `nanovllm generate --help` lists them."""

    # parameter-tables: options
    model: PathOrStr
    """Folder with config.json, *.safetensors and tokenizer.json, a GGUF file, or a model by its
    name on Hugging Face."""
    max_num_batched_tokens: int = 16384
    """Largest number of tokens in one step. From 1 to 1048576."""
    max_num_seqs: int = 512
    """Largest number of sequences that run at once, capped by max_num_batched_tokens. From 1 to
    65536."""
    max_model_len: int = 4096
    """Largest number of tokens in prompt and output together; the model's maximum if that is
    less."""
    gpu_memory_utilization: float = 0.9
    """Share of the GPU's memory to use, the KV cache takes all that the rest leaves. From 0.01
    to 1."""
    tensor_parallel_size: int = 1
    """Processes that share each layer of the model. From 1 to 64."""
    enforce_eager: bool = False
    """Run every step op by op, without CUDA graphs."""
    kvcache_block_size: int = 16
    """Tokens per KV cache block, a multiple of 16. The prefix cache finds whole blocks only, so
    small ones find more. nano-vllm needs 256, because FlashAttention does; here 16 is as
    fast."""
    num_kvcache_blocks: int = -1
    """Number of KV cache blocks; -1: as many as kv_cache_gib holds."""
    device: str = "auto"
    """Device that runs the model, auto is cuda if there is a usable GPU, else cpu, cuda:N is
    GPU N, cuda:N,M,... are the GPUs of a host's ranks. One of "auto", "cuda", "cuda:N",
    "cpu"."""
    dtype: str = "auto"
    """Number format of the weights, auto is bfloat16, but a quantized checkpoint's stay packed
    where the device can. One of "auto", "bfloat16", "float32"."""
    quantization: str | None = None
    """"int8" or "int4" quantizes the weights while loading, CPU only. None: no quantization."""
    load_format: str = "auto"
    """"dummy" makes random weights and reads config.json only. One of "auto", "dummy"."""
    schedule: str = "mixed"
    """"mixed" runs prompts and decodes in one step, prefill-first runs prompts in steps of
    their own first. One of "mixed", "prefill-first"."""
    cpu_isa: str = "auto"
    """Newest instruction set of the CPU kernels, auto takes the fastest kernels of all that the
    processor has. One of "auto", "scalar", "avx2", "avx-vnni", "avx512", "avx512-vnni",
    "avx512-bf16", "amx", "neon", "neon-dotprod"."""
    threads: int = 0
    """CPU threads, 0 is one for each core this process may use. From 0 to 1024."""
    max_num_waiting: int = 0
    """Largest number of requests that wait for their first step; each output of n counts. One
    more is a CapacityError. 0: no limit."""
    max_waiting_tokens: int = 0
    """Largest number of prompt tokens of the waiting requests, a single one may always wait, 0
    is no limit."""
    kv_cache_gib: float = 0.0
    """Size of the KV cache in GiB, 0 is the rest of gpu_memory_utilization on a GPU, on a CPU a
    quarter of the free memory but at most 4. From 0 to 65536."""
    enable_prefix_caching: bool = True
    """Reuse the keys and values of prompts that begin alike."""
    num_state_snapshots: int = 64
    """For a model with recurrent layers: states that the prefix cache keeps, at the end of a
    prompt and at multiples of state_snapshot_tokens, 0 is no prefix cache. From 0 to 65536."""
    state_snapshot_tokens: int = 1024
    """For a model with recurrent layers: distance of the states that the prefix cache keeps of
    a prompt, rounded up to a multiple of block_size. From 16 to 16777216."""
    skip_tokenizer_init: bool = False
    """Run without tokenizer.json, prompts must be token ids."""
    seed: int = 0
    """Seed for the sampling of requests that set no seed of their own."""
    chat_template: PathOrStr | None = None
    """File with the Jinja source of a chat template in place of the model's own."""
    async_scheduling: str = "auto"
    """Prepare the next step while one runs, auto is on for a GPU, off for a CPU. One of "auto",
    "on", "off"."""
    cache_dir: PathOrStr | None = None
    """Folder that keeps the GPU's kernel timings between runs. None: the user's cache folder,
    as for the command. "": nothing is kept."""
    kv_cache_dtype: str = "auto"
    """Number format of keys and values, auto is bfloat16, float32 is CPU only, int8 and fp8
    take half of the memory. One of "auto", "bfloat16", "float32", "int8", "fp8"."""
    data_parallel_size: int = 1
    """Engines that share the requests, each with its own copy of the model and its own
    tensor_parallel_size processes. From 1 to 64."""
    distributed_executor_backend: str = "auto"
    """Who starts the processes, mp is the engine, mpi is mpirun, auto is mpirun if it has
    started this program. One of "auto", "mp", "mpi"."""
    worker_program: PathOrStr | None = None
    """Program that the worker processes of tensor_parallel_size run, `nanovllm` of this
    version. None: the package's own."""
    comm: str = "auto"
    """How the GPUs of tensor_parallel_size exchange data, auto is p2p if they reach each
    other's memory, else nccl. One of "auto", "p2p", "nccl"."""
    numa: str = "auto"
    """"auto" spreads weights and KV cache over the NUMA nodes of the CPUs. One of "auto",
    "off"."""
    revision: PathOrStr | None = None
    """Branch, tag or commit of a model by its name."""
    quant: PathOrStr | None = None
    """GGUF file of a model by its name, such as Q4_K_M."""
    download: bool = False
    """Download a model by its name if the Hugging Face cache lacks it."""
    drafts: str | int = "auto"
    """Guess tokens from the text so far and verify them together, which changes no token but
    takes fewer steps: so many at most, 1 to 15, or "auto", as many as pay, or "off"."""
    speculative_config: Mapping[str, Any] | str | None = None
    """The same as vLLM has it, with the method "ngram". None: drafts decides."""
    target_itl: str | float = "off"
    """Aims at so many milliseconds between two tokens while prompts run, which go through in
    parts; or "auto", 40 ms but a long prompt should take at most 15 % longer, or "off"."""
    full_warm_up: bool = False
    """Load all kernels of the GPU and record all steps before the engine is ready, not beside
    the first requests. For measurements."""
    trace: PathOrStr | None = None
    """File that each step is written to, for ui.perfetto.dev; whole after exit(). None:
    none."""
    # parameter-tables: end


# Names of ours that the library calls otherwise, and those that it has no option for.
_LIBRARY_NAMES = {"kvcache_block_size": "block_size"}
_OWN = ("trace",)


def make_config(model: PathOrStr, options: Mapping[str, Any]) -> Config:
    """TypeError: an unknown name; the error suggests the nearest."""
    names = [field.name for field in fields(Config) if field.name != "model"]
    for name in options:
        if name not in names:
            hint = _values.nearest(name, names)
            raise TypeError(f'LLM has no option "{name}"{hint}')
    return Config(model, **options)


def _decimal(value: int | float) -> str:
    """As str() writes it, but without an exponent."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    return format(Decimal(str(value)), "f")


def _user_cache() -> bytes | None:
    """The folder that the command uses too."""
    cache, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if cache.startswith("/"):
        return os.fsencode(cache) + b"/nanovllm"
    return os.fsencode(home) + b"/.cache/nanovllm" if home.startswith("/") else None


class NativeOptions:
    """struct nvllm_engine_options, and the bytes that it borrows. `trace` is a path or None,
    `model` the path of the model."""

    def __init__(self, config: Config) -> None:
        self.trace = None if config.trace is None else _values.c_string("trace", config.trace)
        self._lib = _library.library()
        self._strings = set()
        self._borrowed: list[bytes] = []
        self.struct = _structs.OptionsStruct()
        self.struct.struct_size = ctypes.sizeof(self.struct)
        for name, param in _library.engine_options(self._lib).items():
            self._set_text(name, name, b"null")
            if param.type == _structs.PARAM_STRING:
                self._strings.add(name)
        for field in fields(config):
            if field.name not in _OWN:
                self._set(field.name, getattr(config, field.name))
        self.model = _model_place.find(self.struct)  # a path
        self.struct.model = self.model
        self.struct.revision = self.struct.quant = None
        if self.struct.max_model_len:
            self._cap_model_len()

    def _set(self, name: str, value: Any) -> None:
        known = _LIBRARY_NAMES.get(name, name)
        unset = ("chat_template", "quantization", "revision", "quant", "speculative_config")
        if name in unset and value is None:
            return  # the model's own; weights as they are
        if name == "speculative_config" and isinstance(value, Mapping):
            value = _values.json_of(name, value).decode()
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and (name == "target_itl" or name == "drafts" and isinstance(value, int)):
            value = _decimal(value)
        if name == "worker_program" and value is None:
            program = find_program() if self.struct.tensor_parallel_size > 1 else None
            if program:
                self._set_text(name, known, os.fsencode(program))
        elif name == "cache_dir" and (value is None or value == ""):
            folder = _user_cache() if value is None else None
            if folder:
                self._set_text(name, known, folder)
        elif known in self._strings:
            text = _values.c_string(name, value)
            self._set_text(name, known, text)
        elif value is None:
            raise InvalidArgumentError(f"{name} is None, which is not a value for it")
        elif not self._is_library_default(name, value):
            self._set_text(name, known, _values.json_of(name, value))

    def _is_library_default(self, name: str, value: Any) -> bool:
        """True for our values that stand for the library's default, which it writes differently."""
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        # The library's sentence would offer its 0, which is none of our values.
        if name == "num_kvcache_blocks" and (value == 0 or value < -1):
            raise InvalidArgumentError(
                f"num_kvcache_blocks is {value}, want -1 for as many as fit, or at least 1"
            )
        if name == "max_model_len" and value < 2:
            raise InvalidArgumentError(f"max_model_len is {value}, want at least 2")
        return (name, value) in (
            ("num_kvcache_blocks", Config.num_kvcache_blocks),
            ("max_model_len", Config.max_model_len),  # or the model's maximum, if that is less
        )

    def _set_text(self, name: str, known: str, text: bytes) -> None:
        self._borrowed.append(text)
        error = _structs.Error()
        status = self._lib.nvllm_engine_options_set(
            ctypes.byref(self.struct), known.encode(), text, ctypes.byref(error)
        )
        if status:
            failure = _library.failure(status, error)
            sentence = str(failure)
            if known != name and sentence.startswith(known):
                sentence = name + sentence[len(known) :]
            raise type(failure)(sentence)

    def _cap_model_len(self) -> None:
        """min(max_model_len, the model's maximum), as nano-vllm. A broken folder is for create."""
        copy = _structs.OptionsStruct.from_buffer_copy(self.struct)
        copy.device = b"cpu"
        copy.threads = 1
        copy.max_model_len = copy.num_kvcache_blocks = 0
        copy.kv_cache_gib = 0.0
        plan = ctypes.c_void_p()
        if self._lib.nvllm_inspect(ctypes.byref(copy), ctypes.byref(plan), None):
            return
        text = _library.take_text(self._lib, plan)
        self.struct.max_model_len = min(
            self.struct.max_model_len, json.loads(text)["max_position_embeddings"]
        )
