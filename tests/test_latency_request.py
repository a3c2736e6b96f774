"""The latency request: the processes on the path of work hold it while something is under way, and an idle cluster
holds nothing. An empty file stands for /dev/cpu_dma_latency: a process that opens it writes to it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from faultlib import Blocker, Console, in_a_fifo
from harness import Cluster, holds_latency_request, wait_for

NewCluster = Callable[..., Cluster]
CALL = "f = jax.jit(lambda x: x + 1); x = f(np.ones(4, 'float32')); x.block_until_ready()"


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    file = tmp_path.resolve() / "latency"
    file.touch()
    monkeypatch.setenv("GANGWAY_LATENCY_REQUEST", str(file))
    return file


def holders(cluster: Cluster, client: Console) -> set[str]:
    pids = cluster.pids(cluster.status()) | {"the script": client.pid}
    return {name for name, pid in pids.items() if holds_latency_request(pid)}


def check_one_call(cluster: Cluster, client: Console, blocker: Blocker, script: set[str]) -> None:
    worker = cluster.workers()[0]["pid"]
    with blocker.blocked(worker):
        client.send("f(x).block_until_ready()")
        wait_for("the call on its device", lambda: in_a_fifo(worker), 20)
        on_path = {"head", "scheduler 0", "island0/worker0"}
        assert holders(cluster, client) == on_path | script
    client.answer(20)
    wait_for("the request released", lambda: not holders(cluster, client), 10)


@pytest.mark.faults
def test_processes_hold_the_request_while_a_call_runs_and_an_idle_cluster_holds_none(
    new_cluster: NewCluster,
    file: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = new_cluster(1, 1, 1, "--separate-schedulers", *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    assert file.read_bytes() == b"", "opened before any work"
    opened = file.stat().st_mtime_ns
    # The IFRT door is in the head; a script may turn the request off for its own process.
    cases: list[tuple[str, str, set[str]]] = [
        ("pjrt", str(file), {"the script"}),
        ("pjrt", "0", set()),
        ("ifrt", str(file), set()),
    ]
    for door, setting, script in cases:
        with monkeypatch.context() as patch:
            patch.setenv("GANGWAY_LATENCY_REQUEST", setting)
            client = Console(cluster, door=door)
        with client:
            assert file.stat().st_mtime_ns == opened, "opened by a session without work"
            client.do(CALL)
            assert file.read_bytes() == bytes(4)
            check_one_call(cluster, client, blocker, script)
            opened = file.stat().st_mtime_ns


@pytest.mark.faults
def test_a_cluster_without_the_request_never_opens_it(
    new_cluster: NewCluster, file: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, "--separate-schedulers", "--no-latency-request").start()
    for door in ("pjrt", "ifrt"):
        with Console(cluster, door=door) as client:
            client.do(CALL)
            assert client.do("result = float(x.sum())") == 8
    assert file.read_bytes() == b""
