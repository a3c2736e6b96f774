"""The command `gangway` of the wheel: becomes the binary in this package."""

from __future__ import annotations

import os
import pathlib
import sys

BINARY = pathlib.Path(__file__).resolve().parent / "_bin" / "gangway"


def main() -> None:
    if not BINARY.exists():
        sys.exit(f"gangway: {BINARY} is missing: install the wheel gangway-runtime")
    os.environ.setdefault("GANGWAY_PYTHON", sys.executable)  # for `gangway run`
    os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
