"""Measures Figure 7 of the Pathways paper on this machine, and draws it: pipelines of 4 to 32 stages, each on another
worker, whose programs are dispatched in parallel (Figure 4b) or sequentially (4a).

A program takes one microbatch through all stages, and the copies between their workers are part of it. Stages are
simulated: they take device time, and no CPU. All else is real: the head, a process for each worker, its sockets, and
the transfers. The client is in C++ (pipeline_dispatch.cc). Both kinds of dispatch take turns on one cluster, and their
results are compared bitwise.

`--stages N` restricts the run to pipelines of that length, `--rounds N` changes the turns; neither is recorded. The plot
is written beside the result in bench/out, and with GANGWAY_BENCH_RECORD to docs/images, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

import benchlib
import harness
import spmd_peers as peers

STAGES = (4, 8, 16, 32)
COSTS_MS = (0.1, 1.0)  # of a stage
FLOATS = 1024  # that one stage passes to the next: 4 KiB
ROUNDS = 7
ROUND_S = 0.5
PARALLEL, SEQUENTIAL = "parallel", "sequential"
WAYS = {"": "launches follow one another", " awaited": "each launch awaited"}
# Required of parallel dispatch, of the rate of sequential dispatch.
LEAST, LEAST_OF_MANY_SHORT_STAGES = 1.0, 1.5


def per_second(client: peers.Group, way: str, rounds: int) -> dict[str, list[float]]:
    """Microbatches per second by kind of dispatch, a value for each round."""
    cases = {kind: f"{kind} 1{way}" for kind in (PARALLEL, SEQUENTIAL)}
    counts = {}
    for kind, case in cases.items():
        client.run(case, 8)
        counts[kind] = max(4, round(ROUND_S * 8 / client.run(case, 8)["seconds"]))
        counts[kind] = max(
            4, round(ROUND_S * counts[kind] / client.run(case, counts[kind])["seconds"])
        )
    found: dict[str, list[float]] = {kind: [] for kind in cases}
    for number in range(rounds):
        for kind in sorted(cases, reverse=number % 2 == 1):
            seconds = client.run(cases[kind], counts[kind])["seconds"]
            found[kind].append(counts[kind] / seconds)
    return found


def what(stages: int, cost_ms: float, way: str) -> str:
    return f"{stages} stages of {cost_ms:g} ms, parallel dispatch, {WAYS[way]}"


def row(stages: int, cost_ms: float, way: str, found: dict[str, list[float]]) -> benchlib.Row:
    ours, theirs = found[PARALLEL], found[SEQUENTIAL]
    are_many_short = stages == max(STAGES) and cost_ms == min(COSTS_MS)
    least = LEAST_OF_MANY_SHORT_STAGES if are_many_short else LEAST
    return benchlib.Row(
        what=what(stages, cost_ms, way),
        unit="microbatches per second",
        devices="sim, transfers real",
        values=ours,
        peer="sequential dispatch",
        peer_values=theirs,
        aim=f">= {least:g}x",
        holds=statistics.median(ours) >= least * statistics.median(theirs),
    )


def measure(stages: int, rounds: int) -> list[benchlib.Row]:
    cluster = harness.Cluster(1, stages, 1, "--simulate", "1", folder="gangway-bench-").start()
    rows = []
    try:
        for cost_ms in COSTS_MS:
            client = peers.Group("C++", lambda case: True)
            command = [str(peers.BINARIES / "pipeline_dispatch"), cluster.control, cluster.token]
            command += [str(stages), str(round(1000 * cost_ms)), str(FLOATS)]
            client.spawn(command, peers.plain_environment())
            try:
                client.wait_ready()
                rows += [row(stages, cost_ms, w, per_second(client, w, rounds)) for w in WAYS]
            finally:
                client.stop()
    except BaseException:
        print(cluster.logs(), file=sys.stderr, flush=True)
        raise
    finally:
        cluster.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, choices=STAGES, help="only these")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    is_whole = options.stages is None and options.rounds == ROUNDS
    rows = []
    for stages in [options.stages] if options.stages else STAGES:
        rows += measure(stages, options.rounds)
    benchlib.write("figures" if is_whole else "figures-part", rows, is_whole)
    if is_whole:
        import plots

        folders = [benchlib.OUT]
        if os.environ.get("GANGWAY_BENCH_RECORD"):
            folders.append(benchlib.ROOT / "docs" / "images")
        for folder in folders:
            plots.dispatch(folder)


if __name__ == "__main__":
    main()
