"""The client half of bench/spmd.py: plain JAX, the same cases on every backend.

    spmd_client.py gangway                               # the cluster that the environment names
    spmd_client.py plugin DEVICES                        # the same XLA CPU plugin in this process
    spmd_client.py gloo DEVICES ADDRESS PROCESSES NUMBER # one process of JAX multi-controller

Each line on stdin is a command, "CASE<tab>COUNT": make COUNT calls of the case, wait for the last, and print one line of
JSON with the seconds. The first command of a case compiles it, before the clock starts. Its arrays go when another case
begins. All processes of a multi-controller get the same lines.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent


def choose(backend: str, arguments: list[str]) -> None:
    """Makes it JAX's default backend; call it before JAX is imported."""
    if backend == "gangway":
        import gangway

        gangway.connect()
    elif backend == "plugin":
        sys.path.insert(0, str(ROOT / "testing"))
        pool = os.environ["NPROC"]
        import reference

        reference.register(int(arguments[0]))
        # That set the pool of the tests. XLA reads it when JAX makes its client, which is later.
        os.environ["NPROC"] = pool
    elif backend == "gloo":
        devices, address, processes, number = arguments
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, int(processes), int(number))
    else:
        raise SystemExit(f"{backend}: not a backend; gangway, plugin and gloo are")


def answer_commands(
    make: Callable[[str], Callable[[int], float]], more: Callable[[], dict[str, object]] = dict
) -> None:
    """`make` compiles a case, and returns what makes a number of calls and returns their seconds. `more`: what else an
    answer has.
    """
    name = ""
    case: Callable[[int], float] | None = None
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        wanted, count = line.rstrip("\n").split("\t")
        if case is None or wanted != name:
            case = None  # its arrays go before those of the next one come
            name, case = wanted, make(wanted)
        seconds = case(int(count))
        answer = {"case": name, "count": int(count), "seconds": seconds, **more()}
        print(json.dumps(answer), flush=True)


def main() -> None:
    choose(sys.argv[1], sys.argv[2:])
    import spmd_programs

    spmd_programs.jax.devices()  # before it says that it is ready
    answer_commands(spmd_programs.make)


if __name__ == "__main__":
    main()
