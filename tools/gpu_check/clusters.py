"""What only a cluster has: several workers, one of them killed, budgets, several clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from results import GIB, LARGE, WIDE, attempt, per_second, say, words_of

PRODUCTS_S = 3.0


class TwoWorkers:
    """Of one device each."""

    def __init__(self, gangway: str) -> None:
        self.gangway = gangway
        self.a, self.b = jax.devices()[:2]
        self.x = np.random.default_rng(1).random(LARGE // 4, dtype=np.float32)
        self.here = jax.device_put(self.x, self.a)
        self.here.block_until_ready()

    def pid_of(self, name: str) -> int:
        status = json.loads(subprocess.check_output([self.gangway, "status", "--json"], text=True))
        workers = [worker for island in status["islands"] for worker in island["workers"]]
        return next(int(worker["pid"]) for worker in workers if worker["name"] == name)

    def copy(self) -> str:
        times = []
        for _ in range(4):
            began = time.perf_counter()
            there = jax.device_put(self.here, self.b)
            there.block_until_ready()
            times.append(time.perf_counter() - began)
        assert np.array_equal(np.asarray(there[: 1 << 20]), self.x[: 1 << 20])
        return f"{LARGE / GIB / min(times):.2f} GiB/s"

    def pipeline(self) -> str:
        first = jax.jit(lambda w, x: jnp.tanh(x @ w))
        w = [
            jax.device_put(np.eye(256, dtype=np.float32) * 0.5, device)
            for device in (self.a, self.b)
        ]
        began, results = time.perf_counter(), list[Any]()
        for turn in range(60):
            i = turn - 10
            if i == 0:  # compiled, and loaded on both
                results[-1].block_until_ready()
                began, results = time.perf_counter(), []
            y = first(w[0], jax.device_put(np.full((256, 256), i, np.float32), self.a))
            results.append(first(w[1], jax.device_put(y, self.b)))
        results[-1].block_until_ready()
        expected = np.tanh(np.tanh(np.full((256, 256), 49, np.float32) * 0.5) * 0.5)
        assert np.allclose(np.asarray(results[-1]), expected, atol=1e-3)
        return f"{(time.perf_counter() - began) / 50 * 1e3:.2f} ms per microbatch"

    def over_both(self) -> str:
        mesh = jax.sharding.Mesh(np.array([self.a, self.b]), ("d",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        y = jax.device_put(np.arange(8.0, dtype=np.float32), sharding)
        doubled = np.asarray(jax.jit(lambda y: y * 2)(y)).tolist()
        say(part="said", case="a jit over both, without collectives", text=str(doubled))
        return str(float(jax.jit(jnp.sum)(y)))

    def kill(self) -> str:
        pid = self.pid_of("island0/worker1")
        lost = jax.device_put(np.arange(8.0), self.b)
        lost.block_until_ready()
        os.kill(pid, signal.SIGKILL)
        said = words_of(lambda: (lost + 1).block_until_ready())
        assert "DATA_LOSS" in said and "island0/worker1" in said, said
        say(part="said", case="an array of the killed worker", text=said[:500])
        kept = float(self.here[7])
        began = time.monotonic()
        again = np.asarray(jax.device_put(np.arange(4.0), self.b) + 1).tolist()
        return (
            f"kept {kept == float(self.x[7])}, and after {time.monotonic() - began:.1f} s {again}"
        )

    def kill_under_way(self) -> str:
        far = [jax.device_put(self.x, self.b) for _ in range(4)]
        jax.block_until_ready(far)
        double = jax.jit(lambda y: y[:4] * 2)
        double(self.here).block_until_ready()
        results = [double(jax.device_put(y, self.a)) for y in far]
        pid = self.pid_of("island0/worker1")
        os.kill(pid, signal.SIGKILL)
        said = {words_of(lambda result=result: np.asarray(result))[:200] for result in results}
        assert all("DATA_LOSS" in each or each == "no error" for each in said), said
        again = np.asarray(double(self.here)).tolist()
        assert np.allclose(again, self.x[:4] * 2)
        return f"{sorted(said)}; the other worker goes on"


def two_workers(gangway: str) -> None:
    both = TwoWorkers(gangway)
    attempt("1 GiB between the workers", lambda: [both.copy()])
    attempt("a pipeline over both", lambda: [both.pipeline()])
    attempt("a jit over both", lambda: [both.over_both()])
    attempt("kill -9 of one", lambda: [both.kill()])
    attempt("kill -9 of one in the middle of copies", lambda: [both.kill_under_way()])


def over_budget() -> None:
    def refused(run: Callable[[], Any]) -> list[str]:
        said = words_of(run)
        assert "RESOURCE_EXHAUSTED" in said, said
        return [said]

    def array() -> None:
        jax.device_put(np.zeros(600 << 20, np.uint8)).block_until_ready()

    def program() -> None:
        jax.jit(lambda: jnp.ones(200 << 20, jnp.float32))().block_until_ready()

    attempt("an array over the budget", lambda: refused(array))
    attempt("a program over the budget", lambda: refused(program))
    attempt("what comes after", lambda: np.asarray(jnp.arange(3) + 1).tolist())


def products() -> None:
    """Says how many a second, once it is told to go."""
    a = jax.random.normal(jax.random.key(0), (WIDE // 2, WIDE // 2), jnp.bfloat16)
    product = jax.jit(lambda a, b: a @ b * 0.01)
    product(a, a).block_until_ready()

    def some() -> None:
        b = a
        for _ in range(10):
            b = product(a, b)
        b.block_until_ready()

    print("ready", flush=True)
    input()
    print(per_second(some, PRODUCTS_S) * 10, flush=True)
