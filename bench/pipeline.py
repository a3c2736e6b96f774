"""Measures pipelines of 4 and 8 stages against a pipeline's bound: with M microbatches and S stages, a step takes at
least (M + S - 1) times the time of one microbatch in one stage, forward and backward.

The schedules are those of examples/pipeline_lm.py. A stage's computation is simulated: it takes time but no CPU, so
that two cores can stand for eight devices. The rest is real: each stage is a worker process, and 1 MiB goes from worker
to worker with each microbatch, forward and backward. Other load on the machine delays each step.

Then the dispatch of whole steps, with and without programs (pipeline_programs.py). `--part` restricts the run to one of
both, which is not recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

import benchlib
import harness
import pipeline_programs

CLIENT = pathlib.Path(__file__).with_name("pipeline_client.py")
STAGE_MS = (20.0, 50.0)  # forward, and backward
BYTES = 1 << 20
STEPS = 3
LIMIT, AIM = 1.05, 1.02
PARTS = ("schedules", "programs")
PROGRAM = "pipeline_lm.py --program"
SHOWN = (
    ("gpipe, 4 stages on 1 islands, 16 microbatches of 50", "bound"),
    ("eager-1f1b, 8 stages on 1 islands, 32 microbatches of 50", "bound"),
    ("eager-1f1b, 8 stages on 4 islands, 32 microbatches of 20", "bound"),
    (f"{PROGRAM}, 2 stages, 4 microbatches: CPU of the head", "plain"),
    (f"{PROGRAM}, 4 stages, 8 microbatches: CPU of the head", "plain"),
    (f"{PROGRAM}, 8 stages, 32 microbatches: CPU of the head", "plain"),
    (f"{PROGRAM}, 8 stages, 32 microbatches: CPU of the script", "plain"),
    (f"{PROGRAM}, 8 stages, 32 microbatches: frames, script sent", "plain"),
)
SHAPES = [(1, 4), (4, 1), (1, 8), (4, 2)]  # islands x workers, each with one device


def step_seconds(
    cluster: harness.Cluster, schedule: str, microbatches: int, stage_ms: float
) -> list[float]:
    result = subprocess.run(
        [
            *[sys.executable, str(CLIENT), "--schedule", schedule],
            *["--microbatches", str(microbatches), "--stage-ms", str(stage_ms)],
            *["--bytes", str(BYTES), "--steps", str(STEPS)],
        ],
        env=harness.client_environment(cluster.port),
        capture_output=True,
        text=True,
        timeout=300,
    )
    if result.returncode:
        raise SystemExit(f"{schedule}: {result.stdout}{result.stderr}\n{cluster.logs()}")
    seconds: list[float] = json.loads(result.stdout.splitlines()[-1])
    return seconds


def row(
    cluster: harness.Cluster, islands: int, workers: int, schedule: str, ms: float
) -> benchlib.Row:
    stages = islands * workers
    microbatches = 4 * stages
    bound_ms = (microbatches + stages - 1) * 2 * ms
    values = [1e3 * s for s in step_seconds(cluster, schedule, microbatches, ms)]
    aimed = schedule != "1f1b"  # in 1f1b, stages wait for each array in transit
    return benchlib.Row(
        what=f"{schedule}, {stages} stages on {islands} islands, {microbatches} microbatches "
        f"of {ms:g} + {ms:g} ms",
        unit="ms per step",
        devices="cpu, stage time simulated",
        values=values,
        peer="bound (M + S - 1) x stage time",
        peer_values=[bound_ms],
        aim=f"<= {LIMIT:g} x, better {AIM:g} x" if aimed else "",
        holds=benchlib.statistics.median(values) <= LIMIT * bound_ms if aimed else None,
    )


def measure_schedules(rows: list[benchlib.Row]) -> None:
    os.environ["GANGWAY_SIMULATED_WORK"] = "1"
    for islands, workers in SHAPES:
        cluster = harness.Cluster(islands, workers, 1).start()
        try:
            rows += [
                row(cluster, islands, workers, schedule, ms)
                for schedule in ("gpipe", "1f1b", "eager-1f1b")
                for ms in STAGE_MS
            ]
        finally:
            cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, help="only this")
    part = parser.parse_args().part
    rows: list[benchlib.Row] = []
    if part in (None, "schedules"):
        measure_schedules(rows)
    if part in (None, "programs"):
        pipeline_programs.measure(rows)
    benchlib.write(f"pipeline-{part}" if part else "pipeline", rows, not part, SHOWN)


if __name__ == "__main__":
    main()
