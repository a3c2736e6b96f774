"""A session ends, or a worker is killed, at each moment of a gang over several workers: before, in and between its
collectives, in a load, and while an operand or a result is in transfer. The gang and 100 that depend on it fail by the
worker's name, at once (one that is stopped, by the liveness limit: test_silence); gangs of others and of the surviving
workers go on; no process ends because of it, and nothing is left. A slow member is waited for; a poisoned shard, a
failed execute and a member that fails end what depends on them.

Without GANGWAY_NIGHTLY, each moment with one of the faults, and each fault at one or two moments.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from faultlib import REFUSED, Blocker, elapsed, in_a_fifo, stopped
from harness import NIGHTLY, PATIENCE, Cluster, wait_for, why
from test_collectives import ENDED_S
from test_collectives_faults import (
    VICTIM,
    Faulty,
    faulty_cluster,
    pids,
    start_faulty,
    two_clients,
    victim_of,
)
from test_faults import wait_for_restart

pytestmark = [pytest.mark.faults, pytest.mark.alone, pytest.mark.timeout(60)]
NewCluster = Callable[..., Cluster]
MIB = 1 << 20
FREED_S = 2.0  # what an ended session held
AHEAD = 50  # gangs that may end before the victim stands still: a client may have been told of them
# `twice` is at rest at position `first` before its collectives, or at `second` between them, until `gate` is opened.
PAUSES = """
import os
def pause(place, held):
    if place == held:
        open(folder + "/entered", "w").close()
        open(folder + "/gate").close()
        if os.path.exists(folder + "/fails"): raise ValueError("this member has had enough")
    return np.float32(0)
def body(v, held):
    place = jax.lax.axis_index(("a", "b"))
    zero = lambda at: jax.pure_callback(pause, jax.ShapeDtypeStruct((), np.float32), place, held[at])
    total = jax.lax.psum(v.sum() + zero(0), ("a", "b"))
    return v + jax.lax.psum(total + zero(1), ("a", "b")) - 8 * 2048
twice = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P("a", "b"), P()), out_specs=P("a", "b"), check_vma=False))
def holding(first, second):
    return twice(start, jax.device_put(np.array([first, second]), NamedSharding(mesh, P())))
result = float(holding(-1, -1).sum())
"""
# `large` is one collective, whose operand takes several messages or is read by other workers where it is.
LARGE = """
row = NamedSharding(Mesh(devices, ("x",)), P("x"))
total = lambda v: jax.lax.psum(v, "x") / 8
large = jax.jit(jax.shard_map(total, mesh=row.mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
large_start = jax.jit(lambda: jnp.ones((8, 1 << 19), jnp.float32), out_shardings=row)()
large(large_start).block_until_ready()
"""
# `wide` runs on all workers, `far` on all but the victim; each has rows of 64 MiB as an operand.
ROWS = """
import threading
row_bytes = 64 << 20
raw = np.zeros((1, row_bytes), np.uint8)
rows = [jax.device_put(raw, device) for device in devices]
def joined_rows(mesh, pieces):
    return jax.make_array_from_single_device_arrays(
        (len(pieces), row_bytes), NamedSharding(mesh, P("x")), pieces)
wide_rows = lambda piece: joined_rows(Mesh(devices, ("x",)), [*rows[:4], piece, *rows[5:]])
far_rows = lambda piece: joined_rows(around, [rows[6], piece, *(rows[i] for i in (3, 2, 1, 7))])
wide = jax.jit(lambda x, big: x + big[:, 0].sum(), out_shardings=both)
far = jax.jit(lambda x, big: rest(x) + big[:, 0].sum(), out_shardings=others.sharding)
jax.block_until_ready([wide(start, wide_rows(rows[4])), far(others, far_rows(rows[0]))])
moved, said, moves = [], [], 16
def move(values, how):
    def run():
        try:
            for value in values: moved.append(how(value))
            jax.block_until_ready(moved)
        except Exception as error: said.append(str(error))
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
def all_moved():
    return len(moved) == moves and all(x.is_ready() for x in moved if hasattr(x, "is_ready"))
"""
# Opens what stays open.
OPEN = (
    ROWS
    + """
jax.block_until_ready([jax.device_put(rows[i], devices[j]) for i, j in ((0, 4), (4, 0))])
np.asarray(jax.jit(lambda v: v + 1)(rows[4]))
"""
)


class Scene:
    """Brings the gangs of the client to a moment: `vs` is `count` of them that need the victim."""

    def __init__(
        self, faulty: Faulty, folder: pathlib.Path, ends: contextlib.ExitStack, count: int
    ) -> None:
        self.faulty = faulty
        self.count = count
        self.do = faulty.client.do
        self.folder = folder
        self.ends = ends
        self.victim = faulty.victim_pid

    def blocked(self, what: str) -> None:
        self.ends.enter_context(self.faulty.blocker.blocked(self.victim, what))

    def freeze(self, begin: Callable[[], object], done: str) -> None:
        """Stops the victim in the middle of what `begin` begins; again, if all was done before that."""
        for _ in range(5):
            begin()
            with contextlib.ExitStack() as ends:
                ends.enter_context(stopped(self.victim))
                if not self.do(f"result = {done}"):
                    self.ends.enter_context(ends.pop_all())
                    return
        raise AssertionError("all was done before the victim stood still")

    def before(self) -> None:
        """Execute has not returned on the victim; the other members wait in their first collective."""
        self.blocked("")
        self.do(f"vs = chain({self.count}, start)")
        wait_for("a call of Execute", lambda: in_a_fifo(self.victim), 5)

    def held(self, first: int, second: int) -> None:
        gate = self.folder / "gate"
        os.mkfifo(gate)
        self.ends.callback(lambda: os.close(os.open(gate, os.O_RDWR)))
        self.do(f"folder = {str(self.folder)!r}")
        assert self.do(f"exec({PAUSES!r}, globals())", 60) == 2048.0
        self.do(f"vs = chain({self.count}, holding({first}, {second}))")
        wait_for("a member at rest", (self.folder / "entered").exists, 5)

    def between(self) -> None:
        """The victim's first member has finished one of two collectives."""
        self.held(-1, 4)

    def awaited(self) -> None:
        """The other members wait in a collective for the victim's first one, which computes."""
        self.held(4, -1)
        wait_for("seven members in a collective", self.all_but_one_wait, 5)

    def inside(self) -> None:
        """The victim's members wait in a collective for one of another worker."""
        self.held(0, -1)
        wait_for("seven members in a collective", self.all_but_one_wait, 5)

    def all_but_one_wait(self) -> bool:
        return any(wait.get("members_waiting") == 7 for wait in why(self.faulty.running))

    def moving(self) -> None:
        """The victim stands still while members exchange messages, before the gangs of `vs` have begun."""
        self.do(f"exec({LARGE!r}, globals())", 60)
        gangs = f"w = large(large_start); vs = [w := large(w) for _ in range({self.count + AHEAD})][{AHEAD}:]"
        self.freeze(lambda: self.do(gangs), "vs[0].is_ready()")

    def load(self) -> None:
        self.do("fresh = jax.jit(lambda x: x * 5 - x.sum())")
        self.blocked(".load")
        self.do(f"vs = chain({self.count}, fresh(start))", 60)
        wait_for("a load", lambda: in_a_fifo(self.victim), 5)

    def moves(self, values: str, how: str) -> None:
        """A thread of the client moves values to or from the victim, which then stands still."""
        self.do(f"exec({ROWS!r}, globals())", 60)
        self.do(f"values = {values}; jax.block_until_ready(values)")

        def begin() -> None:
            self.do(f"moved.clear(); thread = move(values, {how})")
            wait_for("the first value moved", lambda: self.do("result = len(moved)"), 10)

        self.freeze(begin, "all_moved()")
        self.do(f"vs = chain({self.count}, start)")

    def upload(self) -> None:
        self.moves("[raw] * moves", "lambda v: jax.device_put(v, devices[4])")

    def download(self) -> None:
        self.moves("[jax.jit(lambda v: v + i)(rows[4]) for i in range(moves)]", "np.asarray")

    def copied(self, source: int, to: int, gang: str, dependent: str) -> None:
        self.do(f"exec({ROWS!r}, globals())", 60)
        begin = (
            f"moved = [jax.device_put(rows[{source}], devices[{to}]) for _ in range(moves)]; "
            f"v = {gang}; vs = [v] + [v := {dependent} for _ in range({self.count} - 1)]"
        )
        self.freeze(lambda: self.do(begin), "moved[-1].is_ready()")

    def copy_to(self) -> None:
        """An operand of a gang is on its way to the victim."""
        self.copied(0, 4, "wide(start, wide_rows(moved[-1]))", "step(v)")

    def copy_from(self) -> None:
        """An operand of a gang on other workers is on its way from the victim."""
        self.copied(4, 0, "far(others, far_rows(moved[-1]))", "rest(v)")


TRANSFERS = ["upload", "download", "copy_to", "copy_from"]
MOMENTS = ["before", "inside", "between", "moving", "load", *TRANSFERS]


PLANES_OF_MOMENTS = ["shared", "streams"] if NIGHTLY else ["one"]


def options_of(moment: str, plane: str) -> tuple[tuple[str, ...], str]:
    """The flags of its cluster, and what opens what stays open. Without GANGWAY_NIGHTLY, only transfers go by streams:
    shared memory is kept for 10 s after its use.
    """
    transfer = moment in TRANSFERS
    streams = transfer if plane == "one" else plane == "streams"
    flags = ("--shared-memory", "0") if streams else ()
    return flags, OPEN if transfer else LARGE


Layouts = dict[tuple[str, ...], tuple[Cluster, Blocker]]


@pytest.fixture(scope="module")
def layouts() -> Iterator[Layouts]:
    """The clusters that moments share, by their flags."""
    made: Layouts = {}
    yield made
    for running, _ in made.values():
        running.stop()


@pytest.fixture(params=PLANES_OF_MOMENTS)
def faulty(
    request: pytest.FixtureRequest,
    layouts: Layouts,
    new_cluster: NewCluster,
    moment: str,
) -> Iterator[Faulty]:
    """Each moment leaves the cluster as it found it. Nightly, each has one of its own; otherwise, those of a layout share
    one, until one of them leaves something.
    """
    flags, opens = options_of(moment, request.param)
    if NIGHTLY:
        with faulty_cluster(new_cluster, *flags, opens=opens) as made:
            yield made
        return
    shared = layouts.pop(flags, None) or start_faulty(Cluster, *flags)
    try:
        with two_clients(*shared, opens) as made:
            yield made
    except BaseException:
        shared[0].stop()
        raise
    layouts[flags] = shared


@contextlib.contextmanager
def at(moment: str, faulty: Faulty, folder: pathlib.Path, count: int) -> Iterator[Scene]:
    with contextlib.ExitStack() as ends:
        scene = Scene(faulty, folder, ends, count)
        getattr(scene, moment)()
        yield scene


def some_of(moments: list[str], *names: str) -> list[str]:
    return moments if NIGHTLY else [*names]


@pytest.mark.parametrize(
    "moment",
    some_of(MOMENTS, "moving", "download", "copy_to"),
)
def test_a_session_ends_at_each_moment_OB_2(
    faulty: Faulty, moment: str, tmp_path: pathlib.Path
) -> None:
    before = pids(faulty.running)
    with at(moment, faulty, tmp_path, count=100):
        os.kill(faulty.client.pid, signal.SIGKILL)
        killed = time.monotonic()
        # On the other workers, although the victim may stand still.
        assert faulty.other.do("result = other_gang()") == 6.0
        assert elapsed(killed) < ENDED_S, elapsed(killed)
    released = time.monotonic()
    assert faulty.other.do("result = float(run(3).sum())") == 2047.0
    assert elapsed(released) < ENDED_S, elapsed(released)

    def freed() -> bool:
        status = faulty.running.status()
        return len(status["sessions"]) == 1 and status["bytes"] < MIB

    wait_for("what the session held freed", freed, FREED_S)
    assert pids(faulty.running) == before, "no process ends because a session did"


def lose_the_victim(
    faulty: Faulty,
    moment: str,
    folder: pathlib.Path,
    lost: Callable[[int], contextlib.AbstractContextManager[None]],
    limit_s: float,
) -> None:
    """What needs the victim fails by its name within the limit from the beginning of `lost`, and nothing else does."""
    old = victim_of(faulty.running)
    others = {name: pid for name, pid in pids(faulty.running).items() if name != VICTIM}
    with at(moment, faulty, folder, count=100) as scene:
        scene.ends.enter_context(lost(scene.victim))
        began = time.monotonic()
        found = faulty.client.do("result = errors(vs)")
        took = elapsed(began)
        assert len(found) == 100 and all(VICTIM in each for each in found), found
        assert took < limit_s * PATIENCE, took
        failed = time.monotonic()
        for client in (faulty.client, faulty.other):  # a cached gang of the surviving workers
            assert client.do("result = other_gang()") == 6.0
        assert elapsed(failed) < ENDED_S, elapsed(failed)
        if moment in ("upload", "download"):
            said = wait_for("the end of the transfer", lambda: faulty.client.do("result = said"), 5)
            assert VICTIM in said[0], said
    wait_for_restart(faulty.running, old)
    for client in (faulty.client, faulty.other):
        client.do("start = ones()")
    faulty.expect_good_again()
    now = pids(faulty.running)
    assert others.items() <= now.items(), "no process ends because a peer did"


@contextlib.contextmanager
def killed(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGKILL)
    yield


@pytest.mark.parametrize("moment", some_of(MOMENTS, "before", "copy_from"))
def test_a_worker_is_killed_at_each_moment_ER_1_ER_2_TM_1(
    faulty: Faulty, moment: str, tmp_path: pathlib.Path
) -> None:
    """One that is stopped instead: test_silence."""
    lose_the_victim(faulty, moment, tmp_path, killed, ENDED_S)


@pytest.mark.parametrize("moment", some_of(MOMENTS, "between"))
def test_a_slow_member_is_waited_for_at_each_moment(
    faulty: Faulty, moment: str, tmp_path: pathlib.Path
) -> None:
    before = pids(faulty.running)
    with at(moment, faulty, tmp_path, count=100):
        pass
    assert faulty.client.do("result = errors(vs)") == []
    if moment in ("upload", "download"):
        faulty.client.do("thread.join()")
        assert faulty.client.do("result = (said, all_moved())") == [[], True]
    faulty.expect_good_again()
    assert pids(faulty.running) == before


@pytest.mark.parametrize("moment", some_of(MOMENTS, "inside", "load"))
def test_a_poisoned_shard_fails_at_each_moment_what_uses_it_and_nothing_else_ER_1(
    faulty: Faulty, moment: str, tmp_path: pathlib.Path
) -> None:
    before = pids(faulty.running)
    with faulty.blocker.refused(faulty.victim_pid, 0):
        faulty.client.do("bad = spoil(start.addressable_shards[4].data)")
        assert len(faulty.client.do("result = errors([bad])")) == 1
    with at(moment, faulty, tmp_path, count=20):
        began = time.monotonic()
        faulty.client.do("ps = chain(100, joined([*pieces[:4], bad, *pieces[5:]]))")
        faulty.expect_all_fail("ps", 100, REFUSED, began)
    assert faulty.client.do("result = errors(vs)") == [], "the gangs of the moment do not use it"
    if moment in ("upload", "download"):
        faulty.client.do("thread.join()")
        assert faulty.client.do("result = (said, all_moved())") == [[], True]
    faulty.expect_good_again()
    assert pids(faulty.running) == before


BEGUN = ["inside", "between", "moving"]  # a gang is in its collectives


@pytest.mark.parametrize(
    "moment",
    some_of(["before", *BEGUN, "load", "upload", "download", "copy_to"], "between", "upload"),
)
def test_a_failed_execute_at_each_moment_is_the_cause_everywhere_ER_1(
    faulty: Faulty, moment: str, tmp_path: pathlib.Path
) -> None:
    """Gangs whose Execute was called before the failure end well; of `moving`, they may all be those before `vs`."""
    before = pids(faulty.running)
    with contextlib.ExitStack() as refusal:
        with at(moment, faulty, tmp_path, count=100) as scene:
            refusal.enter_context(faulty.blocker.refused(scene.victim, 0))
        if moment == "copy_to":
            wait_for("the operand", lambda: faulty.client.do("result = all_moved()"), 10)
        failed = time.monotonic()
        failing = 100
        if moment in BEGUN:
            failing = len(faulty.client.do("result = errors(vs)"))
            assert 0 < failing <= (100 if moment == "moving" else 99), failing
        faulty.expect_all_fail(f"vs[-{failing}:]", failing, REFUSED, failed)
        faulty.expect_others_go_on(time.monotonic())
    if moment in ("upload", "download"):
        faulty.client.do("thread.join()")
        assert faulty.client.do("result = (said, all_moved())") == [[], True]
    faulty.expect_good_again()
    assert pids(faulty.running) == before


@pytest.mark.parametrize("moment", some_of(["awaited", "between"], "between"))
def test_a_member_that_fails_before_or_between_collectives_is_the_cause_everywhere_ER_1(
    faulty: Faulty, moment: str, tmp_path: pathlib.Path
) -> None:
    before = pids(faulty.running)
    with at(moment, faulty, tmp_path, count=100):
        (tmp_path / "fails").touch()
    failed = time.monotonic()
    cause = "INTERNAL: the host callback raised ValueError: this member has had enough"
    faulty.expect_all_fail("vs", 100, cause, failed)
    faulty.expect_others_go_on(failed)
    faulty.expect_good_again()
    assert pids(faulty.running) == before
