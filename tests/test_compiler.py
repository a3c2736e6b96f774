"""A compiler process that dies or is busy costs no client anything but time. One that stands still: test_silence."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from faultlib import Blocker, Console, elapsed
from harness import Cluster, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
KILLER = "def ends_the_compiler(x): return x + 1"
LONG = "def blocks_the_compiler(x): return x + 2"
SHORT = "result = float(jax.jit(lambda x: x * {factor})(np.float32(7)))"


def compiler_pid(cluster: Cluster) -> int:
    status = cluster.status()["compiler"]
    return int(status["pid"]) if status["state"] == "up" else 0


def test_a_program_that_ends_the_compiler_is_quarantined_and_named(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS).start()
    with cluster.left_as_found(), Console(cluster) as hostile, Console(cluster) as other:
        hostile.do(KILLER)
        other.do(KILLER)
        call = "jax.jit(ends_the_compiler)(np.float32(1))"
        answer = hostile.ask(call, 30)
        found = re.search(r"program ([0-9a-f]{16}) is quarantined", answer["error"])
        assert found, answer
        assert "Change the program" in answer["error"], answer
        wait_for("the compiler", lambda: compiler_pid(cluster), 20)
        compiler = compiler_pid(cluster)
        began = time.monotonic()
        for client in (hostile, other):  # at once, for all
            assert f"program {found[1]} is quarantined" in client.ask(call)["error"]
        assert elapsed(began) < 5
        assert other.do(SHORT.format(factor=6), 30) == 42
        assert compiler_pid(cluster) == compiler


def test_many_programs_that_end_the_compiler_do_not_end_compiling(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS).start()
    with cluster.left_as_found(), Console(cluster) as hostile, Console(cluster) as other:
        for i in range(3):  # five crashes within seconds
            hostile.do(f"def ends_the_compiler_{i}(x): return x + {i}")
            answer = hostile.ask(f"jax.jit(ends_the_compiler_{i})(np.float32(1))", 40)
            assert ("is quarantined" if i < 2 else "may compile nothing") in answer["error"], answer
        assert other.do(SHORT.format(factor=6), 40) == 42


def test_a_cached_program_does_not_queue_behind_a_compile(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        assert client.do(SHORT.format(factor=6), 30) == 42
        client.do(LONG)
        with blocker.blocked(compiler_pid(cluster)):
            client.send("result = float(jax.jit(blocks_the_compiler)(np.float32(1)))")
            wait_for("a compile", lambda: compiling(cluster), 10)
            assert other.do(SHORT.format(factor=6), 10) == 42
            assert compiling(cluster)
        assert client.answer(20) == {"ok": 3.0}


def compiling(cluster: Cluster) -> bool:
    return "compile" in cluster.command("why", "--port", str(cluster.port)).stdout
