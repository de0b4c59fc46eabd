"""Which libnanovllm is loaded, and the errors for one that does not fit."""

from __future__ import annotations

import ast
import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from nanovllm import LibraryError, _library, _structs

LIBRARY = Path(_library.library()._name).resolve()


def load(package: Path, **environment: str) -> str:
    """The path that a fresh interpreter loads the library of this package from, or its error."""
    program = (
        "import nanovllm\n"
        "from nanovllm import _library\n"
        "try: print(_library.library()._name)\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(package), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, away from the source tree: no library anywhere near it."""
    source = ROOT / "python" / "nanovllm"
    shutil.copytree(source, tmp_path / "nanovllm", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_without_a_library_a_sentence_says_where_it_was_looked_for(package: Path) -> None:
    assert load(package).startswith(
        "libnanovllm is neither in the package, nor in a build folder, nor the system's"
    )


def test_the_systems_library_is_found(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libnanovllm.so.0").symlink_to(LIBRARY)
    assert load(package, LD_LIBRARY_PATH=str(folder)) == "libnanovllm.so.0"


def test_the_packages_own_library_comes_before_the_systems(package: Path) -> None:
    own = package / "nanovllm" / "_native" / "libnanovllm.so"
    own.parent.mkdir()
    shutil.copy(LIBRARY, own)
    assert load(package, LD_LIBRARY_PATH=str(LIBRARY.parent)) == str(own)


def test_the_build_folder_of_the_source_tree_is_found(tmp_path: Path) -> None:
    for folder in ("debug", "release", "asan"):
        (tmp_path / "build" / folder).mkdir(parents=True)
        (tmp_path / "build" / folder / "libnanovllm.so").symlink_to(LIBRARY)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "nanovllm.h").touch()
    shutil.copytree(ROOT / "python" / "nanovllm", tmp_path / "python" / "nanovllm")
    expected = tmp_path / "build" / "release" / "libnanovllm.so"
    assert load(tmp_path / "python") == str(expected)


def test_the_variable_comes_first(package: Path) -> None:
    assert load(package, NANOVLLM_LIBRARY=str(LIBRARY)) == str(LIBRARY)


def test_a_variable_that_names_nothing_is_an_error(package: Path) -> None:
    message = load(package, NANOVLLM_LIBRARY="/nowhere/libnanovllm.so")
    assert message.startswith("libnanovllm cannot be loaded from NANOVLLM_LIBRARY='/nowhere/")


def test_another_library_is_told_apart(package: Path) -> None:
    message = load(package, NANOVLLM_LIBRARY="libm.so.6")
    assert message.startswith(f"libm.so.6 is not libnanovllm {_library.__version__}: ")


class Changed:
    """The library with some of its functions replaced."""

    def __init__(self, **functions: Any) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        return self._functions.get(name) or getattr(_library.library(), name)


def test_another_version_is_refused() -> None:
    with pytest.raises(LibraryError, match="x is libnanovllm 9.8.7, this package wants 0.1.0"):
        _library._check(Changed(nvllm_version=lambda: b"9.8.7"), "x")  # type: ignore[arg-type]


def test_a_struct_of_another_size_is_refused() -> None:
    size = _library.library().nvllm_struct_size

    def longer(name: bytes) -> int:
        return int(size(name)) + (name == b"nvllm_event") * 8

    with pytest.raises(LibraryError, match="x does not fit this package: struct nvllm_event has"):
        _library._check(Changed(nvllm_struct_size=longer), "x")  # type: ignore[arg-type]


def test_a_field_at_another_place_is_refused() -> None:
    real = _library.library().nvllm_sampling_param

    def moved(index: int) -> Any:
        row = real(index)
        if not row or row.contents.name != b"top_p":
            return row
        copy = _structs.Param.from_buffer_copy(row.contents)
        copy.offset += 4
        return ctypes.pointer(copy)

    with pytest.raises(LibraryError, match="x does not fit this package: top_p is elsewhere"):
        _library._check(Changed(nvllm_sampling_param=moved), "x")  # type: ignore[arg-type]


def test_every_struct_and_function_of_the_header_is_known_or_not_needed() -> None:
    header = (ROOT / "include" / "nanovllm.h").read_text()
    of_tables = (_structs.SamplingStruct, _structs.OptionsStruct)
    for name, struct in _structs.STRUCTS.items():
        if struct in of_tables:
            continue  # its fields come from the library
        body = header.split(f"struct {name} {{", 1)[1].split("\n};", 1)[0]
        code = [line.split("//")[0] for line in body.splitlines()]
        declared = [
            word.split("[")[0].lstrip("*")
            for statement in " ".join(code).split(";")
            for word in [part.split()[-1] for part in statement.split(",") if part.split()]
        ]
        assert [field[0] for field in struct._fields_] == declared, name
    for name in _structs.PROTOTYPES:
        assert f"{name}(" in header


def test_the_program_is_found() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-m", "nanovllm", "--version"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0] == f"nanovllm {_library.__version__}"


def test_a_package_without_a_program_says_so(package: Path, tmp_path: Path) -> None:
    script = tmp_path / "bin" / "nanovllm"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho me\n")  # the script that calls this module, say
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "nanovllm", "version"],
        env={"PYTHONPATH": str(package), "PATH": str(script.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("nanovllm: the native program is neither in the package nor")


def test_the_package_is_typed() -> None:
    assert (ROOT / "python" / "nanovllm" / "py.typed").is_file()


SOURCES = sorted((ROOT / "python" / "nanovllm").glob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 600
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


def test_nothing_but_python_is_needed() -> None:
    allowed = {"tqdm", "typing_extensions"}  # only if it is there; only for type checkers
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.split(".")[0])
    standard = getattr(sys, "stdlib_module_names", None)
    if standard is None:
        pytest.skip("Python 3.9 does not know the names of its own modules")
    assert found - allowed <= standard
