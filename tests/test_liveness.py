"""Workers that are busy, started twice or late are not taken for stuck or dead. Those that are: test_silence."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console
from harness import GANGWAY, PATIENCE, Cluster, wait_for, why
from hosts import ByHand

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
NewCluster = Callable[..., Cluster]


def test_a_long_program_is_not_stuck(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1).start()
    with Console(cluster) as client:
        client.do(
            "g = jax.jit(lambda x: jax.lax.fori_loop(0, 2000000000, lambda i, x: jnp.sin(x @ x), x)); "
            "f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones((64, 64), 'float32'))"
        )
        client.send("y = f(g(x)); y.block_until_ready()")

        def executing() -> bool:
            waits = why(cluster)
            return any(w["reason"] == "executing" and w["waited_ms"] > 5000 for w in waits)

        wait_for("five seconds of execution", executing, 20)
        assert not any(w["reason"] == "stuck" for w in why(cluster))
        assert "is stuck" not in cluster.logs(1 << 20)
        os.kill(client.pid, signal.SIGKILL)
        os.kill(cluster.workers()[0]["pid"], signal.SIGKILL)  # else the cluster's end would wait


@pytest.fixture
def by_hand(tmp_path: pathlib.Path) -> Iterator[ByHand]:
    made = ByHand(tmp_path)
    made.start()
    yield made
    made.stop()


def test_the_second_process_of_a_place_is_refused_by_name(by_hand: ByHand) -> None:
    first = by_hand.start_worker("worker0", 0)
    by_hand.start_worker("worker1", 1)
    before = by_hand.wait_until(0, "up", 20)
    assert before["pid"] == first
    by_hand.wait_until(1, "up", 20)
    second = by_hand.start_worker("second", 0)
    assert by_hand.processes["second"].wait(20 * PATIENCE) == 1
    said = by_hand.log("second")
    assert f"island0/worker0 is already running: process {first} on 127.0.0.2" in said, said
    by_hand.wait_for("controller", f"a second process (pid {second}")
    assert by_hand.workers()[0] == before


def test_a_worker_that_comes_late_is_waited_for(by_hand: ByHand) -> None:
    by_hand.start_worker("worker0", 0)
    by_hand.wait_until(0, "up", 20)
    client = subprocess.Popen(
        [str(GANGWAY), "run", "--port", str(by_hand.port), str(script(by_hand.folder))],
        env=by_hand.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        by_hand.wait_for("controller", "opens for")
        by_hand.start_worker("worker1", 1)
        output, _ = client.communicate(timeout=40 * PATIENCE)
    finally:
        client.kill()
    assert client.returncode == 0 and "3 devices" in output, output


def script(folder: pathlib.Path) -> pathlib.Path:
    path = folder / "count.py"
    path.write_text("import jax\nprint(len(jax.devices()), 'devices')\n")
    return path
