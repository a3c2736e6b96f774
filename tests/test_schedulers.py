"""Schedulers in separate processes: a killed or absent scheduler affects only its own island, errors name
it, and its successor receives the state that it needs. A stopped one: test_silence.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
from collections.abc import Callable, Iterator

import pytest
from faultlib import A_MINUTE, Console
from harness import Cluster, wait_for, warm_up
from hosts import SUM, Hosts

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]
NewCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    return new_cluster(2, 1, 2, "--separate-schedulers").start()


def make(client: Console, name: str, device: int) -> None:
    client.do(f"{name} = jax.device_put(np.ones(4, 'float32'), jax.devices()[{device}])")
    client.do(f"{name} = jax.jit(lambda x: x + 1)({name}); {name}.block_until_ready()")


def total(client: Console, name: str) -> str | float:
    """The sum of an array, or the error that it carries."""
    answer = client.ask(f"result = float({name}.sum())")
    return float(answer["ok"]) if "ok" in answer else str(answer["error"])


def copies_both_ways(cluster: Cluster) -> None:
    """Creates what workers keep after copies in both directions, and what a first client leaves."""
    warm_up(cluster)
    with Console(cluster) as client:
        make(client, "x", 0)
        client.do("y = jax.device_put(x, jax.devices()[2]); y.block_until_ready()")
        client.do("z = jax.device_put(y, jax.devices()[1]); z.block_until_ready()")
    wait_for("the client gone", lambda: not cluster.status()["sessions"], 10)


def left_as_found(cluster: Cluster) -> contextlib.AbstractContextManager[None]:
    return cluster.left_as_found(lambda: copies_both_ways(cluster))


def kill_scheduler(cluster: Cluster, island: int) -> int:
    """Kills the island's scheduler and returns its process id."""
    pid = int(cluster.status()["schedulers"][island]["pid"])
    os.kill(pid, signal.SIGKILL)
    return pid


def there(cluster: Cluster, island: int, instead_of: int) -> bool:
    """Whether a process other than `instead_of` schedules the island, and all workers are up."""
    found = cluster.status()
    workers = [w for i in found["islands"] for w in i["workers"]]
    return found["schedulers"][island]["pid"] not in (0, instead_of) and all(
        w["state"] == "up" for w in workers
    )


def test_a_killed_scheduler_costs_its_island_and_nothing_else_ER_1_ER_2(cluster: Cluster) -> None:
    with left_as_found(cluster), Console(cluster) as client:
        make(client, "kept", 0)
        make(client, "lost", 2)
        client.do("f = jax.jit(lambda x: x * 3); f(lost).block_until_ready()")
        client.do("away = jax.device_put(lost, jax.devices()[1]); away.block_until_ready()")
        pid = kill_scheduler(cluster, 1)
        wait_for("the next scheduler", lambda: there(cluster, 1, pid), 30)
        assert total(client, "kept") == 8 and total(client, "away") == 8
        error = total(client, "lost")
        for word in ("DATA_LOSS", "island1/scheduler", "island1/worker0, incarnation"):
            assert word in str(error), error
        # Executables that were loaded before are loaded again.
        client.do("back = f(jax.device_put(kept, jax.devices()[2]))")
        assert total(client, "back") == 24


def test_a_worker_that_is_stuck_when_its_scheduler_dies_is_restarted_without_blame(
    cluster: Cluster,
) -> None:
    with left_as_found(cluster), Console(cluster) as client:
        client.do(f"exec({A_MINUTE!r}, globals())")
        client.do("y = a_minute(jax.device_put(np.ones(4, 'float32'), jax.devices()[2]))")
        worker = wait_for(
            "the call on the worker",
            lambda: next((w for w in cluster.workers()[1:] if w["nodes"] > 0), None),
            10,
        )
        pid = kill_scheduler(cluster, 1)
        wait_for("the next scheduler", lambda: there(cluster, 1, pid), 30)
        assert f"(pid {worker['pid']}) ended with status 75" in cluster.logs(1 << 20)


def test_work_waits_for_a_scheduler_that_is_restarted(cluster: Cluster) -> None:
    with left_as_found(cluster), Console(cluster) as client:
        make(client, "x", 0)
        make(client, "warm", 2)
        pid = kill_scheduler(cluster, 1)
        wait_for("the loss noticed", lambda: cluster.status()["schedulers"][1]["pid"] != pid, 10)
        client.do("y = jax.jit(lambda x: x + 1)(jax.device_put(x, jax.devices()[2]))")
        assert total(client, "y") == 12


def test_the_flight_recorders_of_schedulers_are_in_the_trace(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    with Console(cluster) as client:
        make(client, "x", 0)
    out = tmp_path / "trace.json"
    result = cluster.command("trace", "--port", str(cluster.port), "--out", str(out))
    assert result.returncode == 0, result.stderr
    for island in range(2):
        assert f"scheduler {island}" in result.stdout, result.stdout


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[Hosts]:
    made = Hosts(
        tmp_path,
        tls=False,
        islands=((2,), (1,)),
        schedulers=True,
        settings="worker_wait = 2\nsession_wait = 2\n",
    )
    made.start_controller()
    try:
        made.wait_for_token()
        yield made
    finally:
        made.stop()


def test_started_by_hand_in_any_order_and_one_that_stays_away_is_named_TM_1(hosts: Hosts) -> None:
    hosts.start_workers()
    for index in range(2):
        hosts.wait_for(f"worker{index}", "waiting for its scheduler")
    hosts.start_schedulers()
    hosts.wait_for("controller", "ready: ")
    result = hosts.script("--port", str(hosts.front_door))
    count, _, sums = result.stdout.strip().partition(" ")
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(count) == 3 and all(abs(s / SUM - 1) < 1e-5 for s in eval(sums))
    second = hosts.run("scheduler", "--config", str(hosts.config), "--island", "0")
    assert second.returncode == 1 and "End that process first" in second.stderr, second.stderr
    with Console(hosts.client()) as client:
        make(client, "x", 0)
        hosts.end("scheduler1")
        hosts.wait_for("controller", "island1/scheduler is gone")
        client.do("y = jax.device_put(x, jax.devices()[2])")
        error = total(client, "y")
        assert "DEADLINE_EXCEEDED" in str(error) and "island1/scheduler" in str(error), error
        assert total(client, "x") == 8
    # A new session has the devices of the other island, and the log names what it lacks.
    late = hosts.script("--port", str(hosts.front_door))
    assert late.returncode == 0 and late.stdout.startswith("2 "), late.stdout + late.stderr
    hosts.wait_for("controller", "starts without island1/scheduler, island1/worker0 (device 2)")


def test_a_worker_at_the_wrong_door_is_told_the_right_one(hosts: Hosts) -> None:
    (hosts.folder / "old.toml").write_text(
        "\n".join(line for line in hosts.config.read_text().splitlines() if "scheduler" not in line)
    )
    place = ("--island", "1", "--index", "0")
    worker = hosts.run("worker", "--config", str(hosts.folder / "old.toml"), *place)
    assert worker.returncode == 1, worker.stderr
    assert f"at 127.0.0.1:{hosts.scheduler_ports[1]}" in worker.stderr, worker.stderr
    refused = hosts.run("scheduler", "--config", str(hosts.folder / "old.toml"), "--island", "1")
    assert refused.returncode == 1 and "start none: the controller then" in refused.stderr, (
        refused.stderr
    )
    hosts.config.write_text((hosts.folder / "old.toml").read_text())  # the controller keeps its own
