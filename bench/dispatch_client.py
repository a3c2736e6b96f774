"""The client half of the dispatch benchmark: plain JAX, the same on every backend.

Prints one JSON object per case: seconds per call of each repetition, and the CPU time per call in
microseconds, in total and by thread, of this process and of the processes named in
GANGWAY_BENCH_PIDS ("head=123,worker=456").
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
REPEATS = 5
REPEAT_S = 0.6
TICKS = os.sysconf("SC_CLK_TCK")


def watched() -> dict[str, int]:
    named = [
        item.split("=") for item in os.environ.get("GANGWAY_BENCH_PIDS", "").split(",") if item
    ]
    return {"client": os.getpid(), **{name: int(pid) for name, pid in named}}


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU seconds by thread. Threads with the same name are numbered by creation: name, name#2, ..."""
    seconds: dict[str, float] = {}
    for task in sorted(
        pathlib.Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)
    ):
        try:
            head, _, tail = (task / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        name = unique = head.partition("(")[2]
        count = 1
        while unique in seconds:
            count += 1
            unique = f"{name}#{count}"
        fields = tail.split()
        seconds[unique] = (int(fields[11]) + int(fields[12])) / TICKS
    return seconds


only = ""
cases: list[str] = []


def wanted(name: str) -> bool:
    return name in cases if cases else only in name


def measure_each(
    name: str,
    prepare: Callable[[], object],
    run: Callable[[Any], object],
    count: int = 3,
) -> None:
    """Measures `run`, each time on something new from `prepare`, which is not measured."""
    if not wanted(name):
        return
    run(prepare())
    seconds = []
    spent = {who: 0.0 for who in watched()}
    for _ in range(REPEATS):
        prepared = [prepare() for _ in range(count)]
        before = {who: cpu_seconds(pid) for who, pid in watched().items()}
        started = time.perf_counter()
        for each in prepared:
            run(each)
        seconds.append((time.perf_counter() - started) / count)
        for who, pid in watched().items():
            spent[who] += cpu_seconds(pid) - before[who]
    cpu = {who: value / (count * REPEATS) * 1e6 for who, value in spent.items()}
    case = {"case": name, "seconds": seconds, "cpu_us": cpu, "threads_us": {}, "calls": count}
    print(json.dumps(case), flush=True)


def measure(name: str, run: Callable[[int], None]) -> None:
    """Measures `run`: `run(n)` makes n calls and waits for the last."""
    if not wanted(name):
        return
    run(20)
    started = time.perf_counter()
    run(50)
    per_call = (time.perf_counter() - started) / 50
    count = max(10, min(20000, int(REPEAT_S / per_call)))
    before = {who: cpu_seconds(pid) for who, pid in watched().items()}
    threads = {who: thread_seconds(pid) for who, pid in watched().items()}
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run(count)
        seconds.append((time.perf_counter() - started) / count)
    cpu = {
        who: (cpu_seconds(pid) - before[who]) / (count * REPEATS) * 1e6
        for who, pid in watched().items()
    }
    by_thread = {
        who: {
            thread: (spent - threads[who].get(thread, 0.0)) / (count * REPEATS) * 1e6
            for thread, spent in thread_seconds(pid).items()
        }
        for who, pid in watched().items()
    }
    case = {"case": name, "seconds": seconds, "cpu_us": cpu, "threads_us": by_thread}
    print(json.dumps({**case, "calls": count}), flush=True)


def connect(backend: str) -> None:
    if backend == "reference":
        sys.path.insert(0, str(ROOT / "testing"))
        import reference

        reference.register()
    else:
        import gangway

        gangway.connect(door=backend)


def measure_calls() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    def chain(step: Callable, start: object) -> Callable[[int], None]:
        def run(count: int) -> None:
            value = start
            for _ in range(count):
                value = step(value)
            jax.block_until_ready(value)

        return run

    one = jax.device_put(jnp.zeros((8,), jnp.float32), jax.devices()[0])
    measure("call, 1 device, 1 in 1 out", chain(jax.jit(lambda x: x + 1), one))

    mesh = Mesh(np.array(jax.devices()[:8]), ("d",))
    sharded = jax.device_put(jnp.zeros((64,), jnp.float32), NamedSharding(mesh, P("d")))
    measure("call, 8 devices sharded, 1 in 1 out", chain(jax.jit(lambda x: x + 1), sharded))

    many = tuple(jax.device_put(jnp.zeros((8,), jnp.float32), jax.devices()[0]) for _ in range(100))
    measure(
        "call, 1 device, 100 in 100 out", chain(jax.jit(lambda xs: tuple(x + 1 for x in xs)), many)
    )

    step = jax.jit(lambda x: x + 1)
    total = jax.jit(lambda x: x.sum())

    def synchronous(count: int) -> None:
        for _ in range(count):
            step(one).block_until_ready()

    measure("call and wait, 1 device", synchronous)

    def fetched(count: int) -> None:
        for _ in range(count):
            float(total(one))

    measure("call and fetch, 1 device: float(f(x))", fetched)


def measure_transfers() -> None:
    import jax
    import numpy as np

    def put(data: np.ndarray) -> Callable[[int], None]:
        def run(count: int) -> None:
            for _ in range(count):
                value = jax.device_put(data, jax.devices()[0])
            jax.block_until_ready(value)

        return run

    def put_and_wait(size: int) -> Callable[[int], None]:
        data = np.zeros((size,), np.float32)

        def run(count: int) -> None:
            for _ in range(count):
                jax.device_put(data, jax.devices()[0]).block_until_ready()

        return run

    measure("device_put and wait, 64 B", put_and_wait(16))
    measure("device_put and wait, 2 kB", put_and_wait(512))
    measure("device_put, 2 kB", put(np.zeros((512,), np.float32)))
    large = np.random.default_rng(0).random((16 << 20,), np.float32)
    target = np.empty_like(large)
    target[:] = 0

    measure_each("memcpy, 64 MiB", lambda: None, lambda _: np.copyto(target, large))
    measure_each(
        "device_put and wait, 64 MiB",
        lambda: None,
        lambda _: jax.device_put(large, jax.devices()[0]).block_until_ready(),
    )
    again = jax.jit(lambda x: x + 1)
    on_device = jax.device_put(large, jax.devices()[0])
    measure_each(
        "np.asarray, 64 MiB", lambda: again(on_device).block_until_ready(), lambda x: np.asarray(x)
    )
    leaves = [np.full((1024,), i, np.float32) for i in range(200)]
    measure_each(
        "pytree of 200 leaves of 4 KiB, up",
        lambda: None,
        lambda _: jax.block_until_ready(jax.device_put(leaves, jax.devices()[0])),
    )
    more = jax.jit(lambda xs: [x + 1 for x in xs])
    tree = jax.device_put(leaves, jax.devices()[0])
    measure_each(
        "pytree of 200 leaves of 4 KiB, down",
        lambda: jax.block_until_ready(more(tree)),
        lambda xs: jax.device_get(xs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["ifrt", "pjrt", "reference"], required=True)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--case", action="append", default=[], help="instead, cases of this name")
    args = parser.parse_args()
    global only, cases
    only, cases = args.only, args.case
    connect(args.backend)
    measure_calls()
    measure_transfers()


if __name__ == "__main__":
    main()
