"""Fixtures of the end-to-end tests. Each cluster consists of real processes with their own port and
state folder; teardown fails if one of its processes survives.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reference
from harness import NIGHTLY, PATIENCE, PYTHON, Cluster, start_fork_server
from passed_before import PassedBefore

Cluster.threads = reference.THREADS
# pytest rewrites the assertions of each module, which takes half of a run's start, and keeps the result as bytecode.
sys.dont_write_bytecode = False

# Tests that share an expensive fixture: if their names agree in the file and in these groups, one process runs
# them all. Every other test is a group of its own.
GROUPS = re.compile(
    r"test_corpus\.py"
    r"|test_go_client\.py"
    r"|test_gpu_check\.py"
    r"|test_hosts\.py"
    r"|test_hostile_programs\.py"
    r"|test_kubernetes\w*\.py"
    r"|test_jax\.py::test_case\[(\dx\dx\d)"
    r"|test_linalg\.py::\w+\[(?:\w+-)?(\w+)\]"
    r"|test_span\.py::\w+\[(together|apart)"
    r"|test_other_jax\.py::\w+\[(0\.\d+)"
    r"|test_places\.py"
    r"|test_ray\.py"
    r"|test_slurm\.py"
    r"|test_strangers\.py"
    r"|test_wheel\.py"
    r"|test_transfers\.py::\w+\[(?:\w+-)?(shared|streams|small-pool)"
)


# Tests are stamped by the process that gets all reports, which is not a worker of a parallel run.
passed_before = PassedBefore()
SKIPPED = pytest.StashKey[int]()  # the number of tests that passed before
passed: dict[str, bool] = {}  # by node id: whether each phase so far passed


def group_of(nodeid: str) -> str:
    found = GROUPS.search(nodeid)
    if not found:
        return nodeid
    return "-".join([found[0].partition("::")[0], *(part for part in found.groups() if part)])


def limit_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0] if mark else item.config.getini("timeout"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skip-passed", action="store_true", help="leave out what passed before as it is"
    )
    parser.addoption(
        "--part", default="1/1", help="K/N: the K-th of N parts, which together are all tests"
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    passed[report.nodeid] = passed.get(report.nodeid, True) and report.passed


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, int] | None = getattr(session.config, "workeroutput", None)
    skipped = session.config.stash.get(SKIPPED, 0)
    if output is not None:
        output["skipped"] = skipped
        return
    passed_before.note(nodeid for nodeid, ok in passed.items() if ok)
    if skipped and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[SKIPPED] = getattr(node, "workeroutput", {}).get("skipped", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash.get(SKIPPED, 0):
        terminalreporter.write_line(f"{count} tests passed before as they are")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is for the nightly run, what passed before, and what is in other parts. In parallel runs, puts the
    groups with the longest limits first, then the largest, so that no long group is the last one to run; scales the
    limit of each test by PATIENCE, like that of each wait.
    """
    if not NIGHTLY:
        nightly = {item for item in items if item.get_closest_marker("nightly")}
        config.hook.pytest_deselected(items=list(nightly))
        items[:] = [item for item in items if item not in nightly]
    skip = config.getoption("--skip-passed")
    known = {item for item in items if skip and passed_before.is_known(item.nodeid)}
    config.stash[SKIPPED] = len(known)
    groups: dict[str, list[float]] = {}
    for item in items:
        groups.setdefault(group_of(item.nodeid), []).append(limit_s(item))
    order = sorted(groups, key=lambda name: (-max(groups[name]), -len(groups[name]), name))
    part, parts = map(int, config.getoption("--part").split("/"))
    here = set(order[part - 1 :: parts])
    kept = [item for item in items if item not in known and group_of(item.nodeid) in here]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept
    if PATIENCE == 1:
        return
    rank = {name: i for i, name in enumerate(order)}
    items.sort(key=lambda item: rank[group_of(item.nodeid)])
    for item in items:
        item.add_marker(pytest.mark.timeout(limit_s(item) * PATIENCE), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Makes pytest-xdist (-n) schedule whole groups, in the order of their first tests."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


@pytest.fixture(scope="session", autouse=True)
def forked_scripts() -> None:
    """Also `gangway run` forks the processes of its scripts, except in the nightly run."""
    start_fork_server()
    if not NIGHTLY:
        os.environ.setdefault("GANGWAY_PYTHON", PYTHON)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster of one worker with eight devices, shared by all tests that leave it intact."""
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
    """Adds the logs of the fixture `cluster`, and those in the test's own folder, to the report of a failed test."""
    if call.excinfo is None or call.when != "call":
        return
    arguments = getattr(item, "funcargs", {})
    for name in ("cluster", "new_cluster"):
        used = arguments.get(name)
        if isinstance(used, Cluster):
            item.add_report_section(call.when, "cluster logs", used.logs(3000))
    if folder := arguments.get("tmp_path"):
        for log in sorted(folder.rglob("*.log")):
            text = log.read_text(errors="replace")[-3000:]
            item.add_report_section(call.when, str(log.relative_to(folder)), text)
