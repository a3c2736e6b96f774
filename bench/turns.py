"""Compares two states of Gangway, to say whether a change made anything slower.

    turns.py OLD NEW [--layout 4x2] [--rounds 15] [--up=--no-latency-request]... CASE...

OLD and NEW are checkouts with a release build (`tools/build.sh release gangway`). A cluster and a client of each live
side by side, and take turns a fraction of a second long. A shared machine changes its speed by the minute: whole runs
in turns differed by a factor of two where nothing had changed. A CASE is one of spmd_client.py, such as "permute 65536",
or one of step_client.py, such as "matrix step, 8 devices". `--up`: an option of both clusters' `gangway up`; may be
repeated. Harness and clients are this checkout's.

Prints the times of a call. The ratio is NEW's median over OLD's, so NEW is slower if it is above 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import benchlib
import harness
import spmd_peers
import step

TURN_S = 0.3
LINGER_S = 0.1  # until a cluster has let go of the latency request, twice its time
Run = Callable[[str, int], float]


def serve(tree: pathlib.Path, layout: str, flags: list[str]) -> None:
    """Runs the cases that stdin names on one cluster, and prints their seconds: one line each way, "CASE<tab>COUNT"."""
    workers, devices = map(int, layout.split("x"))
    cluster = harness.Cluster(1, workers, devices, *flags, folder="gangway-bench-").start()
    try:
        clients: dict[bool, Run] = {}
        print("ready", flush=True)
        for line in sys.stdin:
            case, count = line.rstrip("\n").split("\t")
            is_step = case.endswith(" devices")
            if is_step not in clients:
                clients[is_step] = step_client(cluster) if is_step else spmd_client(cluster)
            print(json.dumps(clients[is_step](case, int(count))), flush=True)
    finally:
        cluster.stop()


def spmd_client(cluster: harness.Cluster) -> Run:
    group = spmd_peers.gangway(cluster, "ifrt", lambda _: True)
    group.wait_ready()
    return lambda case, count: float(group.run(case, count)["seconds"])


def step_client(cluster: harness.Cluster) -> Run:
    environment = step.without_settings(harness.client_environment(cluster.port))
    return step.Client("gangway", "", environment, cluster.workers()[0]["pid"]).run


class State:
    """A checkout, in a process of its own: a harness knows one build."""

    def __init__(self, tree: pathlib.Path, layout: str, flags: list[str]) -> None:
        built = tree / "build" / "release" / "gangway"
        environment = {
            **os.environ,
            "GANGWAY_BIN": str(built / "cli" / "gangway"),
            "GANGWAY_PJRT_PLUGIN": str(built / "frontdoor" / "pjrt" / "libgangway_pjrt.so"),
        }
        command = [sys.executable, __file__, "--serve", str(tree), layout, *flags]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.tree = tree
        self._answer("its start")

    def _answer(self, what: str) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.tree}: ended in {what}; its words are above")
        return line

    def run(self, case: str, count: int) -> float:
        assert self._process.stdin
        self._process.stdin.write(f"{case}\t{count}\n")
        self._process.stdin.flush()
        seconds = float(self._answer(case))
        time.sleep(LINGER_S)
        return seconds

    def stop(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def calls_of_turn(state: State, case: str) -> int:
    """As many as take TURN_S; the case is compiled and warm then."""
    count = 1
    state.run(case, count)
    while (seconds := state.run(case, count)) < TURN_S / 3:
        count *= 2
    return max(1, round(count * TURN_S / seconds))


def measure(old: State, new: State, case: str, rounds: int) -> benchlib.Row:
    count = calls_of_turn(old, case)
    for _ in range(3):
        new.run(case, count)
    times: dict[State, list[float]] = {old: [], new: []}
    for round_ in range(rounds):
        for state in (old, new) if round_ % 2 else (new, old):
            times[state].append(state.run(case, count) / count)
    return benchlib.Row(
        what=case,
        unit="us per call",
        values=[1e6 * seconds for seconds in times[new]],
        peer=str(old.tree),
        peer_values=[1e6 * seconds for seconds in times[old]],
    )


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--layout", default="4x2", help="workers x devices of each")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--up", action="append", default=[], help="an option of both clusters")
    arguments = parser.parse_args()
    old = State(arguments.old, arguments.layout, arguments.up)
    new = State(arguments.new, arguments.layout, arguments.up)
    try:
        rows = [measure(old, new, case, arguments.rounds) for case in arguments.cases]
    finally:
        old.stop()
        new.stop()
    benchlib.write("turns", rows, is_result=False)


if __name__ == "__main__":
    main()
