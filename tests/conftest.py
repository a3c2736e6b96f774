"""Fixtures of the end-to-end tests. Each cluster is made of real processes, has a port and a state
folder of its own, and is proved gone afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from harness import Cluster

# What only the nightly run does.
collect_ignore = [] if os.environ.get("GANGWAY_NIGHTLY") else ["test_older_jax.py"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One worker with eight devices, shared by all tests that break nothing."""
    running = Cluster(islands=1, workers=1, devices=8).start()
    yield running
    running.stop()


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that a test may break; `new_cluster(islands, workers, devices, *flags)`."""
    made: list[Cluster] = []

    def make(*arguments: int | str) -> Cluster:
        made.append(Cluster(*arguments))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.stop()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A failed test shows the logs of the clusters that it used."""
    if call.excinfo is None or call.when != "call":
        return
    for name in ("cluster", "new_cluster"):
        used = getattr(item, "funcargs", {}).get(name)
        if isinstance(used, Cluster):
            item.add_report_section(call.when, "cluster logs", used.logs(3000))
