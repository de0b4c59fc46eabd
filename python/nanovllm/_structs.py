"""The structs, enums and prototypes of include/nanovllm.h for ctypes.

`_library.py` compares the sizes, and the offsets in the parameter tables, with those of the loaded
library. The structs of these tables get their fields from it.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

PARAM_STRING = 5  # of enum nvllm_param_type

ERR_INTERRUPTED = 8  # of enum nvllm_status

# enum nvllm_finish_reason
FINISH_NAMES: dict[int, str] = {1: "stop", 2: "length", 3: "abort", 4: "error"}
FINISH_ERROR = 4

# enum nvllm_decode_flags
DECODE_SKIP_SPECIAL = 1
DECODE_SKIP_UNKNOWN = 2


class Error(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 496)]


class LogitBias(Structure):
    _fields_ = [("token_id", c_int32), ("bias", c_float)]


class SamplingStruct(Structure):
    """Its fields come from the library's table: see `define_fields`."""


IsWantedFn = CFUNCTYPE(c_int, c_void_p)


class Interrupt(Structure):
    _fields_ = [("is_wanted", IsWantedFn), ("user_data", c_void_p)]


class LoadProgress(Structure):
    _fields_ = [("on_loaded", c_void_p), ("user_data", c_void_p)]


class Download(Structure):
    _fields_ = [
        ("num_bytes", c_uint64),
        ("total_bytes", c_uint64),
        ("num_files", c_uint32),
        ("total_files", c_uint32),
    ]


OnDownloadedFn = CFUNCTYPE(None, POINTER(Download), c_void_p)


class DownloadProgress(Structure):
    _fields_ = [("on_downloaded", OnDownloadedFn), ("user_data", c_void_p)]


class OptionsStruct(Structure):
    """Its fields come from the library's table: see `define_fields`."""


class Param(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int),
        ("offset", c_size_t),
        ("min", c_double),
        ("max", c_double),
        ("choices", c_char_p),
        ("help", c_char_p),
    ]


# By enum nvllm_param_type; from _FIRST_LIST on of a list's pointer.
_PARAM_TYPES: list[Any] = [c_int32, c_int64, c_float, c_double, c_int32, c_char_p]
_PARAM_TYPES += [POINTER(c_char_p), POINTER(c_int32), POINTER(LogitBias), c_char_p]
_FIRST_LIST = PARAM_STRING + 1


# The fields behind those of the tables.
SAMPLING_REST: list[Any] = [("owned", c_void_p)]
OPTIONS_REST: list[Any] = [
    ("interrupt", POINTER(Interrupt)),
    ("load_progress", POINTER(LoadProgress)),
    ("download_progress", POINTER(DownloadProgress)),
]


def define_fields(struct: type[Structure], table: dict[str, Param], rest: list[Any]) -> None:
    """Gives a struct the fields of its table and the rest, once."""
    if hasattr(struct, "_fields_"):
        return
    fields: list[tuple[str, Any]] = [("struct_size", c_size_t)]
    for name, param in table.items():
        fields.append((name, _PARAM_TYPES[param.type]))
        if param.type >= _FIRST_LIST:
            fields.append((f"num_{name}", c_size_t))
    struct._fields_ = fields + rest


class Logprob(Structure):
    _fields_ = [("token_id", c_int32), ("logprob", c_float)]


class Times(Structure):
    _fields_ = [
        ("arrival", c_double),
        ("first_scheduled", c_double),
        ("first_token", c_double),
        ("last_token", c_double),
    ]


class Event(Structure):
    _fields_ = [
        ("request_id", c_uint64),
        ("index", c_uint32),
        ("num_outputs_left", c_uint32),
        ("token_ids", POINTER(c_int32)),
        ("num_tokens", c_uint32),
        ("text", POINTER(c_char)),
        ("text_len", c_size_t),
        ("text_ends", POINTER(c_uint32)),
        ("logprobs", POINTER(Logprob)),
        ("num_top", c_size_t),
        ("prompt_logprobs", POINTER(Logprob)),
        ("num_prompt_top", c_size_t),
        ("finish_reason", c_int),
        ("error", c_char_p),
        ("stop_token_id", c_int32),
        ("stop_string", c_char_p),
        ("prompt_token_ids", POINTER(c_int32)),
        ("num_prompt_tokens", c_uint32),
        ("num_cached_tokens", c_uint32),
        ("generated_token_ids", POINTER(c_int32)),
        ("num_generated_tokens", c_uint32),
        ("num_preemptions", c_uint32),
        ("times", Times),
        ("embedding", POINTER(c_float)),
        ("num_dimensions", c_uint32),
    ]


EventFn = CFUNCTYPE(None, POINTER(Event), c_void_p)


class PoolingStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("normalize", c_int32),
        ("dimensions", c_uint32),
        ("prompt_name", c_char_p),
    ]


class RequestStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt", c_char_p),
        ("prompt_len", c_size_t),
        ("prompt_token_ids", POINTER(c_int32)),
        ("num_prompt_token_ids", c_size_t),
        ("chat", c_char_p),
        ("chat_len", c_size_t),
        ("sampling", POINTER(SamplingStruct)),
        ("cache_salt", c_char_p),
        ("on_event", EventFn),
        ("user_data", c_void_p),
        ("finish_event_only", c_int32),
        ("keep_stop_token", c_int32),
        ("interrupt", POINTER(Interrupt)),
        ("call_prefixes", POINTER(c_char_p)),
        ("num_call_prefixes", c_size_t),
        ("may_reason", c_int32),
        ("pooling", POINTER(PoolingStruct)),
    ]


class Durations(Structure):
    _fields_ = [("counts", c_uint64 * 13), ("seconds", c_double)]


class StatsStruct(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_steps", c_uint64),
        ("num_prefill_tokens", c_uint64),
        ("num_decode_tokens", c_uint64),
        ("num_generated_tokens", c_uint64),
        ("num_cached_tokens", c_uint64),
        ("num_preemptions", c_uint64),
        ("num_requests_added", c_uint64),
        ("num_requests_finished", c_uint64),
        ("num_running", c_uint32),
        ("num_waiting", c_uint32),
        ("num_kv_blocks", c_uint32),
        ("num_kv_blocks_used", c_uint32),
        ("num_kv_blocks_peak", c_uint32),
        ("block_size", c_uint32),
        ("num_kv_groups", c_uint32),
        ("num_kv_blocks_each", c_uint32),
        ("max_model_len", c_uint32),
        ("vocab_size", c_uint32),
        ("num_refused_max_num_waiting", c_uint64),
        ("num_refused_max_waiting_tokens", c_uint64),
        ("load_seconds", c_double),
        ("warm_up_seconds", c_double),
        ("schedule_seconds", c_double),
        ("forward_seconds", c_double),
        ("sample_seconds", c_double),
        ("output_seconds", c_double),
        ("peak_rss_bytes", c_uint64),
        ("weights_bytes", c_uint64),
        ("workspace_bytes", c_uint64),
        ("kv_cache_bytes", c_uint64),
        ("num_forms", c_uint64),
        ("num_forms_kept", c_uint64),
        ("num_forms_refused", c_uint64),
        ("form_compile", Durations),
        ("form_mask", Durations),
        ("num_drafts", c_uint64),
        ("num_draft_tokens", c_uint64),
        ("num_accepted_tokens", c_uint64),
    ]


# By their names in C.
STRUCTS: dict[str, type[Structure]] = {
    "nvllm_error": Error,
    "nvllm_interrupt": Interrupt,
    "nvllm_load_progress": LoadProgress,
    "nvllm_logit_bias": LogitBias,
    "nvllm_sampling_params": SamplingStruct,
    "nvllm_engine_options": OptionsStruct,
    "nvllm_param": Param,
    "nvllm_logprob": Logprob,
    "nvllm_times": Times,
    "nvllm_event": Event,
    "nvllm_pooling": PoolingStruct,
    "nvllm_request": RequestStruct,
    "nvllm_durations": Durations,
    "nvllm_stats": StatsStruct,
}

_error = POINTER(Error)
_ids = POINTER(c_int32)

# name: (result, arguments). Handles are c_void_p. Text to be freed is c_void_p: of a
# c_char_p ctypes would return bytes and lose the pointer.
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "nvllm_version": (c_char_p, []),
    "nvllm_struct_size": (c_size_t, [c_char_p]),
    "nvllm_sampling_param": (POINTER(Param), [c_size_t]),
    "nvllm_engine_option": (POINTER(Param), [c_size_t]),
    "nvllm_sampling_params_set": (c_int, [POINTER(SamplingStruct), c_char_p, c_char_p, _error]),
    "nvllm_sampling_params_fini": (None, [POINTER(SamplingStruct)]),
    "nvllm_engine_options_set": (c_int, [POINTER(OptionsStruct), c_char_p, c_char_p, _error]),
    "nvllm_tokenizer_open": (c_int, [POINTER(c_void_p), c_char_p, _error]),
    "nvllm_tokenizer_close": (None, [c_void_p]),
    "nvllm_tokenizer_encode": (
        c_int,
        [
            c_void_p,
            c_char_p,
            c_size_t,
            c_int,
            POINTER(Interrupt),
            POINTER(_ids),
            POINTER(c_size_t),
            _error,
        ],
    ),
    "nvllm_tokenizer_decode": (
        c_int,
        [c_void_p, _ids, c_size_t, c_int, POINTER(c_void_p), POINTER(c_size_t), _error],
    ),
    "nvllm_free": (None, [c_void_p]),
    "nvllm_chat_template_open": (c_int, [POINTER(c_void_p), c_char_p, c_char_p, _error]),
    "nvllm_chat_template_close": (None, [c_void_p]),
    "nvllm_chat_template_render": (
        c_int,
        [
            c_void_p,
            c_char_p,
            c_size_t,
            POINTER(Interrupt),
            POINTER(c_void_p),
            POINTER(c_size_t),
            _error,
        ],
    ),
    "nvllm_engine_create": (c_int, [POINTER(c_void_p), POINTER(OptionsStruct), _error]),
    "nvllm_engine_destroy": (None, [c_void_p]),
    "nvllm_engine_add_request": (
        c_int,
        [c_void_p, POINTER(RequestStruct), POINTER(c_uint64), _error],
    ),
    "nvllm_engine_check_open": (c_int, [c_void_p, _error]),
    "nvllm_engine_step": (c_int, [c_void_p, _error]),
    "nvllm_engine_wait": (c_int, [c_void_p, c_double, _error]),
    "nvllm_engine_wake": (None, [c_void_p]),
    "nvllm_engine_drain": (None, [c_void_p]),
    "nvllm_engine_has_unfinished": (c_int, [c_void_p]),
    "nvllm_engine_is_unfinished": (c_int, [c_void_p, c_uint64]),
    "nvllm_engine_abort": (c_int, [c_void_p, c_uint64]),
    "nvllm_engine_tokenizer": (c_void_p, [c_void_p]),
    "nvllm_engine_is_embedder": (c_int, [c_void_p]),
    "nvllm_score_chat": (
        c_int,
        [c_char_p, c_char_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t), _error],
    ),
    "nvllm_engine_stats": (None, [c_void_p, POINTER(StatsStruct)]),
    # The function is the library's own, so that no Python runs in a step.
    "nvllm_engine_observe": (c_int, [c_void_p, c_void_p, c_void_p, _error]),
    "nvllm_trace_file_open": (c_int, [POINTER(c_void_p), c_char_p, _error]),
    "nvllm_trace_file_step": (None, [c_void_p, c_void_p]),
    "nvllm_trace_file_close": (c_int, [c_void_p, _error]),
    "nvllm_trace_file_abandon": (None, [c_void_p]),
    "nvllm_model_find": (c_int, [POINTER(OptionsStruct), c_int, POINTER(c_void_p), _error]),
    "nvllm_inspect": (c_int, [POINTER(OptionsStruct), POINTER(c_void_p), _error]),
}


def declare(library: ctypes.CDLL) -> None:
    """Gives every function its prototype. AttributeError: the library has no such function."""
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
