"""Compares two states of Gangway: says whether a change made anything slower.

    .venv/bin/python bench/turns.py OLD NEW [--layout 4x2] [--rounds 15] [--up=--no-latency-request]... CASE...

OLD and NEW are checkouts with a release build (`tools/build.sh release gangway`). Each has a cluster and a client,
which live side by side and take turns of a fraction of a second, as in spmd.py: a shared machine changes its speed by
the minute, and whole runs in turns differed by a factor of two where nothing had changed. Harness and clients are
those of this checkout. A CASE is one of spmd_client.py, such as "permute 65536", or, with `--layout 1x8`, one of
step_client.py, such as "matrix step, 8 devices". `--up` is an option of both clusters' `gangway up`, and may be
repeated.

The ratio is NEW's median time over OLD's: above 1, NEW is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys

import benchlib
import harness
import spmd
import spmd_peers
import step


def is_step(case: str) -> bool:
    return case.endswith((" device", " devices"))


def serve(layout: spmd_peers.Layout, flags: list[str]) -> None:
    """Answers commands as spmd_client.py does, by calls on a cluster of its own."""
    cluster = harness.Cluster(1, layout.workers, layout.devices, *flags, folder="gangway-bench-")
    cluster.start()
    group = spmd_peers.gangway(cluster, "ifrt", lambda _: True)
    steps = step.gangway(cluster)
    try:
        group.wait_ready()
        print(json.dumps({"ready": layout.count}), flush=True)
        for line in sys.stdin:
            case, count = line.rstrip("\n").split("\t")
            calls = int(count)
            seconds = steps.run(case, calls) if is_step(case) else group.run(case, calls)["seconds"]
            print(json.dumps({"seconds": seconds}), flush=True)
    finally:
        steps.stop()
        group.stop()
        cluster.stop()


def state(name: str, tree: pathlib.Path, layout: str, flags: list[str]) -> spmd_peers.Group:
    """The checkout, in a process of its own, because a harness knows one build."""
    built = tree / "build" / "release" / "gangway"
    environment = {
        **os.environ,
        "GANGWAY_BIN": str(built / "cli" / "gangway"),
        "GANGWAY_PJRT_PLUGIN": str(built / "frontdoor" / "pjrt" / "libgangway_pjrt.so"),
    }
    group = spmd_peers.Group(f"{spmd.OURS}, {name}", lambda _: True)
    group.spawn([sys.executable, __file__, "--serve", layout, *flags], environment)
    return group


def layout_of(text: str) -> spmd_peers.Layout:
    workers, _, devices = text.partition("x")
    return spmd_peers.Layout(int(workers), int(devices))


def row(case: str, found: dict[str, list[float]]) -> benchlib.Row:
    old, new = ([1e6 * each for each in seconds] for seconds in found.values())
    return benchlib.Row(what=case, unit="us", values=new, peer="OLD", peer_values=old)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(layout_of(sys.argv[2]), sys.argv[3:])
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
    trees = {"OLD": arguments.old.resolve(), "NEW": arguments.new.resolve()}
    groups = [state(name, tree, arguments.layout, arguments.up) for name, tree in trees.items()]
    try:
        for group in groups:
            group.wait_ready()
        run = spmd.Run(layout_of(arguments.layout), groups, arguments.rounds)
        rows = [row(case, run.measure(case)) for case in arguments.cases]
    except spmd_peers.EndedError as error:
        raise SystemExit(str(error)) from None
    finally:
        for group in groups:
            group.stop()
    benchlib.write("turns", rows, is_result=False)


if __name__ == "__main__":
    main()
