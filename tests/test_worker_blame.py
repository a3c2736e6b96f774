"""Workers that die while they execute programs: what others are told, how soon the worker is back, when a program is
refused, and sessions that start while a worker is absent.
"""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Callable

import pytest
from faultlib import A_MINUTE, Console, Gate, elapsed
from harness import Cluster, run_client, wait_for

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]
BACK_S = 5  # a dead worker, at most


def wait_executing(cluster: Cluster, device: int) -> None:
    def executes() -> bool:
        devices = [each for worker in cluster.workers() for each in worker["devices"]]
        return any(each["id"] == device and each["launches"] > 0 for each in devices)

    wait_for(f"device {device} executing", executes, 20)


def kill_worker(cluster: Cluster, index: int, back_s: float = BACK_S) -> float:
    """Returns the seconds until the worker is up again."""
    old = cluster.workers()[index]
    os.kill(old["pid"], signal.SIGKILL)
    killed = time.monotonic()

    def is_back() -> bool:
        new = cluster.workers()[index]
        return bool(new["state"] == "up" and new["incarnation"] != old["incarnation"])

    wait_for(f"{old['name']} back", is_back, back_s)
    return elapsed(killed)


def test_a_program_that_ends_workers_is_named_to_others_and_refused_at_the_third_time_ER_2(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 1, 2).start()
    with (
        cluster.left_as_found(),
        Console(cluster, door="pjrt") as victim,
        Console(cluster, door="pjrt") as culprit,
    ):
        (owner,) = (s for s in cluster.status()["sessions"] if str(culprit.pid) in s["client"])
        culprit.do(f"exec({A_MINUTE!r}, globals())")
        for death in (1, 2):
            victim.do("y = jax.device_put(np.ones(8, 'float32'), jax.devices()[1])")
            victim.do("y.block_until_ready()")
            culprit.send("a_minute(np.ones(4, 'float32')).block_until_ready()")
            wait_executing(cluster, 0)
            kill_worker(cluster, 0)
            lost = victim.ask("np.asarray(y)")["error"]
            assert "DATA_LOSS" in lost and "jit_a_minute" in lost, (death, lost)
            assert f"session {owner['id']}" in lost and owner["client"] in lost, (death, lost)
            assert "DATA_LOSS" in culprit.answer(20)["error"]
        refused = culprit.ask("a_minute(np.ones(4, 'float32')).block_until_ready()")["error"]
        assert "FAILED_PRECONDITION" in refused and "is quarantined" in refused, refused
        for other in (victim, culprit):
            assert other.do("result = float((jnp.ones(4) + 1).sum())") == 8


def test_a_worker_comes_back_however_often_it_dies(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1).start()
    with cluster.left_as_found():
        for _ in range(6):
            kill_worker(cluster, 0, BACK_S + 5)  # with a pause of at most 5 s before its start
        with Console(cluster, door="pjrt") as client:
            assert client.do("result = float((jnp.ones(4) + 1).sum())") == 8


def test_sessions_start_without_an_absent_worker_and_say_so(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 2, 2)
    gate = Gate(cluster, tmp_path, 1)
    gate.open()
    cluster.start()
    absent = "starts without island0/worker1 (devices 2, 3)"
    script = (
        "import gangway; gangway.connect(); import jax\n"
        "print([d.id for d in jax.devices()], float((jax.numpy.ones(4) + 1).sum()))"
    )
    with cluster.left_as_found():
        gate.shut()
        os.kill(cluster.workers()[1]["pid"], signal.SIGKILL)
        gate.wait_held()
        for door in ("ifrt", "pjrt"):
            began = time.monotonic()
            ran = run_client(script, cluster.port, door)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert ran.stdout.splitlines()[-1] == "[0, 1] 8.0", ran.stdout
            assert 2 <= elapsed(began) < 10
            if door == "pjrt":
                assert absent in ran.stderr, ran.stderr
        cluster.wait_for_words(absent)
        with Console(cluster, door="pjrt") as early:
            assert early.device_ids == [0, 1]
            gate.open()
            wait_for("the worker up", lambda: cluster.workers()[1]["state"] == "up", 20)
            assert early.do("result = len(jax.devices())") == 2, "a session keeps its devices"
            assert early.do("result = float((jnp.ones(4) + 1).sum())") == 8
        with Console(cluster, door="pjrt") as late:
            assert late.device_ids == [0, 1, 2, 3]
