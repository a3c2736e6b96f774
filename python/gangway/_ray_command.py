"""The command `python -m gangway.ray`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from gangway._errors import GangwayError
from gangway.ray import DEFAULT_NAME, START_LIMIT_S, up


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gangway.ray",
        description="Run a JAX script on a Gangway cluster inside a Ray cluster. The exit status "
        "is the script's, or 2 if the cluster does not start.",
    )
    parser.add_argument("--workers", type=int, default=1, help="of all islands (default: 1)")
    parser.add_argument("--devices", type=int, help="of each worker (default: its GPUs, or 1)")
    parser.add_argument("--islands", type=int, default=1)
    parser.add_argument("--num-cpus", type=float, default=1.0, help="of Ray, for each worker")
    parser.add_argument("--num-gpus", type=float, default=0.0, help="of Ray, for each worker")
    parser.add_argument(
        "--per-node", type=int, help="most workers on a node (default: Ray spreads)"
    )
    parser.add_argument("--plugin", help="cpu, cuda, or a path (default: by --num-gpus)")
    parser.add_argument("--name", default=DEFAULT_NAME)
    parser.add_argument("--controller-cpus", type=float, default=1.0)
    parser.add_argument(
        "--start-limit", type=float, default=START_LIMIT_S, metavar="S", help="seconds"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the script is a module")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _signals_passed_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGTERM, of `ray job stop` for example, reaches the script; Ctrl-C does so by itself."""
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m gangway.ray`; see its --help."""
    args = _parse(arguments)
    try:
        cluster = up(
            args.workers,
            devices=args.devices,
            islands=args.islands,
            num_cpus=args.num_cpus,
            num_gpus=args.num_gpus,
            per_node=args.per_node,
            plugin=args.plugin,
            name=args.name,
            controller_cpus=args.controller_cpus,
            start_limit_s=args.start_limit,
        )
    except (GangwayError, ValueError) as error:
        print(f"gangway.ray: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    with cluster:
        module = ["-m"] if args.module else []
        where = ["--connect", cluster.address, "--tls", cluster.tls]
        child = subprocess.Popen(
            [sys.executable, "-m", "gangway.run", *where, *module, args.script, *args.arguments],
            env={**os.environ, **cluster.environment},
        )
        with _signals_passed_to(child):
            status = child.wait()
    sys.exit(128 - status if status < 0 else status)
