"""Tests of bench/launch.py: what is read from /proc and perf, and which rows are made of it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

import benchlib  # noqa: E402
import chain_cases  # noqa: E402
import launch  # noqa: E402
import launch_client  # noqa: E402
import launch_counts as counts  # noqa: E402
import launch_programs as programs  # noqa: E402
import peer_venvs  # noqa: E402
import spmd  # noqa: E402
import spmd_cases  # noqa: E402
from spmd_peers import EndedError, Group  # noqa: E402

THREADS = {11: "script", 21: "head", 31: "workers", 32: "workers"}


def test_processes_of_a_cluster_count_as_three_roles() -> None:
    counted = {
        ("script", "main"): 4,
        ("head", "loop"): 6,
        ("worker 0", "a"): 1,
        ("worker 3", "b"): 2,
    }
    assert counts.by_role(counted, 2) == {"script": 2, "head": 3, "workers": 1.5}


def test_system_calls_are_summed_by_role_whatever_a_thread_s_name_is() -> None:
    text = """# started on Sun Nov 29

python3-11,100,,raw_syscalls:sys_enter,33739127,100.00,,
gw-client, x-21,7,,raw_syscalls:sys_enter,5000,100.00,,
device0-31,20,,raw_syscalls:sys_enter,5000,100.00,,
device1-32,3,,raw_syscalls:sys_enter,5000,100.00,,
idle-31,<not counted>,,raw_syscalls:sys_enter,0,100.00,,
other-99,1000,,raw_syscalls:sys_enter,5000,100.00,,
python3-11,5,,another:event,33739127,100.00,,
"""
    assert counts.parse_stat(text, THREADS) == {"script": 100, "head": 7, "workers": 23}


def test_writes_that_failed_and_threads_of_others_are_not_counted() -> None:
    text = "11 0x44\n 31 0x10\n31 0x20\n21 0xfffffffffffffff5\n99 0x1000\n"
    writes, written = counts.parse_writes(text, THREADS)
    assert writes == {"script": 1, "head": 0, "workers": 2}
    assert written == {"script": 0x44, "head": 0, "workers": 0x30}


def test_a_sleep_counts_as_a_wake_and_work_as_cpu() -> None:
    """Of this process: `count` waits for an event that another thread sets later."""

    def run() -> None:
        for _ in range(20):
            assert not threading.Event().wait(0.002)
        sum(range(300_000))

    counted = counts.without_perf({"script": os.getpid()}, 20, run)
    assert counted.wakes["script"] >= 1
    assert counted.cpu_us["script"] > 0
    assert counted.wakes["head"] == counted.wakes["workers"] == 0


SENDER = """
import socket, sys
a, b = socket.socketpair()
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        a.sendmsg([b"0123456789"])
        b.recv(100)
    print("done", flush=True)
"""


def test_perf_counts_the_writes_to_a_socket() -> None:
    if why := counts.why_no_perf():
        pytest.skip(why)
    command = [sys.executable, "-c", SENDER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as sender:
        assert sender.stdin and sender.stdout
        to, answers = sender.stdin, sender.stdout
        assert answers.readline() == "ready\n"

        def run() -> None:
            to.write("100\n")
            to.flush()
            assert answers.readline() == "done\n"

        counted = counts.Counts({}, {})
        counts.with_perf(counted, {"worker 2": sender.pid}, 100, run)
        to.close()
    assert counted.system_calls and 2 <= counted.system_calls["workers"] < 3
    assert counted.writes == {"script": 0, "head": 0, "workers": 1}
    assert counted.bytes == {"script": 0, "head": 0, "workers": 10}


def test_a_count_is_one_row_with_each_role_s_part() -> None:
    roles = {"script": 2.0, "head": 1.0, "workers": 0.5}
    frames = {"script sent": 1.0, "script received": 0.25, "head sent": 2.0, "head received": 3.0}
    rows = counts.rows("1x1: call", counts.Counts(roles, roles, frames=frames))
    assert [row.what for row in rows] == [
        "1x1: call: CPU: script 2, head 1, workers 0.5",
        "1x1: call: slept wakes: script 2, head 1, workers 0.5",
        "1x1: call: frames of the script's links: sent 1, received 0.25",
        "1x1: call: frames of the head's links: sent 2, received 3",
    ]
    assert [row.values for row in rows] == [[3.5], [3.5], [1.25], [5]]


def test_frames_are_those_of_the_operations_and_not_of_the_questions() -> None:
    head = {
        "head_frames_sent": 10,
        "head_frames_received": 20,
        "head_frame_bytes_sent": 1000,
        "head_frame_bytes_received": 2000,
    }
    first, _ = counts.traffic([0, 0, 0, 0], head)
    second, _ = counts.traffic([0, 0, 0, 0], {name: each + 1 for name, each in head.items()})
    after = [8, 80, 4, 40]
    third, sizes = counts.traffic(after, {name: each + 18 for name, each in head.items()})
    made = counts.per_operation(second, third, counts.difference(first, second), 4)
    assert made == {"script sent": 2, "script received": 1, "head sent": 4, "head received": 4}
    assert counts.of_role(sizes, "script") == {"sent": 80, "received": 40}


def test_an_array_s_cpu_is_that_of_the_cluster_s_processes() -> None:
    counted = counts.Counts({"script": 5000, "head": 800, "workers": 1000}, {})
    row = launch.array_row("x", counted)
    assert row.values == [9] and row.holds is False and row.aim == "<= 5"


def test_like_is_compared_with_like() -> None:
    peers = [launch.PING_PONG, launch.HELD_PING_PONG, "stock XLA 1x1", "bare handlers 1x1"]
    assert [launch.compared(launch.DOOR, peer) for peer in peers] == [False, True, True, True]
    assert [launch.compared(launch.NO_REQUEST, peer) for peer in peers] == [
        True,
        False,
        True,
        False,
    ]


def test_limits_apply_to_times_and_to_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmd, "required_rows", [])
    seconds = {launch.DOOR: [50e-6], launch.HELD_PING_PONG: [22e-6], launch.PING_PONG: [80e-6]}
    (row,) = launch.time_rows("1x1", "call awaited", seconds)
    assert row.peer == launch.HELD_PING_PONG and row.values == [50]
    assert row.aim == "<= 2x; required <= 2.5x" and row.holds is False
    seconds = {launch.CPP: [1e-4], "bare handlers 4x2": [0.5e-4]}
    (row,) = launch.time_rows("4x2", "scalar one", seconds)
    assert row.values == [1e4] and row.unit == "per second"
    assert "required >= 0.6x: MISSED" in row.aim and row.holds is False
    beside_stock = {launch.CPP: [1e-4], "stock XLA 1x1": [1e-5]}
    assert launch.time_rows("1x1", "call", beside_stock)[0].holds is None
    (row,) = launch.time_rows("4x2", "scalar awaited", seconds)
    assert not row.aim and row.holds is None


def test_the_page_shows_rows_that_a_whole_run_makes() -> None:
    """With stand-ins for the measurements."""
    rows: list[benchlib.Row] = []
    for layout, cases in launch.CASES.items():
        for case, what in cases.items():
            groups = [launch.DOOR, launch.NO_REQUEST, launch.CPP, f"stock XLA {layout}"]
            groups += [f"bare handlers {layout}", launch.PING_PONG, launch.HELD_PING_PONG]
            rows += launch.time_rows(layout, case, {name: [1e-3] for name in groups})
            roles = dict.fromkeys(counts.ROLES, 1.0)
            counted = counts.Counts(roles, roles)
            rows += counts.rows(f"{layout}: {what}: {launch.DOOR}", counted)
    rows += empty_rows(2, beside=[])
    rows += programs.scalar_rows({programs.SCALARS: [1e-5], "stock XLA 1x8": [1e-4]})
    shown = benchlib.page_rows(rows, launch.SHOWN)
    assert len({(row.what, row.peer) for row in shown}) == len(launch.SHOWN)


def test_an_awaited_scalar_is_one_computation() -> None:
    kinds = ("one", "awaited", "chain", "fused")
    assert [spmd_cases.units(f"scalar {kind}") for kind in kinds] == [1, 1, 128, 128]
    assert spmd_cases.units("call awaited") == spmd_cases.units("arrays up") == 1


def test_a_ping_pong_ends_with_its_parent() -> None:
    run = launch_client.ping_pong(held=False)
    assert run(10) > 0
    del run  # closes this end, at which the other process ends
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 0


# --- Programs ---


def empty_rows(
    workers: int, beside: list[programs.Peer], ours_s: float = 8e-6, theirs_s: float = 2e-5
) -> list[benchlib.Row]:
    """Of seconds per node that are the same for all cases, but for single calls, which take four times ours."""
    cases = [(kind, case) for kind in programs.KINDS for case in chain_cases.all_cases()]
    ours = {each: [ours_s * (4 if each[1].startswith("single") else 1)] for each in cases}
    theirs = [(peer, {case: [theirs_s] for _, case in cases}) for peer in beside]
    return list(programs.empty_rows(workers, ours, theirs))


def idle_peer(name: str, **properties: bool) -> programs.Peer:
    return programs.Peer(name, Group(name, lambda _: True), "graph", **properties)


def test_cases_of_chains_are_read() -> None:
    assert [chain_cases.parse(case) for case in ("single", "program 8 awaited")] == [
        chain_cases.ChainCase(1, False),
        chain_cases.ChainCase(8, True),
    ]
    assert len({chain_cases.parse(case) for case in chain_cases.all_cases()}) == 6
    for case in ("program", "program 0", "single 3", "scalar one", "awaited"):
        with pytest.raises(ValueError):
            chain_cases.parse(case)
    assert chain_cases.blocks(256, 128) == [128, 128]
    with pytest.raises(SystemExit):
        chain_cases.blocks(100, 8)


def test_a_peer_without_programs_waits_as_often_as_ours() -> None:
    calls, graph = idle_peer("Monarch"), idle_peer("Ray", has_programs=True)
    ours = ("single", "program 8", "single awaited", "program 8 awaited")
    assert [calls.case_of(case) for case in ours] == [
        "graph single",
        "graph single",
        "graph program 1 awaited",
        "graph program 8 awaited",
    ]
    assert [graph.case_of(case) for case in ours[:2]] == ["graph program 1", "graph program 8"]


def test_over_two_workers_no_row_may_be_slower_than_ray_s_graph_and_monarch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spmd, "required_rows", [])
    graph, tasks = idle_peer("Ray, compiled graph"), idle_peer("Ray, tasks")
    for workers, limited in ((2, [True] * 12 + [False] * 4), (4, [None] * 16)):
        rows = [row for row in empty_rows(workers, [graph]) if row.peer == graph.name]
        assert sorted((row.holds for row in rows), key=str, reverse=True) == limited
    assert all(row.holds is None for row in empty_rows(2, [tasks]) if row.peer == tasks.name)


def test_null_devices_are_beside_peers_without_devices_only() -> None:
    rows = empty_rows(1, [idle_peer("bare PJRT 1x1", has_devices=True), idle_peer("Monarch")])
    beside = {(row.devices, row.peer) for row in rows if not row.peer.startswith("Gangway")}
    assert beside == {("cpu", "bare PJRT 1x1"), ("cpu", "Monarch"), ("sim", "Monarch"), ("sim", "")}


def test_a_program_of_128_is_beside_single_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmd, "required_rows", [])
    rows = [row for row in empty_rows(1, []) if row.devices == "sim"]
    assert [(row.what.split(", ", 2)[2], row.peer, row.holds) for row in rows] == [
        ("programs of 128: Gangway, C++", "Gangway's single calls", True),
        ("programs of 128: Gangway, C++", "Gangway's single calls, awaited", True),
        ("programs of 128: Gangway, C++", "", True),
        ("programs of 128, awaited: Gangway, C++", "Gangway's single calls", None),
        ("programs of 128, awaited: Gangway, C++", "Gangway's single calls, awaited", True),
    ]
    assert rows[0].aim == "required >= 3x" and rows[0].values == [1.25e5]
    assert empty_rows(1, [], ours_s=2e-5)[-3].holds is False


def test_the_scalar_chain_has_two_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spmd, "required_rows", [])
    seconds = {"stock XLA 1x8": 3.0, "JAX gloo 4x2": 9.0, "bare handlers 4x2": 0.5}
    found = {programs.SCALARS: [1.0], **{name: [each] for name, each in seconds.items()}}
    rows = programs.scalar_rows(found)
    assert {row.peer: row.holds for row in rows} == {
        "stock XLA 1x8": True,
        "JAX gloo 4x2": False,
        "bare handlers 4x2": None,
    }


def test_a_part_of_the_programs_is_chosen_by_name() -> None:
    assert programs.chosen("").has_scalars and programs.chosen("programs: ")
    assert not programs.chosen("put")
    some = programs.chosen("2x1: empty nodes, null devices, single")
    assert some.empty == {1: [], 2: [("sim", "single"), ("sim", "single awaited")], 4: []}


ANSWERS = """
print("{}", flush=True)
for line in __import__("sys").stdin:
    case, count = line.rstrip().split("\t")
    if case == "end":
        break
    print('{"seconds": %s}' % count, flush=True)
"""


def test_several_cases_of_a_group_take_turns_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spmd, "ended_peers", [])
    group = Group("peer", lambda _: True)
    group.spawn([sys.executable, "-c", ANSWERS], dict(os.environ))
    group.wait_ready()
    first, last = programs.OneCase(group, "single", "first"), programs.OneCase(group, "end", "last")
    assert first.run("chain", 3)["seconds"] == 3 * chain_cases.CHAIN
    for turn in (last, first):
        with pytest.raises(EndedError) as error:
            turn.run("chain", 1)
        assert spmd.leave_out(turn, error.value) is None
    assert spmd.ended_peers == ["last", "first"]
    assert "ended ([0])" in capsys.readouterr().err


def test_a_peer_that_cannot_be_installed_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peer_venvs, "VENV", pathlib.Path("/bin/ls"))
    assert peer_venvs.python_of("monarch") == ""
    assert "no monarch to compare with" in capsys.readouterr().err
