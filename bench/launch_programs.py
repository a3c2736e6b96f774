"""The rows of bench/launch.py about programs, from C++ (program_calls.cc): chains of empty nodes over 1, 2 and 4 workers
with one device each, made of single calls and of programs of 1, 8 and 128 nodes; and the scalar program of spmd on 4
workers with 2 devices each, in programs of 128. Part of that benchmark.

An empty node adds 1 to one number on each device. Null devices are simulated ones (`gangway up --simulate 1`: each
worker is a process), whose node does nothing. Peers make the same chain in their own way (chain_cases.py), on real
devices ("bare PJRT", "stock XLA") or on none (Ray, Monarch: an actor for each worker). All cases of all of them take
turns, so that rows compare what a program saves over single calls as well.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import benchlib
import chain_cases
import harness
import launch_counts as counts
import peer_venvs
import spmd
import spmd_peers as peers
from chain_cases import CHAIN
from spmd import Limit
from spmd_peers import EndedError, Group, Layout

NAME = "programs"
HERE = pathlib.Path(__file__).parent
JAX_CLIENT = HERE / "launch_client.py"
WORKERS = (1, 2, 4)
MAIN = Layout(4, 2)
KINDS = {"cpu": "CPU devices", "sim": "null devices"}
FLAGS = {"cpu": spmd.OWN, "sim": ("--simulate", "1")}
CPP = "Gangway, C++"
SINGLE, PROGRAM = "single", f"program {CHAIN}"
OVER_SINGLE = 3.0  # required of a program of 128, of the rate of single calls
NODES_PER_S = 100_000  # the aim on null devices
COMPARED_WORKERS = 2  # with these, no row may be slower than the peers of the next line
REQUIRED_BESIDE = ("Ray, compiled graph", "Monarch")
SCALARS = f"{MAIN.name}: scalar all-reduce + add, chains of {CHAIN} as one program: {CPP}"
SCALAR_LIMITS = {"stock XLA": Limit(0, 2), "JAX gloo": Limit(0, 10)}
SETTLES_S = 0.1  # what a stopped peer makes up for when it goes on
ENDS_S = 10  # until a peer that is told to end has ended


# --- Names ---


def words(case: str) -> str:
    """Of a case of ours, in a row."""
    chain = chain_cases.parse(case)
    made_of = "single calls" if case.startswith(SINGLE) else f"programs of {chain.nodes}"
    return made_of + (", awaited" if chain.is_awaited else "")


def what(workers: int, kind: str, case: str) -> str:
    return f"{workers}x1: empty nodes, {KINDS[kind]}, {words(case)}: {CPP}"


@dataclasses.dataclass
class Chosen:
    """What of this part is measured."""

    empty: dict[int, list[tuple[str, str]]]  # kind of devices and case, by the number of workers
    has_scalars: bool

    def __bool__(self) -> bool:
        return self.has_scalars or any(self.empty.values())


def chosen(only: str) -> Chosen:
    """What has `only` in its name."""
    cases = [(kind, case) for kind in KINDS for case in chain_cases.all_cases()]
    empty = {
        workers: [each for each in cases if only in f"{NAME}: {what(workers, *each)}"]
        for workers in WORKERS
    }
    return Chosen(empty, only in f"{NAME}: {SCALARS}")


# --- Groups ---


class OneCase(Group):
    """One case of a group, which takes turns like a group of its own. Its count is of chains, the other one's of nodes."""

    def __init__(self, group: Group, case: str, name: str) -> None:
        super().__init__(name, lambda _: True)
        self.group, self.case, self.processes = group, case, group.processes

    def run(self, case: str, count: int) -> dict[str, Any]:
        if not self.processes:
            raise EndedError(f"{self.name}: its processes have ended")
        return self.group.run(self.case, count * CHAIN)

    def stop(self) -> None:
        self.group.stop()
        self._errors.close()


class VenvGroup(Group):
    """A client in a venv of its own, and what that starts, with a folder for temporary files."""

    def __init__(self, name: str, python: str, client: str, argument: str) -> None:
        super().__init__(name, lambda _: True)
        self._folder = tempfile.TemporaryDirectory(prefix="gw-peer-", ignore_cleanup_errors=True)
        self.folder = self._folder.name
        variables = {"PYTHONPATH": str(HERE), "TMPDIR": self.folder}
        environment = peers.plain_environment() | variables | {"RAY_USAGE_STATS_ENABLED": "0"}
        self.spawn([python, str(HERE / client), argument], environment)

    def stop(self) -> None:
        for process in self.processes:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()  # at which it ends what it has started
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in self.processes:
                process.wait(ENDS_S)
        super().stop()
        peer_venvs.end_all_of(self.folder)
        self._folder.cleanup()


class RayGroup(VenvGroup):
    """All of its processes are stopped between its turns: an actor of a compiled graph that waits takes 8% of a core, and
    there are three for each worker.
    """

    def __init__(self, python: str, workers: int) -> None:
        super().__init__("Ray", python, "launch_ray_client.py", str(workers))

    def run(self, case: str, count: int) -> dict[str, Any]:
        peer_venvs.signal_all_of(self.folder, signal.SIGCONT)
        time.sleep(SETTLES_S)
        try:
            return super().run(case, count)
        finally:
            peer_venvs.signal_all_of(self.folder, signal.SIGSTOP)

    def stop(self) -> None:
        peer_venvs.signal_all_of(self.folder, signal.SIGCONT)
        super().stop()


@dataclasses.dataclass
class Peer:
    name: str
    group: Group
    engine: str = ""  # what its cases begin with
    has_programs: bool = False
    has_devices: bool = False

    def case_of(self, ours: str) -> str:
        """What it makes in place of our case."""
        chain = chain_cases.parse(ours)
        case = f"program {chain.nodes}" if self.has_programs or chain.is_awaited else SINGLE
        return f"{self.engine} {case}".strip() + (" awaited" if chain.is_awaited else "")

    def turn_name(self, ours: str) -> str:
        return f"{self.name}: {self.case_of(ours)}"


def peers_of(workers: int, pythons: dict[str, str]) -> list[Peer]:
    """`pythons`: of the peers in venvs of their own; empty ones are left out."""
    layout = Layout(1, workers)
    bare, stock = peers.bare(layout), peers.stock(layout, lambda _: True, program=JAX_CLIENT)
    found = [
        Peer(f"bare PJRT {layout.name}", bare, has_devices=True),
        Peer(stock.name, stock, has_devices=True),
    ]
    if python := pythons["ray"]:
        ray = RayGroup(python, workers)
        found.append(Peer("Ray, tasks", ray, "tasks"))
        found.append(Peer("Ray, compiled graph", ray, "graph", has_programs=True))
    if python := pythons["monarch"]:
        monarch = VenvGroup("Monarch", python, "launch_monarch_client.py", str(workers))
        found.append(Peer("Monarch", monarch))
    return found


def program_calls(cluster: harness.Cluster, workers: int, kind: str) -> Group:
    group = Group(f"{CPP}, {kind}", lambda _: True)
    command = [str(peers.BINARIES / "program_calls"), cluster.control, cluster.token]
    group.spawn([*command, str(workers), kind], peers.plain_environment())
    return group


# --- Rows ---


def limit(workers: int, peer: str) -> Limit:
    return Limit(0, 1) if workers == COMPARED_WORKERS and peer in REQUIRED_BESIDE else Limit()


def own_limit(case: str, single: str) -> Limit:
    """Of a program of 128, beside single calls. What is awaited is not required to beat what is not."""
    is_slower_by_waits = case.endswith("awaited") and not single.endswith("awaited")
    return Limit() if is_slower_by_waits else Limit(0, OVER_SINGLE)


def empty_rows(
    workers: int,
    ours: dict[tuple[str, str], list[float]],
    theirs: list[tuple[Peer, dict[str, list[float]]]],
) -> Iterator[benchlib.Row]:
    """Seconds per node: ours by kind of devices and case, and a peer's by our case."""

    def row(kind: str, case: str, peer: str, seconds: list[float], asked: Limit) -> benchlib.Row:
        mine = spmd.inverse(ours[kind, case])
        text = what(workers, kind, case)
        made = spmd.limited_row(text, "nodes/s", mine, peer, spmd.inverse(seconds), asked)
        made.devices = kind
        return made

    for kind, case in ours:
        for peer, found in theirs:
            if found.get(case) and (kind == "cpu" or not peer.has_devices):
                yield row(kind, case, peer.name, found[case], limit(workers, peer.name))
        if not case.startswith(PROGRAM):
            continue
        for single in (SINGLE, f"{SINGLE} awaited"):
            if seconds := ours.get((kind, single)):
                asked = own_limit(case, single)
                yield row(kind, case, f"Gangway's {words(single)}", seconds, asked)
        if (kind, case) == ("sim", PROGRAM):
            alone = row(kind, case, "", [], Limit())
            alone.aim = f">= {NODES_PER_S}"
            alone.holds = statistics.median(alone.values) >= NODES_PER_S
            yield alone


def scalar_rows(found: dict[str, list[float]]) -> Iterator[benchlib.Row]:
    """Seconds per computation, by the group's name."""
    mine = spmd.inverse(found.pop(SCALARS))
    for peer, seconds in found.items():
        limits = (each for start, each in SCALAR_LIMITS.items() if peer.startswith(start))
        theirs, asked = spmd.inverse(seconds), next(limits, Limit())
        if theirs:
            yield spmd.limited_row(SCALARS, "per second", mine, peer, theirs, asked)


# --- Measuring ---


def counted(text: str, turn: counts.Turn, devices: str = "cpu") -> list[benchlib.Row]:
    """CPU and slept wakes of each process, so that each worker is named; frames. Nothing of perf, to save time."""
    return counts.rows(text, counts.measured(turn, has_perf=False, role=str), devices)


def measure_empty(
    workers: int,
    cases: list[tuple[str, str]],
    pythons: dict[str, str],
    rounds: int,
) -> Iterator[benchlib.Row]:
    layout = Layout(workers, 1)
    with contextlib.ExitStack() as stack:
        clusters = {
            kind: stack.enter_context(spmd.cluster_of(layout, *FLAGS[kind])) for kind in dict(cases)
        }
        clients = {kind: program_calls(each, workers, kind) for kind, each in clusters.items()}
        others = peers_of(workers, pythons)
        groups = list({id(p.group): p.group for p in others}.values())
        live = stack.enter_context(spmd.running([*clients.values(), *groups]))
        ours = {
            (kind, case): OneCase(clients[kind], case, f"Gangway, {kind}: {case}")
            for kind, case in cases
        }
        turns = {
            peer.turn_name(case): OneCase(peer.group, peer.case_of(case), peer.turn_name(case))
            for peer in others
            for _, case in cases
            if peer.group in live
        }
        found = spmd.Run(layout, [*ours.values(), *turns.values()], rounds).measure("chain")
        theirs = [
            (peer, {case: found.get(peer.turn_name(case), []) for _, case in cases})
            for peer in others
        ]
        yield from empty_rows(
            workers, {each: found[turn.name] for each, turn in ours.items()}, theirs
        )
        for (kind, case), group in ours.items():
            seconds = statistics.median(found[group.name])
            turn = counts.Turn(group, clusters[kind], "chain", CHAIN, seconds)
            yield from counted(what(workers, kind, case), turn, kind)


def measure_scalars(rounds: int) -> Iterator[benchlib.Row]:
    with spmd.cluster_of(MAIN, *spmd.OWN) as cluster:
        client = program_calls(cluster, MAIN.workers, "scalar")
        single = peers.gangway_cpp(cluster, MAIN)
        single.name = "Gangway's single calls"
        others = [
            single,
            peers.stock(MAIN, spmd.is_scalar),
            peers.gloo(MAIN, spmd.is_scalar),
            peers.bare(MAIN),
        ]
        with spmd.running([client, *others]) as live:
            ours = OneCase(client, f"{PROGRAM} awaited", SCALARS)
            turns = [ours, *(each for each in live if each is not client)]
            found = spmd.Run(MAIN, turns, rounds).measure("scalar chain")
            seconds = statistics.median(found[SCALARS])
            yield from scalar_rows(found)
            turn = counts.Turn(ours, cluster, "chain", CHAIN, seconds)
            yield from counted(SCALARS, turn)


def measure(rows: list[benchlib.Row], wanted: Chosen, rounds: int) -> None:
    """What is measured stays in `rows` if it fails."""
    if any(wanted.empty.values()):
        pythons = {name: peer_venvs.python_of(name) for name in ("ray", "monarch")}
    for workers, cases in wanted.empty.items():
        if cases:
            rows.extend(measure_empty(workers, cases, pythons, rounds))
    if wanted.has_scalars:
        rows.extend(measure_scalars(rounds))
