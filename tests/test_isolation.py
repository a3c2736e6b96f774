"""`--isolation process`: sessions of different owners share no worker process and no compiler process. A worker is claimed
by the first owner that uses it, and replaced after that owner's last session.
"""

from __future__ import annotations

import functools
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faultlib import Console, elapsed, stopped
from harness import PATIENCE, Cluster, output_of_client, run_client, wait_for
from hosts import HostsWithRoles

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
ON = "result = float((jax.device_put(np.ones(4, 'float32'), jax.devices()[{0}]) + 1).sum())"
PUT = "y = jax.device_put(np.ones(1 << 20, 'float32'), jax.devices()[{0}]); y.block_until_ready()"
SCRIPT = (
    "import gangway; gangway.connect()\nimport jax, numpy as np\n"
    "print([d.id for d in jax.devices()], float((jax.device_put(np.ones(4)) + 1).sum()))\n"
)
FREE_S = 40 * PATIENCE  # a worker after its owner's last session, on a busy machine


def claims(cluster: Cluster) -> list[str]:
    """The owner of each worker's claim; empty without one."""
    return [worker["claim"]["owner"] if worker["claim"] else "" for worker in cluster.workers()]


def is_free(cluster: Cluster, index: int, than: dict[str, Any]) -> bool:
    """Whether worker `index` has no claim, and is another process than at the time of `than`."""
    now = cluster.workers()[index]
    new = now["pid"] != than["pid"] and now["incarnation"] != than["incarnation"]
    return now["claim"] is None and now["state"] == "up" and new


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Iterator[Cluster]:
    yield new_cluster(1, 2, 1, "--isolation", "process", "--session-wait", "4").start()


def test_owners_share_no_worker_and_no_compiler(cluster: Cluster) -> None:
    before = cluster.workers()
    with Console(cluster) as first, Console(cluster, door="pjrt") as second:
        first.do(PUT.format(0))
        (owner,) = (s for s in cluster.status()["sessions"] if str(first.pid) in s["client"])
        assert first.do(ON.format(0), 40) == 8
        said = second.ask(ON.format(0))["error"]
        assert "UNAVAILABLE" in said and "island0/worker0 has been claimed by" in said, said
        assert f"session {owner['id']} (" in said and str(first.pid) in said, said
        second.do(PUT.format(1))
        assert second.do(ON.format(1), 40) == 8
        said = first.ask(ON.format(1))["error"]
        assert "island0/worker1 has been claimed by" in said and str(second.pid) in said, said
        assert all(claim.startswith("session ") for claim in claims(cluster))
        table = cluster.command("status", "--port", str(cluster.port)).stdout
        assert f"claimed by session {owner['id']} for " in table, table
        # One compiler process has compiled for each, and nothing is kept of it for others.
        assert cluster.status()["counters"]["compilers"] == 2
        assert not (pathlib.Path(cluster.state_dir) / "cache").exists()
        third = run_client(SCRIPT, cluster.port)
        assert third.returncode != 0 and "no worker was free" in third.stderr, third.stderr
        os.kill(first.pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_for("worker 0 free", lambda: is_free(cluster, 0, before[0]), FREE_S)
        print(f"worker 0 was free after {elapsed(killed):.2f} s")
        assert output_of_client(SCRIPT, cluster.port).startswith("[0] ")
        wait_for("worker 0 free", lambda: is_free(cluster, 0, before[0]), FREE_S)
        # An older session may use it, too, once it knows of the new process.
        wait_for("an answer", lambda: second.ask(ON.format(0), 40).get("ok") == 8, FREE_S)
        assert second.do("result = float(y.sum())") == 1 << 20, "it has lost nothing"
    wait_for("all free", lambda: is_free(cluster, 1, before[1]) and claims(cluster) == ["", ""], 20)


def test_a_worker_that_stands_still_is_replaced(cluster: Cluster) -> None:
    (before, _) = cluster.workers()
    with Console(cluster) as first:
        first.do(PUT.format(0))
        with stopped(before["pid"]):
            os.kill(first.pid, signal.SIGKILL)
            killed = time.monotonic()
            wait_for("worker 0 free", lambda: is_free(cluster, 0, before), FREE_S)
            print(f"a stopped worker was free after {elapsed(killed):.2f} s")
    assert output_of_client(SCRIPT, cluster.port).startswith("[0, 1] ")


@pytest.mark.nightly
def test_ten_sessions_in_turns_get_ten_processes(cluster: Cluster) -> None:
    pids, waits = set(), []
    for turn in range(10):
        before = cluster.workers()
        pids.add(before[0]["pid"])
        door = ("ifrt", "pjrt")[turn % 2]
        assert output_of_client(SCRIPT, cluster.port, door).startswith("[0, 1] "), cluster.logs()
        ended = time.monotonic()
        wait_for("worker 0 free", functools.partial(is_free, cluster, 0, before[0]), FREE_S)
        waits.append(elapsed(ended))
    assert len(pids) == 10
    print("free after", [f"{wait:.2f} s" for wait in waits])


@pytest.mark.nightly
def test_sessions_of_one_certificate_share_workers(tmp_path: pathlib.Path) -> None:
    hosts = HostsWithRoles(tmp_path, settings="isolation = 'process'\nsession_wait = 4\n")
    try:
        hosts.start_controller()
        hosts.start_workers()
        hosts.wait_for("controller", "ready: ")
        alice, bob = (hosts.add(name, "client") for name in ("alice", "bob"))

        def settings(tls: pathlib.Path) -> dict[str, str]:
            return {
                "GANGWAY_ADDRESS": f"127.0.0.1:{hosts.control}",
                "GANGWAY_TLS": str(tls),
                "GANGWAY_STATE_DIR": str(tmp_path / "none"),
            }

        with Console(hosts.client(), door="pjrt", environment=settings(alice)) as first:
            first.do(PUT.format(0))
            again = run_client(SCRIPT, 1, "pjrt", settings(alice))
            assert again.returncode == 0 and again.stdout.startswith("[0, 1, 2] "), again.stderr
            workers = hosts.status()["islands"][0]["workers"]
            assert workers[0]["claim"]["owner"] == "the certificate client/alice", workers
            assert workers[1]["claim"] is None, workers
            other = run_client(SCRIPT, 1, "pjrt", settings(bob))
            assert other.returncode == 0 and other.stdout.startswith("[2] "), other.stderr
            first.do("result = float(y.sum())")
        incarnation = workers[0]["incarnation"]

        def replaced() -> bool:
            worker = hosts.status()["islands"][0]["workers"][0]
            return worker["state"] == "up" and worker["incarnation"] != incarnation

        wait_for("another incarnation", replaced, FREE_S)
        other = run_client(SCRIPT, 1, "pjrt", settings(bob))
        assert other.returncode == 0 and other.stdout.startswith("[0, 1, 2] "), other.stderr
    finally:
        hosts.stop()
