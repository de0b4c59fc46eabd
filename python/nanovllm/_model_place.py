"""Where a model lies that the user named and that is no folder here: the Hugging Face cache."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ReadError


def _hub_cache() -> Path:
    """huggingface_hub's rules for the folder of its cache."""
    get = os.environ.get
    home = Path(get("HF_HOME") or Path(get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return Path(get("HF_HUB_CACHE") or home / "hub").expanduser()


def _snapshot(folder: Path) -> Path | None:
    """The folder of main, else the only one, where it has a model's files."""
    snapshots = [path for path in folder.glob("snapshots/*") if (path / "config.json").is_file()]
    main = folder / "refs" / "main"
    if main.is_file():
        commit = main.read_text(encoding="utf-8").strip()
        snapshots = [path for path in snapshots if path.name == commit] or snapshots
    if len(snapshots) != 1 or not any(snapshots[0].glob("*.safetensors")):
        return None
    return snapshots[0]


def check(model: bytes) -> None:
    """ReadError, with the folder to give, for `organisation/name` of a model in that cache."""
    name = os.fsdecode(model)
    if name.count("/") != 1 or name.startswith((".", "/")) or os.path.lexists(name):
        return
    try:
        folder = _snapshot(_hub_cache() / ("models--" + name.replace("/", "--")))
    except (OSError, ValueError, RuntimeError):  # not readable, not a path, no home
        return
    if folder:
        raise ReadError(f"{name} is not a folder; the Hugging Face cache has the model: use {folder}")
