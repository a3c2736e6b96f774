"""A compiler process that dies, stands still or is busy costs no client anything but time."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import time
from collections.abc import Callable

import pytest
from faultlib import Blocker, Console, elapsed, stop_process
from harness import Cluster, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
REPLACED_S = 10
UNWANTED_S = 10  # how long a compile that no session waits for may run

KILLER = "def ends_the_compiler(x): return x + 1"
LONG = "def blocks_the_compiler(x): return x + 2"
SHORT = "result = float(jax.jit(lambda x: x * {factor})(np.float32(7)))"


def compiler_pid(cluster: Cluster) -> int:
    status = cluster.status()["compiler"]
    return int(status["pid"]) if status["state"] == "up" else 0


def wait_for_compiler(cluster: Cluster, other_than: int, limit_s: float) -> int:
    def replaced() -> int:
        pid = compiler_pid(cluster)
        return pid if pid != other_than else 0

    pid: int = wait_for("another compiler process", replaced, limit_s)
    return pid


def test_a_program_that_ends_the_compiler_is_quarantined_and_named(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
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


def test_many_programs_that_end_the_compiler_do_not_end_compiling(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS).start()
    with cluster.left_as_found(), Console(cluster) as hostile, Console(cluster) as other:
        for i in range(3):  # six crashes within seconds
            hostile.do(f"def ends_the_compiler_{i}(x): return x + {i}")
            answer = hostile.ask(f"jax.jit(ends_the_compiler_{i})(np.float32(1))", 40)
            assert "is quarantined" in answer["error"], answer
        assert other.do(SHORT.format(factor=6), 40) == 42


@pytest.mark.alone
def test_a_stopped_compiler_is_replaced_within_ten_seconds(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster, tmp_path)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        client.do(LONG)
        compiler = compiler_pid(cluster)
        with blocker.blocked(compiler):
            client.send("result = float(jax.jit(blocks_the_compiler)(np.float32(1)))")
            wait_for("a compile", lambda: "is up" in cluster.logs(1 << 20), 5)
            stop_process(compiler)
            stopped = time.monotonic()
            other.send(SHORT.format(factor=6))
            replacement = wait_for_compiler(cluster, compiler, REPLACED_S)
            assert elapsed(stopped) < REPLACED_S
            assert not pathlib.Path(f"/proc/{compiler}").exists()
            assert other.answer(20) == {"ok": 42.0}
            assert client.answer(20) == {"ok": 3.0}  # compiled again, by the replacement
        assert compiler_pid(cluster) == replacement


def test_a_cached_program_does_not_queue_behind_a_compile(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster, tmp_path)
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


def test_the_long_compile_of_a_dead_session_is_ended(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster, tmp_path)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as other:
        compiler = compiler_pid(cluster)
        with blocker.blocked(compiler):
            with Console(cluster) as client:
                client.do(LONG)
                client.send("jax.jit(blocks_the_compiler)(np.float32(1))")
                wait_for("a compile", lambda: compiling(cluster), 10)
                os.kill(client.pid, signal.SIGKILL)
                killed = time.monotonic()
            other.send(SHORT.format(factor=6))
            assert other.answer(UNWANTED_S + 20) == {"ok": 42.0}
            assert elapsed(killed) > UNWANTED_S - 1
            assert compiler_pid(cluster) != compiler
        cluster.wait_for_words("no session waits for", 5)
