"""C++ programs on the client library's public headers: the API (examples/cpp), and the session as front doors use it
(examples/cpp_client).
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import PATIENCE, ROOT, Cluster, wait_for, why
from native_programs import Driven, native

HEADERS = ROOT / "gangway" / "client" / "include"
NAME = "program client"


@pytest.fixture
def two_islands(new_cluster: Callable[..., Cluster]) -> Cluster:
    """Two islands of two workers with two devices each."""
    cluster = new_cluster(2, 2, 2)
    cluster.environment["GANGWAY_SIMULATED_WORK"] = "1"  # for `busy`
    return cluster.start()


@pytest.fixture
def driven(two_islands: Cluster) -> Iterator[Driven]:
    client = Driven("program_client", two_islands)
    assert client.ask("put") == "put"  # it has its session, and all functions
    yield client
    client.end()


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(native(program, "examples")), *arguments],
        capture_output=True,
        text=True,
        timeout=40 * PATIENCE,
    )


def lines_of(program: str, cluster: Cluster, *arguments: str) -> list[str]:
    ran = run(program, cluster.control, cluster.token, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_programs_compute_and_leave_nothing(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(1, 1, 2).start()

    def compute() -> None:
        lines = lines_of("cpp_client", cluster)
        assert lines[:2] == ["2 devices of platform cpu", "x * x = 1 4 9 16 25 36"]
        assert (
            lines[2].startswith("of a deleted array: ") and "not known in this session" in lines[2]
        )
        lines = lines_of("hello", cluster)
        assert lines[:3] == [
            "2 devices of platform cpu",
            "x * x = 1 4 9 16 25 36",
            "x ^ 4 = 1 16 81 256 625 1296",
        ]
        assert lines[3].startswith("in hello.cc:") and "takes shards of f32[3]" in lines[3]

    with cluster.left_as_found(compute):
        compute()


def test_programs_cross_islands_and_leave_nothing(two_islands: Cluster) -> None:
    def compute() -> None:
        (line,) = lines_of("fan_out", two_islands, "20")
        found = re.fullmatch(
            r"f\(\[1, 2\]\) = \[ 3 5 \] \[ 2 4 \]; 20 launches of 4 nodes, (\d+) frames", line
        )
        assert found and int(found[1]) <= 21, line  # the launches, and the question that waits
        (line,) = lines_of("pipeline", two_islands)
        assert line.endswith("; the same by single calls"), line

    with two_islands.left_as_found(compute):
        compute()


def test_values_of_the_api_and_nothing_is_left_of_them(two_islands: Cluster) -> None:
    address = {
        "GANGWAY_TEST_CONTROL": two_islands.control,
        "GANGWAY_TEST_TOKEN": two_islands.token,
    }

    def compute() -> None:
        ran = subprocess.run(
            [str(native("api_e2e_test"))],
            env={**os.environ, **address},
            capture_output=True,
            text=True,
            timeout=50 * PATIENCE,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    with two_islands.left_as_found(compute):
        compute()


def test_a_launch_is_one_frame_before_and_after_a_worker_died(
    two_islands: Cluster, driven: Driven
) -> None:
    def frames() -> tuple[int, int]:
        """From all clients, as the head counts them; of this client, as it does."""
        from_clients = two_islands.status()["counters"]["frames_from_clients"]
        return from_clients, int(driven.ask("frames"))

    def wait_for_arrays(count: int) -> None:
        def is_done() -> bool:
            (session,) = two_islands.status()["sessions"]
            return session["arrays"] == count and session["pending_nodes"] == 0

        wait_for("all launches have ended", is_done, 10)

    def launch(arrays: int) -> None:
        assert driven.ask("launch 2").startswith("[ 3 5 ] [ 2 4 ]")
        wait_for_arrays(arrays)
        for kept in range(arrays + 2, arrays + 8, 2):
            from_clients, of_client = frames()
            driven.ask("submit")
            wait_for_arrays(kept)
            assert frames() == (from_clients + 1, of_client + 1)

    launch(arrays=1)  # v
    (victim,) = [w for w in two_islands.workers() if w["name"] == "island0/worker1"]
    os.kill(victim["pid"], signal.SIGKILL)

    def is_back() -> bool:
        (now,) = [w for w in two_islands.workers() if w["name"] == victim["name"]]
        return now["state"] == "up" and now["pid"] != victim["pid"]

    wait_for("the worker is back", is_back, 20)
    launch(arrays=7)  # and the results of three launches


def test_arrays_of_a_dead_worker_fail_a_program_by_name_ER_1(
    two_islands: Cluster, driven: Driven
) -> None:
    (victim,) = [w for w in two_islands.workers() if w["name"] == "island0/worker0"]
    os.kill(victim["pid"], signal.SIGKILL)  # it has v
    wait_for("the loss", lambda: "frames" not in driven.ask("launch 1"), 20)
    assert "|island0/worker0|" in driven.ask("failure")
    driven.ask("put")
    assert driven.ask("launch 1").startswith("[ 3 5 ] [ 2 4 ]")


def test_a_loop_without_a_wait_is_bounded(two_islands: Cluster, driven: Driven) -> None:
    arrays = two_islands.status()["arrays"]
    assert driven.ask("loop 40000") == "OK"  # more than may be pending at once
    wait_for("all but v freed", lambda: two_islands.status()["arrays"] == arrays, 10)


def test_traces_and_why_name_the_client(
    two_islands: Cluster, driven: Driven, tmp_path: pathlib.Path
) -> None:
    driven.ask("busy")

    def executing() -> list[dict[str, Any]]:
        return [wait for wait in why(two_islands) if wait["program"] == "busy"]

    (wait, *_) = wait_for("the call is executed", executing, 20)
    (session,) = two_islands.status()["sessions"]
    assert session["client"] == NAME
    assert (wait["client"], wait["launched_program"], wait["node"]) == (NAME, "waiting", 1)
    assert f"that is node 1 of waiting of session {session['id']} ({NAME})," in wait["text"]
    out = tmp_path / "trace.json"
    port = ["--port", str(two_islands.port)]
    traced = two_islands.command("trace", "--out", str(out), *port, timeout_s=20)
    assert traced.returncode == 0, traced.stdout + traced.stderr
    events = json.loads(out.read_text())["traceEvents"]
    clients = {
        (event["args"].get("session"), event["args"].get("client"))
        for event in events
        if event["ph"] == "X"
    }
    assert (session["id"], NAME) in clients, clients


def test_a_wrong_token_and_a_missing_cluster_are_errors(cluster: Cluster) -> None:
    for program in ("cpp_client", "hello"):
        refused = run(program, cluster.control, "0" * 32)
        assert refused.returncode == 1 and "token" in refused.stderr
        missing = run(program, "unix:/nowhere/control.sock", "0" * 32)
        assert missing.returncode == 1 and "/nowhere/control.sock" in missing.stderr


def test_the_public_headers_show_no_other_library() -> None:
    """They stand alone, and what they include is the standard library's."""
    for header in sorted((HEADERS / "gangway").glob("*.h")):
        made = subprocess.run(
            ["c++", "-std=c++20", "-E", "-x", "c++", "-I", str(HEADERS), str(header)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0, made.stderr
        files = {line.split('"')[1] for line in made.stdout.splitlines() if line.startswith("# 1 ")}
        for other in ("absl", "google", "grpc", "gangway/transport", "gangway/wire"):
            assert not [file for file in files if other in file], (header, other)
