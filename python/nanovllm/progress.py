"""The bars of generate and of downloads: tqdm's where it is installed, else a plain line."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol, TextIO

_REFRESH_SECONDS = 0.1


class Progress(Protocol):
    """The calls of generate to its progress bar."""

    def step(self, num_finished: int, num_tokens: int, seconds: float) -> None:
        """Called after a step: the prompts that ended in it, and LLM.step()'s num_tokens."""

    def close(self) -> None:
        """Called when the run has ended, also by an error."""


class _Rates:
    """Throughput of the last prefill and of the last decode step, whole tokens per second."""

    def __init__(self) -> None:
        self._prefill = self._decode = 0.0

    def take(self, num_tokens: int, seconds: float) -> None:
        if num_tokens > 0:
            self._prefill = num_tokens / max(seconds, 1e-9)
        elif num_tokens < 0:
            self._decode = -num_tokens / max(seconds, 1e-9)

    def postfix(self) -> dict[str, str]:
        return {"Prefill": f"{int(self._prefill)}tok/s", "Decode": f"{int(self._decode)}tok/s"}


class _Tqdm:
    def __init__(self, tqdm: Any, total: int, description: str) -> None:
        self._bar = tqdm(total=total, desc=description, dynamic_ncols=True)
        self._rates = _Rates()
        self._next = 0.0
        self._num_finished = 0  # not passed to the bar yet

    def step(self, num_finished: int, num_tokens: int, seconds: float) -> None:
        self._rates.take(num_tokens, seconds)
        self._num_finished += num_finished
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REFRESH_SECONDS
            self._tell()

    def _tell(self) -> None:
        self._bar.set_postfix(self._rates.postfix(), refresh=False)
        self._bar.update(self._num_finished)
        self._num_finished = 0
        self._bar.refresh()

    def close(self) -> None:
        self._tell()
        self._bar.close()


class _Plain:
    """One line on standard error: redrawn on a terminal, elsewhere written once at the end."""

    def __init__(self, stream: TextIO, total: int, description: str) -> None:
        self._stream = stream
        self._total = total
        self._description = description
        self._rates = _Rates()
        self._num_finished = 0
        self._start = time.monotonic()
        self._next = self._start
        self._width = 0
        self._is_terminal = bool(getattr(stream, "isatty", lambda: False)())

    def step(self, num_finished: int, num_tokens: int, seconds: float) -> None:
        self._rates.take(num_tokens, seconds)
        self._num_finished += num_finished
        now = time.monotonic()
        if self._is_terminal and now >= self._next:
            self._next = now + _REFRESH_SECONDS
            self._write("\r" + self._line(now))

    def _line(self, now: float) -> str:
        rates = ", ".join(f"{key}={value}" for key, value in self._rates.postfix().items())
        line = (
            f"{self._description}: {self._num_finished}/{self._total} "
            f"[{now - self._start:.1f}s, {rates}]"
        )
        self._width = max(self._width, len(line))
        return line.ljust(self._width)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a closed stream must not end the generation
            self._is_terminal = False

    def close(self) -> None:
        line = self._line(time.monotonic())
        self._write(f"\r{line}\n" if self._is_terminal else f"{line.rstrip()}\n")


def open_progress(total: int, description: str = "Generating") -> Progress | None:
    """A bar for `total` prompts; None if there are no prompts or no standard error."""
    stream = sys.stderr
    if not total or stream is None or getattr(stream, "closed", False):
        return None  # a program without a terminal may have no standard error
    try:
        from tqdm.auto import tqdm  # only where somebody wants a bar
    except ImportError:
        return _Plain(stream, total, description)
    return _Tqdm(tqdm, total, description)


class DownloadBar:
    """The bar of a model's download. Nothing is shown before the first call of `tell`."""

    def __init__(self, model: str) -> None:
        self._description = f"Downloading {model}"
        self._bar: Any = None
        self._stream = sys.stderr
        self._last = (0, 0)
        self._next = 0.0
        self._is_told = False

    def tell(self, num_bytes: int, total_bytes: int) -> None:
        if self._stream is None or getattr(self._stream, "closed", False):
            return
        if not self._is_told:
            self._is_told = True
            self._open(total_bytes)
        self._last = (num_bytes, total_bytes)
        if self._bar is not None:
            self._bar.update(num_bytes - self._bar.n)
        elif self._stream.isatty() and time.monotonic() >= self._next:
            self._next = time.monotonic() + _REFRESH_SECONDS
            self._write("\r" + self._line())

    def _open(self, total_bytes: int) -> None:
        try:
            from tqdm.auto import tqdm  # only where something is downloaded
        except ImportError:
            return
        self._bar = tqdm(total=total_bytes, desc=self._description, unit="B", unit_scale=True)

    def _line(self) -> str:
        num_bytes, total_bytes = self._last
        return f"{self._description}: {num_bytes / 1e6:.1f} of {total_bytes / 1e6:.1f} MB"

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a closed stream must not end the download
            pass

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._is_told:
            self._write(("\r" if self._stream.isatty() else "") + self._line() + "\n")
