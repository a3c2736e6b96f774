"""Liveness: workers that are stopped, stuck, cut off in one direction or started twice, and a stopped
controller. Each state is recognized within the time that docs/reference/failures.md gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faultlib import Blocker, Console, CutNetwork, elapsed
from harness import GANGWAY, PATIENCE, Cluster, free_port, wait_for, why
from hosts import ByHand, Hosts

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
NewCluster = Callable[..., Cluster]
NAMED_S = 6  # by `gangway why`
SILENCE_S = 5
STANDING_S = 8  # 5 s, the interval of the heartbeats, and the messages
WORKER_SILENCE_S = 10  # a worker's limit for its scheduler's silence


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10 * PATIENCE) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


@pytest.mark.alone
def test_a_stopped_worker_and_a_stuck_device_are_told_apart_within_six_seconds(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    metrics = free_port()
    cluster = new_cluster(1, 2, 2, *Blocker.FLAGS, "--metrics-port", str(metrics))
    blocker = Blocker(cluster, tmp_path)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        for each, device in ((client, 0), (other, 2)):
            each.do(f"x = jax.device_put(np.ones(4, 'float32'), jax.devices()[{device}])")
            each.do("f = jax.jit(lambda x: x + 1); f(x).block_until_ready()")
        stuck, stopped = cluster.workers()
        with blocker.blocked(stuck["pid"]):
            began = time.monotonic()
            client.send("y = f(x); result = float(y.sum())")
            os.kill(stopped["pid"], signal.SIGSTOP)
            other.send("y = f(x); y.block_until_ready()")
            reasons: dict[str, set[str]] = {}

            def told_apart() -> bool:
                for wait in why(cluster):
                    for worker in wait["workers"]:
                        reasons.setdefault(worker, set()).add(wait["reason"])
                return "worker_silent" in reasons.get(stopped["name"], set()) and (
                    "stuck" in reasons.get(stuck["name"], set())
                )

            wait_for("both named", told_apart, NAMED_S)
            assert elapsed(began) < NAMED_S
            assert "worker_silent" not in reasons[stuck["name"]], reasons
            assert "stuck" not in reasons[stopped["name"]], reasons
            # The log, the status and a metric report it too.
            cluster.wait_for_words("device 0 of island0/worker0 is stuck in gang", 5)
            table = cluster.command("status", "--port", str(cluster.port)).stdout
            assert "stuck" in table and "STUCK" in table, table
            assert [d["stuck"] for d in cluster.workers()[0]["devices"]] == [True, False]
            name = 'gangway_device_stuck{worker="island0/worker0",device="0"}'
            assert metric(metrics, name) == 1
            other.answer(20)  # an error: the worker was declared dead and replaced
            assert wait_for("the stuck gang", lambda: why(cluster), 5)
        assert client.answer(20) == {"ok": 8.0}
        cluster.wait_for_words("device 0 of island0/worker0 resumed", 5)
        wait_for("device 0 resumed", lambda: not cluster.workers()[0]["devices"][0]["stuck"], 5)
        assert metric(metrics, name) == 0
        logs = cluster.logs(1 << 20)
        assert logs.count("is stuck in gang") == logs.count("resumed after gang"), logs


@pytest.mark.alone
def test_a_worker_whose_gang_lost_a_member_in_a_collective_ends_within_the_limit_ER_2(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    """The other members wait in XLA's rendezvous, which only the end of the process ends."""
    cluster = new_cluster(1, 2, 4, *Blocker.FLAGS)
    blocker = Blocker(cluster, tmp_path)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        for each, devices in ((client, "[:4]"), (other, "[4:]")):
            each.do("from jax.sharding import Mesh, NamedSharding, PartitionSpec as P; import time")
            each.do(f"mesh = Mesh(np.array(jax.devices(){devices}), ('d',))")
            each.do("x = jax.device_put(np.ones(4, 'float32'), NamedSharding(mesh, P('d')))")
            each.do(
                "f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, 'd') + x, mesh=mesh,"
                " in_specs=P('d'), out_specs=P('d')))"
            )
            assert each.do("result = float(np.asarray(f(x))[0])") == 5.0
        victim = cluster.workers()[0]
        with blocker.refused(victim["pid"], 2):
            for _ in range(5):
                began = time.monotonic()
                client.send("np.asarray(f(x))")
                while time.monotonic() - began < 3:  # the other worker's gangs go on
                    assert other.do("result = float(np.asarray(f(x))[0])") == 5.0
                error = client.answer(STANDING_S)["error"]
                took = elapsed(began)
                if "Execution supplied" not in error:
                    break  # else the refused member was so early that no other one had begun
        assert took < STANDING_S, took
        print("the error after", took, "s:", error)
        assert victim["name"] in error and "DATA_LOSS" in error, error
        assert "a member of gang" in error and "that on device 2, failed" in error, error

        def replaced() -> bool:
            worker = cluster.workers()[0]
            return bool(worker["state"] == "up" and worker["pid"] != victim["pid"])

        wait_for("another process in its place", replaced, 10)
        print("replaced after", elapsed(began), "s")
        assert other.do("result = float(np.asarray(f(x))[0])") == 5.0
        client.do("x = jax.device_put(np.ones(4, 'float32'), NamedSharding(mesh, P('d')))")
        assert client.do("result = float(np.asarray(f(x))[0])") == 5.0


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


@pytest.mark.alone
def test_a_controller_that_stands_still_loses_nobody(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 2, 1).start()
    with cluster.left_as_found(), Console(cluster) as client:
        client.do("xs = [jax.device_put(np.ones(4, 'float32'), d) for d in jax.devices()]")
        client.do("jax.block_until_ready(xs)")
        before = cluster.workers()
        head = int((pathlib.Path(cluster.state_dir) / str(cluster.port) / "head.pid").read_text())
        os.kill(head, signal.SIGSTOP)
        try:
            time.sleep(SILENCE_S + 2)  # over a worker's limit, under the controller's
        finally:
            os.kill(head, signal.SIGCONT)
        assert client.do("result = [float(x.sum()) for x in xs]") == [4, 4]
        assert [w["incarnation"] for w in cluster.workers()] == [w["incarnation"] for w in before]


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


@pytest.mark.alone
def test_a_worker_that_wakes_after_its_replacement_disturbs_nobody(by_hand: ByHand) -> None:
    first = by_hand.start_worker("worker0", 0)
    by_hand.start_worker("worker1", 1)
    old = by_hand.wait_until(0, "up", 20)
    by_hand.wait_until(1, "up", 20)
    with Console(by_hand) as client:
        client.do("x = jax.device_put(np.ones(4, 'float32'), jax.devices()[0])")
        client.do("f = jax.jit(lambda x: x + 1); f(x).block_until_ready()")
        os.kill(first, signal.SIGSTOP)
        stopped = time.monotonic()
        by_hand.start_worker("second", 0)  # waits until the first is declared dead
        failed = client.ask("np.asarray(x)")
        took = elapsed(stopped)
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        assert took < SILENCE_S + 2, took
        new = wait_for(
            "the replacement",
            lambda: (
                next((w for w in by_hand.workers() if w["pid"] not in (0, first)), None)
                if by_hand.workers()[0]["pid"] != first
                else None
            ),
            20,
        )
        assert new["incarnation"] != old["incarnation"]
        client.do("x = jax.device_put(np.ones(4, 'float32'), jax.devices()[0])")
        os.kill(first, signal.SIGCONT)
        # It finds its link closed, restarts, and finds its place taken.
        assert by_hand.processes["worker0"].wait(30 * PATIENCE) == 1
        assert "is already running" in by_hand.log("worker0"), by_hand.log("worker0")
        assert client.do("result = float(f(x).sum())") == 8
        assert by_hand.workers()[0]["incarnation"] == new["incarnation"]


class Cut:
    """A cluster whose worker 0 can be cut off, its client, and when each end noticed the cut."""

    def __init__(self, folder: pathlib.Path, way: str) -> None:
        folder.mkdir()
        self.way = way
        self.cluster = ByHand(folder).start()
        self.noticed: dict[str, float] = {}
        self.cluster.start_worker("worker0", 0, far=True)
        self.cluster.start_worker("worker1", 1)

    def open(self) -> None:
        for index in range(2):
            self.cluster.wait_until(index, "up", 20)
        self.before = self.cluster.workers()[0]
        self.client = Console(self.cluster)
        self.client.do("xs = [jax.device_put(np.ones(4, 'float32'), d) for d in jax.devices()]")
        self.client.do("jax.block_until_ready(xs)")

    def cut(self) -> None:
        self.cluster.network.cut = {"there": self.way != "back", "back": self.way != "there"}
        self.began = time.monotonic()

    def observe(self) -> bool:
        """Whether both ends have noticed; records when each did."""
        log = self.cluster.log("worker0")
        seen = {
            "worker": "is gone" in log or "Nothing came" in log,
            "controller": "controller" in self.noticed
            or self.cluster.workers()[0]["state"] == "down",
        }
        for end in seen:
            if seen[end]:
                self.noticed.setdefault(end, elapsed(self.began))
        return all(seen.values())

    def repair(self) -> None:
        failed = self.client.ask("np.asarray(xs[0])")
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        assert self.client.do("result = float(xs[2].sum())") == 4  # on the other worker
        self.cluster.network.cut = {"there": False, "back": False}

    def is_back(self) -> None:
        new = self.cluster.wait_until(0, "up", 30)
        assert new["incarnation"] != self.before["incarnation"]
        put = "result = float(jax.device_put(np.ones(4, 'float32')).sum())"
        assert self.client.do(put) == 4


@pytest.mark.alone
def test_a_cut_network_is_noticed_at_both_ends_within_the_limit(tmp_path: pathlib.Path) -> None:
    """there: bytes from the worker are lost. back: bytes to it are lost. both: as when its host or the
    controller's vanishes. Three clusters, cut at the same time, because they only wait.
    """
    with contextlib.ExitStack() as stack:
        cuts = []
        for way in ("there", "back", "both"):
            cuts.append(Cut(tmp_path / way, way))
            stack.callback(cuts[-1].cluster.stop)
        for cut in cuts:
            cut.open()
            stack.enter_context(cut.client)
        for cut in cuts:
            cut.cut()
        wait_for(
            "each cut noticed at both ends",
            lambda: all([cut.observe() for cut in cuts]),
            WORKER_SILENCE_S + 5,
        )
        for cut in cuts:
            # Back: its heartbeats arrive, so it gives up first.
            limit_s = WORKER_SILENCE_S if cut.way == "back" else SILENCE_S
            assert limit_s - 1 < cut.noticed["controller"] < limit_s + 2, (cut.way, cut.noticed)
            assert cut.noticed["worker"] < WORKER_SILENCE_S + 2, (cut.way, cut.noticed)
            cut.repair()
        for cut in cuts:
            cut.is_back()


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


@pytest.mark.alone
@pytest.mark.timeout(180)
@pytest.mark.parametrize("silence_s", [4, 60] if os.environ.get("GANGWAY_NIGHTLY") else [4])
def test_a_client_whose_host_vanishes_is_freed_within_the_limit_OB_2(
    tmp_path: pathlib.Path, silence_s: int
) -> None:
    hosts = Hosts(tmp_path, tls=True, settings=f"client_silence = {silence_s}\n")
    hosts.start_controller()
    hosts.start_workers()
    network = CutNetwork(hosts.control)
    script = tmp_path / "hold.py"
    script.write_text(
        "import jax, numpy as np, sys\n"
        "x = jax.device_put(np.ones(1 << 20, 'float32')); x.block_until_ready()\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    client = None

    def sessions() -> list[Any]:
        result = hosts.run("status", "--json", "--port", str(hosts.front_door))
        found: list[Any] = json.loads(result.stdout)["sessions"]
        return found

    try:
        hosts.wait_for("controller", "ready: ")
        client = subprocess.Popen(
            [
                *(str(GANGWAY), "run", "--connect", f"127.0.0.1:{network.port}"),
                *("--tls", str(tmp_path / "tls"), str(script)),
            ],
            env=hosts.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout and client.stdout.readline().strip() == "held"
        assert [s["bytes"] for s in sessions()] == [4 << 20]
        network.cut = {"there": True, "back": True}
        cut = time.monotonic()
        wait_for("the session's end", lambda: not sessions(), silence_s + 10)
        took = elapsed(cut)
        assert silence_s / 2 - 1 < took < silence_s + 2, took
    finally:
        if client:
            client.kill()
            client.wait(5 * PATIENCE)
        hosts.stop()
        network.close()


@pytest.mark.alone
def test_a_stopped_client_is_freed_within_the_limit_OB_2(tmp_path: pathlib.Path) -> None:
    silence_s = 4
    hosts = Hosts(tmp_path, tls=False, settings=f"client_silence = {silence_s}\n")
    hosts.start_controller()
    hosts.wait_for_token()
    hosts.start_workers()
    script = tmp_path / "hold.py"
    script.write_text(
        "import jax, numpy as np, sys\n"
        "x = jax.device_put(np.ones(1 << 20, 'float32')); x.block_until_ready()\n"
        "print('held', flush=True); sys.stdin.readline()\n"
        "print('still', float(x[0]), flush=True); sys.stdin.readline()\n"
        "try: print('still', float(x[0]))\n"
        "except Exception as error: print('lost:', error)\n"
    )
    client = None
    try:
        hosts.wait_for("controller", "ready: ")
        client = subprocess.Popen(
            [str(GANGWAY), "run", "--port", str(hosts.front_door), str(script)],
            env=hosts.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdin and client.stdout and client.stdout.readline().strip() == "held"
        # A client that is alive and idle for longer than the limit stays.
        idle = time.monotonic()
        wait_for("the limit", lambda: elapsed(idle) > silence_s + 2, silence_s + 10)
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline().strip() == "still 1.0"
        client.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for("the session's end", lambda: not hosts.status()["sessions"], silence_s + 10)
        assert silence_s / 2 - 1 < elapsed(stopped) < silence_s + 2, elapsed(stopped)
        client.send_signal(signal.SIGCONT)
        output, _ = client.communicate("\n", timeout=30 * PATIENCE)
        assert "lost: " in output and "UNAVAILABLE" in output, output
    finally:
        if client:
            client.kill()
            client.wait(5 * PATIENCE)
        hosts.stop()
