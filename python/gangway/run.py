"""`python -m gangway.run [--port N] script.py [arguments]`: runs an unmodified JAX script on a
cluster's devices.

`gangway run` starts this module. Environment variables tell JAX where its devices are, and JAX
imports `jax_plugins.gangway` when it first needs a device. So the script may configure JAX freely,
and its child processes reach the cluster too. `-m module` works as it does for Python.

Exit status: the script's own; 2 if no cluster is reachable.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import runpy
import sys

from gangway._backend import environment
from gangway._errors import GangwayError
from gangway._front_door import check_front_door, default_port


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gangway run", description="Run a JAX script on a Gangway cluster."
    )
    parser.add_argument(
        "--port", type=int, help="the cluster's front door (default: GANGWAY_PORT, or 38600)"
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="the script is a module's name"
    )
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def _make_importable() -> None:
    """Keeps this package and `jax_plugins` beside it importable for the script and its children."""
    home = str(pathlib.Path(__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [part for part in inherited if part and part != home] + [home]
    )
    if home not in sys.path[1:]:
        sys.path.append(home)


def main(arguments: list[str] | None = None) -> None:
    args = _parse(sys.argv[1:] if arguments is None else arguments)
    try:
        port = default_port() if args.port is None else args.port
        check_front_door(port)
    except GangwayError as error:
        print(f"gangway run: {error}", file=sys.stderr)
        sys.exit(2)
    if not args.module and not pathlib.Path(args.script).exists():
        print(f"gangway run: no file {args.script!r}", file=sys.stderr)
        sys.exit(2)
    os.environ.update(environment(port))
    _make_importable()
    # The proxy client warns of plaintext on loopback, and prints a stack trace when it disconnects.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.argv = [args.script, *args.arguments]
    if args.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(args.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(pathlib.Path(args.script).resolve().parent)
        runpy.run_path(args.script, run_name="__main__")


if __name__ == "__main__":
    main()
