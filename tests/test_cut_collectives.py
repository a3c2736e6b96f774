"""Workers on different hosts exchange their collectives over two streams, one for each direction. Each of these links
is cut alone while gangs run over it: every gang is answered within the limit of docs/reference/failures.md, with the
right result or an error that names a worker at the link; gangs of the other island do not notice; then the next gang
runs, and at the end nothing is left.

GANGWAY_SEED=N replays the cuts of a nightly run.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import time
from collections.abc import Iterator

import pytest
from faultlib import segments
from harness import NIGHTLY, PATIENCE, wait_for
from link_proxy import BACK, BOTH, THERE, Cut
from loads import JaxLoad, LinkedHosts

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800 if NIGHTLY else 120)]
LINKS = ["worker0 to worker1", "worker1 to worker0", "worker2 to worker3", "worker3 to worker2"]
# A stream carries what the devices of the worker that accepted it publish; the other way go questions whether that
# worker lives, and how much more it may send.
QUESTIONS, NEWS = THERE, BACK
DELAY_S = 0.03
# Until each gang is answered.
LIMIT_S = {"reset": 1, "closed": 1, "half": 1, "silent": 7, "slow": 300 * DELAY_S}
SLACK_S = 1.5  # for processes that share few cores, and for the rest of a round
AGAIN_S = (
    5  # until a gang succeeds: after the repair, the worker tries once a second to open the way
)
# Four gangs, each with a reduction that takes several messages and a gather of one number for each device.
GANGS = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[{first}:{first} + 4]), ("x",))
sharding = NamedSharding(mesh, P("x"))
def body(v):
    return jax.lax.psum(v, "x") - 3 * v + jax.lax.all_gather(v[0, 0], "x").sum()
gang = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
def step(seed):
    right = np.random.default_rng(seed).integers(-9, 9, (4, 1 << 18), dtype=np.int32)
    v = jax.device_put(right, sharding)
    for _ in range(4):
        v = gang(v)
        right = right.sum(0, dtype=np.int32) - 3 * right + right[:, 0].sum(dtype=np.int32)
    assert (np.asarray(v) == right).all(), "wrong bytes"
step(0)
"""


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[LinkedHosts]:
    made = LinkedHosts(tmp_path, settings="collectives = 'gangway'\n")
    try:
        made.start_all()
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def gangs_on_each_island(hosts: LinkedHosts) -> Iterator[list[JaxLoad]]:
    """A client for each island, whose gangs run one after the other."""
    with contextlib.ExitStack() as ends:
        loads = [
            ends.enter_context(
                contextlib.closing(JaxLoad(hosts, 1 + island, GANGS.format(first=4 * island)))
            )
            for island in range(2)
        ]
        wait_for("gangs", lambda: all(load.clean_since(0) for load in loads), 40)
        yield loads


def run_on_each_island(hosts: LinkedHosts) -> None:
    with gangs_on_each_island(hosts):
        pass


def cuts() -> Iterator[tuple[str, Cut]]:
    """Without GANGWAY_NIGHTLY, each link once."""
    if not NIGHTLY:
        after = 300_000  # in the middle of a message
        yield LINKS[0], Cut("closed", after_bytes=after)
        yield LINKS[1], Cut("half", (NEWS,), after)
        yield LINKS[2], Cut("silent", after_bytes=after)
        yield LINKS[3], Cut("slow", after_bytes=after, delay_s=DELAY_S)
        return
    seed = int(os.environ.get("GANGWAY_SEED", "1"))
    draw = random.Random(seed)
    kinds = [("reset", BOTH), ("closed", BOTH), ("half", (QUESTIONS,)), ("half", (NEWS,))]
    kinds += [(kind, ways) for kind in ("silent", "slow") for ways in (BOTH, (QUESTIONS,), (NEWS,))]
    for number, (link, (kind, ways)) in enumerate((link, kind) for kind in kinds for link in LINKS):
        print(f"cut {number} of seed {seed}: ", end="")
        yield link, Cut(kind, ways, draw.randrange(1, 1 << 20), DELAY_S)


def cut_once(hosts: LinkedHosts, loads: list[JaxLoad], link: str, cut: Cut) -> bool:
    """Cuts a link, repairs it once a gang is answered, and checks how long gangs waited, and that all works again.
    Returns whether gangs failed.
    """
    print(f"{link}: {cut}", flush=True)
    ends = [int(number) for number in re.findall(r"worker(\d)", link)]
    load, other = loads[ends[0] // 2], loads[1 - ends[0] // 2]
    limit_s = LIMIT_S[cut.kind] + SLACK_S
    began = time.monotonic()
    assert hosts.proxy.cut(link, cut), "no bytes of gangs passed the link"
    is_cut = time.monotonic()
    answered = lambda: load.errors(is_cut) or load.clean_since(is_cut)  # noqa: E731
    wait_for("a gang answered", answered, limit_s + AGAIN_S)
    took = time.monotonic() - is_cut
    hosts.proxy.repair(link)
    repaired = time.monotonic()
    wait_for("gangs again", lambda: all(each.clean_since(repaired) for each in loads), AGAIN_S)
    errors = load.errors(began)
    slowest = [each.slowest_s(began) for each in (load, other)]
    text = (
        f"    answered {took:.2f} s after the cut, again {time.monotonic() - repaired:.2f} s "
        f"after the repair, slowest answers {slowest}, errors {errors}"
    )
    print(text, flush=True)
    assert slowest[0] < limit_s * PATIENCE, text
    named = re.compile("|".join(f"island{end // 2}/worker{end % 2}" for end in ends))
    assert all("DATA_LOSS" in error and named.search(error) for error in errors), text
    assert cut.kind != "slow" or not errors, text
    assert not other.errors(began) and slowest[1] < SLACK_S * PATIENCE, text
    return bool(errors)


@pytest.mark.alone
def test_each_way_between_workers_is_cut_alone_while_gangs_use_it_ER_1_TM_1_OB_2(
    hosts: LinkedHosts,
) -> None:
    before: dict[str, int] = {}
    failed = expected = 0

    def first() -> None:
        run_on_each_island(hosts)
        before.update(segments(hosts.workers()))

    with hosts.left_as_found(first), gangs_on_each_island(hosts) as loads:
        for link, cut in cuts():
            expected += cut.kind != "slow"  # then bytes are late, not lost
            failed += cut_once(hosts, loads, link, cut)
    # Few bytes pass when no gang needs them any more.
    assert failed > 0.6 * expected, (failed, expected)
    assert all(process.poll() is None for process in hosts.processes.values())
    assert segments(hosts.workers()) == before
