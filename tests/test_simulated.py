"""Clusters of simulated workers, many of which share a process: `gangway up --simulate` and `gangway worker --simulate`."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest
from harness import GANGWAY, PATIENCE, Cluster, wait_for
from native_programs import native

WORKERS, DEVICES = 64, 4
SHARED = WORKERS - 1  # workers of the first process; the last worker has one of its own


# Of the first process, before a gang needs one for each of its members.
THREADS_AT_FIRST: list[str] = []


def threads_of(pid: int) -> list[str]:
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return [(task / "comm").read_text().strip() for task in tasks.glob("*")]


@pytest.fixture(scope="module")
def simulated() -> Iterator[Cluster]:
    cluster = Cluster(1, WORKERS, DEVICES, "--simulate", str(SHARED))
    cluster.start()
    THREADS_AT_FIRST[:] = threads_of(cluster.workers()[0]["pid"])
    yield cluster
    cluster.stop()


def run_gangs(cluster: Cluster, *cases: str) -> None:
    """On all devices, each `cases` by a client of its own; their outcomes are checked by the client."""
    program = native("simulated_client")
    command = [str(program), cluster.control, cluster.token, str(WORKERS * DEVICES), *cases]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_of_them_is_a_worker_of_its_own(simulated: Cluster) -> None:
    workers = simulated.workers()
    assert [worker["name"] for worker in workers] == [f"island0/worker{i}" for i in range(WORKERS)]
    assert {worker["state"] for worker in workers} == {"up"}
    assert len({worker["incarnation"] for worker in workers}) == WORKERS
    pids = [worker["pid"] for worker in workers]
    assert len(set(pids[:SHARED])) == 1 and pids[-1] not in pids[:SHARED]
    assert {len(worker["devices"]) for worker in workers} == {DEVICES}


@pytest.mark.usefixtures("simulated")
def test_they_share_threads() -> None:
    assert 0 < len(THREADS_AT_FIRST) <= 16, THREADS_AT_FIRST


def test_gangs_run_on_all_of_them(simulated: Cluster) -> None:
    run_gangs(simulated, "silent", "ring")


def test_a_trace_has_each_record_once(simulated: Cluster, tmp_path: pathlib.Path) -> None:
    run_gangs(simulated, "silent")
    file = tmp_path / "trace.json"
    traced = simulated.command("trace", "--out", str(file), "--port", str(simulated.port))
    assert traced.returncode == 0, traced.stderr
    assert "did not answer" not in traced.stdout + traced.stderr


def test_a_process_that_is_killed_takes_its_workers_and_no_others(simulated: Cluster) -> None:
    before = simulated.workers()
    os.kill(before[0]["pid"], signal.SIGKILL)

    def back() -> bool:
        workers = simulated.workers()
        changed = [
            a["incarnation"] != b["incarnation"] for a, b in zip(before, workers, strict=True)
        ]
        return all(changed[:SHARED]) and {worker["state"] for worker in workers} == {"up"}

    wait_for("the shared process's workers back", back, 20)
    after = simulated.workers()
    assert after[-1]["incarnation"] == before[-1]["incarnation"]
    assert len({worker["pid"] for worker in after[:SHARED]}) == 1
    logs = simulated.logs(1 << 20)
    for worker in (0, SHARED - 1):
        assert f"island0/worker{worker} " in logs, "each lost worker is named"
    run_gangs(simulated, "silent", "ring")


def test_a_process_of_one_worker_is_lost_alone(simulated: Cluster) -> None:
    before = simulated.workers()
    os.kill(before[-1]["pid"], signal.SIGKILL)
    wait_for(
        "the last worker back",
        lambda: (
            simulated.workers()[-1]["incarnation"] != before[-1]["incarnation"]
            and simulated.workers()[-1]["state"] == "up"
        ),
        20,
    )
    assert simulated.workers()[:-1] and [
        worker["incarnation"] for worker in simulated.workers()[:-1]
    ] == [worker["incarnation"] for worker in before[:-1]]
    run_gangs(simulated, "silent")


@pytest.mark.parametrize("count", ["0", "-1", "many", "5000"])
def test_a_bad_count_is_refused(simulated: Cluster, count: str) -> None:
    for command in ("up", "worker"):
        refused = simulated.command(command, "--simulate", count)
        assert refused.returncode != 0
        assert "--simulate" in refused.stderr, refused.stderr


def test_more_workers_than_the_cluster_declares_are_refused_by_name(simulated: Cluster) -> None:
    token = next(simulated.folder.glob("*worker*token*"))
    place = ("--index", str(WORKERS), "--devices", str(DEVICES), "--token-file", str(token))
    refused = simulated.command("worker", "--control", simulated.control, *place, "--simulate", "2")
    assert refused.returncode != 0
    assert f"island0/worker{WORKERS} " in refused.stderr, refused.stderr
    assert {worker["state"] for worker in simulated.workers()} == {"up"}


def test_workers_that_wait_for_their_scheduler_end_when_they_are_told(simulated: Cluster) -> None:
    token = next(simulated.folder.glob("*worker*token*"))
    control = f"unix:{simulated.folder}/nobody.sock"
    command = ["worker", "--control", control, "--devices", "1", "--token-file", str(token)]
    with subprocess.Popen([str(GANGWAY), *command, "--simulate", "3"]) as waiting:
        wait_for("their loop", lambda: "workers" in threads_of(waiting.pid), 10 * PATIENCE)
        waiting.terminate()
        waiting.wait(5 * PATIENCE)  # of 30 s that it would wait for a scheduler


def test_real_and_simulated_devices_exclude_each_other(simulated: Cluster) -> None:
    refused = simulated.command("up", "--simulate", "4", "--plugin", "cpu")
    assert refused.returncode != 0 and "--plugin" in refused.stderr
