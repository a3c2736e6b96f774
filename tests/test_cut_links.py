"""Each link between two processes is cut alone, at random moments under load: every pending operation is answered
within the limit of docs/reference/failures.md, with the right bytes or an error that names what was lost; then the
cluster works again, and at the end nothing is left.

GANGWAY_SEED=N replays the cuts of a seed; GANGWAY_CUTS is their number.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import time
from collections.abc import Iterator, Sequence

import pytest
from harness import NIGHTLY, PATIENCE, wait_for
from link_proxy import BACK, BOTH, THERE, Cut
from loads import JAX, WORKER_WAIT_S, LinkedHosts, Loads, use_all

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600 if NIGHTLY else 180)]
SILENT_S = 5  # after which a worker, a scheduler or a compiler is dead
SLACK_S = 1.5  # for processes that share few cores
NAMED = re.compile(r"island\d/(worker\d|scheduler)")  # what was lost
BACK_S = 30  # until every role is up again: a worker gives its controller up after 10 s, and retries after 5 s


def limit_s(name: str, cut: Cut) -> float:
    """Until every question is answered (docs/reference/failures.md)."""
    blind = cut.kind in ("silent", "half")  # an end that learns nothing
    if cut.kind == "slow":
        return 20 * cut.delay_s
    if name.startswith(("client to worker", "controller to worker")):
        return 7 if blind else 2
    if " to worker" in name:  # copies
        return 10 if blind else 2
    if "scheduler1 to" in name:  # its workers return after it
        return (SILENT_S if blind else 0) + 2 * WORKER_WAIT_S
    if name == "controller to the controller":  # the compiler
        return SILENT_S + 10 if blind else 5
    if name.startswith("worker"):
        return (SILENT_S if blind else 0) + WORKER_WAIT_S
    return 12 if blind else 2  # a client


# Links by what they are for; a name in `hosts.proxy.links` fits one pattern.
KINDS_OF_LINKS = {
    "worker and controller": r"worker\d to the controller",
    "worker and scheduler": r"worker\d to the scheduler",
    "scheduler and controller": r"scheduler\d to the controller",
    "compiler and controller": r"controller to the controller",
    "native client and controller": r"client to the controller",
    "native client and worker": r"client to worker\d",
    "front door and worker": r"controller to worker\d",
    "JAX client and front door": r"jax to the front door",
    "worker and worker": r"worker\d to worker\d",
}


def draw(
    random_: random.Random, links: list[str], of: str, kinds: Sequence[str]
) -> tuple[str, Cut, float]:
    """A link, what happens to it, and for how long."""
    name = random_.choice([link for link in links if re.fullmatch(KINDS_OF_LINKS[of], link)])
    kind = random_.choice(kinds)
    ways = random_.choice([BOTH, (THERE,), (BACK,)])
    if name == JAX and kind in ("silent", "half"):
        kind, ways = "half", (THERE,)  # a JAX client does not notice that its front door is silent
    if kind == "half" and ways == BOTH:
        ways = (THERE,)
    after = random_.choice([0, random_.randrange(1, 2000), random_.randrange(1, 1 << 18)])
    cut = Cut(kind, ways, after, delay_s=0.3)
    if kind in ("silent", "half"):
        control = re.match(r"worker\d to the|scheduler|controller to the", name)
        return name, cut, SILENT_S + 1.5 if control else limit_s(name, cut) + 1
    return name, cut, 2 if kind == "slow" else 0


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[LinkedHosts]:
    made = LinkedHosts(tmp_path)
    try:
        made.start_all()
        yield made
    finally:
        made.stop()


def cut_once(hosts: LinkedHosts, loads: Loads, name: str, cut: Cut, lasts_s: float) -> None:
    """Cuts a link, repairs it, and checks how long each question waited, and that all works again."""
    print(f"{name}: {cut}", flush=True)
    began = time.monotonic()
    passed = hosts.proxy.cut(name, cut)
    time.sleep(lasts_s)
    hosts.proxy.repair(name)
    repaired = time.monotonic()
    wait_for("every role up", hosts.all_up, BACK_S)
    loads.wait_clean(repaired, BACK_S)
    slowest = [load.slowest_s(began) for load in loads.all]
    errors = set().union(*(load.errors(began) for load in loads.all))
    limit = (limit_s(name, cut) + SLACK_S) * PATIENCE
    text = (
        f"    in passing: {passed}, back {time.monotonic() - repaired:.1f} s after the repair, "
        f"slowest answers {slowest} (limit {limit}), errors {sorted(errors)[:3]}"
    )
    print(text)
    assert max(slowest) < limit, text
    assert name == JAX or all(NAMED.search(error) for error in loads.jax.errors(began)), text


def cuts(seed: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Kinds of links, with the kinds of cuts to draw from: each kind of link in turn. Silence takes longer than the
    rest, so that without GANGWAY_NIGHTLY only one link is silent.
    """
    count = int(os.environ.get("GANGWAY_CUTS", "200" if NIGHTLY else "10"))
    every = ("reset", "reset", "closed", "half", "silent", "slow")
    for number in range(count):
        of = list(KINDS_OF_LINKS)[number % len(KINDS_OF_LINKS)]
        if count > len(KINDS_OF_LINKS) + 1:
            yield of, every
        elif number < len(KINDS_OF_LINKS):
            yield of, ("reset", "closed")
        else:
            yield list(KINDS_OF_LINKS)[seed % len(KINDS_OF_LINKS)], ("silent", "half")


@pytest.mark.alone
def test_each_link_is_cut_alone_under_load_ER_1_TM_1_OB_2(hosts: LinkedHosts) -> None:
    seed = int(os.environ.get("GANGWAY_SEED", "1"))
    random_ = random.Random(seed)
    links = [*hosts.proxy.links]

    with hosts.left_as_found(lambda: use_all(hosts)), Loads(hosts, seed) as loads:
        for number, (of, kinds) in enumerate(cuts(seed)):
            print(f"cut {number} of seed {seed}: ", end="")
            cut_once(hosts, loads, *draw(random_, links, of, kinds))
