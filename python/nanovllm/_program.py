"""Finding the native program `nanovllm` that belongs to this package."""

from __future__ import annotations

import os
from pathlib import Path

from ._library import build_folders, package_folders


def find_program() -> str | None:
    """The package's own program, the build folder's, or one in PATH that is not this script."""
    candidates = [folder / "_native" / "nanovllm" for folder in package_folders()]
    candidates += [folder / "nanovllm" for folder in build_folders()]
    path = os.environ.get("PATH", "")
    candidates += [Path(folder) / "nanovllm" for folder in path.split(os.pathsep) if folder]
    return next((str(path) for path in candidates if _is_native(path)), None)


def _is_native(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False
