"""A cluster on the older CPU plugin, whose XLA is more than a year old: CORE, compared with jaxlib's own CPU backend. What
a runtime of our users' choice lacks is an error, and the rest works.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from case_runs import Outcome, run_cases
from compare import assert_close
from harness import ROOT, Cluster
from test_jax import CORE

OLDER = ROOT / ".deps" / "xla_cpu_pjrt" / "xla_cpu_pjrt.so"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(800)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Outcome]]:
    @functools.cache
    def run(backend: str) -> dict[str, Outcome]:
        folder = tmp_path_factory.mktemp("cases")
        if backend == "cpu":
            return run_cases(backend, CORE, folder, per_worker=2)
        cluster = Cluster(1, 4, 2, "--plugin", str(OLDER)).start()
        try:
            return run_cases(backend, CORE, folder, port=cluster.port, per_worker=2)
        finally:
            cluster.stop()

    return run


@pytest.mark.parametrize("case", CORE)
@pytest.mark.parametrize("backend", ["gangway", "gangway-pjrt"])
def test_core(backend: str, case: str, outcomes: Callable[[str], dict[str, Outcome]]) -> None:
    ours, theirs = outcomes(backend)[case], outcomes("cpu")[case]
    for name, found in {"Gangway": ours, "jaxlib's CPU": theirs}.items():
        assert not found.error, f"on {name}:\n{found.error}"
    assert_close(ours.value, theirs.value)
