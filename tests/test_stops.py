"""Every role is stopped (SIGSTOP) under load: each question of the other processes is answered within the limit of
docs/reference/failures.md; when the process continues, the cluster works, and nothing is left. In the nightly run; each
day test_silence stops these roles without load, and test_stopped_supervisor a supervisor.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from faultlib import stopped
from harness import PATIENCE, wait_for
from loads import CLIENT_SILENCE_S, WORKER_WAIT_S, LinkedHosts, Loads, NativeLoad, use_all

pytestmark = [
    pytest.mark.faults,
    pytest.mark.alone,
    pytest.mark.nightly,
    pytest.mark.timeout(180),
]
SILENT_S = 5  # after which a worker or a scheduler is dead
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


_opened: dict[str, int] = {}  # the processes that have opened what stays open


def left_as_found(hosts: LinkedHosts) -> contextlib.AbstractContextManager[None]:
    def first() -> None:
        processes = hosts.pids(hosts.status())
        if _opened != processes:
            use_all(hosts)
            _opened.clear()
            _opened.update(processes)

    return hosts.left_as_found(first)


def pid_of(hosts: LinkedHosts, role: str) -> int:
    if role == "compiler":
        return int(hosts.status()["compiler"]["pid"])
    if role == "supervisor":
        return hosts.processes["controller"].pid
    return hosts.processes[role].pid


@pytest.mark.parametrize("role", STOPS)
def test_the_others_are_answered_while_a_process_is_stopped_TM_1_OB_2(
    hosts: LinkedHosts, role: str
) -> None:
    stop_s, limit_s = STOPS[role]
    with left_as_found(hosts), Loads(hosts, 1) as loads:
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


def test_a_stopped_native_client_delays_no_other_TM_1_OB_2(hosts: LinkedHosts) -> None:
    with (
        left_as_found(hosts),
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
