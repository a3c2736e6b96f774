"""Plain JAX through Gangway against the same plugin without it, bit by bit, and against jaxlib's
own CPU backend within the tolerance of another build of XLA. One test per function in `cases/`.
"""

from __future__ import annotations

import pathlib

import pytest
from compare import assert_bitwise_equal, assert_close
from harness import Cluster, Outcome, run_cases
from run_cases import case_names

Outcomes = dict[str, Outcome]


@pytest.fixture(scope="session")
def chosen(request: pytest.FixtureRequest) -> list[str]:
    """The cases that this pytest run selected."""
    parameters = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {each.params.get("case") for each in parameters if each is not None}
    return [name for name in case_names() if name in wanted]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("cases")


@pytest.fixture(scope="session")
def reference(chosen: list[str], folder: pathlib.Path) -> Outcomes:
    return run_cases("reference", chosen, folder)


@pytest.fixture(scope="session")
def cpu(chosen: list[str], folder: pathlib.Path) -> Outcomes:
    return run_cases("cpu", chosen, folder)


@pytest.fixture(scope="session")
def gangway(chosen: list[str], folder: pathlib.Path, cluster: Cluster) -> Outcomes:
    return run_cases("gangway", chosen, folder, cluster.port)


@pytest.mark.timeout(800)  # the first test's fixtures run all cases, each under a limit of its own
@pytest.mark.parametrize("case", case_names())
def test_case(case: str, reference: Outcomes, cpu: Outcomes, gangway: Outcomes) -> None:
    for name, outcomes in [("in-process", reference), ("jaxlib's CPU", cpu), ("Gangway", gangway)]:
        assert not outcomes[case].error, f"on {name}:\n{outcomes[case].error}"
    assert_bitwise_equal(gangway[case].value, reference[case].value)
    assert_close(gangway[case].value, cpu[case].value)
