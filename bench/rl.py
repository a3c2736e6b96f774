"""Reinforcement learning with a trainer and two rollout meshes (examples/rl_async.py): the time of a step with staleness
1, in which they work at the same time, and with staleness 0, in which each waits for the other.

Two cores cannot show what three busy meshes do, so the work is simulated: it takes time but no CPU. The rest is real:
every step, the weights go from the trainer to each rollout, and a batch from each rollout to the trainer. A rollout
should never wait, so the time of a step beyond its own work is the pause of a synchronization; the last step of the
trainer, which overlaps with nothing, is left out of that. The example itself, whose work is real, runs beside JAX in one
process on the same plugin. Other load on the machine delays each step.
"""

from __future__ import annotations

import pathlib
import statistics
from typing import Any

import benchlib
import mesh_clients

CLIENT = pathlib.Path(__file__).with_name("rl_client.py")
TRAINER_MS, ROLLOUT_MS = 80.0, 100.0
ARRAYS, SIZE = 64, 256 << 10  # the weights
SIMULATED = f"{ARRAYS} {SIZE} {TRAINER_MS / 1e3} {ROLLOUT_MS / 1e3}"
STEPS, REPEATS = 24, 5
MANY = (1000, 4 << 10)
PAUSE_MS, ARRAY_US = 10.0, 5.0  # aims
IN_PROCESS = "JAX in-process, same plugin"


def in_turn(sides: list[mesh_clients.Client], **command: Any) -> list[list[float]]:
    """The values of each side; the first answers, which compile, do not count."""
    values: list[list[float]] = [[] for _ in sides]
    for repeat in range(REPEATS + 1):
        for side, found in zip(sides, values, strict=True):
            value = side.ask(**command)
            if repeat:
                found.append(value)
    return values


def row(what: str, seconds: list[float], peer: str, peer_seconds: list[float]) -> benchlib.Row:
    ms, peer_ms = ([1e3 * value for value in each] for each in (seconds, peer_seconds))
    return benchlib.Row(what, "ms per step", ms, peer=peer, peer_values=peer_ms)


def compared(kind: str, asynchronous: list[float], synchronous: list[float]) -> benchlib.Row:
    made = row(f"{kind}: staleness 1", asynchronous, "staleness 0", synchronous)
    made.aim = "faster"
    made.holds = statistics.median(asynchronous) < statistics.median(synchronous)
    return made


def simulated_rows(clients: dict[str, mesh_clients.Client]) -> list[benchlib.Row]:
    (one,), (zero,) = (
        in_turn([clients["gangway"]], case="step", simulated=SIMULATED, staleness=s, steps=STEPS)
        for s in (1, 0)
    )
    trainer_s, rollout_s = TRAINER_MS / 1e3, ROLLOUT_MS / 1e3
    kind, bound_s = "simulated work", rollout_s + trainer_s / STEPS
    pause = row(f"{kind}: pause of the rollouts per sync", [s - bound_s for s in one], "", [])
    pause.aim = f"<= {PAUSE_MS:g}, a decoding tick"
    pause.holds = statistics.median(pause.values) <= PAUSE_MS
    return [
        compared(kind, one, zero),
        row(f"{kind}: staleness 1", one, "bound: the rollouts' work", [bound_s]),
        row(f"{kind}: staleness 0", zero, "bound: both works", [rollout_s + trainer_s]),
        pause,
    ]


def example_rows(clients: dict[str, mesh_clients.Client]) -> list[benchlib.Row]:
    sides = [clients["gangway"], clients["plugin"]]
    one, zero = (
        in_turn(sides, case="step", simulated="", staleness=s, steps=STEPS) for s in (1, 0)
    )
    return [
        compared("the example", one[0], zero[0]),
        row("the example: staleness 1", one[0], IN_PROCESS, one[1]),
        row("the example: staleness 0", zero[0], IN_PROCESS, zero[1]),
    ]


def copy_row(clients: dict[str, mesh_clients.Client]) -> benchlib.Row:
    arrays, size = MANY
    ours, theirs = in_turn([*clients.values()], case="copy", arrays=arrays, size=size)
    us, their_us = ([1e6 * value / arrays for value in each] for each in (ours, theirs))
    return benchlib.Row(
        f"{arrays} arrays of {size >> 10} KiB to another mesh, one device_put, awaited",
        "us per array",
        us,
        peer=IN_PROCESS,
        peer_values=their_us,
        aim=f"<= {ARRAY_US:g}",
        holds=statistics.median(us) <= ARRAY_US,
    )


def main() -> None:
    with mesh_clients.running(CLIENT, meshes=3) as clients:
        rows = [*simulated_rows(clients), *example_rows(clients), copy_row(clients)]
    for each in rows:
        each.devices = "cpu, work simulated" if "simulated" in each.what else "cpu"
    benchlib.write("rl", rows)


if __name__ == "__main__":
    main()
