"""Every role is stopped (SIGSTOP) under load: each question of the other processes is answered within the limit of
docs/reference/failures.md; when the process continues, the cluster works, and nothing is left.

Without GANGWAY_NIGHTLY, only what no other test stops: test_liveness, test_faults, test_schedulers, test_compiler and
test_stopped_supervisor stop the rest, without load.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console, stopped
from harness import PATIENCE, Cluster, wait_for
from loads import CLIENT_SILENCE_S, WORKER_WAIT_S, LinkedHosts, Loads, NativeLoad, use_all

NIGHTLY = bool(os.environ.get("GANGWAY_NIGHTLY"))
pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
SILENT_S = 5  # after which a worker or a scheduler is dead
CLIENT_S = 12  # in which a native client notices a silent controller
JAX_S = 20  # in which a JAX client notices a silent front door, unless jaxlib waits with the GIL
SLACK_S = 1.5
BACK_S = 30
# The process, for how long, and until when the others are answered.
STOPS = {
    "worker0": (7.0, SILENT_S + WORKER_WAIT_S),
    "worker2": (7.0, SILENT_S + WORKER_WAIT_S),
    "scheduler1": (7.0, SILENT_S + 2 * WORKER_WAIT_S),
    "compiler": (7.0, SILENT_S + 10),
    "supervisor": (4.0, 2.0),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedHosts]:
    made = LinkedHosts(tmp_path_factory.mktemp("stops"))
    try:
        made.start_all()
        yield made
    finally:
        made.stop()


def pid_of(hosts: LinkedHosts, role: str) -> int:
    if role == "compiler":
        return int(hosts.status()["compiler"]["pid"])
    if role == "supervisor":
        return hosts.processes["controller"].pid
    if role == "head":
        return int((hosts.head_folder / "head.pid").read_text())
    return hosts.processes[role].pid


@pytest.mark.alone
@pytest.mark.parametrize("role", STOPS if NIGHTLY else ["supervisor"])
def test_the_others_are_answered_while_a_process_is_stopped_TM_1_OB_2(
    hosts: LinkedHosts, role: str
) -> None:
    stop_s, limit_s = STOPS[role]
    with hosts.left_as_found(lambda: use_all(hosts)), Loads(hosts, 1) as loads:
        loads.wait_clean(time.monotonic(), 30)
        began = time.monotonic()
        with stopped(pid_of(hosts, role)):
            time.sleep(stop_s)
        continued = time.monotonic()
        wait_for("every role up", hosts.all_up, BACK_S)
        loads.wait_clean(continued, BACK_S)
        slowest = [load.slowest_s(began) for load in loads.all]
        print(role, slowest, "back after", time.monotonic() - continued, "s")
        assert max(slowest) < (limit_s + SLACK_S) * PATIENCE, (role, slowest)


@pytest.mark.alone
def test_a_stopped_native_client_delays_no_other_TM_1_OB_2(hosts: LinkedHosts) -> None:
    with (
        hosts.left_as_found(lambda: use_all(hosts)),
        Loads(hosts, 1) as loads,
        contextlib.closing(NativeLoad(hosts, 2)) as victim,
    ):
        wait_for("its sessions", lambda: victim.clean_since(0), 30)
        began = time.monotonic()
        with stopped(victim.pid):
            # Longer than the controller's limit for a client on another host.
            while time.monotonic() - began < CLIENT_SILENCE_S + 2:
                loads.wait_clean(time.monotonic(), 10)
        continued = time.monotonic()
        wait_for("other sessions of it", lambda: victim.clean_since(continued), 20)
        slowest = [load.slowest_s(began) for load in loads.all]
        assert max(slowest) < (2 + SLACK_S) * PATIENCE, slowest
        assert not loads.native.errors(began) and not loads.jax.errors(began)


@pytest.mark.alone
def test_a_client_of_a_stopped_head_is_answered_and_works_when_it_continues_TM_1_OB_2(
    hosts: LinkedHosts, new_cluster: NewCluster
) -> None:
    """On two clusters at the same time: over TCP, and with the unix sockets of `gangway up`."""
    local = new_cluster(1, 1, 1).start()
    heads = [int((folder / "head.pid").read_text()) for folder in (hosts.head_folder, local.folder)]
    with (
        hosts.left_as_found(lambda: use_all(hosts)),
        contextlib.closing(NativeLoad(hosts, 1)) as load,
        local.left_as_found(),
        Console(hosts) as tcp,
        Console(local) as unix,
    ):
        for console in (tcp, unix):
            console.do("x = jax.device_put(np.ones(4, 'float32')); f = jax.jit(lambda x: x + 1)")
            assert console.do("result = float(f(x).sum())") == 8
        wait_for("sessions", lambda: load.clean_since(0), 30)
        began = time.monotonic()
        with stopped(*heads):
            for console in (tcp, unix):
                console.send("result = float(f(x).sum())")
            for console in (tcp, unix):
                print(ended(console), time.monotonic() - began, "s")
            assert time.monotonic() - began < (JAX_S + SLACK_S) * PATIENCE
            slowest = load.slowest_s(began)
            print("native:", slowest, "s", load.errors(began))
            assert 0 < slowest < (CLIENT_S + SLACK_S) * PATIENCE, slowest
        continued = time.monotonic()
        wait_for("every role up", hosts.all_up, BACK_S)
        wait_for("sessions again", lambda: load.clean_since(continued), BACK_S)
        for cluster in (hosts, local):
            with Console(cluster) as console:
                assert console.do("result = float(jax.device_put(np.ones(4)).sum())") == 4


def ended(console: Console) -> str:
    """The error of the pending statement, or how the process ended: jaxlib may abort it."""
    try:
        answer = console.answer(JAX_S + 10)
    except AssertionError as error:
        return str(error)
    assert "UNAVAILABLE" in answer["error"], answer
    return str(answer["error"])
