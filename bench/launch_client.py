"""The client half of bench/launch.py: plain JAX, the same cases on every backend; and the bare ping-pong beside it.

    launch_client.py gangway          # the cluster that the environment names
    launch_client.py plugin DEVICES   # the same XLA CPU plugin in this process
    launch_client.py ping-pong [held] # two processes on two cores; held: with the latency request

Commands and answers are those of spmd_client.py, and so are the cases "scalar ...". Those of chain_cases.py are on all
devices, and their COUNT is of nodes. The others are on one device, but for "arrays across": from the first device to
the third.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import chain_cases
import spmd_client

LATENCY_FILE = "/dev/cpu_dma_latency"
ARRAYS = 200
ARRAY_FLOATS = 1024  # 4 KiB
PUT_FLOATS = 512  # 2 kB
CALL_FLOATS = 16  # 64 B

Case = Callable[[int], float]


# --- JAX ---


class Programs:
    """The cases of one backend. What "arrays down" fetches is made by "arrays down, prepared", so that it can be left
    out of what is counted.
    """

    def __init__(self) -> None:
        import jax
        import numpy as np

        self.jax, self.np = jax, np
        self.devices = jax.devices()
        self.step = jax.jit(lambda x: x + 1)
        self.next_tree = jax.jit(lambda xs: [x + 1 for x in xs])
        self.leaves = [np.full(ARRAY_FLOATS, i, np.float32) for i in range(ARRAYS)]
        self.trees: list[Any] = []  # on the device, and not fetched
        self.fetched: list[Any] = []  # kept, so that dropping them is not measured
        self.made: dict[str, Case] = {}

    def put(self, host: Any, device: int = 0) -> Any:
        return self.jax.device_put(host, self.devices[device])

    def make(self, case: str) -> Case:
        """Compiled, and run once; what was made before is kept."""
        if case not in self.made:
            self.made[case] = self.new(case)
        return self.made[case]

    def new(self, case: str) -> Case:
        if case.startswith("scalar"):
            import spmd_programs

            return spmd_programs.make(case)
        if case.startswith(("single", "program")):
            return self.chain(chain_cases.parse(case))
        run = {
            "call": self.call,
            "call awaited": self.call_awaited,
            "call fetched": self.call_fetched,
            "put awaited": self.put_awaited,
            "put then call": self.put_then_call,
            "arrays up": self.arrays_up,
            "arrays down": self.arrays_down,
            "arrays down, prepared": self.arrays_down_prepared,
            "arrays across": self.arrays_across,
        }[case]()
        run(2)
        return run

    def call(self) -> Case:
        start = self.put(self.np.zeros(CALL_FLOATS, self.np.float32))

        def run(count: int) -> float:
            value = start
            began = time.perf_counter()
            for _ in range(count):
                value = self.step(value)
            value.block_until_ready()
            return time.perf_counter() - began

        return run

    def chain(self, wanted: chain_cases.ChainCase) -> Case:
        mesh = self.jax.make_mesh((len(self.devices),), ("x",))
        split = self.jax.NamedSharding(mesh, self.jax.P("x"))
        start = self.jax.device_put(self.np.zeros(len(self.devices), self.np.float32), split)

        def run(count: int) -> float:
            value = start
            began = time.perf_counter()
            for nodes in chain_cases.blocks(count, wanted.nodes):
                for _ in range(nodes):
                    value = self.step(value)
                if wanted.is_awaited:
                    value.block_until_ready()
            value.block_until_ready()
            took = time.perf_counter() - began
            chain_cases.check(count, self.np.asarray(value).tolist())
            return took

        run(wanted.nodes)
        return run

    def each(self, once: Callable[[], object]) -> Case:
        def run(count: int) -> float:
            began = time.perf_counter()
            for _ in range(count):
                once()
            return time.perf_counter() - began

        return run

    def call_awaited(self) -> Case:
        x = self.put(self.np.zeros(CALL_FLOATS, self.np.float32))
        return self.each(lambda: self.step(x).block_until_ready())

    def call_fetched(self) -> Case:
        x = self.put(self.np.zeros(CALL_FLOATS, self.np.float32))
        return self.each(lambda: self.np.asarray(self.step(x)))

    def put_awaited(self) -> Case:
        host = self.np.zeros(PUT_FLOATS, self.np.float32)
        return self.each(lambda: self.put(host).block_until_ready())

    def put_then_call(self) -> Case:
        host = self.np.zeros(PUT_FLOATS, self.np.float32)
        return self.each(lambda: self.step(self.put(host)).block_until_ready())

    def arrays_up(self) -> Case:
        return self.each(lambda: self.jax.block_until_ready(self.put(self.leaves)))

    def arrays_down_prepared(self) -> Case:
        tree = self.put(self.leaves)

        def run(count: int) -> float:
            self.fetched.clear()
            while len(self.trees) < count:
                self.trees.append(self.jax.block_until_ready(self.next_tree(tree)))
            return 0.0

        return run

    def arrays_down(self) -> Case:
        prepare = self.arrays_down_prepared()

        def fetch() -> None:
            self.fetched.append(self.trees.pop())
            self.jax.device_get(self.fetched[-1])

        def run(count: int) -> float:
            prepare(count)
            return self.each(fetch)(count)

        return run

    def arrays_across(self) -> Case:
        tree = self.jax.block_until_ready(self.put(self.leaves))
        return self.each(lambda: self.jax.block_until_ready(self.put(tree, 2)))


def traffic() -> dict[str, object]:
    """What the links of this process have exchanged so far: frames and bytes sent, frames and bytes received."""
    import ctypes

    from gangway import _callbacks

    counts = (ctypes.c_uint64 * 4)()
    _callbacks._extension.traffic(counts)
    return {"traffic": list(counts)}


# --- Ping-pong ---


@contextlib.contextmanager
def held_latency() -> Iterator[None]:
    """No core enters an idle state that takes time to leave (docs/internals/latency.md)."""
    file = os.open(LATENCY_FILE, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, bytes(4))  # the number 0
        yield
    finally:
        os.close(file)


def echo(mine: int) -> None:
    while byte := os.read(mine, 1):
        os.write(mine, byte)


def ping_pong(held: bool) -> Case:
    """Each process has a core of its own, as far as there are two: where the kernel puts both on one, as it does by
    chance, a round trip wakes no core, and says nothing of what it takes to wake one.
    """
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            os.sched_setaffinity(0, {cores[-1]})
            ours.close()  # so that it ends with this process
            for stream in (0, 1):
                os.close(stream)
            echo(theirs.fileno())
        finally:
            os._exit(0)
    os.sched_setaffinity(0, {cores[0]})
    theirs.close()
    end = ours.fileno()

    def run(count: int) -> float:
        assert ours  # stays open as long as this function does
        with held_latency() if held else contextlib.nullcontext():
            began = time.perf_counter()
            for _ in range(count):
                os.write(end, b"x")
                if not os.read(end, 1):
                    raise SystemExit("ping-pong: the other process has ended")
            return time.perf_counter() - began

    return run


def main() -> None:
    backend, *arguments = sys.argv[1:]
    if backend == "ping-pong":
        run = ping_pong(arguments == ["held"])
        spmd_client.answer_commands(lambda _: run)
        return
    spmd_client.choose(backend, arguments)
    spmd_client.answer_commands(Programs().make, traffic if backend == "gangway" else dict)


if __name__ == "__main__":
    main()
