"""Faults of every kind at random moments of a stream of gangs over several workers: before, in and between their
collectives, in a load and in a transfer. What needs the victim fails by its name, within a second or its liveness
limit; nothing else fails, gangs of others and of the surviving workers go on, no process ends because of it, and
nothing is left.

The seeds together draw each kind four times.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

import pytest
from faultlib import REFUSED, Console, elapsed, stopped, the_cause
from harness import Cluster, wait_for
from test_collectives import ENDED_S, SILENT_S
from test_collectives_faults import VICTIM, Faulty, faulty_cluster, load_in, pids, victim_of
from test_collectives_moments import FREED_S, MIB, OPEN, ROWS
from test_faults import wait_for_restart

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.faults,
    pytest.mark.alone,
    pytest.mark.timeout(300),
]
NewCluster = Callable[..., Cluster]
TURNS = 8
# `turning` has a collective in each of its turns, and fails at one of the victim's positions before one of them.
TURNING = f"""
def take(place, turn, victim, last):
    if place == victim and turn == last: raise ValueError("this member has had enough")
    return np.float32(0)
def turns(v, fault):
    place = jax.lax.axis_index(("a", "b"))
    def one(turn, v):
        zero = jax.pure_callback(take, jax.ShapeDtypeStruct((), np.float32), place, turn, fault[0], fault[1])
        return v + jax.lax.psum(v.sum() * 0 + zero, ("a", "b"))
    return jax.lax.fori_loop(0, {TURNS}, one, v)
turning_jit = jax.jit(jax.shard_map(turns, mesh=mesh, in_specs=(P("a", "b"), P()), out_specs=P("a", "b"), check_vma=False))
def turning(v, place, turn):
    return turning_jit(v, jax.device_put(np.array([place, turn]), NamedSharding(mesh, P())))
result = float(turning(start, -1, -1).sum())
"""
TRANSFERS = {
    "upload": "move(raws(), lambda v: jax.device_put(v, devices[4]))",
    "download": "move([jax.jit(lambda v: v + i)(rows[4]) for i in range(moves)], np.asarray)",
    "copy to": "copies(0, 4, lambda last: wide(start, wide_rows(last)))",
    "copy from": "copies(4, 0, lambda last: far(others, far_rows(last)))",
}
# Uploads stop when they are `halted`, because the rest would go to the restarted worker.
MOVES = (
    ROWS
    + """
def raws():
    for _ in range(moves):
        if not halted: yield raw
def copies(source, to, gang):
    moved.extend(jax.device_put(rows[source], devices[to]) for _ in range(moves))
    users.extend(gang(moved[-1]) for _ in range(10))
users, halted = [], []
"""
)


class Round:
    """One fault. `gs` are gangs under way when it comes, `vs` those that need what it takes."""

    def __init__(self, faulty: Faulty, ends: contextlib.ExitStack, rng: random.Random) -> None:
        self.faulty = faulty
        self.ends = ends
        self.rng = rng
        self.old = victim_of(faulty.running)
        self.pid = int(self.old["pid"])
        self.do = faulty.client.do

    def pause(self, longest_s: float) -> None:
        """The moment is random, and no event."""
        time.sleep(self.rng.random() * longest_s)

    def under_way(self) -> None:
        self.do("gs = chain(30, start)")
        self.pause(0.02)

    def expect_named(self, values: str) -> None:
        """Some may have ended well before the fault."""
        found = self.do(f"result = errors({values})", 30)
        assert all(VICTIM in each for each in found), found

    def expect_lost(self, how: str, began: float) -> None:
        found = self.do("result = errors(vs)", 30)
        took = elapsed(began)
        assert len(found) == 30 and all(VICTIM in each for each in found), found
        assert took < (SILENT_S if how == "stop" else ENDED_S), took
        self.faulty.expect_others_go_on(time.monotonic())
        failed = time.monotonic()
        assert self.do("result = other_gang()") == 6.0, "a cached gang of the surviving workers"
        assert elapsed(failed) < ENDED_S, elapsed(failed)
        self.expect_named("gs")

    def lose(self, how: str) -> contextlib.AbstractContextManager[None]:
        if how == "stop":
            return stopped(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        return contextlib.nullcontext()

    def lost(self, how: str) -> None:
        self.under_way()
        with self.lose(how):
            began = time.monotonic()
            self.do("vs = chain(30, gs[-1])")
            self.expect_lost(how, began)

    def lost_in_load(self, how: str) -> None:
        self.under_way()
        self.do(f"f = jax.jit(lambda x: x * {self.rng.randrange(2, 1 << 20)} - x.sum())")
        with self.faulty.blocker.blocked(self.pid, ".load"):
            self.do("vs = chain(30, f(start))", 60)
            self.pause(0.05)
            with self.lose(how):
                self.expect_lost(how, time.monotonic())

    def begin_transfer(self) -> str:
        way = self.rng.choice([*TRANSFERS])
        self.do(f"exec({MOVES!r}, globals())", 60)
        self.under_way()
        self.do(f"thread = {TRANSFERS[way]}", 60)
        self.pause(0.05)
        return way

    def lost_in_transfer(self, how: str) -> None:
        way = self.begin_transfer()
        with self.lose(how):
            began = time.monotonic()
            self.do("vs = chain(30, gs[-1])")
            self.expect_lost(how, began)
            self.expect_named("users")
            if way in ("upload", "download"):
                alive, said = self.do(
                    "halted.append(1); thread.join(5); result = (thread.is_alive(), said)"
                )
                assert not alive and all(VICTIM in each for each in said), (alive, said)

    def kill(self) -> None:
        self.lost("kill")

    def stop(self) -> None:
        self.lost("stop")

    def kill_in_load(self) -> None:
        self.lost_in_load("kill")

    def stop_in_load(self) -> None:
        self.lost_in_load("stop")

    def kill_in_transfer(self) -> None:
        self.lost_in_transfer("kill")

    def stop_in_transfer(self) -> None:
        self.lost_in_transfer("stop")

    def failed_execute(self) -> None:
        self.under_way()
        with self.faulty.blocker.refused(self.pid, self.rng.randrange(2)):
            began = time.monotonic()
            self.do("vs = chain(30, gs[-1])")
            self.faulty.expect_all_fail("vs", 30, REFUSED, began)
            self.faulty.expect_others_go_on(time.monotonic())
        self.expect_named("gs")

    def failed_load(self) -> None:
        self.under_way()
        self.do(f"f = jax.jit(lambda x: x * {self.rng.randrange(2, 1 << 20)} - x.sum())")
        with self.faulty.blocker.refused_loads(self.pid):
            began = time.monotonic()
            self.do("vs = chain(30, f(start))", 60)
            found = self.do("result = errors(vs)")
            took = elapsed(began)
            assert len(found) == 30, found
            assert "No program shape found" in the_cause(found, VICTIM, of="load"), found
            assert took < ENDED_S, took
            self.faulty.expect_others_go_on(time.monotonic())
        assert self.do("result = errors(gs)") == []

    def slow(self) -> None:
        self.under_way()
        with self.faulty.blocker.blocked(self.pid):
            self.do("vs = chain(30, gs[-1])")
            self.pause(0.5)  # the members wait, and so do the gangs of others behind them
        assert self.do("result = errors(gs + vs)") == []
        self.faulty.expect_others_go_on(time.monotonic())

    def poisoned_shard(self) -> None:
        place = self.rng.choice([4, 5])
        with self.faulty.blocker.refused(self.pid, place - 4):
            self.do(f"bad = spoil(start.addressable_shards[{place}].data)")
            assert len(self.do("result = errors([bad])")) == 1
        self.under_way()
        began = time.monotonic()
        self.do(f"vs = chain(30, joined([*pieces[:{place}], bad, *pieces[{place + 1}:]]))")
        self.faulty.expect_all_fail("vs", 30, REFUSED, began)
        self.faulty.expect_others_go_on(time.monotonic())
        assert self.do("result = errors(gs)") == []

    def failed_member(self) -> None:
        self.under_way()
        place, turn = self.rng.choice([4, 5]), self.rng.randrange(TURNS)
        began = time.monotonic()
        self.do(f"vs = chain(30, turning(gs[-1], {place}, {turn}))")
        cause = "INTERNAL: the host callback raised ValueError: this member has had enough"
        self.faulty.expect_all_fail("vs", 30, cause, began)
        self.faulty.expect_others_go_on(time.monotonic())
        assert self.do("result = errors(gs)") == []

    def ended_session(self) -> None:
        self.under_way()
        self.end_session()

    def ended_session_in_transfer(self) -> None:
        self.begin_transfer()
        self.end_session()

    def end_session(self) -> None:
        os.kill(self.faulty.client.pid, signal.SIGKILL)
        killed = time.monotonic()
        self.faulty.expect_others_go_on(killed)
        assert self.faulty.other.do("result = float(run(3).sum())") == 2047.0
        assert elapsed(killed) < ENDED_S, elapsed(killed)

        def freed() -> bool:
            status = self.faulty.running.status()
            return len(status["sessions"]) == 1 and status["bytes"] < MIB

        wait_for("what the session held freed", freed, FREED_S)
        self.faulty.client = self.ends.enter_context(Console(self.faulty.running, door="pjrt"))
        load_in(self.faulty.client)
        self.faulty.client.do(f"exec({TURNING!r}, globals())", 60)

    def run(self, kind: Callable[[Round], None]) -> None:
        others = {name: pid for name, pid in pids(self.faulty.running).items() if name != VICTIM}
        kind(self)
        if kind in LOSSES:
            wait_for_restart(self.faulty.running, self.old)
            others[VICTIM] = int(victim_of(self.faulty.running)["pid"])
        else:
            others[VICTIM] = self.pid
        for client in (self.faulty.client, self.faulty.other):
            client.do("start = ones()")
        self.faulty.client.do("pieces = [spoil(shard.data) for shard in start.addressable_shards]")
        self.faulty.expect_good_again()
        assert pids(self.faulty.running) == others, "no process ends because a peer did"


LOSSES = [
    *(Round.kill, Round.stop, Round.kill_in_load, Round.stop_in_load),
    *(Round.kill_in_transfer, Round.stop_in_transfer),
]
KINDS = [
    *LOSSES,
    *(Round.failed_execute, Round.failed_load, Round.slow, Round.poisoned_shard),
    *(Round.failed_member, Round.ended_session, Round.ended_session_in_transfer),
]


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_random_faults_of_every_kind(new_cluster: NewCluster, seed: int) -> None:
    rng = random.Random(seed)
    # A worker that ends five times soon after its start is given up.
    kinds = [KINDS[(4 * seed + i) % len(KINDS)] for i in range(4)]
    rng.shuffle(kinds)
    flags = ("--shared-memory", "0") if seed % 2 else ()
    with faulty_cluster(new_cluster, *flags, opens=OPEN + TURNING) as faulty:
        with contextlib.ExitStack() as ends:
            faulty.client.do(f"exec({TURNING!r}, globals())", 60)
            for kind in kinds:
                Round(faulty, ends, rng).run(kind)
