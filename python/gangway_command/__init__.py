"""The command `gangway` of the wheel: becomes the binary in the package gangway.

It is a package of its own because it must not import that one, which takes a tenth of a second and
needs JAX: hosts that run workers alone have none.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys

BINARY = pathlib.Path(__file__).resolve().parent.parent / "gangway" / "_bin" / "gangway"


def main() -> None:
    if not BINARY.exists():
        sys.exit(f"gangway: {BINARY} is missing: install the wheel gangway-runtime")
    if "GANGWAY_PYTHON" not in os.environ:  # of `gangway run`
        if sys.argv[1:2] == ["run"] and importlib.util.find_spec("jax") is None:
            sys.exit(
                f"gangway run: {sys.executable} has no JAX, which scripts need: run "
                f"`{sys.executable} -m pip install jax`, or set GANGWAY_PYTHON to a Python with JAX"
            )
        os.environ["GANGWAY_PYTHON"] = sys.executable
    os.execv(BINARY, [str(BINARY), *sys.argv[1:]])
