"""The exception of each fault, and the behaviour of a lost engine."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nanovllm
import pytest
from conftest import MODEL, small
from nanovllm import LLM, AsyncLLM, DeviceError, NanovllmError, SamplingParams
from nanovllm.config import NativeOptions, make_config
from nanovllm.errors import error_of


@pytest.mark.parametrize(
    ("status", "kinds"),
    [
        (1, (nanovllm.InvalidArgumentError, ValueError)),
        (2, (nanovllm.FormatError, ValueError)),
        (3, (nanovllm.ReadError, OSError)),
        (4, (nanovllm.OutOfMemoryError, MemoryError)),
        (5, (nanovllm.CapacityError,)),
        (6, (nanovllm.UnsupportedError, NotImplementedError)),
        (7, (nanovllm.DeviceError,)),
        (99, (NanovllmError,)),
    ],
)
def test_each_status_has_its_exception(status: int, kinds: tuple[type, ...]) -> None:
    error = error_of(status, "the engine's sentence")
    assert str(error) == "the engine's sentence"
    for kind in (*kinds, NanovllmError, RuntimeError):
        assert isinstance(error, kind)


def test_times_are_written_without_an_exponent() -> None:
    for value, text in ((1000 / 30, b"33.333333333333336"), (5e-05, b"0.00005"), (40, b"40")):
        options = NativeOptions(make_config(MODEL, {"target_itl": value}))
        assert options.struct.target_itl == text
    for value in (1e300, -1.0, float("nan"), 60001):
        with pytest.raises(ValueError, match="want auto, off or milliseconds above 0, at most"):
            NativeOptions(make_config(MODEL, {"target_itl": value}))


def test_a_cache_beyond_the_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="GiB"):
        LLM(MODEL, device="cpu", kv_cache_gib=65536)


def test_a_broken_config_is_a_format_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(nanovllm.FormatError, match=r"config\.json"):
        LLM(tmp_path)


def test_an_architecture_that_cannot_run_is_unsupported(tmp_path: Path) -> None:
    config = (Path(MODEL) / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace("Qwen3ForCausalLM", "GPT2LMHeadModel"))
    with pytest.raises(NotImplementedError, match="GPT2LMHeadModel"):
        LLM(tmp_path)


def test_a_model_in_the_hugging_face_cache_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hub" / "models--acme--tiny"
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(nanovllm.ReadError, match="acme/tiny is not a folder, and not in"):
        LLM("acme/tiny")
    for commit in ("a" * 40, "b" * 40):
        (folder / "snapshots" / commit).mkdir(parents=True)
        for path in Path(MODEL).iterdir():
            (folder / "blobs").mkdir(exist_ok=True)
            blob = folder / "blobs" / path.name
            if not blob.exists():
                blob.write_bytes(path.read_bytes())
            (folder / "snapshots" / commit / path.name).symlink_to(Path("../../blobs", path.name))
    with pytest.raises(nanovllm.ReadError, match="has no revision main"):
        LLM("acme/tiny")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    with LLM("acme/tiny") as llm:
        assert llm.tokenizer.encode("hi") == nanovllm.Tokenizer(MODEL).encode("hi")
        assert "hi" in llm.tokenizer.apply_chat_template(
            [{"role": "user", "content": "hi"}], tokenize=False
        )
    with LLM("acme/tiny", revision="b" * 40) as llm:
        assert llm.config.model == "acme/tiny"
    with pytest.raises(nanovllm.ReadError, match="has no GGUF file"):
        LLM("acme/tiny", quant="Q4_K_M")
    assert nanovllm.Tokenizer("acme/tiny").encode("hi")


def test_an_old_python_is_told_so() -> None:
    """The first file that it reads is one that it can parse."""
    package = Path(nanovllm.__path__[0])
    ast.parse((package / "__init__.py").read_text(), feature_version=(3, 6))
    code = "import sys; sys.version_info = (3, 8, 1); import nanovllm"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: nanovllm needs Python 3.9 or later, but this is Python 3.8")


class LostDevice:
    """The library of an engine whose device is gone: a step fails, and nothing is added later."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._is_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def nvllm_engine_add_request(self, *arguments: Any) -> int:
        if self._is_lost:
            return self.nvllm_engine_step(None, arguments[-1])
        return int(self._library.nvllm_engine_add_request(*arguments))

    def nvllm_engine_step(self, _engine: Any, error: Any) -> int:
        self._is_lost = True
        error._obj.status = 7
        error._obj.message = b"the device is gone"
        return 7


def test_a_lost_device_ends_generate(own: LLM) -> None:
    own._engine.lib = LostDevice(own._engine.lib)  # type: ignore[assignment]
    with pytest.raises(DeviceError, match="^the device is gone$"):
        own.generate(["a", "b"], use_tqdm=False)
    own.exit()


def test_a_lost_device_ends_every_stream() -> None:
    async def main() -> list[Any]:
        llm = AsyncLLM(MODEL, **small())
        llm._worker._engine.lib = LostDevice(llm._worker._engine.lib)  # type: ignore[assignment]

        async def read() -> None:
            async for _ in llm.generate("a"):
                pass

        results = await asyncio.gather(read(), read(), return_exceptions=True)
        llm.exit()
        return results

    results = asyncio.run(main())
    assert [(type(error), str(error)) for error in results] == [
        (DeviceError, "the device is gone")
    ] * 2


def test_a_request_that_fails_by_itself_raises(own: LLM) -> None:
    # Only broken weights do this: the events say here what the engine would.
    take = own._engine._sink.take

    def failing(pointer: Any, user_data: Any) -> None:
        event = pointer.contents
        if event.finish_reason:
            event.finish_reason = 4
            event.error = b"no token can be chosen"
        take(pointer, user_data)

    from nanovllm import _structs

    callback = _structs.EventFn(failing)
    own._engine.handle.callback = callback
    with pytest.raises(NanovllmError, match="^prompt 0: no token can be chosen$"):
        own.generate(["a", "b"], SamplingParams(0, 2, True), use_tqdm=False)
    own.add_request("a", SamplingParams(0, 1, True))
    with pytest.raises(NanovllmError, match="^no token can be chosen$"):
        while not own.is_finished():
            own.step()
    assert own.is_finished()


def test_a_fault_inside_the_callback_is_raised_where_the_request_is_read(
    own: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> str:
        raise MemoryError("no room for the text")

    monkeypatch.setattr(type(own._engine._sink), "_decode", broken)
    for prompts in (["a"], ["a", "b"]):
        with pytest.raises(MemoryError, match="^no room for the text$"):
            own.generate(prompts, SamplingParams(0, 2, True), use_tqdm=False)
    assert own.stats()["num_running"] == 0
