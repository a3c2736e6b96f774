"""`python -m gangway.run [--port N] [--door D] script.py [arguments]`: runs an unmodified JAX
script on a cluster's devices.

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
import socket
import sys

from gangway import _constants, _platform, _plugin
from gangway._backend import environment, plugin_environment
from gangway._door import DOORS, default_door, given_door
from gangway._errors import GangwayError, NothingListeningError
from gangway._front_door import check_front_door, default_port


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gangway run", description="Run a JAX script on a Gangway cluster."
    )
    parser.add_argument(
        "--port", type=int, help="the cluster's front door (default: GANGWAY_PORT, or 38600)"
    )
    parser.add_argument("--connect", help="a controller on another host, as HOST:PORT")
    parser.add_argument("--tls", help="for --connect: a folder that `gangway certs` made")
    parser.add_argument("--door", choices=DOORS, help="default: GANGWAY_DOOR, or by the cluster")
    parser.add_argument(
        "-m", dest="module", action="store_true", help="the script is a module's name"
    )
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


def _check_listening(address: str, timeout_s: float = 10.0) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    except (OSError, ValueError) as error:
        raise NothingListeningError(f"no controller listens on {address}: {error}") from error


def _cluster(args: argparse.Namespace) -> dict[str, str]:
    """The variables that lead JAX to the cluster.

    Raises:
      GangwayError: no cluster is there, or the plugin is not installed.
      ValueError: GANGWAY_DOOR is not a door.
    """
    door = given_door(args.door)
    if args.connect:
        if door == "ifrt":
            raise ValueError("--connect needs the door pjrt: `gangway run` serves it with others")
        _plugin.library()
        _check_listening(args.connect)
        return plugin_environment(args.connect, args.tls)
    port = default_port() if args.port is None else args.port
    check_front_door(port)
    if (door or default_door(port)) == "ifrt":
        return environment(port)
    _plugin.library()
    os.environ.pop("GANGWAY_ADDRESS", None)
    return plugin_environment(port)


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
        variables = _cluster(args)
        _constants.install_with_jax()
    except (GangwayError, ValueError) as error:
        print(f"gangway run: {error}", file=sys.stderr)
        sys.exit(2)
    if not args.module and not pathlib.Path(args.script).exists():
        print(f"gangway run: no file {args.script!r}", file=sys.stderr)
        sys.exit(2)
    os.environ.update(variables)
    os.environ[_platform.RUN_PID] = str(os.getpid())
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
