"""Fixtures of the end-to-end tests. Each cluster is made of real processes, has a port and a state
folder of its own, and is proved gone afterwards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import PATIENCE, Cluster

# What only the nightly run does.
collect_ignore = [] if os.environ.get("GANGWAY_NIGHTLY") else ["test_older_jax.py"]
# Of tests that share what takes long to make: where their names agree in this, one process runs them all. Any
# other test goes to whichever process is free.
GROUPS = re.compile(
    r"test_hosts\.py"
    r"|test_jax\.py::test_case\[(\dx\dx\d)"
    r"|test_linalg\.py::\w+\[(?:\w+-)?(\w+)\]"
    r"|test_older_jax\.py::test_core\[(0\.\d+)"
    r"|test_transfers\.py::\w+\[(shared|streams|small-pool)"
)


def group_of(nodeid: str) -> str:
    found = GROUPS.search(nodeid)
    if not found:
        return nodeid
    return "-".join([found[0].partition("::")[0], *(part for part in found.groups() if part)])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side, the limit of each test grows as that of each wait does."""
    if PATIENCE == 1:
        return
    for item in items:
        mark = item.get_closest_marker("timeout")
        limit_s = float(mark.args[0] if mark else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(limit_s * PATIENCE), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How pytest-xdist (-n) shares out the tests: group by group, the largest first."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


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

    def make(*arguments: int | str, **names: str) -> Cluster:
        made.append(Cluster(*arguments, **names))  # type: ignore[arg-type]
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
