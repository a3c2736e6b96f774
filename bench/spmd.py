"""Measures programs over the workers of an island whose devices communicate: scalars, collectives of 64 KiB to 64 MiB,
training steps. Beside JAX multi-controller (gloo), stock XLA with all devices in one process, Open MPI over shared
memory, bare FFI handlers under PJRT without a control plane, and the traffic that memory bears.

All groups of processes of a layout (spmd_peers.py) live side by side, wait without taking CPU, and take turns round by
round, because the cores of a shared machine change their speed by the minute; only one group computes at a time. A
peer that ends, or does not answer, is stopped and named. If it cannot be started again, it is left out of what follows,
and the result is not complete. A client of Gangway that does so ends the benchmark.

A row has two limits: the aim, and what is required: never slower than gloo, and at most 10% slower than stock XLA. It
holds if both do; the last lines on stderr count the required ones apart.

The layout 1x8, all devices in one worker, is measured on two clusters: one runs Gangway's collectives, the other XLA's
(`gangway up --collectives`), and is a peer.

`--quick`, or GANGWAY_SPMD_QUICK in the environment: few rounds, sizes and shardings, written as spmd-quick.

`--profile CASE` measures nothing, but says where the CPU time of that case goes, on one layout (4x2 if none is given);
`--samples FILE` is perf's file of it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import benchlib
import harness
import spmd_cases as cases
import spmd_peers as peers
import spmd_profile
from spmd_peers import EndedError, Group, Layout

MAIN, SMALL, INSIDE = Layout(4, 2), Layout(2, 1), Layout(1, 8)
LAYOUTS = (MAIN, SMALL, INSIDE)
OWN, XLAS = ("--collectives", "gangway"), ("--collectives", "xla")
ROUNDS, ROUND_S = 7, 0.15
CALLS_MAX = 3000  # of a round
# After a turn of ours, the latency request keeps the host's cores awake for 50 ms, and so a peer's, too: twice that is
# waited (LatencyRequest::kLinger in gangway/base/latency_request.h).
LINGER_S = 0.1
OURS = "Gangway"
STOCK_MIN = 0.9  # of stock XLA's speed
BEYOND_CACHES = 16 * cases.MIB  # per device: smaller arrays stay in the caches
PROFILED_S = 5
QUICK_ROUNDS = 3
QUICK_SIZES = (64 * cases.KIB, cases.MIB, 16 * cases.MIB)
QUICK_SHARDINGS = ("tp", "fsdp")
SHOWN = (
    ("4x2: scalar all-reduce + add, one call each: Gangway, pjrt door", "stock XLA"),
    ("4x2: scalar all-reduce + add, one call each: Gangway, pjrt door", "JAX gloo"),
    ("4x2: scalar all-reduce + add, 128 in one program: Gangway, pjrt door", "stock XLA"),
    ("4x2: all-reduce, 16 MiB", "JAX gloo"),
    ("4x2: all-gather, 1 MiB", "Open MPI"),
    ("4x2: training step tp", "stock XLA"),
    ("4x2: training step fsdp", "JAX gloo"),
    ("4x2: compile of training step tp", "stock XLA"),
)
required_rows: list[tuple[str, bool]] = []
ended_peers: list[str] = []
restarted_peers: list[str] = []


@dataclasses.dataclass
class Limit:
    """Of a ratio of speeds, ours to a peer's. 0: none."""

    aim: float = 0
    required: float = 0


def limited_row(
    what: str, unit: str, ours: list[float], peer: str, theirs: list[float], limit: Limit
) -> benchlib.Row:
    """Values are rates, or, if the unit is a time, times: then the limits apply to the inverse ratio."""
    row = benchlib.Row(what=what, unit=unit, values=ours, peer=peer, peer_values=theirs)
    if not theirs:
        return row
    ratio = statistics.median(ours) / statistics.median(theirs)
    is_time = unit.startswith(("ms", "us"))
    speed = 1 / ratio if is_time else ratio

    def words(least: float) -> str:
        return f"<= {1 / least:.3g}x" if is_time else f">= {least:.3g}x"

    texts = []
    if limit.aim:
        texts.append(words(limit.aim))
    if limit.required:
        kept = speed >= limit.required
        required_rows.append((f"{what}, beside {peer}", kept))
        texts.append(f"required {words(limit.required)}{'' if kept else ': MISSED'}")
    row.aim = "; ".join(texts)
    if texts:
        row.holds = speed >= max(limit.aim, limit.required)
    return row


# --- Measuring ---


def leave_out(group: Group, error: EndedError) -> Group | None:
    """Ends what is left of a peer, so that it disturbs nothing; returns what takes its place. Of ours, this is an error."""
    group.stop()
    if group.name.startswith(OURS):
        raise error
    print(error, file=sys.stderr, flush=True)
    if group.again is not None:
        other = group.again()
        try:
            other.wait_ready()
        except EndedError as next_error:
            return leave_out(other, next_error)
        restarted_peers.append(other.name)
        return other
    ended_peers.append(group.name)
    return None


class Run:
    """The groups of one layout that still live, and how to measure them."""

    def __init__(self, layout: Layout, groups: list[Group], rounds: int) -> None:
        self.layout = layout
        self.groups = groups
        self.rounds = rounds

    def _each(
        self, groups: list[Group], act: Callable[[Group], None], warm_up: Callable[[Group], object]
    ) -> None:
        """Also with what takes the place of a peer that ends, after a warm-up."""
        waiting = list(groups)
        started_again: list[Group] = []
        while waiting:
            group = waiting.pop(0)
            try:
                if group in started_again:
                    warm_up(group)
                act(group)
                if group.name.startswith(OURS):
                    time.sleep(LINGER_S)
            except EndedError as error:
                other = leave_out(group, error)
                for each in (self.groups, groups):
                    each[:] = [g for g in each if g is not group] + ([other] if other else [])
                waiting[:0] = started_again = [other] if other else []

    def calibrate(self, group: Group, case: str) -> int:
        """The calls of a round; the case is compiled and warm then."""
        count, seconds = 1, group.run(case, 1)["seconds"]
        seconds = group.run(case, 1)["seconds"]
        while seconds < ROUND_S / 3 and count < CALLS_MAX:
            count = min(CALLS_MAX, max(2 * count, int(count * ROUND_S / max(seconds, 1e-6) / 2)))
            seconds = group.run(case, count)["seconds"]
        return max(1, min(CALLS_MAX, round(count * ROUND_S / seconds)))

    def measure(self, case: str, only: str = "") -> dict[str, list[float]]:
        """Seconds for each unit of the case (cases.units), by the group's name."""
        began = time.monotonic()
        live = [group for group in self.groups if group.handles(case) and only in group.name]
        counts: dict[str, int] = {}

        def choose_count(group: Group) -> None:
            counts[group.name] = self.calibrate(group, case)

        self._each(live, choose_count, lambda _: None)
        found: dict[str, list[float]] = {group.name: [] for group in live}

        def one_round(group: Group) -> None:
            count = counts[group.name]
            seconds = group.run(case, count)["seconds"]
            found[group.name].append(seconds / count / cases.units(case))

        for _ in range(self.rounds):
            self._each(live, one_round, choose_count)
            live = live[1:] + live[:1]
        medians = "; ".join(
            f"{name} {statistics.median(values):.3g}" for name, values in found.items() if values
        )
        took = time.monotonic() - began
        print(f"{self.layout.name} {case} ({took:.0f} s): {medians}", file=sys.stderr, flush=True)
        return found


def split(found: dict[str, list[float]]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Ours, and the peers'."""
    ours = {name: values for name, values in found.items() if name.startswith(OURS)}
    return ours, {name: values for name, values in found.items() if name not in ours}


def inverse(seconds: list[float], factor: float = 1) -> list[float]:
    return [factor / each for each in seconds]


# --- Rows ---


def is_xla(peer: str) -> bool:
    """Whether its collectives are XLA's."""
    return peer.startswith(("stock", peers.XLA_INSIDE))


def scalar_limit(case: str, door: str, peer: str) -> Limit:
    if peer.startswith("JAX gloo"):
        aims = {"scalar fused": 15.0, "scalar one": 0 if "C++" in door else 5.0}
        return Limit(aims.get(case, 0), 1)
    if is_xla(peer):
        return Limit(2 if case == "scalar fused" else 0, STOCK_MIN)
    return Limit(0.7 if case == "scalar fused" else 0)


def scalar_rows(run: Run) -> list[benchlib.Row]:
    names = {
        "scalar one": "one call each",
        "scalar chain": f"chains of {cases.CHAIN} calls",
        "scalar fused": f"{cases.CHAIN} in one program",
    }
    rows = []
    for case, what in names.items():
        ours, theirs = split(run.measure(case))
        for name, seconds in ours.items():
            for peer, values in theirs.items():
                rows.append(
                    limited_row(
                        f"{run.layout.name}: scalar all-reduce + add, {what}: {name}",
                        "per second",
                        inverse(seconds),
                        peer,
                        inverse(values),
                        scalar_limit(case, name, peer),
                    )
                )
    return rows


def collective_limit(size: int, peer: str) -> Limit:
    if peer.startswith("JAX gloo"):
        return Limit(5, 1)
    if is_xla(peer):
        return Limit(0, STOCK_MIN)
    return Limit(1 if peer == "Open MPI" and size >= cases.MIB else 0)


def collective_rows(
    run: Run, operation: str, size: int, copy_s: list[float], kind: str = ""
) -> list[benchlib.Row]:
    """`copy_s`: of a copy of `size` bytes by each device at the same time, empty if not measured."""
    what = f"{run.layout.name}: {operation}, {cases.size_name(size)}"
    what += f", {kind} operands" if kind else ""
    ours, theirs = split(run.measure(f"{operation} {size} {kind}".strip()))
    rows = []
    for seconds in ours.values():
        speeds = inverse(seconds, size / 1e9)
        for peer, values in theirs.items():
            limit = collective_limit(size, peer)
            rows.append(limited_row(what, "GB/s", speeds, peer, inverse(values, size / 1e9), limit))
        if copy_s and size >= BEYOND_CACHES:
            copies = cases.copied_bytes(operation, size, run.layout.count) / (
                run.layout.count * size
            )
            bound = inverse(copy_s, size / 1e9 / copies)
            rows.append(
                limited_row(what, "GB/s", speeds, "bound by memory traffic", bound, Limit())
            )
    return rows


def all_collective_rows(run: Run, sizes: tuple[int, ...]) -> list[benchlib.Row]:
    rows = []
    for size in sizes:
        copies = run.measure(f"copy {size}") if any(g.handles("copy 1") for g in run.groups) else {}
        copy_s = next(iter(copies.values()), [])
        for operation in cases.OPERATIONS:
            rows += collective_rows(run, operation, size, copy_s)
        for operation, uploaded_size in cases.UPLOADED:
            if size == uploaded_size:
                rows += collective_rows(run, operation, size, [], "uploaded")
    return rows


def step_rows(run: Run, case: str, what: str, limits: dict[str, Limit]) -> list[benchlib.Row]:
    ours, theirs = split(run.measure(case))
    rows = []
    for seconds in ours.values():
        for peer, values in theirs.items():
            limit = next(each for prefix, each in limits.items() if peer.startswith(prefix))
            ms, peer_ms = [1e3 * s for s in seconds], [1e3 * s for s in values]
            rows.append(limited_row(f"{run.layout.name}: {what}", "ms", ms, peer, peer_ms, limit))
    return rows


def training_rows(run: Run, shardings: tuple[str, ...]) -> list[benchlib.Row]:
    inside = {peers.XLA_INSIDE: Limit(0, STOCK_MIN)}
    limits = {"stock": Limit(1 / 0.9, STOCK_MIN), "JAX gloo": Limit(15, 1)} | inside
    rows = []
    for sharding in shardings:
        rows += step_rows(run, f"step {sharding}", f"training step {sharding}", limits)
        what = f"training step {sharding}, each loss awaited"
        rows += step_rows(run, f"step {sharding} awaited", what, limits)
    limits = {"stock": Limit(0, STOCK_MIN), "JAX gloo": Limit(0, 1)} | inside
    rows += step_rows(run, "example", "the step of examples/train_lm.py", limits)
    return rows


def compile_rows(run: Run, shardings: tuple[str, ...]) -> list[benchlib.Row]:
    rows = []
    limits = {"stock": Limit(1 / 1.6), peers.XLA_INSIDE: Limit(1 / 1.6)}
    for sharding in shardings:
        what = f"compile of training step {sharding}"
        rows += step_rows(run, f"compile {sharding}", what, limits)
    return rows


def load_row(run: Run) -> benchlib.Row:
    seconds = next(iter(run.measure("load tp", only=OURS).values()))
    return benchlib.Row(
        what=f"{run.layout.name}: load of a cached training step tp on all workers at once, and its first run",
        unit="ms",
        values=[1e3 * s for s in seconds],
        aim="<= 100",
        holds=statistics.median(seconds) <= 0.1,
    )


def pair_rows(
    pairs: list[tuple[str, Group, Group]], layout: Layout, rounds: int
) -> list[benchlib.Row]:
    """Two clients at once on the same eight devices; two processes of stock XLA have eight each."""
    case = "step tp"
    alone: dict[str, list[float]] = {name: [] for name, _, _ in pairs}
    both: dict[str, list[float]] = {name: [] for name, _, _ in pairs}
    shares: dict[str, list[float]] = {name: [] for name, _, _ in pairs}
    counts = {}
    for name, first, second in pairs:
        second.run(case, 1)
        seconds = first.run(case, 1)["seconds"] and first.run(case, 8)["seconds"] / 8
        counts[name] = max(8, round(2 * ROUND_S / seconds))
    for _ in range(rounds):
        for name, first, second in pairs:
            count = counts[name]
            alone[name].append(count / first.run(case, count)["seconds"])
            for each in (first, second):
                each.ask(case, count)
            seconds = [float(each.answers(case)[0]["seconds"]) for each in (first, second)]
            both[name].append(2 * count / max(seconds))
            shares[name].append(min(seconds) / max(seconds))
    what = f"{layout.name}: training step tp, two clients at once"
    ours = next(name for name in both if name.startswith(OURS))
    rows = [limited_row(what, "steps/s", both[ours], "one client alone", alone[ours], Limit())]
    for name in both:
        if name != ours:
            rows.append(limited_row(what, "steps/s", both[ours], name, both[name], Limit()))
    share = benchlib.Row(
        what=f"{what}: the faster one's time over the slower one's",
        unit="ratio",
        values=shares[ours],
    )
    return [*rows, share]


# --- Phases ---


@contextlib.contextmanager
def running(groups: list[Group]) -> Iterator[list[Group]]:
    try:
        for group in list(groups):
            try:
                group.wait_ready()
            except EndedError as error:
                groups.remove(group)
                if other := leave_out(group, error):
                    groups.append(other)
        yield groups
    finally:
        for group in groups:
            group.stop()


@contextlib.contextmanager
def cluster_of(layout: Layout, *flags: str) -> Iterator[harness.Cluster]:
    cluster = harness.Cluster(1, layout.workers, layout.devices, *flags, folder="gangway-bench-")
    with tempfile.TemporaryDirectory(prefix="gangway-bench-") as executables:
        cluster.environment["GANGWAY_CACHE_DIR"] = executables
        cluster.start()
        try:
            yield cluster
        except BaseException:
            print(cluster.logs(), file=sys.stderr, flush=True)
            raise
        finally:
            cluster.stop()


def is_scalar(case: str) -> bool:
    return case.startswith("scalar")


def is_any(case: str) -> bool:
    return not case.startswith("copy")


def is_of_gloo(case: str) -> bool:
    """Not the example, which puts data on all devices as a script with one controller does."""
    return is_any(case) and not case.startswith(("compile", "load", "example"))


def measure_parts(run: Run, options: argparse.Namespace, rows: list[benchlib.Row]) -> None:
    """What all layouts have; training steps need 8 devices."""
    if "scalar" in options.parts:
        rows += scalar_rows(run)
    if "collectives" in options.parts:
        rows += all_collective_rows(run, options.sizes)
    if run.layout is not SMALL and "steps" in options.parts:
        rows += training_rows(run, options.shardings)


def measure_layout(layout: Layout, options: argparse.Namespace, rows: list[benchlib.Row]) -> None:
    """All rows of the layout; those that are made stay in `rows` if it fails."""
    with cluster_of(layout) as cluster, tempfile.TemporaryDirectory() as folder:
        groups = [
            peers.gangway(cluster, "pjrt", is_any),
            peers.gangway(cluster, "ifrt", is_scalar),
            peers.gangway_cpp(cluster, layout),
            peers.stock(layout, is_any),
            peers.gloo(layout, is_of_gloo),
            peers.bare(layout),
        ]
        if binary := peers.build_mpi(folder):
            groups.append(peers.MpiGroup(layout, binary))
            groups.append(peers.MpiGroup(layout, binary, cases.IN_FLIGHT))
        with running(groups):
            run = Run(layout, groups, options.rounds)
            measure_parts(run, options, rows)
            if layout is MAIN and "compile" in options.parts:
                rows += [*compile_rows(run, options.shardings), load_row(run)]
        if layout is MAIN and "pair" in options.parts:
            clients = [peers.gangway(cluster, "pjrt", is_any) for _ in range(2)]
            stock = [peers.stock(layout, is_any) for _ in range(2)]
            with running([*clients, *stock]) as live:
                pairs = [
                    (name, first, second)
                    for name, (first, second) in {
                        OURS: (clients[0], clients[1]),
                        "two processes of stock XLA": (stock[0], stock[1]),
                    }.items()
                    if first in live and second in live
                ]
                rows += pair_rows(pairs, layout, options.rounds)


def measure_inside(options: argparse.Namespace, rows: list[benchlib.Row]) -> None:
    """Gangway's collectives and XLA's inside of one worker."""
    with cluster_of(INSIDE, *OWN) as cluster, cluster_of(INSIDE, *XLAS) as other:
        groups = [
            peers.gangway(cluster, "pjrt", is_any),
            peers.gangway(other, "pjrt", is_any, peers.XLA_INSIDE),
            peers.stock(INSIDE, is_any),
        ]
        with running(groups):
            run = Run(INSIDE, groups, options.rounds)
            measure_parts(run, options, rows)
            if "compile" in options.parts:
                rows += compile_rows(run, options.shardings)


def profile(options: argparse.Namespace) -> None:
    """Prints where the CPU time of Gangway's processes goes in one case, and what a unit of it takes."""
    layout = next(each for each in LAYOUTS if each.name == options.layout[0])
    with cluster_of(layout) as cluster:
        door = peers.gangway(cluster, options.door, is_any)
        with running([door]):
            door.run(options.profile, 1)
            seconds = door.run(options.profile, 4)["seconds"] / 4
            count = max(1, round(PROFILED_S / seconds))
            pids = {"client": door.processes[0].pid, **cluster.pids(cluster.status())}
            with spmd_profile.sampled(pids, options.samples):
                before = spmd_profile.counted(pids)
                seconds = door.run(options.profile, count)["seconds"]
                after = spmd_profile.counted(pids)
    units = count * cases.units(options.profile)
    print(f"{layout.name} {options.profile}, {door.name}: {1e6 * seconds / units:.4g} us each")
    print(spmd_profile.text(before, after, units), flush=True)


PARTS = ("scalar", "collectives", "steps", "compile", "pair")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", default=bool(os.environ.get("GANGWAY_SPMD_QUICK"))
    )
    parser.add_argument("--rounds", type=int)
    names = [each.name for each in LAYOUTS]
    parser.add_argument("--layout", action="append", choices=names)
    parser.add_argument(
        "--part", action="append", dest="parts", choices=PARTS, help="only this; may recur"
    )
    parser.add_argument(
        "--profile", metavar="CASE", choices=cases.of_clients(), help='such as "step tp"'
    )
    parser.add_argument("--samples", metavar="FILE", default="", help="of perf, with --profile")
    parser.add_argument("--door", default="pjrt", choices=["pjrt", "ifrt"], help="of --profile")
    options = parser.parse_args()
    options.is_whole = not (options.quick or options.rounds or options.layout or options.parts)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.sizes = QUICK_SIZES if options.quick else cases.SIZES
    options.shardings = QUICK_SHARDINGS if options.quick else cases.SHARDINGS
    options.parts = options.parts or PARTS
    options.layout = options.layout or names
    return options


def main() -> None:
    options = parse_options()
    if options.profile:
        try:
            profile(options)
        except EndedError as error:
            raise SystemExit(str(error)) from None
        return
    began = time.monotonic()
    rows: list[benchlib.Row] = []
    name = "spmd-incomplete"
    try:
        for layout in LAYOUTS:
            if layout.name in options.layout:
                if layout is INSIDE:
                    measure_inside(options, rows)
                else:
                    measure_layout(layout, options, rows)
        for peer in sorted(set(restarted_peers)):
            times = [float(restarted_peers.count(peer))]
            rows.append(benchlib.Row(f"{peer} ended, and was started again", "times", times))
        if not ended_peers:
            name = "spmd" if options.is_whole else "spmd-quick"
    except EndedError as error:
        raise SystemExit(str(error)) from None
    finally:
        benchlib.write(name, rows, is_result=name == "spmd", shown=SHOWN)
        missed = [what for what, kept in required_rows if not kept]
        print(
            f"{time.monotonic() - began:.0f} s; required: {len(required_rows) - len(missed)} of {len(required_rows)} hold",
            file=sys.stderr,
        )
        for what in missed:
            print(f"missed: {what}", file=sys.stderr)
    if ended_peers:
        raise SystemExit(f"not complete, because these peers have ended: {', '.join(ended_peers)}")


if __name__ == "__main__":
    main()
