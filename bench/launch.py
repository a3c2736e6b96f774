"""Measures what one launch costs, and where: time, and for each role (script, head, workers) CPU, slept wakes, system
calls and what is written to sockets, per operation.

Operations: calls, awaited or not; small transfers; 200 arrays up, down and to another worker; and a scalar all-reduce
on 1 device, on 8 devices of one worker, and on 4 workers with 2 devices each, with Gangway's collectives. Beside them,
in turns of the same run: JAX in-process ("stock XLA"), bare FFI handlers without a control plane (spmd_bare.cc), and a
ping-pong of two processes over a unix socket, which says what the machine needs to wake two threads, with and without
the host's latency request. Then programs from C++, beside Ray and Monarch as well (launch_programs.py), and clusters of
256 and 512 workers with simulated devices (launch_simulated.py).

`--only TEXT` restricts the run to the cases whose name contains TEXT, `--layout` to one layout; neither is recorded.
How the groups of processes take turns: bench/spmd.py, whose parts this benchmark uses.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import time

import benchlib
import harness
import launch_client
import launch_counts as counts
import launch_programs
import launch_simulated
import spmd
import spmd_cases
import spmd_peers as peers
from spmd import Limit
from spmd_peers import EndedError, Group, Layout

CLIENT = pathlib.Path(__file__).with_name("launch_client.py")
ONE, INSIDE, MAIN = Layout(1, 1), Layout(1, 8), Layout(4, 2)
ROUNDS = 5
SCALARS = {
    "scalar one": "scalar all-reduce + add, one call each",
    "scalar awaited": "scalar all-reduce + add, each awaited",
    "scalar chain": f"scalar all-reduce + add, chains of {spmd_cases.CHAIN} calls",
}
OF_ONE_DEVICE = {
    "call": "call",
    "call awaited": "call, awaited",
    "call fetched": "call, awaited and fetched (64 B)",
    "put awaited": "device_put of 2 kB, awaited",
    "put then call": "device_put of 2 kB, then call, awaited",
    "arrays up": "200 arrays of 4 KiB up",
    "arrays down": "200 arrays of 4 KiB down",
}
ACROSS = {"arrays across": "200 arrays of 4 KiB to another worker"}
LAYOUTS = {"1x1": ONE, "1x8": INSIDE, "4x2": MAIN}
CASES = {"1x1": OF_ONE_DEVICE | SCALARS, "1x8": SCALARS, "4x2": ACROSS | SCALARS}
NO_REQUEST_FLAG = ("--no-latency-request",)
ARRAY_CPU_US = 5.0
AWAITED = ("call awaited", "call fetched", "put awaited", "put then call")

DOOR = "Gangway, pjrt door"
NO_REQUEST = f"{DOOR}, no latency request"
CPP = "Gangway, C++"
PING_PONG, HELD_PING_PONG = "ping-pong", "ping-pong, latency request held"
SHOWN = (
    ("1x1: call: Gangway, pjrt door", "stock XLA"),
    ("1x1: call, awaited: Gangway, pjrt door", HELD_PING_PONG),
    ("4x2: 200 arrays of 4 KiB to another worker: Gangway, pjrt door", "stock XLA"),
    ("4x2: scalar all-reduce + add, one call each: Gangway, pjrt door", "stock XLA"),
    ("4x2: scalar all-reduce + add, each awaited: Gangway, pjrt door", "stock XLA"),
    ("4x2: scalar all-reduce + add, one call each: Gangway, C++", "bare handlers"),
    (launch_programs.what(2, "sim", "program 128"), "Gangway's single calls"),
    (launch_programs.SCALARS, "stock XLA"),
)


# --- Rows ---


def compared(ours: str, peer: str) -> bool:
    """A ping-pong is beside the cluster that holds the latency request as it does, and so is no other peer beside a
    cluster without the request.
    """
    if peer.startswith(PING_PONG):
        return (ours == NO_REQUEST) == (peer == PING_PONG)
    return ours != NO_REQUEST or peer.startswith("stock")


def limit(layout: str, case: str, ours: str, peer: str) -> Limit:
    """Aim and what is required, of our speed to the peer's. C++ has limits beside bare handlers only."""
    if ours == CPP:
        is_limited = (layout, case) == ("4x2", "scalar one") and peer.startswith("bare")
        return Limit(0.8, 0.6) if is_limited else Limit()
    if peer.startswith(PING_PONG):
        return Limit(1 / 2, 1 / 2.5) if case == "call awaited" else Limit()
    if peer.startswith("stock"):
        of_calls = {"call": Limit(1 / 2, 1 / 2.2), "arrays across": Limit(1 / 3)}
        of_calls |= dict.fromkeys(("arrays up", "arrays down"), Limit(1 / 1.5))
        scalars = dict.fromkeys(("scalar one", "scalar chain"), Limit(2, 1.6))
        scalars["scalar awaited"] = Limit(1.2, 1.0)
        if case in of_calls:
            return of_calls[case]
        return scalars.get(case, Limit()) if layout == "4x2" else Limit()
    return Limit()


def time_rows(layout: str, case: str, found: dict[str, list[float]]) -> list[benchlib.Row]:
    """Scalars as rates, as in bench/spmd.py; all else as times."""
    is_rate = case.startswith("scalar")
    unit = "per second" if is_rate else "us"
    values = {
        name: spmd.inverse(seconds) if is_rate else [1e6 * each for each in seconds]
        for name, seconds in found.items()
    }
    ours, theirs = spmd.split(values)
    return [
        spmd.limited_row(
            f"{layout}: {CASES[layout][case]}: {name}",
            unit,
            mine,
            peer,
            others,
            limit(layout, case, name, peer),
        )
        for name, mine in ours.items()
        for peer, others in theirs.items()
        if compared(name, peer)
    ]


def array_row(what: str, counted: counts.Counts) -> benchlib.Row:
    cpu_us = (counted.cpu_us["head"] + counted.cpu_us["workers"]) / launch_client.ARRAYS
    return benchlib.Row(
        what=f"{what}: CPU of head and workers per array",
        unit="us",
        values=[cpu_us],
        aim=f"<= {ARRAY_CPU_US:g}",
        holds=cpu_us <= ARRAY_CPU_US,
    )


# --- Measuring ---


def counted_rows(
    layout: str, case: str, group: Group, cluster: harness.Cluster, seconds: float, has_perf: bool
) -> list[benchlib.Row]:
    """`seconds`: of an operation, as it was measured before."""
    turn = counts.Turn(group, cluster, case, spmd_cases.units(case), seconds)
    counted = counts.measured(turn, has_perf)
    what = f"{layout}: {CASES[layout][case]}: {group.name}"
    rows = counts.rows(what, counted)
    return rows + ([array_row(what, counted)] if case == "arrays across" else [])


def is_any(case: str) -> bool:
    return True


def cpp_calls(cluster: harness.Cluster) -> Group:
    """The cases that are no scalars, in C++ (bench/launch_calls.cc)."""
    group = Group(CPP, lambda case: not case.startswith("scalar"))
    command = [str(peers.BINARIES / "launch_calls"), cluster.control, cluster.token]
    group.spawn(command, peers.plain_environment())
    return group


def ping_pong(name: str, *arguments: str) -> Group:
    group = Group(name, lambda case: case in AWAITED)
    command = [sys.executable, str(CLIENT), "ping-pong", *arguments]
    group.spawn(command, peers.plain_environment())
    return group


def peer_groups(name: str, layout: Layout) -> list[Group]:
    groups = [peers.stock(layout, is_any, program=CLIENT), peers.bare(layout)]
    if name == "1x1":
        groups.append(ping_pong(PING_PONG))
        if os.access(launch_client.LATENCY_FILE, os.W_OK):
            groups.append(ping_pong(HELD_PING_PONG, "held"))
        else:
            print(
                f"launch: {launch_client.LATENCY_FILE} cannot be opened, so no ping-pong holds it"
            )
    return groups


def measure_layout(
    name: str, cases: list[str], options: argparse.Namespace, rows: list[benchlib.Row]
) -> None:
    layout = LAYOUTS[name]
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(spmd.cluster_of(layout, *spmd.OWN))
        ours = [
            peers.gangway(cluster, "pjrt", is_any, program=CLIENT),
            peers.gangway_cpp(cluster, layout),
            *([cpp_calls(cluster)] if name != "1x8" else []),
        ]
        clusters = dict.fromkeys((group.name for group in ours), cluster)
        if name == "1x1":
            without = stack.enter_context(spmd.cluster_of(layout, *spmd.OWN, *NO_REQUEST_FLAG))
            ours.append(
                peers.gangway(without, "pjrt", lambda case: case in AWAITED, NO_REQUEST, CLIENT)
            )
            clusters[NO_REQUEST] = without
        groups = stack.enter_context(spmd.running(ours + peer_groups(name, layout)))
        run = spmd.Run(layout, groups, options.rounds)
        for case in cases:
            found = run.measure(case)
            rows += time_rows(name, case, found)
            for group in ours:
                if group.handles(case):
                    seconds = statistics.median(found[group.name])
                    own = clusters[group.name]
                    rows += counted_rows(name, case, group, own, seconds, options.has_perf)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    layouts = [*LAYOUTS, launch_programs.NAME, launch_simulated.NAME]
    parser.add_argument("--layout", choices=layouts, default="", help="only this one")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1 is needed")
    options.cases = {
        name: [case for case, what in of_layout.items() if options.only in f"{name}: {what}"]
        for name, of_layout in CASES.items()
        if options.layout in ("", name)
    }
    has_programs = options.layout in ("", launch_programs.NAME)
    options.programs = launch_programs.chosen(options.only) if has_programs else None
    options.has_simulated = not options.only and options.layout in ("", launch_simulated.NAME)
    if not (options.has_simulated or options.programs or any(options.cases.values())):
        every = "; ".join(f"{name}: {what}" for name in CASES for what in CASES[name].values())
        parser.error(
            f"no case's name contains {options.only!r}; the cases are {every}; and those of launch_programs.py"
        )
    options.is_whole = not options.only and not options.layout and options.rounds == ROUNDS
    return options


def main() -> None:
    options = parse_options()
    began = time.monotonic()
    no_perf = counts.why_no_perf()
    options.has_perf = not no_perf
    if no_perf:
        print(f"launch: no system calls and socket writes: {no_perf}", file=sys.stderr)
    rows: list[benchlib.Row] = []
    ended = ""
    try:
        for name, cases in options.cases.items():
            if cases:
                measure_layout(name, cases, options, rows)
        if options.programs:
            launch_programs.measure(rows, options.programs, options.rounds)
        if options.has_simulated:
            launch_simulated.measure(rows)
    except EndedError as error:
        ended = str(error)
    is_result = options.is_whole and not spmd.ended_peers and not ended
    benchlib.write("launch" if is_result else "launch-part", rows, is_result, SHOWN)
    missed = [what for what, kept in spmd.required_rows if not kept]
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    for what in missed:
        print(f"missed: {what}", file=sys.stderr)
    if ended:
        raise SystemExit(ended)
    if spmd.ended_peers:
        raise SystemExit(f"not complete: these peers have ended: {', '.join(spmd.ended_peers)}")


if __name__ == "__main__":
    main()
