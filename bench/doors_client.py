"""The client half of bench/doors.py: calls on arrays that are sharded over all devices. Prints one JSON object per
case: seconds and CPU seconds of this process per call, of each repetition.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable

import gangway

REPEATS = 5
REPEAT_S = 0.6


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(name: str, run: Callable[[int], None]) -> None:
    """`run(n)` makes n calls and waits for the last."""
    run(10)
    started = time.perf_counter()
    run(20)
    count = max(10, int(REPEAT_S / ((time.perf_counter() - started) / 20)))
    seconds, cpu_seconds = [], []
    for _ in range(REPEATS):
        started, spent = time.perf_counter(), cpu_s()
        run(count)
        seconds.append((time.perf_counter() - started) / count)
        cpu_seconds.append((cpu_s() - spent) / count)
    print(json.dumps({"case": name, "seconds": seconds, "cpu_seconds": cpu_seconds}), flush=True)


def main() -> None:
    gangway.connect()
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    devices = jax.devices()
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), P("d"))
    one = jax.device_put(np.zeros((len(devices),), np.float32), sharding)
    many = tuple(one + i for i in range(20))

    def chain(step: Callable, start: object) -> Callable[[int], None]:
        def run(count: int) -> None:
            value = start
            for _ in range(count):
                value = step(value)
            jax.block_until_ready(value)

        return run

    step = jax.jit(lambda x: x + 1)

    def awaited(count: int) -> None:
        for _ in range(count):
            step(one).block_until_ready()

    measure("1 in 1 out", chain(step, one))
    measure("1 in 1 out, awaited", awaited)
    measure("20 in 20 out", chain(jax.jit(lambda xs: tuple(x + 1 for x in xs)), many))


if __name__ == "__main__":
    main()
