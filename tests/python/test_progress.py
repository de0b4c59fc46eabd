"""The bar of generate: tqdm's and the plain one."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from conftest import ANSWER, QUESTION
from nanovllm import LLM, SamplingParams
from nanovllm.progress import DownloadBar, _Plain, _Tqdm, open_progress

GREEDY = SamplingParams(temperature=0, max_tokens=60)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeTqdm:
    """Records the calls of a tqdm bar."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.num_done = 0
        self.postfix: dict[str, str] = {}
        self.is_closed = False

    def set_postfix(self, postfix: dict[str, str], refresh: bool = True) -> None:
        self.postfix = postfix

    def update(self, count: int) -> None:
        self.num_done += count

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


def test_tqdm_is_told_what_the_original_told_it() -> None:
    bars: list[FakeTqdm] = []

    def tqdm(**options: Any) -> FakeTqdm:
        bars.append(FakeTqdm(**options))
        return bars[-1]

    progress = _Tqdm(tqdm, 3, "Generating")
    progress.step(0, 100, 0.5)
    progress.step(1, -4, 0.5)
    progress.step(2, 0, 0.5)
    progress.close()
    (bar,) = bars
    assert bar.options == {"total": 3, "desc": "Generating", "dynamic_ncols": True}
    assert bar.postfix == {"Prefill": "200tok/s", "Decode": "8tok/s"}
    assert bar.num_done == 3
    assert bar.is_closed


def test_the_plain_bar_writes_one_line_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = _Plain(stream, 2, "Generating")
    progress.step(1, 50, 0.5)
    progress.step(1, -2, 0.5)
    progress.close()
    text = stream.getvalue()
    assert text.startswith("Generating: 2/2 [")
    assert text.endswith("Prefill=100tok/s, Decode=4tok/s]\n")
    assert "\r" not in text


def test_the_plain_bar_is_redrawn_on_a_terminal() -> None:
    stream = Terminal()
    progress = _Plain(stream, 2, "Generating")
    progress.step(1, 50, 0.5)
    progress.close()
    assert stream.getvalue().startswith("\rGenerating: 1/2 [")
    assert stream.getvalue().endswith("\n")


def test_a_closed_stream_ends_nobodys_generation() -> None:
    stream = Terminal()
    progress = _Plain(stream, 2, "Generating")
    stream.close()
    progress.step(1, 50, 0.5)
    progress.close()


def test_without_tqdm_the_plain_bar_is_shown(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert llm.generate([QUESTION], GREEDY)[0]["text"] == ANSWER
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Generating: 1/1 [")


def test_without_a_bar_nothing_is_shown(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate([QUESTION], GREEDY, use_tqdm=False)
    assert capsys.readouterr() == ("", "")


def test_with_tqdm_its_bar_is_shown(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    llm.generate([QUESTION], GREEDY)
    error = capsys.readouterr().err
    assert "Generating: 100%" in error
    assert "Prefill=" in error and "Decode=" in error


def test_no_prompts_have_no_bar() -> None:
    assert open_progress(0) is None


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("has_tqdm", [False, True])
def test_without_standard_error_there_is_no_bar(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, has_tqdm: bool, is_closed: bool
) -> None:
    if has_tqdm:
        pytest.importorskip("tqdm", reason="tqdm is not installed")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream if is_closed else None)
    assert llm.generate([QUESTION], GREEDY)[0]["text"] == ANSWER


def download_text(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys, "stderr", stream)
    bar = DownloadBar("a/b")
    bar.tell(1000000, 4000000)
    bar.tell(4000000, 4000000)
    bar.close()
    return stream.getvalue()


def test_a_download_writes_one_line_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = download_text(monkeypatch, io.StringIO())
    assert text == "Downloading a/b: 4.0 of 4.0 MB\n"


def test_a_download_is_redrawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = download_text(monkeypatch, Terminal())
    assert text.startswith("\rDownloading a/b: 1.0 of 4.0 MB\r")
    assert text.endswith("Downloading a/b: 4.0 of 4.0 MB\n")


def test_without_a_download_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    DownloadBar("a/b").close()
    assert capsys.readouterr().err == ""
