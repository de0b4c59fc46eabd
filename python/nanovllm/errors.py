"""The exceptions of this package. Their text is the engine's sentence.

Each is a `NanovllmError`, and also the built-in exception that a Python program would expect, so
that `except ValueError` and `except NanovllmError` both work.
"""

from __future__ import annotations


class NanovllmError(RuntimeError):
    """Anything this package refuses or fails at."""


class InvalidArgumentError(NanovllmError, ValueError):
    """An argument, parameter or prompt that can never be served."""


class FormatError(NanovllmError, ValueError):
    """A file of the model breaks its format's rules."""


class ReadError(NanovllmError, OSError):
    """The operating system refused a file."""


class OutOfMemoryError(NanovllmError, MemoryError):
    """Not enough host or device memory."""


class CapacityError(NanovllmError):
    """Too many requests wait: the same call may succeed later. Or the LLM is draining."""


class UnsupportedError(NanovllmError, NotImplementedError):
    """Valid input that this version cannot run."""


class DeviceError(NanovllmError):
    """The accelerator failed. The engine is lost: make a new `LLM`."""


class LibraryError(NanovllmError, ImportError):
    """libnanovllm is missing, or does not belong to this version of the package."""


class ExitedError(NanovllmError):
    """The `LLM` was used after `exit()`, or while another thread called it."""


# By enum nvllm_status.
_BY_STATUS: dict[int, type[NanovllmError]] = {
    1: InvalidArgumentError,
    2: FormatError,
    3: ReadError,
    4: OutOfMemoryError,
    5: CapacityError,
    6: UnsupportedError,
    7: DeviceError,
}


def error_of(status: int, sentence: str) -> NanovllmError:
    """The exception for a status of the library."""
    return _BY_STATUS.get(status, NanovllmError)(sentence)
