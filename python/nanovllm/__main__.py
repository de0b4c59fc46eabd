"""`python -m nanovllm ...` and the script `nanovllm`: the native program of the package."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._program import find_program


def main() -> NoReturn:
    program = find_program()
    if program is None:
        sys.exit("nanovllm: the native program is neither in the package nor in PATH")
    os.execv(program, ["nanovllm", *sys.argv[1:]])


if __name__ == "__main__":
    main()
