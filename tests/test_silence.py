"""Processes that stand still, are cut off or stay away, and what others see of it within the limits of
docs/reference/failures.md. Each test waits out such a limit. So each is a scene (testing/scenes.py): all selected ones
are prepared first, and then wait together.
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
from collections.abc import Iterator
from typing import Any

import pytest
import test_collectives_moments as moments
import test_exhaustion as exhaustion
import test_late as late
import test_native as native
import test_schedulers as schedulers
import test_transfers as transfers
from faultlib import (
    Blocker,
    Console,
    CutNetwork,
    Gate,
    elapsed,
    start_jax,
    stop_process,
    stopped,
)
from harness import (
    GANGWAY,
    NEW_PYTHON,
    NIGHTLY,
    PATIENCE,
    PYTHON,
    Cluster,
    client_environment,
    free_port,
    wait_for,
    why,
)
from hosts import Hosts
from link_proxy import THERE, Cut
from loads import LinkedHosts, NativeLoad, use_all
from scenes import Outcome, Stage, perform_selected, scene
from test_collectives import SILENT_S
from test_collectives_faults import faulty_cluster
from test_compiler import LONG, SHORT, compiler_pid, compiling
from test_faults import cpu_seconds, only_worker, wait_for_restart

pytestmark = [
    pytest.mark.faults,
    pytest.mark.alone,
    pytest.mark.timeout(1500 if NIGHTLY else 400),  # the first test performs all scenes
]
TOGETHER_MAX = 12 if NIGHTLY else 32  # nightly, many scenes hold gigabytes
NAMED_S = 6  # by `gangway why`
SILENCE_S = 5
STANDING_S = 8  # 5 s, the interval of the heartbeats, and the messages
WORKER_SILENCE_S = 10  # a worker's limit for its scheduler's silence
CLIENT_SILENCE_S = 4  # as the tests set it
CLIENT_S = 12  # in which a native client notices a silent controller
JAX_S = 20  # in which a JAX client notices a silent front door, unless jaxlib waits with the GIL
SLACK_S = 1.5
REPLACED_S = 10  # a compiler
UNWANTED_S = 10  # how long a compile that no session waits for may run
# Without GANGWAY_NIGHTLY, members meet in shared memory only.
by_each_way = pytest.mark.parametrize(
    "options",
    [(), ("--shared-memory", "0")] if NIGHTLY else [()],
    ids=lambda options: "streams" if options else "shared",
)


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    return perform_selected(request, tmp_path_factory.mktemp("scenes"), TOGETHER_MAX)


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10 * PATIENCE) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(name)).rpartition(" ")[2])


def wait_for_compiler(cluster: Cluster, other_than: int, limit_s: float) -> int:
    def replaced() -> int:
        pid = compiler_pid(cluster)
        return pid if pid != other_than else 0

    pid: int = wait_for("another compiler process", replaced, limit_s)
    return pid


def standing(
    cluster: Cluster, cause: str, since: float, waiting: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The wait of the gang that stands in a collective, and its late members with this cause, within the limit.
    `waiting`: how many members must be reported as waiting. Each worker reports its own, in its heartbeats.
    """
    seen: list[str] = []

    def named() -> tuple[dict[str, Any], dict[str, Any]] | None:
        for wait in why(cluster):
            for member in wait["late"] if wait["reason"] == "collective" else []:
                seen.append(wait["text"])
                if member["cause"] == cause and wait["members_waiting"] == waiting:
                    return wait, member
        return None

    try:
        found: tuple[dict[str, Any], dict[str, Any]] = wait_for(
            f"{cause} named, with {waiting} waiting", named, NAMED_S - elapsed(since)
        )
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen[-3:]}") from None
    return found


def continue_if_left(pid: int) -> None:
    """Its supervisor may have killed it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


# Those that take longest come first: scenes begin one after the other.
def ended(console: Console) -> str:
    """The error of the pending statement, or how the process ended: jaxlib may abort it."""
    try:
        answer = console.answer(JAX_S + 10)
    except AssertionError as error:
        return str(error)
    assert "UNAVAILABLE" in answer["error"], answer
    return str(answer["error"])


@scene
def test_a_client_of_a_stopped_head_is_answered_and_works_when_it_continues_TM_1_OB_2(
    stage: Stage,
) -> None:
    """On two clusters at the same time: over TCP, and with the unix sockets of `gangway up`."""
    hosts = LinkedHosts(stage.folder)
    stage.ends.callback(hosts.stop)
    hosts.start_all()
    local = stage.new_cluster(1, 1, 1).start()
    with (
        hosts.left_as_found(lambda: use_all(hosts)),
        local.left_as_found(),
        Console(hosts) as tcp,
        Console(local) as unix,
        contextlib.ExitStack() as ends,
    ):
        for console in (tcp, unix):
            console.do("x = jax.device_put(np.ones(4, 'float32')); f = jax.jit(lambda x: x + 1)")
            assert console.do("result = float(f(x).sum())") == 8
        stage.begin()
        load = ends.enter_context(contextlib.closing(NativeLoad(hosts, 1)))
        wait_for("sessions", lambda: load.clean_since(0), 30)
        began = time.monotonic()
        with stopped(hosts.head_pid, local.head_pid):
            for console in (tcp, unix):
                console.send("result = float(f(x).sum())")
            for console in (tcp, unix):
                stage.say(ended(console), elapsed(began), "s")
            assert elapsed(began) < JAX_S + SLACK_S
            # JAX may be answered first. A session that was just being opened has no question to answer, but an error.
            left_s = CLIENT_S + SLACK_S - elapsed(began)
            wait_for("the native sessions answered", lambda: load.errors(began), left_s)
            slowest = load.slowest_s(began)
            stage.say("native:", slowest, "s", load.errors(began))
            assert slowest < CLIENT_S + SLACK_S, slowest
        continued = time.monotonic()
        wait_for("every role up", hosts.all_up, 30)
        wait_for("sessions again", lambda: load.clean_since(continued), 30)
        for cluster in (hosts, local):
            with Console(cluster) as console:
                assert console.do("result = float(jax.device_put(np.ones(4)).sum())") == 4


@scene
def test_a_head_without_descriptors_says_so_and_goes_on_when_there_are_some(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 1, 2).start()
    head = cluster.head_pid
    with cluster.left_as_found(), Console(cluster) as client:
        client.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(4, 'float32'))")
        client.do("result = float(np.asarray(f(x)).sum())")
        stage.begin()
        with exhaustion.no_descriptors_left(head):
            used = cpu_seconds(head)
            began = time.monotonic()
            turned_away = exhaustion.start_client(cluster)
            # Once that client has started: the limit is Python's and JAX's.
            cluster.wait_for_words("cannot accept connections: Too many open files", 30)
            # A connected client continues.
            assert client.do("result = float(np.asarray(f(x) + x).sum())") == 12
            with pytest.raises(subprocess.TimeoutExpired):
                turned_away.communicate(timeout=5)
            waiting = exhaustion.start_client(cluster)
            _, errors = turned_away.communicate(timeout=30 * PATIENCE)  # it ends at its own limit
            stage.say("turned away after", elapsed(began), "s")
            assert turned_away.returncode == 1, errors
            assert "descriptors" in errors, errors
            busy = (cpu_seconds(head) - used) / elapsed(began)
            assert busy < 0.2, f"{busy:.2f} of a core used while no connection could be accepted"
            assert waiting.poll() is None
        output, errors = waiting.communicate(timeout=30 * PATIENCE)
        assert output.strip() == "4.0", errors
        cluster.wait_for_words("connections are accepted again", 5)
        assert cluster.workers()[0]["state"] == "up"
    assert cluster.logs(1 << 20).count("cannot accept connections") == 1


@scene
def test_a_worker_absent_at_start_is_awaited_and_then_done_without_TM_1(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 2, 1, "--session-wait", "2", "--ready-limit", "300")
    gate = Gate(cluster, stage.folder, 1)

    def all_but_one() -> bool:
        states = [worker["state"] for worker in cluster.workers()]
        return states == ["up", "down"] and cluster.status()["compiler"]["state"] == "up"

    def start_without() -> None:
        jax = start_jax(cluster)
        native.run_case(cluster, "ASessionStartsWithoutAnAbsentWorkerAtTheDeadline_TM_1")
        output, _ = jax.communicate(timeout=30 * PATIENCE)
        assert jax.returncode == 0 and "6" in output.splitlines(), output
        cluster.wait_for_words("starts without island0/worker1 (device 1)", 5)

    with cluster.starting():
        gate.wait_held()
        wait_for("all processes but the late worker up", all_but_one, 20)
        with cluster.left_as_found(first=start_without):
            stage.begin()
            start_without()
        case = native.start_case(cluster, "AClientThatWaitsGoesOnWhenTheWorkerComes")
        cluster.wait_for_words("opens for AClientThatWaits")
        gate.open()  # while the client waits
        native.end_case(cluster, case)
        output, _ = start_jax(cluster).communicate(timeout=30 * PATIENCE)
        assert "6" in output.splitlines(), output  # jaxlib may log a cancelled call as it exits


@scene
def test_a_scheduler_that_restarts_before_its_controller_knows_waits_for_its_place(
    stage: Stage,
) -> None:
    """The reset reaches the scheduler only. Its old link is dead after 5 s, and the new one takes its place."""
    hosts = LinkedHosts(stage.folder)
    stage.ends.callback(hosts.stop)
    hosts.start_all()
    stage.begin()
    link = "scheduler1 to the controller"
    hosts.proxy.cut(link, Cut("half", (THERE,)))
    hosts.wait_for("controller", "island1/scheduler is gone")
    wait_for("every role up", hosts.all_up, 15)
    assert hosts.processes["scheduler1"].poll() is None, hosts.log("scheduler1")
    assert "already has a scheduler" not in hosts.log("scheduler1")
    hosts.proxy.repair(link)


@scene
def test_a_stopped_worker_and_a_stuck_device_are_told_apart_within_six_seconds(
    stage: Stage,
) -> None:
    metrics = free_port()
    cluster = stage.new_cluster(1, 2, 2, *Blocker.FLAGS, "--metrics-port", str(metrics))
    blocker = Blocker(cluster)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        for each, device in ((client, 0), (other, 2)):
            each.do(f"x = jax.device_put(np.ones(4, 'float32'), jax.devices()[{device}])")
            each.do("f = jax.jit(lambda x: x + 1); f(x).block_until_ready()")
        stuck, stopped = cluster.workers()
        stage.begin()
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
            stage.say("both named after", elapsed(began), "s")
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


@scene
def test_why_and_trace_name_a_stopped_worker_within_six_seconds(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 2, 2).start()
    assert why(cluster) == []
    with Console(cluster) as client:
        client.do("x = jax.device_put(np.ones(4, 'float32'), jax.devices()[2])")
        client.do("f = jax.jit(lambda x: x + 1)")
        client.do("f(x).block_until_ready()")
        victim = next(w for w in cluster.workers() if w["name"] == "island0/worker1")
        stage.begin()
        with stopped(victim["pid"]):
            began = time.monotonic()
            client.send("y = f(x); y.block_until_ready()")
            out = str(stage.folder / "trace.json")
            trace = cluster.command("trace", "--out", out, "--port", str(cluster.port))
            assert trace.returncode == 0, trace.stdout + trace.stderr
            assert "island0/worker1      did not answer" in trace.stdout, trace.stdout
            assert "island0/worker0      pid" in trace.stdout, trace.stdout

            def silent() -> list[dict[str, Any]]:
                named = [w for w in why(cluster) if "island0/worker1" in w["workers"]]
                return [w for w in named if w["reason"] in ("worker_silent", "worker_down")]

            waits = wait_for("the stopped worker named", silent, NAMED_S)
            stage.say("named after", elapsed(began), "s")
            assert elapsed(began) < NAMED_S
            assert "island0/worker1" in waits[0]["text"]
        client.answer(30)


@scene
def test_a_worker_whose_gang_lost_a_member_in_a_collective_ends_within_the_limit_ER_2(
    stage: Stage,
) -> None:
    """The other members wait in XLA's rendezvous, which only the end of the process ends."""
    cluster = stage.new_cluster(1, 2, 4, *Blocker.FLAGS, "--collectives", "xla")
    blocker = Blocker(cluster)
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
        stage.begin()
        with blocker.refused(victim["pid"], 2):
            for _ in range(20):
                began = time.monotonic()
                client.send("np.asarray(f(x))")
                while elapsed(began) < 3 and not client.answered():  # the other's gangs go on
                    assert other.do("result = float(np.asarray(f(x))[0])") == 5.0
                    time.sleep(0.05)
                error = client.answer(max(0, STANDING_S - elapsed(began)))["error"]
                took = elapsed(began)
                if "Execution supplied" not in error:
                    break  # else the refused member was so early that no other one had begun
        assert took < STANDING_S, took
        stage.say("the error after", took, "s:", error)
        assert victim["name"] in error and "DATA_LOSS" in error, error
        assert "a member of gang" in error and "that on device 2, failed" in error, error

        def replaced() -> bool:
            worker = cluster.workers()[0]
            return bool(worker["state"] == "up" and worker["pid"] != victim["pid"])

        wait_for("another process in its place", replaced, 10)
        stage.say("replaced after", elapsed(began), "s")
        assert other.do("result = float(np.asarray(f(x))[0])") == 5.0
        client.do("x = jax.device_put(np.ones(4, 'float32'), NamedSharding(mesh, P('d')))")
        assert client.do("result = float(np.asarray(f(x))[0])") == 5.0


@scene
def test_a_controller_that_stands_still_loses_nobody(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 2, 1).start()
    with cluster.left_as_found(), Console(cluster) as client:
        client.do("xs = [jax.device_put(np.ones(4, 'float32'), d) for d in jax.devices()]")
        client.do("jax.block_until_ready(xs)")
        before = cluster.workers()
        stage.begin()
        with stopped(cluster.head_pid):
            time.sleep(SILENCE_S + 2)  # over a worker's limit, under the controller's
        assert client.do("result = [float(x.sum()) for x in xs]") == [4, 4]
        assert [w["incarnation"] for w in cluster.workers()] == [w["incarnation"] for w in before]


@scene
def test_a_controller_that_stands_still_is_an_error_within_its_limit_TM_1(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 1, 1).start()
    with Console(cluster, door="pjrt") as client:
        client.do("x = jax.device_put(np.ones(4, np.float32)); x.block_until_ready()")
        stage.begin()
        with stopped(cluster.head_pid):
            began = time.monotonic()
            said = client.ask("result = np.asarray(x + 1).tolist()", 12 + 3)
            stage.say("an error after", elapsed(began), "s")
            assert "UNAVAILABLE" in said["error"] and "stands still" in said["error"], said
            assert client.do("result = 1 + 1") == 2


@scene
def test_a_worker_that_wakes_after_its_replacement_disturbs_nobody(stage: Stage) -> None:
    by_hand = stage.by_hand()
    first = by_hand.start_worker("worker0", 0)
    by_hand.start_worker("worker1", 1)
    old = by_hand.wait_until(0, "up", 20)
    by_hand.wait_until(1, "up", 20)
    with Console(by_hand) as client:
        client.do("x = jax.device_put(np.ones(4, 'float32'), jax.devices()[0])")
        client.do("f = jax.jit(lambda x: x + 1); f(x).block_until_ready()")
        stage.begin()
        os.kill(first, signal.SIGSTOP)
        stopped = time.monotonic()
        by_hand.start_worker("second", 0)  # waits until the first is declared dead
        failed = client.ask("np.asarray(x)")
        took = elapsed(stopped)
        stage.say("an error after", took, "s")
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


@pytest.mark.parametrize("way", ["there", "back", "both"] if NIGHTLY else ["both"])
@scene
def test_a_cut_network_is_noticed_at_both_ends_within_the_limit(stage: Stage, way: str) -> None:
    """there: bytes from the worker are lost. back: bytes to it are lost. both: as when its host or the
    controller's vanishes.
    """
    by_hand = stage.by_hand()
    by_hand.start_worker("worker0", 0, far=True)
    by_hand.start_worker("worker1", 1)
    before = by_hand.wait_until(0, "up", 20)
    by_hand.wait_until(1, "up", 20)
    with Console(by_hand) as client:
        client.do("xs = [jax.device_put(np.ones(4, 'float32'), d) for d in jax.devices()]")
        client.do("jax.block_until_ready(xs)")
        stage.begin()
        by_hand.network.cut = {"there": way != "back", "back": way != "there"}
        began = time.monotonic()
        noticed: dict[str, float] = {}

        def by_both() -> bool:
            log = by_hand.log("worker0")
            if "is gone" in log or "Nothing came" in log:
                noticed.setdefault("worker", elapsed(began))
            if "controller" not in noticed and by_hand.workers()[0]["state"] == "down":
                noticed["controller"] = elapsed(began)
            return len(noticed) == 2

        wait_for("the cut noticed at both ends", by_both, WORKER_SILENCE_S + 5)
        stage.say("noticed:", noticed)
        # Back: its heartbeats arrive, so it gives up first.
        limit_s = WORKER_SILENCE_S if way == "back" else SILENCE_S
        assert limit_s - 1 < noticed["controller"] < limit_s + 2, noticed
        assert noticed["worker"] < WORKER_SILENCE_S + 2, noticed
        failed = client.ask("np.asarray(xs[0])")
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        assert client.do("result = float(xs[2].sum())") == 4  # on the other worker
        by_hand.network.cut = {"there": False, "back": False}
        new = by_hand.wait_until(0, "up", 30)
        assert new["incarnation"] != before["incarnation"]
        put = "result = float(jax.device_put(np.ones(4, 'float32')).sum())"
        assert client.do(put) == 4


HOLDS = (
    "import jax, numpy as np, sys\n"
    "x = jax.device_put(np.ones(1 << 20, 'float32')); x.block_until_ready()\n"
    "print('held', flush=True); sys.stdin.readline()\n"
    "print('still', float(x[0]), flush=True); sys.stdin.readline()\n"
    "try: print('still', float(x[0]))\n"
    "except Exception as error: print('lost:', error)\n"
)


@contextlib.contextmanager
def holding(hosts: Hosts, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A script that holds an array, and reads it after each line of its stdin."""
    script = hosts.folder / "hold.py"
    script.write_text(HOLDS)
    client = subprocess.Popen(
        [str(GANGWAY), "run", *flags, str(script)],
        env={**hosts.environment, **NEW_PYTHON},  # a test stops this process
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout and client.stdout.readline().strip() == "held"
        yield client
    finally:
        client.kill()
        client.wait(5 * PATIENCE)


@pytest.mark.parametrize("silence_s", [CLIENT_SILENCE_S, 60] if NIGHTLY else [CLIENT_SILENCE_S])
@scene
def test_a_client_whose_host_vanishes_is_freed_within_the_limit_OB_2(
    stage: Stage, silence_s: int
) -> None:
    hosts = Hosts(stage.folder, tls=True, settings=f"client_silence = {silence_s}\n")
    stage.ends.callback(hosts.stop)
    hosts.start_controller()
    hosts.start_workers()
    network = CutNetwork(hosts.control)
    stage.ends.callback(network.close)
    hosts.wait_for("controller", "ready: ")
    flags = ["--connect", f"127.0.0.1:{network.port}", "--tls", str(hosts.folder / "tls")]
    with holding(hosts, *flags):
        assert [s["bytes"] for s in hosts.status()["sessions"]] == [4 << 20]
        stage.begin()
        network.cut = {"there": True, "back": True}
        cut = time.monotonic()
        wait_for("the session's end", lambda: not hosts.status()["sessions"], silence_s + 10)
        took = elapsed(cut)
        stage.say("freed after", took, "s")
        assert silence_s / 2 - 1 < took < silence_s + 2, took


@scene
def test_a_stopped_client_is_freed_within_the_limit_OB_2(stage: Stage) -> None:
    silence_s = CLIENT_SILENCE_S
    hosts = Hosts(stage.folder, tls=False, settings=f"client_silence = {silence_s}\n")
    stage.ends.callback(hosts.stop)
    hosts.start_controller()
    hosts.wait_for_token()
    hosts.start_workers()
    hosts.wait_for("controller", "ready: ")
    with holding(hosts, "--port", str(hosts.front_door)) as client:
        idle = time.monotonic()
        stage.begin()
        # A client that is alive and idle for longer than the limit stays.
        wait_for("the limit", lambda: elapsed(idle) > silence_s + 2, silence_s + 10)
        assert client.stdin and client.stdout
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline().strip() == "still 1.0"
        client.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for("the session's end", lambda: not hosts.status()["sessions"], silence_s + 10)
        stage.say("freed after", elapsed(stopped), "s")
        assert silence_s / 2 - 1 < elapsed(stopped) < silence_s + 2, elapsed(stopped)
        client.send_signal(signal.SIGCONT)
        output, _ = client.communicate("\n", timeout=30 * PATIENCE)
        assert "lost: " in output and "UNAVAILABLE" in output, output


@pytest.mark.parametrize("door", ["ifrt", "pjrt"] if NIGHTLY else ["pjrt"])
@scene
def test_a_silent_worker_is_declared_dead_TM_1(stage: Stage, door: str) -> None:
    """Other tests here have clients of the other door."""
    cluster = stage.new_cluster(1, 1, 8).start()
    with cluster.left_as_found(), Console(cluster, door=door) as client:
        client.do("x = jax.device_put(np.ones(8, 'float32')); x.block_until_ready()")
        old = only_worker(cluster)
        stage.begin()
        with stopped(old["pid"]):
            failed = client.ask("np.asarray(x + 1)", timeout_s=15)  # an error after 5 s of silence
            assert "island0/worker0" in failed["error"], failed
            wait_for_restart(cluster, old)
        assert client.do("result = float(jax.jit(jnp.sum)(np.ones(3, 'float32')))") == 3


@scene
def test_an_absent_worker_is_named_within_a_deadline(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 2, 4).start()
    with cluster.left_as_found():
        absent = next(w for w in cluster.workers() if w["name"] == "island0/worker1")
        stage.begin()
        with stopped(absent["pid"]):  # connected, but silent
            began = time.monotonic()
            result = subprocess.run(
                [PYTHON, "-c", "import gangway; print(len(gangway.connect()))"],
                env=client_environment(cluster.port),
                capture_output=True,
                text=True,
                timeout=45 * PATIENCE,
            )
            took = elapsed(began)
            stage.say("answered after", took, "s")
            if result.returncode:  # the deadline passed first
                assert "island0/worker1" in result.stderr, result.stderr
            else:  # it was replaced in time
                assert result.stdout.strip() == "8", result.stdout
                wait_for_restart(cluster, absent)
            assert took < 40


@by_each_way
@scene
def test_a_stopped_member_and_the_line_are_named(stage: Stage, options: tuple[str, ...]) -> None:
    cluster = stage.new_cluster(1, 2, 2, *options).start()
    with Console(cluster) as client:
        late.load(client, stage.folder)
        victim = cluster.workers()[1]
        stage.begin()
        stop_process(victim["pid"])
        began = time.monotonic()
        client.send("jax.block_until_ready(p.step(p.x))")
        wait, member = standing(cluster, "silent", began, waiting=2)
        stage.say("named after", elapsed(began), "s:", wait["text"])
        assert member["worker"] == victim["name"] and member["devices"] == [2, 3], member
        assert wait["collective"].endswith(late.at(stage.folder, "jax.lax.psum(doubled")), wait
        assert wait["program"] == "jit_add", wait
        assert wait["members"] == 4, wait
        error = client.answer(20)["error"]  # it is declared dead
        assert victim["name"] in error, error
        assert wait["collective"] not in str(why(cluster)), "no gang stands any more"
        continue_if_left(victim["pid"])


@by_each_way
@scene
def test_a_blocked_execute_thread_is_named(stage: Stage, options: tuple[str, ...]) -> None:
    cluster = stage.new_cluster(1, 2, 2, *Blocker.FLAGS, *options)
    blocker = Blocker(cluster)
    cluster.start()
    with Console(cluster) as client:
        late.load(client, stage.folder)
        victim = cluster.workers()[1]
        stage.begin()
        with blocker.blocked(victim["pid"]):
            began = time.monotonic()
            client.send("result = np.asarray(p.step(p.x)).tolist()")
            wait, member = standing(cluster, "stuck", began, waiting=2)
            stage.say("named after", elapsed(began), "s:", wait["text"])
            assert member["worker"] == victim["name"] and member["devices"] == [2, 3], member
            assert member["for_gang"] == wait["gang"], member
            assert wait["collective"].endswith(late.at(stage.folder, "jax.lax.psum(doubled")), wait
            # Those that wait for it are not stuck.
            stuck = [w["name"] for w in cluster.workers() if any(d["stuck"] for d in w["devices"])]
            assert stuck == [victim["name"]], stuck
        assert client.answer(20) == {"ok": [10.0] * 4}
        # The worker's next heartbeat says that its devices are not stuck any more.
        wait_for("nothing to explain", lambda: why(cluster) == [], 5)


@by_each_way
@scene
def test_a_late_input_a_gang_ahead_and_a_client_are_told_apart(
    stage: Stage, options: tuple[str, ...]
) -> None:
    cluster = stage.new_cluster(1, 2, 2, *options).start()
    with Console(cluster, door="pjrt") as client:
        late.load(client, stage.folder, "p.slow(p.parts[3])", "p.pausing_step(p.x)")
        late_input = "late = p.slow(p.parts[3]); y = p.step(p.whole(p.parts[:3] + [late])); "
        get_y = "result = np.asarray(y).tolist()"
        client.do(late_input + get_y, 60)  # compiles what it needs
        stage.begin()

        began = time.monotonic()
        with late.held(stage.folder):
            client.send(late_input + get_y)
            wait, member = standing(cluster, "input", began, waiting=3)
            stage.say("named after", elapsed(began), "s:", wait["text"])
        assert member["devices"] == [3] and member["worker"] == "island0/worker1", member
        assert "lambda" in member["for_program"] and member["for_gang"] == wait["for_gang"], wait
        assert wait["collective"].endswith(late.at(stage.folder, "jax.lax.psum(doubled")), wait
        assert client.answer(20) == {"ok": [10.0] * 4}

        began = time.monotonic()
        with late.held(stage.folder):
            client.send("z = p.slow(p.parts[3]); result = np.asarray(p.step(p.x)).tolist()")
            wait, member = standing(cluster, "behind_gang", began, waiting=3)
            stage.say("named after", elapsed(began), "s:", wait["text"])
        assert member["devices"] == [3] and member["for_gang"] == wait["for_gang"] != 0, member
        assert "lambda" in member["for_program"], member
        assert client.answer(20) == {"ok": [10.0] * 4}

        began = time.monotonic()
        with late.held(stage.folder):
            client.send("result = np.asarray(p.pausing_step(p.x)).tolist()")
            wait, member = standing(cluster, "callback", began, waiting=3)
            stage.say("named after", elapsed(began), "s:", wait["text"])
        assert member["devices"] == [3] and member["client"], member
        line = late.at(stage.folder, 'return x + jax.lax.psum(x, "d")')
        assert wait["collective"].endswith(line), wait
        assert client.answer(20) == {"ok": [5.0] * 4}
        assert why(cluster) == []


@scene
def test_a_stopped_scheduler_is_named_fenced_and_replaced(stage: Stage) -> None:
    cluster = stage.new_cluster(2, 1, 2, "--separate-schedulers").start()
    with schedulers.left_as_found(cluster), Console(cluster) as client:
        schedulers.make(client, "x", 0)
        schedulers.make(client, "lost", 2)
        pid = int(cluster.status()["schedulers"][1]["pid"])
        stage.begin()
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)

        def named() -> bool:
            said = cluster.command("why", "--json", "--port", str(cluster.port), timeout_s=10)
            return "the scheduler of island 1" in json.dumps(json.loads(said.stdout))

        wait_for("the stopped scheduler named", named, NAMED_S)
        stage.say("named after", elapsed(began), "s")
        assert elapsed(began) < NAMED_S
        assert schedulers.total(client, "x") == 8, "the other island goes on"
        wait_for("the next scheduler", lambda: schedulers.there(cluster, 1, pid), 40)
        error = schedulers.total(client, "lost")
        assert "silent for 5000 ms" in str(error) and "DATA_LOSS" in str(error), error
        schedulers.make(client, "again", 3)
        assert schedulers.total(client, "again") == 8


@scene
def test_a_stopped_compiler_is_replaced_within_ten_seconds(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        client.do(LONG)
        compiler = compiler_pid(cluster)
        stage.begin()
        with blocker.blocked(compiler):
            client.send("result = float(jax.jit(blocks_the_compiler)(np.float32(1)))")
            wait_for("a compile", lambda: "is up" in cluster.logs(1 << 20), 5)
            stop_process(compiler)
            stopped = time.monotonic()
            other.send(SHORT.format(factor=6))
            replacement = wait_for_compiler(cluster, compiler, REPLACED_S)
            stage.say("replaced after", elapsed(stopped), "s")
            assert elapsed(stopped) < REPLACED_S
            assert not pathlib.Path(f"/proc/{compiler}").exists()
            assert other.answer(20) == {"ok": 42.0}
            assert client.answer(20) == {"ok": 3.0}  # compiled again, by the replacement
        assert compiler_pid(cluster) == replacement


@scene
def test_the_long_compile_of_a_dead_session_is_ended(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as other:
        compiler = compiler_pid(cluster)
        with Console(cluster) as client:
            client.do(LONG)
            stage.begin()
            with blocker.blocked(compiler):
                client.send("jax.jit(blocks_the_compiler)(np.float32(1))")
                wait_for("a compile", lambda: compiling(cluster), 10)
                os.kill(client.pid, signal.SIGKILL)
                killed = time.monotonic()
                other.send(SHORT.format(factor=6))
                assert other.answer(UNWANTED_S - 2) == {"ok": 42.0}  # by the spare
                stage.say("another compile after", elapsed(killed), "s")
                assert compiler_pid(cluster) == compiler
                wait_for_compiler(cluster, compiler, UNWANTED_S + 20)
                stage.say("replaced after", elapsed(killed), "s")
                assert elapsed(killed) > UNWANTED_S - 1
        cluster.wait_for_words("no session waits for", 5)


@pytest.mark.parametrize("plane", transfers.PLANES if NIGHTLY else ["shared"])
@scene
def test_a_worker_that_stops_in_mid_transfer_is_dead_by_silence_TM_1(
    stage: Stage, plane: str
) -> None:
    cluster = stage.new_cluster(2, 2, 2, *transfers.PLANES[plane]).start()
    with (
        cluster.left_as_found(lambda: transfers.all_pairs(cluster)),
        transfers.session(cluster) as client,
    ):
        victim = transfers.worker_of(cluster, "island0/worker1")
        transfers.run(client, "x = jax.device_put(noise(4096), on[1]); x.block_until_ready()")
        stage.begin()
        with stopped(victim["pid"]):
            transfers.run(client, "y = jax.device_put(x, on[2])")
            failed = client.ask("y.block_until_ready()", timeout_s=15)
            assert "DATA_LOSS" in failed["error"] and "island0/worker1" in failed["error"], failed
            wait_for_restart(cluster, victim)


@pytest.mark.parametrize("plane", moments.PLANES_OF_MOMENTS)
@pytest.mark.parametrize("moment", moments.some_of(moments.MOMENTS, "copy_to"))
@scene
def test_a_worker_is_stopped_at_each_moment_ER_1_ER_2_TM_1(
    stage: Stage, moment: str, plane: str
) -> None:
    flags, opens = moments.options_of(moment, plane)
    with faulty_cluster(stage.new_cluster, *flags, opens=opens) as faulty:
        stage.begin(calm=True)
        moments.lose_the_victim(faulty, moment, stage.folder, stopped, SILENT_S)


@scene
def test_a_callback_that_hangs_fails_its_program_TM_1(stage: Stage) -> None:
    limit_s = 4
    cluster = stage.new_cluster(1, 1, 2)
    cluster.environment["GANGWAY_CALLBACK_LIMIT"] = str(limit_s)
    cluster.start()
    with (
        Console(cluster, door="pjrt") as hung,
        Console(cluster, door="pjrt") as other,
    ):
        hung.do("import threading")
        other.do("g = jax.jit(lambda x: x + 1); g(1.0).block_until_ready()")
        workers = [worker["incarnation"] for worker in cluster.workers()]
        hung.do("stay = threading.Event()")
        hung.do("f = jax.jit(lambda x: jax.pure_callback(lambda a: (stay.wait(), a)[1], x, x))")
        stage.begin()
        hung.do("x = jnp.float32(1); y = f(x); z = y + 1")
        began = time.monotonic()
        said = hung.ask("y.block_until_ready()", 4 * limit_s)
        stage.say("an error after", elapsed(began), "s")
        assert "DEADLINE_EXCEEDED" in said["error"], said
        assert "callback" in said["error"] and "worker" in said["error"]
        assert limit_s - 1 < elapsed(began) < limit_s + 5
        assert other.do("result = float(g(2.0))") == 3
        hung.do("stay.set()")
        assert hung.do("result = float(f(5.0))") == 5
        assert [worker["incarnation"] for worker in cluster.workers()] == workers


@scene
def test_work_for_a_worker_that_stays_away_ends_naming_it_TM_1(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 1, 1, "--worker-wait", "2")
    gate = Gate(cluster, stage.folder, 0)
    gate.open()
    cluster.start()
    with cluster.left_as_found():
        gate.shut()
        stage.begin()
        native.run_case(cluster, "WorkForAWorkerThatStaysAwayEndsNamingIt_TM_1")
        gate.open()
