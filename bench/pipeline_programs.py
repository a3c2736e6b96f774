"""The rows of bench/pipeline.py about steps as programs: examples/pipeline_lm.py with and without --program. Part of that
benchmark.

Both trainings live in one script (pipeline_programs_client.py), and take turns. Frames and CPU are of whole steps: with
the upload of each microbatch, the compiled calls, the copies, and the losses that are read eight steps behind. The model
is so small that XLA's work in the workers is not what is measured; script and head are processes of their own.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import sys
from typing import Any

import benchlib
import harness
import launch_counts as counts
import spmd_peers as peers

CLIENT = pathlib.Path(__file__).with_name("pipeline_programs_client.py")
SHAPES = [(2, 4), (2, 32), (4, 8), (8, 8), (8, 32)]  # stages, each a worker; microbatches
PLAIN, PROGRAM = "plain", "program"
WARM_STEPS = 12  # compiles; the registration; and the steps that are ahead
ROUNDS = 5
ROUND_S = 0.6
HEAD_LIMIT = 0.5  # of the plain script's CPU


@dataclasses.dataclass
class Turns:
    """Of one case, by round, per step."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    counted: list[counts.Counts] = dataclasses.field(default_factory=list)
    answer: dict[str, Any] = dataclasses.field(default_factory=dict)  # the last one

    def cpu_ms(self, role: str) -> list[float]:
        return [each.cpu_us[role] / 1000 for each in self.counted]

    def frames(self, name: str) -> list[float]:
        return [each.frames[name] for each in self.counted]


def pids_of(cluster: harness.Cluster, script: peers.Group) -> dict[str, int]:
    workers = {f"worker {i}": each["pid"] for i, each in enumerate(cluster.workers())}
    return {"script": script.processes[0].pid, "head": cluster.head_pid, **workers}


def one_turn(
    cluster: harness.Cluster, script: peers.Group, case: str, steps: int, turns: Turns
) -> None:
    def traffic() -> tuple[counts.ByRole, counts.ByRole]:
        return counts.traffic(turns.answer["traffic"], cluster.status()["counters"])

    def run() -> None:
        turns.answer = script.run(case, steps)

    turns.answer = script.run(case, 0)
    idle, before = traffic(), traffic()  # each status has frames of its own
    counted = counts.without_perf(pids_of(cluster, script), steps, run)
    after = traffic()
    counted.frames, counted.frame_bytes = (
        counts.per_operation(second, third, counts.difference(first, second), steps)
        for first, second, third in zip(idle, before, after, strict=True)
    )
    turns.seconds.append(turns.answer["seconds"] / steps)
    turns.counted.append(counted)


def rows_of(what: str, plain: Turns, program: Turns) -> list[benchlib.Row]:
    def row(name: str, unit: str, ours: list[float], theirs: list[float]) -> benchlib.Row:
        return benchlib.Row(f"{what}: {name}", unit, ours, peer="plain", peer_values=theirs)

    rows = [
        row(f"CPU of the {role}", "ms per step", program.cpu_ms(role), plain.cpu_ms(role))
        for role in ("head", "script", "workers")
    ]
    head = rows[0]
    ratio = statistics.median(head.values) / statistics.median(head.peer_values)
    head.aim, head.holds = f"<= {HEAD_LIMIT:g}x", ratio <= HEAD_LIMIT
    rows += [
        row(f"frames, {name}", "per step", program.frames(name), plain.frames(name))
        for name in ("script sent", "head sent", "head received")
    ]
    ms = [[1000 * each for each in turns.seconds] for turns in (program, plain)]
    rows.append(row("time", "ms per step", *ms))
    return [*rows, *whole_steps(what, plain, program)]


def whole_steps(what: str, plain: Turns, program: Turns) -> list[benchlib.Row]:
    """What the trainings tell of all their steps."""
    losses, others = program.answer["losses"], plain.answer["losses"]
    same = sum(a == b for a, b in zip(losses, others, strict=True))
    single = program.answer["single_messages"]
    steps = len(losses)
    return [
        benchlib.Row(
            f"{what}: losses that are the plain script's, bitwise, of {steps} steps",
            "steps",
            [same],
            aim="all",
            holds=same == steps,
        ),
        benchlib.Row(
            f"{what}: one message each, of {steps} steps",
            "steps",
            [single],
            aim="all but two",
            holds=single >= steps - 2,
        ),
    ]


def measure_shape(
    cluster: harness.Cluster, script: peers.Group, stages: int, microbatches: int
) -> list[benchlib.Row]:
    found = {f"{kind} {microbatches}": Turns() for kind in (PLAIN, PROGRAM)}
    for case in found:
        script.run(case, WARM_STEPS)
    seconds = max(script.run(case, WARM_STEPS)["seconds"] for case in found) / WARM_STEPS
    steps = max(WARM_STEPS, round(ROUND_S / seconds))
    for _ in range(ROUNDS):
        for case, turns in found.items():
            one_turn(cluster, script, case, steps, turns)
    plain, program = found.values()
    what = f"pipeline_lm.py --program, {stages} stages, {microbatches} microbatches"
    return rows_of(what, plain, program)


def measure(rows: list[benchlib.Row], shapes: list[tuple[int, int]] = SHAPES) -> None:
    for stages in sorted({stages for stages, _ in shapes}):
        cluster = harness.Cluster(1, stages, 1, folder="gangway-bench-").start()
        script = peers.Group("steps as programs", lambda case: True)
        try:
            environment = harness.client_environment(cluster.port, "pjrt")
            script.spawn([sys.executable, str(CLIENT), str(stages)], environment)
            script.wait_ready()
            for shape in shapes:
                if shape[0] == stages:
                    rows += measure_shape(cluster, script, *shape)
        except BaseException:
            print(cluster.logs(), file=sys.stderr, flush=True)
            raise
        finally:
            script.stop()
            cluster.stop()
