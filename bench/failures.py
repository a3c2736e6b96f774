"""Measures how fast failures are detected: injects each fault into real processes repeatedly, and measures the time
until a user or an operator sees it. Prints the numbers of docs/reference/failures.md.

    python bench/failures.py [--runs 10] [--only NAME]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "testing"))

from faultlib import Blocker, Console, Gate, full_disk, start_jax  # noqa: E402
from harness import Cluster, wait_for, why  # noqa: E402
from hosts import ByHand  # noqa: E402

Sample = tuple[str, float]  # (observed effect, seconds)
MAKE_X = "x = jax.device_put(np.ones(1 << 20, 'float32'), jax.devices()[0]); x.block_until_ready()"


def since(began: float, what: str, condition: Callable[[], Any], limit_s: float = 40) -> Sample:
    wait_for(what, condition, limit_s)
    return what, time.monotonic() - began


def answered(client: Console, began: float, what: str) -> Sample:
    answer = client.answer(60)
    assert "error" in answer, answer
    return what, time.monotonic() - began


def spaced(runs: int) -> Iterator[int]:
    """Run numbers, for faults that end a process of one place. The supervisor does not restart a process that has
    died five times in a row within ten seconds of its start, so every fourth run starts later than that.
    """
    for run in range(runs):
        if run % 4 == 3:
            time.sleep(11)
        yield run


def up(cluster: Cluster, index: int = 0) -> dict[str, Any]:
    worker: dict[str, Any] = wait_for(
        f"worker {index} up",
        lambda: next((w for w in cluster.workers()[index:][:1] if w["state"] == "up"), None),
        40,
    )
    return worker


def client_killed(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    cluster = Cluster(1, 1, 2).start()
    try:
        for _run in range(runs):
            client = Console(cluster)
            client.do(MAKE_X)
            began = time.monotonic()
            os.kill(client.pid, signal.SIGKILL)
            yield since(began, "its arrays are freed", lambda: cluster.status()["bytes"] == 0)
    finally:
        cluster.stop()


def worker_killed(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    yield from worker_lost(runs, signal.SIGKILL)


def worker_stopped(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    yield from worker_lost(runs, signal.SIGSTOP)


def worker_lost(runs: int, how: signal.Signals) -> Iterator[Sample]:
    cluster = Cluster(1, 1, 2).start()
    try:
        with Console(cluster) as client:
            client.do("f = jax.jit(lambda x: x + 1)")
            for _run in spaced(runs):
                client.do(MAKE_X)
                client.do("f(x).block_until_ready()")
                old = up(cluster)
                began = time.monotonic()
                os.kill(old["pid"], how)
                client.send("f(x).block_until_ready()")
                if how == signal.SIGSTOP:
                    yield since(
                        began,
                        "`gangway why` names it",
                        lambda: any(w["reason"] == "worker_silent" for w in why(cluster)),
                    )
                yield answered(client, began, "the client has the error")

                def replaced(old: int = old["pid"]) -> bool:
                    worker = cluster.workers()[0]
                    return worker["pid"] not in (0, old) and worker["state"] == "up"

                yield since(began, "it is replaced", replaced)
    finally:
        cluster.stop()


def scheduler_killed(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    yield from scheduler_lost(runs, signal.SIGKILL)


def scheduler_stopped(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    yield from scheduler_lost(runs, signal.SIGSTOP)


def scheduler_lost(runs: int, how: signal.Signals) -> Iterator[Sample]:
    for _run in range(runs):  # a cluster each: repeated deaths would delay restarts
        cluster = Cluster(2, 1, 2, "--separate-schedulers").start()
        try:
            yield from one_scheduler_lost(cluster, how)
        finally:
            cluster.stop()


def one_scheduler_lost(cluster: Cluster, how: signal.Signals) -> Iterator[Sample]:
    """Ends or stops island 1's scheduler, a separate process."""
    with Console(cluster) as client:
        client.do(MAKE_X.replace("[0]", "[2]"))
        pid = cluster.status()["schedulers"][1]["pid"]
        began = time.monotonic()
        os.kill(pid, how)
        if how == signal.SIGSTOP:
            yield since(
                began,
                "`gangway why` names it",
                lambda: "the scheduler of island 1" in missing(cluster),
            )
        client.send("(x + 1).block_until_ready()")
        yield answered(client, began, "the client has the error")
        yield since(began, "it and its worker are replaced", lambda: replaced(cluster, pid))


def missing(cluster: Cluster) -> str:
    """The output of `gangway why`."""
    return cluster.command("why", "--port", str(cluster.port), timeout_s=10).stdout


def replaced(cluster: Cluster, pid: int) -> bool:
    status = cluster.status()
    return status["schedulers"][1]["pid"] not in (0, pid) and all(
        worker["state"] == "up" for worker in cluster.workers()
    )


def device_stuck(runs: int, folder: pathlib.Path) -> Iterator[Sample]:
    cluster = Cluster(1, 1, 2, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    try:
        with Console(cluster) as client:
            client.do("f = jax.jit(lambda x: x + 1)")
            client.do(MAKE_X)
            client.do("f(x).block_until_ready()")
            for _run in range(runs):
                with blocker.blocked(up(cluster)["pid"]):
                    began = time.monotonic()
                    client.send("f(x).block_until_ready()")
                    yield since(
                        began,
                        "`gangway why` names it",
                        lambda: any(w["reason"] == "stuck" for w in why(cluster)),
                    )
                    released = time.monotonic()
                client.answer(20)
                yield since(
                    released,
                    "its recovery is reported",
                    lambda: not cluster.workers()[0]["devices"][0]["stuck"],
                )
    finally:
        cluster.stop()


def compiler_killed(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    cluster = Cluster(1, 1, 2).start()
    try:
        for _run in spaced(runs):
            old = cluster.status()["compiler"]["pid"]
            began = time.monotonic()
            os.kill(old, signal.SIGKILL)

            def replaced(old: int = old) -> bool:
                return cluster.status()["compiler"]["pid"] not in (0, old)

            yield since(began, "it is replaced", replaced)
    finally:
        cluster.stop()


def controller_killed(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    for _run in range(runs):
        cluster = Cluster(1, 1, 2).start()
        try:
            pid = int((pathlib.Path(cluster.state_dir) / f"{cluster.port}/head.pid").read_text())
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)

            def gone(cluster: Cluster = cluster) -> bool:
                return not cluster.processes()

            yield since(began, "all its processes are gone", gone)
        finally:
            cluster.stop()


def cut(way: str) -> Callable[[int, pathlib.Path], Iterator[Sample]]:
    def run_cut(runs: int, folder: pathlib.Path) -> Iterator[Sample]:
        cluster = ByHand(folder)
        cluster.start()
        try:
            cluster.start_worker("worker0", 0, far=True)
            cluster.start_worker("worker1", 1)
            for run in range(runs):
                for index in range(2):
                    cluster.wait_until(index, "up", 40)
                began = time.monotonic()
                cluster.network.cut = {"there": way != "back", "back": way != "there"}
                yield since(
                    began,
                    "the controller declares it dead",
                    lambda: cluster.workers()[0]["state"] == "down",
                )

                def ended(run: int = run) -> bool:
                    return cluster.log("worker0").count("island0/worker0 ends:") > run

                yield since(began, "the worker ends its work", ended)
                cluster.network.cut = {"there": False, "back": False}
                healed = time.monotonic()
                yield since(
                    healed,
                    "it is back after the repair",
                    lambda: cluster.workers()[0]["state"] == "up",
                )
        finally:
            cluster.stop()

    return run_cut


def worker_late(runs: int, folder: pathlib.Path) -> Iterator[Sample]:
    """The worker starts after a client that waits for it."""
    for run in range(runs):
        cluster = Cluster(1, 2, 1, "--session-wait", "60")
        place = folder / str(run)
        place.mkdir()
        gate = Gate(cluster, place, 1)
        try:
            with cluster.starting():
                gate.wait_held()
                process = start_jax(cluster)
                cluster.wait_for_words("opens for jax")
                began = time.monotonic()
                gate.open()
                up(cluster, 1)
                yield "it is up", time.monotonic() - began
                output, _ = process.communicate(timeout=40)
                assert process.returncode == 0, output
                yield "the script that waited has run", time.monotonic() - began
        finally:
            cluster.stop()


def worker_away(runs: int, folder: pathlib.Path) -> Iterator[Sample]:
    """The worker stays absent for longer than `--worker-wait` 5."""
    cluster = Cluster(1, 2, 1, "--worker-wait", "5")
    gate = Gate(cluster, folder, 1)
    gate.open()
    cluster.start()
    try:
        for _run in spaced(runs):
            with Console(cluster) as client:
                gate.shut()
                os.kill(up(cluster, 1)["pid"], signal.SIGKILL)
                wait_for("it is known", lambda: cluster.workers()[1]["state"] == "down", 10)
                began = time.monotonic()
                client.send("jax.device_put(np.ones(4), jax.devices()[1]).block_until_ready()")
                yield answered(client, began, "work for it has ended with an error")
                gate.open()
                up(cluster, 1)
    finally:
        cluster.stop()


def worker_drained(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    cluster = Cluster(1, 2, 2).start()
    drain = ("drain", "island0/worker1", "--port", str(cluster.port))
    try:
        with Console(cluster) as client:
            client.do("x = jax.device_put(np.ones(4, 'float32'), jax.devices()[2])")
            client.do("f = jax.jit(lambda x: x + 1); f(x).block_until_ready()")
            for _run in range(runs):
                began = time.monotonic()
                assert cluster.command(*drain).returncode == 0
                yield "`gangway drain` has seen it idle", time.monotonic() - began
                began = time.monotonic()
                client.send("f(x).block_until_ready()")
                yield answered(client, began, "new work is refused")
                assert cluster.command(*drain, "--undo").returncode == 0
                client.do("f(x).block_until_ready()")
    finally:
        cluster.stop()


def worker_told_to_end(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    cluster = Cluster(1, 1, 2).start()
    try:
        for _run in spaced(runs):
            old = up(cluster)["pid"]
            began = time.monotonic()
            os.kill(old, signal.SIGTERM)
            yield since(began, "it has ended", lambda: cluster.workers()[0]["pid"] != old)  # noqa: B023
            up(cluster)
            yield "it is replaced", time.monotonic() - began
    finally:
        cluster.stop()


def cluster_ended(runs: int, _: pathlib.Path) -> Iterator[Sample]:
    for _run in range(runs):
        cluster = Cluster(1, 2, 2).start()
        try:
            began = time.monotonic()
            assert cluster.command("down", "--port", str(cluster.port)).returncode == 0
            assert not cluster.processes()
            yield "all its processes are gone", time.monotonic() - began
        finally:
            cluster.stop()


def second_process(runs: int, folder: pathlib.Path) -> Iterator[Sample]:
    cluster = ByHand(folder)
    cluster.start()
    try:
        cluster.start_worker("worker0", 0)
        for run in range(runs):
            cluster.wait_until(0, "up", 40)
            began = time.monotonic()
            cluster.start_worker(f"second{run}", 0)
            assert cluster.processes[f"second{run}"].wait(30) == 1
            yield "the second one has ended", time.monotonic() - began
    finally:
        cluster.stop()


def copy_lost(index: int, how: signal.Signals) -> Callable[[int, pathlib.Path], Iterator[Sample]]:
    """Stops or kills the sender (0) or receiver (1) of a copy. It is stopped first, so that the copy cannot finish."""

    def run_lost(runs: int, _: pathlib.Path) -> Iterator[Sample]:
        for _run in range(runs):
            cluster = Cluster(2, 1, 2).start()
            try:
                with Console(cluster) as client:
                    client.do("a, b = jax.devices()[0], jax.devices()[2]")
                    client.do("x = jax.device_put(np.ones(1 << 20, 'float32'), a) + 1")
                    client.do("jax.device_put(x, b).block_until_ready()")
                    began = time.monotonic()
                    os.kill(cluster.workers()[index]["pid"], signal.SIGSTOP)
                    client.do("y = jax.device_put(x, b)")
                    if how == signal.SIGKILL:
                        began = time.monotonic()
                        os.kill(cluster.workers()[index]["pid"], how)
                    client.send("y.block_until_ready()")
                    yield answered(client, began, "the client has the error")
            finally:
                cluster.stop()

    return run_lost


def disk_full(runs: int, folder: pathlib.Path) -> Iterator[Sample]:
    with full_disk(folder) as full:
        for name, place in (("with a full disk", full), ("with a good one", folder / "good")):
            cluster = Cluster(1, 1, 2)
            cluster.environment["GANGWAY_CACHE_DIR"] = str(place)
            cluster.start()
            try:
                with Console(cluster) as client:
                    client.do(MAKE_X)
                    for run in range(runs):
                        began = time.monotonic()
                        client.do(f"jax.jit(lambda x: x * {run} + 1)(x).block_until_ready()")
                        yield f"a new program has run, {name}", time.monotonic() - began
            finally:
                cluster.stop()


FAULTS: dict[str, Callable[[int, pathlib.Path], Iterator[Sample]]] = {
    "client killed": client_killed,
    "worker killed": worker_killed,
    "worker stopped": worker_stopped,
    "worker late": worker_late,
    "worker away": worker_away,
    "worker drained": worker_drained,
    "worker told to end": worker_told_to_end,
    "cluster ended": cluster_ended,
    "second process": second_process,
    "sender killed": copy_lost(0, signal.SIGKILL),
    "sender stopped": copy_lost(0, signal.SIGSTOP),
    "receiver killed": copy_lost(1, signal.SIGKILL),
    "receiver stopped": copy_lost(1, signal.SIGSTOP),
    "disk full": disk_full,
    "scheduler killed": scheduler_killed,
    "scheduler stopped": scheduler_stopped,
    "device stuck": device_stuck,
    "compiler killed": compiler_killed,
    "controller killed": controller_killed,
    "cut from the worker": cut("there"),
    "cut to the worker": cut("back"),
    "cut in both directions": cut("both"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", choices=FAULTS, action="append")
    arguments = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.machine()}; load {os.getloadavg()[0]:.1f} at the start\n"
    )
    print("| fault | noticed | median | worst | runs |\n|---|---|---|---|---|")
    for name in arguments.only or FAULTS:
        seen: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory(prefix="gangway-faults-") as folder:
            for what, seconds in FAULTS[name](arguments.runs, pathlib.Path(folder)):
                seen.setdefault(what, []).append(seconds)
        for what, times in seen.items():
            print(
                f"| {name} | {what} | {statistics.median(times):.2f} s | {max(times):.2f} s | "
                f"{len(times)} |",
                flush=True,
            )
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
